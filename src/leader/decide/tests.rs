use super::*;
use crate::leader::CandidateIdentity;

const RETRY: Duration = Duration::from_secs(5);

/// Wall time 1 s after the epoch, in the format of a Lease.
const NOW: &str = "1970-01-01T00:00:01.000000Z";

fn settings(pod_uid: Option<&str>) -> ElectionSettings {
    ElectionSettings {
        lease_name: "lease".into(),
        namespace: "ns".into(),
        identity: CandidateIdentity::new("me", pod_uid),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: RETRY,
        labels: std::collections::BTreeMap::new(),
    }
}

/// A record of `holder`, acquired and renewed some time ago.
fn record(holder: &str, transitions: i64) -> Record {
    Record {
        holder: holder.into(),
        seconds: 15,
        acquired: Some("acquired".into()),
        renewed: Some("renewed".into()),
        transitions,
    }
}

fn own(acquired: &str, transitions: i64) -> Record {
    Record {
        acquired: Some(acquired.into()),
        renewed: Some(NOW.into()),
        ..record("me", transitions)
    }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn held(record: Record) -> ObservedLease {
    ObservedLease::Held { record, since: at(100) }
}

fn step(
    settings: &ElectionSettings,
    lease: &ObservedLease,
    written: &[Record],
    leads_at: Option<i64>,
    now: Duration,
) -> Step {
    let wall = jiff::Timestamp::from_second(1).unwrap();
    decide(&Observation { settings, lease, exists: true, written, leads_at, wall }, now)
}

/// The step of a candidate once the Lease is deleted.
fn after_deletion(settings: &ElectionSettings, lease: &ObservedLease, now: Duration) -> Step {
    let wall = jiff::Timestamp::from_second(1).unwrap();
    let observed =
        Observation { settings, lease, exists: false, written: &[], leads_at: None, wall };
    decide(&observed, now)
}

fn candidate(lease: &ObservedLease, now: Duration) -> Step {
    step(&settings(None), lease, &[], None, now)
}

fn leader(lease: &ObservedLease, written: &[Record]) -> Step {
    step(&settings(None), lease, written, Some(7), at(101))
}

#[test]
fn a_missing_lease_is_created() {
    assert_eq!(candidate(&ObservedLease::Absent, at(0)), Step::Create(own(NOW, 0)));
    assert_eq!(leader(&ObservedLease::Absent, &[record("me", 7)]), Step::Create(own(NOW, 0)));
}

#[test]
fn a_lease_without_holder_is_taken_at_once_as_a_transition() {
    assert_eq!(candidate(&held(record("", 7)), at(100)), Step::TakeOver(own(NOW, 8)));
}

#[test]
fn a_lease_of_another_is_taken_once_its_record_is_unchanged_for_its_own_duration() {
    for (seconds, now, expected) in [
        (15, at(100), Step::Wait(at(115))),
        (15, Duration::new(114, 999_999_999), Step::Wait(at(115))),
        (15, at(115), Step::TakeOver(own(NOW, 8))),
        (15, at(9999), Step::TakeOver(own(NOW, 8))),
        (137, at(115), Step::Wait(at(237))),
        (0, at(100), Step::TakeOver(own(NOW, 8))),
        (-5, at(100), Step::TakeOver(own(NOW, 8))),
        // No settings are as long as that: it counts up to three minutes.
        (i64::from(i32::MAX), at(279), Step::Wait(at(280))),
        (i64::MAX, at(280), Step::TakeOver(own(NOW, 8))),
    ] {
        let record = Record { seconds, ..record("other", 7) };
        assert_eq!(candidate(&held(record), now), expected, "{seconds} at {now:?}");
    }
}

#[test]
fn a_long_duration_counts_as_far_as_ours_is_long() {
    let ours = |seconds| ElectionSettings { lease_duration: at(seconds), ..settings(None) };
    for (theirs, ours_is, until) in [(600, 300, 400), (600, 900, 700), (i64::MAX, 900, 1000)] {
        let lease = held(Record { seconds: theirs, ..record("other", 7) });
        let step = step(&ours(ours_is), &lease, &[], None, at(101));
        assert_eq!(step, Step::Wait(at(until)), "{theirs} {ours_is}");
    }
}

/// Who leads by other settings has made it anew by then.
#[test]
fn after_a_deletion_a_duration_counts_as_far_as_ours() {
    for (seconds, now, expected) in [
        (15, at(114), Step::Wait(at(115))),
        (10, at(110), Step::TakeOver(own(NOW, 8))),
        (137, at(114), Step::Wait(at(115))),
        (i64::MAX, at(115), Step::TakeOver(own(NOW, 8))),
    ] {
        let lease = held(Record { seconds, ..record("other", 7) });
        assert_eq!(after_deletion(&settings(None), &lease, now), expected, "{seconds} {now:?}");
    }
}

#[test]
fn times_in_the_record_are_ignored() {
    let old = Record { renewed: Some("1970-01-01T00:00:00.000000Z".into()), ..record("other", 7) };
    let future =
        Record { renewed: Some("2999-01-01T00:00:00.000000Z".into()), ..record("other", 7) };
    assert_eq!(candidate(&held(old), at(114)), Step::Wait(at(115)));
    assert_eq!(candidate(&held(future), at(115)), Step::TakeOver(own(NOW, 8)));
}

#[test]
fn transitions_do_not_overflow() {
    for (before, after) in
        [(i32::MAX.into(), 0), (i64::MAX, 0), (-1, 0), (i64::from(i32::MAX) - 1, i32::MAX.into())]
    {
        for holder in ["other", ""] {
            let record = Record { seconds: 0, ..record(holder, before) };
            assert_eq!(
                candidate(&held(record), at(100)),
                Step::TakeOver(own(NOW, after)),
                "{before}"
            );
        }
    }
}

#[test]
fn a_leader_renews_what_it_wrote_and_keeps_when_it_was_acquired() {
    let written = record("me", 7);
    assert_eq!(leader(&held(written.clone()), &[written]), Step::Renew(own("acquired", 7)));
}

#[test]
fn a_write_with_unknown_result_counts_as_own_when_it_is_observed() {
    let first = record("me", 7);
    let second = Record { renewed: Some("later".into()), ..first.clone() };
    assert_eq!(leader(&held(second.clone()), &[first, second]), Step::Renew(own("acquired", 7)));
}

#[test]
fn a_leader_that_observes_another_holder_stops() {
    assert_eq!(
        leader(&held(record("other", 8)), &[record("me", 7)]),
        Step::StopLeading(Loss::OtherHolder("other".into()))
    );
    // For however long the other has not renewed.
    let late = step(&settings(None), &held(record("other", 8)), &[], Some(7), at(9999));
    assert_eq!(late, Step::StopLeading(Loss::OtherHolder("other".into())));
}

#[test]
fn a_leader_whose_lease_lost_its_holder_takes_it_again_unless_another_led_in_between() {
    assert_eq!(leader(&held(record("", 7)), &[]), Step::TakeOver(own(NOW, 8)));
    assert_eq!(leader(&held(record("", 8)), &[]), Step::StopLeading(Loss::Interrupted));
}

#[test]
fn a_record_under_the_bare_host_name_counts_as_own_only_after_two_quiet_retry_periods() {
    let lease = held(record("me", 7));
    assert_eq!(candidate(&lease, at(100)), Step::Wait(at(110)));
    assert_eq!(candidate(&lease, at(109)), Step::Wait(at(110)));
    assert_eq!(candidate(&lease, at(110)), Step::Renew(own("acquired", 7)));
}

#[test]
fn a_record_under_the_pods_name_counts_as_own_at_once() {
    let settings = settings(Some("uid"));
    let lease = held(record("me_uid", 7));
    let expected = Step::Renew(Record { holder: "me_uid".into(), ..own("acquired", 7) });
    assert_eq!(step(&settings, &lease, &[], None, at(100)), expected);
    assert_eq!(step(&settings, &lease, &[], Some(7), at(100)), expected);
}

#[test]
fn a_leader_with_a_bare_host_name_stops_when_another_process_of_that_name_writes() {
    assert_eq!(
        leader(
            &held(Record { renewed: Some("not by me".into()), ..record("me", 7) }),
            &[record("me", 7)]
        ),
        Step::StopLeading(Loss::SameName("me".into()))
    );
}

/// Arbitrary observations and candidates.
mod properties {
    use proptest::prelude::*;

    use super::*;

    fn any_record() -> impl Strategy<Value = Record> {
        let holder = prop_oneof![Just(""), Just("me"), Just("me_uid"), Just("other")];
        let text = || prop_oneof![Just(None), Just(Some("early")), Just(Some("late"))];
        let number = || prop_oneof![any::<i64>(), -5_i64..60];
        (holder, number(), text(), text(), number()).prop_map(
            |(holder, seconds, acquired, renewed, transitions)| Record {
                holder: holder.into(),
                seconds,
                acquired: acquired.map(str::to_owned),
                renewed: renewed.map(str::to_owned),
                transitions,
            },
        )
    }

    fn any_lease() -> impl Strategy<Value = ObservedLease> {
        let held = (any_record(), 0_u64..200)
            .prop_map(|(record, since)| ObservedLease::Held { record, since: at(since) });
        prop_oneof![1 => Just(ObservedLease::Absent), 9 => held]
    }

    /// A candidate with or without a unique name, what it observes, and when.
    #[derive(Debug, Clone)]
    struct Case {
        settings: ElectionSettings,
        lease: ObservedLease,
        written: Vec<Record>,
        leads_at: Option<i64>,
        now: Duration,
    }

    impl Case {
        fn step_at(&self, now: Duration) -> Step {
            step(&self.settings, &self.lease, &self.written, self.leads_at, now)
        }

        fn step(&self) -> Step {
            self.step_at(self.now)
        }

        fn held(&self) -> Option<(&Record, Duration)> {
            match &self.lease {
                ObservedLease::Absent => None,
                ObservedLease::Held { record, since } => Some((record, *since)),
            }
        }

        fn holder(&self) -> Option<&str> {
            self.held().map(|(record, _)| record.holder.as_str())
        }

        fn me(&self) -> &str {
            self.settings.identity.name()
        }
    }

    fn any_case() -> impl Strategy<Value = Case> {
        let written = prop::collection::vec(any_record(), 0..3);
        let leads = prop_oneof![Just(None), any::<i64>().prop_map(Some)];
        (any::<bool>(), any_lease(), written, leads, 200_u64..400).prop_map(
            |(named, lease, mut written, leads_at, now)| {
                // Often the observed record is the one that was written.
                if let (ObservedLease::Held { record, .. }, true) = (&lease, now % 2 == 0) {
                    written.push(record.clone());
                }
                let settings = settings(named.then_some("uid"));
                Case { settings, lease, written, leads_at, now: at(now) }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn only_a_lease_without_active_holder_is_taken(case in any_case()) {
            let Step::TakeOver(_) = case.step() else { return Ok(()) };
            let (record, since) = case.held().unwrap();
            if !record.holder.is_empty() {
                prop_assert_ne!(&record.holder, case.me());
                prop_assert_eq!(case.leads_at, None);
                let counted = u64::try_from(record.seconds).unwrap_or(0).min(180);
                let stands_until = since.saturating_add(at(counted));
                prop_assert!(stands_until <= case.now);
            }
        }

        #[test]
        fn a_leader_never_overwrites_what_another_process_wrote(case in any_case()) {
            if case.leads_at.is_none() {
                return Ok(());
            }
            if case.holder().is_some_and(|holder| !holder.is_empty() && holder != case.me()) {
                prop_assert!(matches!(case.step(), Step::StopLeading(Loss::OtherHolder(_))));
            }
            if let (Step::Renew(_), Some((record, _))) = (case.step(), case.held()) {
                prop_assert!(case.settings.identity.unique || case.written.contains(record));
            }
        }

        #[test]
        fn written_records_have_the_candidates_name_and_count_transitions(case in any_case()) {
            let before = case.held().map_or(-1, |(record, _)| record.transitions);
            let (record, transitions) = match case.step() {
                Step::Create(record) => (record, 0),
                Step::TakeOver(record) => {
                    prop_assert!((0..=i64::from(i32::MAX)).contains(&record.transitions));
                    let follows = before >= 0 && before < i64::from(i32::MAX);
                    (record, if follows { before + 1 } else { 0 })
                }
                Step::Renew(record) => (record, before),
                Step::Wait(_) | Step::StopLeading(_) => return Ok(()),
            };
            prop_assert_eq!(record.holder.as_str(), case.me());
            prop_assert_eq!(record.seconds, 15);
            prop_assert_eq!(record.transitions, transitions);
            prop_assert_eq!(record.renewed.as_deref(), Some(NOW));
        }

        #[test]
        fn a_wait_ends(case in any_case()) {
            let Step::Wait(until) = case.step() else { return Ok(()) };
            prop_assert!(case.now < until);
            prop_assert!(matches!(case.step_at(until), Step::TakeOver(_) | Step::Renew(_)));
        }

        #[test]
        fn only_a_leader_stops_leading(case in any_case()) {
            if let Step::StopLeading(_) = case.step() {
                prop_assert!(case.leads_at.is_some());
            }
        }
    }
}
