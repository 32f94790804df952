use futures::FutureExt as _;
use serde_json::json;

use super::*;
use crate::kube::objects::{Claim, StorageClass};

fn class(name: &str) -> Dependency {
    Dependency::object::<StorageClass>(None, name)
}

fn version(version: &str) -> Observed {
    Observed::Version(version.into())
}

fn at(name: &str, observed: Observed) -> Dependency {
    Dependency { observed, ..class(name) }
}

fn one() -> Item {
    Item::claim("1")
}

fn two() -> Item {
    Item::volume("2")
}

/// The next changes: the names of the objects, and the outdated items.
async fn next_changes(index: &DependencyIndex) -> (Vec<String>, Vec<Item>) {
    let Changes { objects, outdated } = index.next_changes().await;
    (objects.into_iter().filter_map(|object| object.name).collect(), outdated.into_iter().collect())
}

fn is_unchanged(index: &DependencyIndex) -> bool {
    index.next_changes().now_or_never().is_none()
}

/// An index in which one item index for object "a": the item observed version 10, which is also known.
async fn known_at_ten() -> DependencyIndex {
    let index = DependencyIndex::default();
    index.wait(&one(), &[at("a", version("10"))]);
    assert_eq!(next_changes(&index).await, (vec!["a".into()], vec![]));
    assert!(index.record(&class("a"), version("10")).is_empty());
    index
}

#[test]
fn a_change_finds_all_that_wait_for_it_and_nobody_else() {
    let index = DependencyIndex::default();
    index.wait(&one(), &[class("a"), at("b", Observed::Missing)]);
    index.wait(&two(), &[class("b")]);
    let three = Item::claim("3");
    index.wait(&three, &[Dependency::any::<StorageClass>()]);
    assert_eq!(index.waiting_for(&class("a")), [one(), three.clone()]);
    assert_eq!(index.waiting_for(&at("b", version("7"))), [one(), three.clone(), two()]);
    assert_eq!(index.waiting_for(&class("c")), [three]);
    index.wait(&two(), &[Dependency::any_in::<Claim>("ns")]);
    assert!(index.waiting_for(&Dependency::object::<Claim>(Some("other"), "a")).is_empty());
    assert!(index.waiting_for(&Dependency::object::<Claim>(Some("ns"), "a")).is_empty());
}

#[test]
fn the_last_word_counts_and_nothing_is_kept_of_one_that_does_not_wait() {
    let index = DependencyIndex::default();
    index.wait(&one(), &[class("a")]);
    index.wait(&one(), &[class("b")]);
    assert!(index.waiting_for(&class("a")).is_empty());
    assert_eq!(index.waiting_for(&class("b")), [one()]);
    index.wait(&one(), &[]);
    index.wait(&two(), &[class("b")]);
    index.forget(&two());
    let waiting = index.0.waiting.lock();
    assert!(waiting.by_item.is_empty() && waiting.by_object.is_empty());
}

#[test]
fn only_what_was_not_seen_before_brings_anything_back() {
    let table = [
        (Observed::Unknown, version("1"), true),
        (Observed::Unknown, Observed::Missing, false),
        (Observed::Missing, version("1"), true),
        (Observed::Missing, Observed::Missing, false),
        (version("1"), version("1"), false),
        (version("1"), version("2"), true),
        (version("1"), Observed::Missing, false),
    ];
    for (observed, now, comes_back) in table {
        let index = DependencyIndex::default();
        index.wait(&one(), &[at("a", observed.clone())]);
        let back = index.record(&class("a"), now.clone());
        assert_eq!(!back.is_empty(), comes_back, "{observed:?} {now:?}");
        assert!(index.record(&class("a"), now).is_empty(), "once");
    }
    assert!(DependencyIndex::default().record(&class("nobody"), version("1")).is_empty());
}

#[test]
fn a_reader_may_be_behind_what_is_there_by_now() {
    let index = DependencyIndex::default();
    index.wait(&one(), &[class("a"), at("b", version("1"))]);
    index.wait(&two(), &[at("b", Observed::Missing)]);
    assert_eq!(
        ["a", "b", "c"].map(|name| index.has_observation(&class(name))),
        [false, true, false]
    );
    assert!(
        index.outdated_items(&class("a"), &version("1")).is_empty(),
        "the item does not say what it observed"
    );
    assert_eq!(index.outdated_items(&class("b"), &version("1")), [two()]);
    assert_eq!(index.outdated_items(&class("b"), &version("2")), [one(), two()]);
    assert!(index.outdated_items(&class("b"), &Observed::Missing).is_empty());
    assert!(index.outdated_items(&class("c"), &version("1")).is_empty());
}

