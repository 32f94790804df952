use futures::FutureExt as _;
use serde_json::json;

use super::*;
use crate::kube::objects::{Claim, StorageClass};

fn class(name: &str) -> Dependency {
    Dependency::object::<StorageClass>(None, name)
}

fn version(version: &str) -> Seen {
    Seen::Version(version.to_owned())
}

fn at(name: &str, seen: Seen) -> Dependency {
    Dependency { seen, ..class(name) }
}

fn one() -> Item {
    Item::claim("1")
}

fn two() -> Item {
    Item::volume("2")
}

/// What has changed since, as names.
async fn turned(waits: &DependencyIndex) -> (Vec<String>, Vec<Item>) {
    let Turn { objects, late } = waits.turned().await;
    (objects.into_iter().filter_map(|object| object.name).collect(), late.into_iter().collect())
}

fn nothing_has_turned(waits: &DependencyIndex) -> bool {
    waits.turned().now_or_never().is_none()
}

/// One waits for a change of "a", of which version 10 is known, as it saw it.
async fn known_at_ten() -> DependencyIndex {
    let waits = DependencyIndex::default();
    waits.wait(&one(), &[at("a", version("10"))]);
    assert_eq!(turned(&waits).await, (vec!["a".into()], vec![]));
    assert!(waits.shown(&class("a"), version("10")).is_empty());
    waits
}

#[test]
fn a_change_finds_all_that_wait_for_it_and_nobody_else() {
    let waits = DependencyIndex::default();
    waits.wait(&one(), &[class("a"), at("b", Seen::Missing)]);
    waits.wait(&two(), &[class("b")]);
    let three = Item::claim("3");
    waits.wait(&three, &[Dependency::any::<StorageClass>()]);
    assert_eq!(waits.of(&class("a")), [one(), three.clone()]);
    assert_eq!(waits.of(&at("b", version("7"))), [one(), three.clone(), two()]);
    assert_eq!(waits.of(&class("c")), [three]);
    waits.wait(&two(), &[Dependency::any_in::<Claim>("ns")]);
    assert!(waits.of(&Dependency::object::<Claim>(Some("other"), "a")).is_empty());
    assert!(waits.of(&Dependency::object::<Claim>(Some("ns"), "a")).is_empty());
}

#[test]
fn the_last_word_counts_and_nothing_is_kept_of_one_that_does_not_wait() {
    let waits = DependencyIndex::default();
    waits.wait(&one(), &[class("a")]);
    waits.wait(&one(), &[class("b")]);
    assert!(waits.of(&class("a")).is_empty());
    assert_eq!(waits.of(&class("b")), [one()]);
    waits.wait(&one(), &[]);
    waits.wait(&two(), &[class("b")]);
    waits.forget(&two());
    let waiting = waits.0.waiting.lock();
    assert!(waiting.by_item.is_empty() && waiting.by_object.is_empty());
}

#[test]
fn only_what_was_not_seen_before_brings_anything_back() {
    let table = [
        (Seen::Unknown, version("1"), true),
        (Seen::Unknown, Seen::Missing, false),
        (Seen::Missing, version("1"), true),
        (Seen::Missing, Seen::Missing, false),
        (version("1"), version("1"), false),
        (version("1"), version("2"), true),
        (version("1"), Seen::Missing, false),
    ];
    for (saw, now, comes_back) in table {
        let waits = DependencyIndex::default();
        waits.wait(&one(), &[at("a", saw.clone())]);
        let back = waits.shown(&class("a"), now.clone());
        assert_eq!(!back.is_empty(), comes_back, "{saw:?} {now:?}");
        assert!(waits.shown(&class("a"), now).is_empty(), "told once");
    }
    assert!(DependencyIndex::default().shown(&class("nobody"), version("1")).is_empty());
}

#[test]
fn who_told_what_they_saw_is_behind_what_is_there_by_now() {
    let waits = DependencyIndex::default();
    waits.wait(&one(), &[class("a"), at("b", version("1"))]);
    waits.wait(&two(), &[at("b", Seen::Missing)]);
    assert_eq!(["a", "b", "c"].map(|name| waits.has_seen(&class(name))), [false, true, false]);
    assert!(waits.behind(&class("a"), &version("1")).is_empty(), "nobody says what they saw");
    assert_eq!(waits.behind(&class("b"), &version("1")), [two()]);
    assert_eq!(waits.behind(&class("b"), &version("2")), [one(), two()]);
    assert!(waits.behind(&class("b"), &Seen::Missing).is_empty());
    assert!(waits.behind(&class("c"), &version("1")).is_empty());
}

