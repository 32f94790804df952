use super::*;
use crate::source_protection::source::SourceKind;

const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(1_800_000_000 + seconds, 0).unwrap()
}

fn source(name: &str) -> NamedSource {
    NamedSource { kind: SourceKind::Claim, namespace: "ns".into(), name: name.into() }
}

#[test]
fn an_object_is_overdue_after_the_time_out_and_after_this_process_has_seen_it_for_a_while() {
    let (seconds, hour) = (Duration::from_secs, Some(HOUR));
    let table = [
        // Deleted this many seconds ago, seen for this many, the time-out.
        (Some(3600), 300, hour, true),
        (Some(3599), 300, hour, false),
        // However late it is by the wall clock, which may be wrong; no process may have been running.
        (Some(360_000), 299, hour, false),
        // A clock that was set back.
        (Some(-10), 3600, hour, false),
        // A time-out of less than five minutes.
        (Some(60), 60, Some(seconds(60)), true),
        (Some(60), 59, Some(seconds(60)), false),
        (Some(360_000), 360_000, None, false),
        (Some(360_000), 360_000, Some(Duration::ZERO), false),
        // Only its deletion was seen.
        (None, 3599, hour, false),
        (None, 3600, hour, true),
        (None, 0, hour, false),
    ];
    for (ago, seen, timeout, expected) in table {
        let deleted = ago.map(|ago: i64| at(-ago));
        let overdue = is_overdue(deleted, seconds(seen), at(0), timeout);
        assert_eq!(overdue, expected, "{ago:?} {seen} {timeout:?}");
    }
}

/// The sources `names`, deleted long ago, with these UIDs.
fn terminating(names: &[(&str, &str)]) -> BTreeMap<NamedSource, Terminating> {
    let since = at(0);
    let all = names.iter();
    all.map(|(name, uid)| (source(name), Terminating { uid: (*uid).into(), since })).collect()
}

#[tokio::test(start_paused = true)]
async fn sources_are_timed_from_their_first_observation() {
    let mut observed = Observed::default();
    let mut look = |sources: &[(&str, &str)]| {
        let overdue = observed.update(&terminating(sources), at(100_000), Some(HOUR));
        let names = overdue.into_iter().map(|(source, uid)| format!("{} {uid}", source.name));
        (names.collect::<Vec<_>>(), observed.0.len())
    };
    assert_eq!(look(&[("a", "1"), ("b", "1")]), (vec![], 2));
    sleep(MIN_OBSERVED).await;
    let expected = vec!["a 1".to_owned()];
    assert_eq!(look(&[("a", "1"), ("b", "2"), ("c", "1")]), (expected, 3), "b is another one");
    assert_eq!(look(&[("b", "2")]), (vec![], 1));
    sleep(MIN_OBSERVED).await;
    assert_eq!(look(&[("b", "2")]), (vec!["b 2".to_owned()], 1));
    assert_eq!(look(&[]), (vec![], 0));
}

#[test]
fn an_event_names_the_object() {
    for (kind, name, version) in [
        (SourceKind::Claim, "PersistentVolumeClaim", "v1"),
        (SourceKind::Snapshot, "VolumeSnapshot", "snapshot.storage.k8s.io/v1"),
    ] {
        let subject = subject(&NamedSource { kind, ..source("a") }, "u");
        assert_eq!((&*subject.kind, &*subject.api_version), (name, version));
        assert_eq!((subject.to_string(), subject.uid), ("ns/a".to_owned(), "u".to_owned()));
    }
}