#[tokio::test]
async fn a_change_before_the_wait_is_not_missed() {
    let index = DependencyIndex::default();
    index.wait(&one(), &[at("a", Observed::Missing)]);
    assert_eq!(index.record(&class("a"), version("1")), [one()]);
    assert_eq!(next_changes(&index).await, (vec!["a".into()], vec![]));
    // Registers an observation from before the change.
    index.wait(&two(), &[at("a", Observed::Missing)]);
    assert_eq!(next_changes(&index).await, (vec![], vec![two()]));
    // The only other item read an outdated cache: the known version is kept.
    index.forget(&two());
    index.wait(&one(), &[at("a", Observed::Missing)]);
    assert_eq!(next_changes(&index).await, (vec![], vec![one()]));
    // It is not woken again for the same.
    index.wait(&one(), &[at("a", Observed::Missing)]);
    assert!(is_unchanged(&index));
    // An item without an observation is not woken repeatedly.
    index.wait(&one(), &[class("a")]);
    index.wait(&one(), &[at("a", version("1"))]);
    index.forget(&one());
    assert_eq!(next_changes(&index).await, (vec!["a".into()], vec![]));
}

/// The known version comes from a read every few seconds, so an attempt may observe a newer one.
#[tokio::test]
async fn who_saw_a_newer_one_than_is_known_comes_back_once_at_most() {
    let index = known_at_ten().await;
    for item in [one(), two()] {
        index.wait(&item, &[at("a", version("11"))]);
        assert_eq!(next_changes(&index).await, (vec![], vec![item.clone()]));
        for _ in 0..3 {
            index.wait(&item, &[at("a", version("11"))]);
            assert!(is_unchanged(&index), "{item:?}");
        }
    }
    assert!(index.record(&class("a"), version("11")).is_empty(), "both observed this");
    assert_eq!(index.record(&class("a"), version("12")), [one(), two()]);
    // The known version is a new one, which may be the one that this item missed.
    index.wait(&one(), &[at("a", version("11"))]);
    assert_eq!(next_changes(&index).await, (vec![], vec![one()]));
    index.wait(&one(), &[at("a", version("12"))]);
    assert!(is_unchanged(&index));
}

#[tokio::test]
async fn who_saw_that_it_is_gone_comes_back_once_at_most_for_what_was_known() {
    let index = known_at_ten().await;
    index.wait(&one(), &[at("a", Observed::Missing)]);
    assert_eq!(next_changes(&index).await, (vec![], vec![one()]));
    for _ in 0..3 {
        index.wait(&one(), &[at("a", Observed::Missing)]);
        assert!(is_unchanged(&index));
    }
    assert!(index.record(&class("a"), Observed::Missing).is_empty());
    assert_eq!(index.record(&class("a"), version("12")), [one()], "it is created again");
}

#[tokio::test(start_paused = true)]
async fn an_object_is_as_new_as_the_last_who_came_for_it() {
    let index = DependencyIndex::default();
    assert_eq!(index.last_joined(&class("a")), None);
    index.wait(&one(), &[class("a")]);
    let first = index.last_joined(&class("a"));
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    index.wait(&one(), &[at("a", Observed::Missing)]);
    assert_eq!(index.last_joined(&class("a")), first, "it is the same");
    index.wait(&two(), &[class("a")]);
    assert_eq!(index.last_joined(&class("a")), Some(Instant::now()));
    let one = BTreeMap::from([("storageclasses.storage.k8s.io".to_owned(), 1)]);
    assert_eq!(index.count_by_resource(), one);
}

#[test]
fn what_a_watch_shows_to_be_there_wakes_those_who_wait_for_it() {
    let source = || -> Claim {
        serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": "a"}})).unwrap()
    };
    let index = DependencyIndex::default();
    index.wait(&one(), &[Dependency::object::<Claim>(Some("ns"), "a")]);
    index.wait(&two(), &[Dependency::object::<Claim>(Some("other"), "a")]);
    for (event, woken) in [
        (InformerEvent::InitApply(source()), 1),
        (InformerEvent::Apply(source()), 1),
        (InformerEvent::Delete(source()), 0),
        (InformerEvent::InitDone, 0),
        (InformerEvent::Init, 0),
    ] {
        assert_eq!(index.waiting_for_event(&event).len(), woken, "{event:?}");
    }
    assert!(index.waiting_for_event(&InformerEvent::Apply(StorageClass::default())).is_empty());
}

/// A new list contains every object again.
#[test]
fn who_saw_an_object_as_it_is_shown_is_not_woken() {
    let index = DependencyIndex::default();
    let claim = |version: &str| -> Claim {
        let metadata =
            json!({"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    };
    let dependency = Dependency::object::<Claim>(Some("ns"), "a");
    index.wait(&one(), &[dependency.clone().observed_as(&claim("5").metadata)]);
    index.wait(&two(), &[dependency]);
    let woken = |version| index.waiting_for_event(&InformerEvent::InitApply(claim(version)));
    assert_eq!(woken("5"), [two()], "without an observation it may have missed the change");
    assert_eq!(woken("6"), [one(), two()]);
}