#[tokio::test]
async fn a_change_before_the_wait_is_not_missed() {
    let waits = DependencyIndex::default();
    waits.wait(&one(), &[at("a", Seen::Missing)]);
    assert_eq!(waits.shown(&class("a"), version("1")), [one()]);
    assert_eq!(turned(&waits).await, (vec!["a".into()], vec![]));
    // It had read before the change, and says so only now.
    waits.wait(&two(), &[at("a", Seen::Missing)]);
    assert_eq!(turned(&waits).await, (vec![], vec![two()]));
    // The only one left came back and still read what was there before: what is known of it stays.
    waits.forget(&two());
    waits.wait(&one(), &[at("a", Seen::Missing)]);
    assert_eq!(turned(&waits).await, (vec![], vec![one()]));
    // It waits on and on for the same, and is not told again and again.
    waits.wait(&one(), &[at("a", Seen::Missing)]);
    assert!(nothing_has_turned(&waits));
    // Whoever does not say what it saw is not brought back again and again.
    waits.wait(&one(), &[class("a")]);
    waits.wait(&one(), &[at("a", version("1"))]);
    waits.forget(&one());
    assert_eq!(turned(&waits).await, (vec!["a".into()], vec![]));
}

/// What is read every few seconds is known as it was then, and an attempt may find it newer.
#[tokio::test]
async fn who_saw_a_newer_one_than_is_known_comes_back_once_at_most() {
    let waits = known_at_ten().await;
    for item in [one(), two()] {
        waits.wait(&item, &[at("a", version("11"))]);
        assert_eq!(turned(&waits).await, (vec![], vec![item.clone()]));
        for _ in 0..3 {
            waits.wait(&item, &[at("a", version("11"))]);
            assert!(nothing_has_turned(&waits), "{item:?}");
        }
    }
    assert!(waits.shown(&class("a"), version("11")).is_empty(), "as they saw it");
    assert_eq!(waits.shown(&class("a"), version("12")), [one(), two()]);
    // What is known is another by now, and may be what this one missed.
    waits.wait(&one(), &[at("a", version("11"))]);
    assert_eq!(turned(&waits).await, (vec![], vec![one()]));
    waits.wait(&one(), &[at("a", version("12"))]);
    assert!(nothing_has_turned(&waits));
}

#[tokio::test]
async fn who_saw_that_it_is_gone_comes_back_once_at_most_for_what_was_known() {
    let waits = known_at_ten().await;
    waits.wait(&one(), &[at("a", Seen::Missing)]);
    assert_eq!(turned(&waits).await, (vec![], vec![one()]));
    for _ in 0..3 {
        waits.wait(&one(), &[at("a", Seen::Missing)]);
        assert!(nothing_has_turned(&waits));
    }
    assert!(waits.shown(&class("a"), Seen::Missing).is_empty());
    assert_eq!(waits.shown(&class("a"), version("12")), [one()], "it is made anew");
}

#[tokio::test(start_paused = true)]
async fn an_object_is_as_new_as_the_last_who_came_for_it() {
    let waits = DependencyIndex::default();
    assert_eq!(waits.newest(&class("a")), None);
    waits.wait(&one(), &[class("a")]);
    let first = waits.newest(&class("a"));
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    waits.wait(&one(), &[at("a", Seen::Missing)]);
    assert_eq!(waits.newest(&class("a")), first, "it is the same");
    waits.wait(&two(), &[class("a")]);
    assert_eq!(waits.newest(&class("a")), Some(Instant::now()));
    let one = BTreeMap::from([("storageclasses.storage.k8s.io".to_owned(), 1)]);
    assert_eq!(waits.census(), one);
}

#[test]
fn what_a_watch_shows_to_be_there_wakes_those_who_wait_for_it() {
    let source = || -> Claim {
        serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": "a"}})).unwrap()
    };
    let waits = DependencyIndex::default();
    waits.wait(&one(), &[Dependency::object::<Claim>(Some("ns"), "a")]);
    waits.wait(&two(), &[Dependency::object::<Claim>(Some("other"), "a")]);
    for (event, woken) in [
        (InformerEvent::InitApply(source()), 1),
        (InformerEvent::Apply(source()), 1),
        (InformerEvent::Delete(source()), 0),
        (InformerEvent::InitDone, 0),
        (InformerEvent::Init, 0),
    ] {
        assert_eq!(waits.of_shown(&event).len(), woken, "{event:?}");
    }
    assert!(waits.of_shown(&InformerEvent::Apply(StorageClass::default())).is_empty());
}

/// A new list shows everything again.
#[test]
fn who_saw_an_object_as_it_is_shown_is_not_woken() {
    let waits = DependencyIndex::default();
    let claim = |version: &str| -> Claim {
        let metadata =
            json!({"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    };
    let awaited = Dependency::object::<Claim>(Some("ns"), "a");
    waits.wait(&one(), &[awaited.clone().as_seen(&claim("5").metadata)]);
    waits.wait(&two(), &[awaited]);
    let woken = |version| waits.of_shown(&InformerEvent::InitApply(claim(version)));
    assert_eq!(woken("5"), [two()], "who does not tell what it saw may have missed it");
    assert_eq!(woken("6"), [one(), two()]);
}
