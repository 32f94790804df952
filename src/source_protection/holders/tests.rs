use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use super::*;

fn snapshot(name: &str) -> NamedSource {
    NamedSource { kind: SourceKind::Snapshot, namespace: "ns".into(), name: name.into() }
}

fn origin() -> NamedSource {
    NamedSource { kind: SourceKind::Claim, namespace: "ns".into(), name: "origin".into() }
}

/// A claim with this phase that names the source.
fn claim(uid: &str, source: &NamedSource, phase: &str) -> Claim {
    let (kind, group) = match source.kind {
        SourceKind::Snapshot => ("VolumeSnapshot", json!("snapshot.storage.k8s.io")),
        SourceKind::Claim => ("PersistentVolumeClaim", Value::Null),
    };
    let reference = json!({"apiGroup": group, "kind": kind, "name": source.name});
    let claim = json!({"metadata": {"namespace": "ns", "name": uid, "uid": uid},
                       "spec": {"dataSource": reference}, "status": {"phase": phase}});
    serde_json::from_value(claim).unwrap()
}

/// A pending claim of another namespace that names the source.
fn foreign(namespace: &str, uid: &str, source: &NamedSource) -> Claim {
    let mut claim = claim(uid, source, "Pending");
    let reference = claim.spec.data_source.take();
    claim.spec.data_source_ref = reference;
    claim.spec.data_source_ref.as_mut().unwrap().namespace = Some(source.namespace.clone());
    claim.metadata.namespace = Some(namespace.into());
    claim
}

fn spaces(namespaces: &[&str]) -> BTreeSet<String> {
    namespaces.iter().map(|namespace| (*namespace).to_owned()).collect()
}

/// The source of clones, deleted or not, that wears our finalizer or not.
fn source_claim(uid: &str, deleted: bool, wears: bool) -> Claim {
    let deleted = deleted.then_some("2026-01-01T00:00:00Z");
    let finalizers: &[&str] =
        if wears { &[SourceKind::Claim.finalizer()] } else { &["kubernetes.io/pvc-protection"] };
    let claim = json!({"metadata": {"namespace": "ns", "name": "origin", "uid": uid,
                                    "deletionTimestamp": deleted, "finalizers": finalizers},
                       "status": {"phase": "Bound"}});
    serde_json::from_value(claim).unwrap()
}

fn worn(origin: Origin) -> Worn {
    Worn { uid: "s1".into(), origin }
}

fn pending(uid: &str, source: &NamedSource) -> InformerEvent<Claim> {
    InformerEvent::Apply(claim(uid, source, "Pending"))
}

fn names(sources: BTreeSet<NamedSource>) -> Vec<String> {
    sources.into_iter().map(|source| source.name).collect()
}

/// A restore of `s` for the claim `a`, whose finalizer came there so.
fn restoring(origin: Origin, peers: bool) -> Holders {
    let mut holders = Holders::new(peers);
    holders.observe(&pending("a", &snapshot("s")));
    assert!(holders.begin("a", &snapshot("s")));
    holders.worn(&snapshot("s"), worn(origin));
    holders
}

#[test]
fn a_snapshot_is_freed_by_the_last_restore_that_ends() {
    let mut holders = restoring(Origin::Ours, false);
    let s = snapshot("s");
    assert!(holders.begin("b", &s) && !holders.begin("b", &s), "a repeat holds no more");
    assert_eq!(holders.due(&s), Due::Keep);
    assert_eq!(names(holders.closed("a")), Vec::<String>::new());
    assert_eq!(holders.due(&s), Due::Keep, "b holds it");
    assert_eq!(names(holders.closed("b")), ["s"]);
    assert_eq!(holders.due(&s), Due::TakeOff("s1".into()));
    holders.taken_off(&s);
    assert_eq!(holders.due(&s), Due::Nothing);
}

/// The claim is deleted, its restore may still run: nothing is due until it is told to be closed.
#[test]
fn a_deleted_claim_holds_its_source_until_it_is_closed() {
    let mut holders = restoring(Origin::Ours, false);
    let s = snapshot("s");
    assert!(holders.observe(&InformerEvent::Delete(claim("a", &s, "Pending"))).is_empty());
    assert_eq!(holders.due(&s), Due::Keep);
    assert!(!holders.is_orphan(&s), "nor does the sweep take it");
    assert_eq!(names(holders.closed("a")), ["s"]);
}

/// Who else needs a snapshot that wore the finalizer before is not known here.
#[test]
fn a_finalizer_that_was_there_before_is_left_to_whoever_names_the_snapshot() {
    for (origin, peers) in [(Origin::Found, false), (Origin::Ours, true), (Origin::Found, true)] {
        let mut holders = restoring(origin, peers);
        let s = snapshot("s");
        holders.observe(&pending("b", &s));
        assert!(holders.closed("a").is_empty());
        assert_eq!(holders.due(&s), Due::Keep, "b may have been asked for by another process");
        let bound = InformerEvent::Apply(claim("b", &s, "Bound"));
        assert_eq!(names(holders.observe(&bound)), ["s"], "and is told when it needs it no longer");
        assert_eq!(holders.due(&s), Due::TakeOffUnlessNamed("s1".into()));
    }
    let mut holders = restoring(Origin::Ours, false);
    holders.observe(&pending("b", &snapshot("s")));
    assert_eq!(names(holders.closed("a")), ["s"], "b has not begun, and nobody was before us");
}

#[test]
fn an_origin_that_is_known_is_not_forgotten() {
    let mut holders = restoring(Origin::Found, false);
    let s = snapshot("s");
    holders.worn(&s, worn(Origin::Ours));
    holders.closed("a");
    assert_eq!(holders.due(&s), Due::TakeOffUnlessNamed("s1".into()));
    let mut holders = restoring(Origin::Found, false);
    holders.worn(&s, Worn { uid: "s2".into(), origin: Origin::Ours });
    assert!(holders.is_worn(&s, "s2") && !holders.is_worn(&s, "s1"), "another of its name");
    holders.closed("a");
    assert_eq!(holders.due(&s), Due::TakeOff("s2".into()));
}

/// Its answer may be lost: the finalizer counts for nothing then, and is due as before.
#[test]
fn a_finalizer_that_may_have_come_off_is_certain_only_when_it_is_seen_again() {
    for (first, again) in [(Origin::Ours, Origin::Found), (Origin::Found, Origin::Ours)] {
        let mut holders = restoring(first, false);
        let s = snapshot("s");
        holders.closed("a");
        let due = holders.due(&s);
        holders.taking_off(&s);
        assert!(!holders.is_worn(&s, "s1"));
        assert_eq!(holders.due(&s), due);
        holders.begin("b", &s);
        assert!(!holders.is_worn(&s, "s1"), "that it is needed again does not put it on");
        holders.worn(&s, worn(again));
        assert!(holders.is_worn(&s, "s1"));
        holders.closed("b");
        assert_eq!(holders.due(&s), due, "{first:?} is not forgotten");
    }
}

/// What the sweep leaves alone: what is named by anybody's pending claim, or begun here.
#[test]
fn the_sweep_takes_what_nobody_needs() {
    let s = snapshot("s");
    let sees = |claim: Claim| {
        let mut holders = Holders::new(false);
        holders.observe(&InformerEvent::InitApply(claim));
        holders
    };
    assert!(Holders::new(false).is_orphan(&s));
    for (phase, orphan) in [("Pending", false), ("", false), ("Bound", true), ("Lost", true)] {
        assert_eq!(sees(claim("a", &s, phase)).is_orphan(&s), orphan, "{phase}");
    }
    assert!(sees(claim("a", &snapshot("t"), "Pending")).is_orphan(&s));
    let mut served = sees(claim("a", &s, "Pending"));
    served.closed("a");
    assert!(served.is_orphan(&s), "it has its volume");
    assert_eq!(served.needed_by(&claim("a", &s, "Pending")), None);
    served.begin("a", &s);
    assert_eq!(served.needed_by(&claim("a", &s, "Pending")), Some(s.clone()), "and lost it");
    assert_eq!(served.needed_by(&claim("new", &s, "Pending")), Some(s.clone()));
    assert_eq!(served.needed_by(&claim("new", &s, "Bound")), None);
}

/// That a claim is closed here says nothing of what the node does that works on it.
#[test]
fn a_claim_that_a_peer_works_on_holds_its_snapshot_while_it_is_pending() {
    for (peers, orphan) in [(true, false), (false, true)] {
        let mut holders = Holders::new(peers);
        holders.observe(&pending("a", &snapshot("s")));
        holders.closed("a");
        assert_eq!(holders.is_orphan(&snapshot("s")), orphan);
    }
}

/// As in the original a source of clones keeps its finalizer until it is deleted.
#[test]
fn a_source_of_clones_is_freed_once_it_is_deleted_and_nobody_pending_names_it() {
    let mut holders = Holders::new(false);
    holders.observe(&pending("a", &origin()));
    holders.begin("a", &origin());
    holders.worn(&origin(), worn(Origin::Ours));
    let cloned = InformerEvent::Apply(claim("a", &origin(), "Bound"));
    assert!(holders.closed("a").is_empty() && holders.observe(&cloned).is_empty());
    assert_eq!(holders.due(&origin()), Due::Nothing, "it stands");

    let leaves = InformerEvent::Apply(source_claim("o", true, true));
    assert_eq!(names(holders.observe(&leaves)), ["origin"]);
    assert_eq!(holders.due(&origin()), Due::TakeOff("o".into()));
    assert!(holders.observe(&leaves).is_empty(), "told once");
    holders.observe(&InformerEvent::Apply(source_claim("o", true, false)));
    assert_eq!(holders.due(&origin()), Due::Nothing, "it wears it no longer");
}

#[test]
fn a_deleted_source_of_clones_waits_for_every_claim_that_names_it() {
    let mut holders = Holders::new(false);
    holders.observe(&InformerEvent::Apply(source_claim("o", true, true)));
    holders.observe(&pending("served", &origin()));
    holders.closed("served");
    assert_eq!(
        holders.due(&origin()),
        Due::Keep,
        "also one that has its volume, until it is bound"
    );
    holders.begin("deleted", &origin());
    let gone = InformerEvent::Delete(claim("served", &origin(), "Pending"));
    assert!(holders.observe(&gone).is_empty());
    assert_eq!(holders.due(&origin()), Due::Keep, "a clone of a claim that is gone still runs");
    assert_eq!(names(holders.closed("deleted")), ["origin"]);
    assert_eq!(holders.due(&origin()), Due::TakeOff("o".into()));
}

#[test]
fn what_a_list_does_not_show_any_more_holds_nothing() {
    let mut holders = Holders::new(false);
    holders.observe(&InformerEvent::Apply(source_claim("o", true, true)));
    for uid in ["a", "b"] {
        holders.observe(&pending(uid, &origin()));
    }
    holders.observe(&InformerEvent::Init);
    holders.observe(&InformerEvent::InitApply(source_claim("o", true, true)));
    let unreadable =
        InformerEvent::Unreadable { namespace: "ns".into(), name: "b".into(), uid: "b".into() };
    holders.observe(&unreadable);
    assert!(holders.observe(&InformerEvent::InitDone).is_empty());
    assert_eq!(holders.due(&origin()), Due::Keep, "b may still be pending");
    holders.observe(&InformerEvent::Init);
    holders.observe(&InformerEvent::InitApply(source_claim("o", true, true)));
    assert_eq!(names(holders.observe(&InformerEvent::InitDone)), ["origin"]);
}

#[test]
fn a_namesake_of_a_source_is_another_one() {
    let mut holders = Holders::new(false);
    holders.observe(&InformerEvent::Apply(source_claim("o1", true, true)));
    holders.observe(&InformerEvent::Init);
    holders.observe(&InformerEvent::InitApply(source_claim("o2", true, true)));
    holders.observe(&InformerEvent::InitDone);
    assert_eq!(holders.due(&origin()), Due::TakeOff("o2".into()));
}

/// A grant decides, which is not known here.
#[test]
fn claims_of_other_namespaces_alone_do_not_keep_a_deleted_source() {
    let mut holders = Holders::new(false);
    holders.observe(&InformerEvent::Apply(source_claim("o", true, true)));
    assert!(holders.observe(&pending("own", &origin())).is_empty());
    for (namespace, uid) in [("x", "x1"), ("x", "x2"), ("y", "y1")] {
        holders.observe(&InformerEvent::Apply(foreign(namespace, uid, &origin())));
    }
    assert_eq!(holders.due(&origin()), Due::Keep, "a claim of its namespace names it");
    assert_eq!(holders.claims_of(&origin()), 4);
    let bound = InformerEvent::Apply(claim("own", &origin(), "Bound"));
    assert_eq!(names(holders.observe(&bound)), ["origin"]);
    let due = |namespaces| Due::TakeOffUnlessGranted("o".into(), spaces(namespaces));
    assert_eq!(holders.due(&origin()), due(&["x", "y"]));
    for uid in ["x1", "y1"] {
        holders.observe(&InformerEvent::Delete(claim(uid, &origin(), "Pending")));
    }
    assert_eq!(holders.due(&origin()), due(&["x"]));
    holders.begin("x2", &origin());
    assert_eq!(holders.due(&origin()), Due::Keep, "a clone is being made");
    holders.closed("x2");
    holders.observe(&InformerEvent::Delete(claim("x2", &origin(), "Pending")));
    assert_eq!(holders.due(&origin()), Due::TakeOff("o".into()));
}

#[test]
fn claims_of_other_namespaces_alone_do_not_keep_a_snapshot_that_others_guarded() {
    let s = snapshot("s");
    for (origin, due) in [
        (Origin::Ours, Due::TakeOff("s1".into())),
        (Origin::Found, Due::TakeOffUnlessGranted("s1".into(), spaces(&["x"]))),
    ] {
        let mut holders = restoring(origin, false);
        holders.observe(&InformerEvent::Apply(foreign("x", "b", &s)));
        holders.closed("a");
        assert_eq!(holders.due(&s), due);
        assert!(holders.is_orphan(&s), "the sweep judges the grants");
    }
    let mut holders = restoring(Origin::Found, false);
    holders.observe(&InformerEvent::Apply(foreign("x", "b", &s)));
    assert!(!holders.is_orphan(&s), "a restore is under way");
    holders.closed("a");
    holders.closed("b");
    assert_eq!(holders.due(&s), Due::TakeOffUnlessNamed("s1".into()), "b has its volume");
}

/// The time-out of this source is over.
fn overdue(source: &NamedSource, uid: &str) -> BTreeMap<NamedSource, String> {
    BTreeMap::from([(source.clone(), uid.into())])
}

#[test]
fn a_deleted_source_of_clones_is_released_after_the_time_out_unless_a_call_is_open() {
    let mut holders = Holders::new(false);
    holders.observe(&InformerEvent::Apply(source_claim("o", true, true)));
    holders.observe(&pending("a", &origin()));
    holders.begin("a", &origin());
    let look = |holders: &mut Holders| {
        names(holders.set_overdue(SourceKind::Claim, overdue(&origin(), "o")))
    };
    assert!(look(&mut holders).is_empty());
    assert_eq!(holders.due(&origin()), Due::Keep);
    assert_eq!(names(holders.closed("a")), ["origin"]);
    assert_eq!(holders.due(&origin()), Due::Release("o".into()));
    assert!(look(&mut holders).is_empty(), "told once");
    holders.set_overdue(SourceKind::Snapshot, BTreeMap::new());
    assert_eq!(holders.due(&origin()), Due::Release("o".into()), "of another kind");
    assert_eq!(names(holders.set_overdue(SourceKind::Claim, BTreeMap::new())), [""; 0]);
    assert_eq!(holders.due(&origin()), Due::Keep);
    assert_eq!(look(&mut holders), ["origin"]);
    holders.observe(&InformerEvent::Delete(claim("a", &origin(), "Pending")));
    assert_eq!(holders.due(&origin()), Due::TakeOff("o".into()), "nothing is to be reported");
}

#[test]
fn a_deleted_snapshot_is_released_after_the_time_out_whoever_guarded_it() {
    let s = snapshot("s");
    let mut holders = Holders::new(false);
    holders.observe(&pending("a", &s));
    assert_eq!(names(holders.set_overdue(SourceKind::Snapshot, overdue(&s, "s1"))), ["s"]);
    assert_eq!(holders.due(&s), Due::Release("s1".into()));
    let mut holders = restoring(Origin::Found, false);
    holders.observe(&pending("b", &s));
    holders.set_overdue(SourceKind::Snapshot, overdue(&s, "s1"));
    assert_eq!(holders.due(&s), Due::Keep, "a restore is under way");
    holders.closed("a");
    assert_eq!(holders.due(&s), Due::Release("s1".into()));
    holders.taken_off(&s);
    assert_eq!(holders.due(&s), Due::Nothing);
}

/// A claim that the driver refuses each time is asked for again and again.
#[test]
fn a_claim_without_an_open_call_holds_its_source_no_more_than_by_its_name() {
    let s = snapshot("s");
    for found in [Origin::Ours, Origin::Found] {
        let mut holders = restoring(found, false);
        assert_eq!(holders.call_ended("a"), None);
        assert_eq!(holders.due(&s), Due::Keep, "{found:?}: the claim names it");
        assert!(!holders.is_orphan(&s));
        assert_eq!(names(holders.set_overdue(s.kind, overdue(&s, "s1"))), ["s"]);
        assert_eq!(holders.due(&s), Due::Release("s1".into()));
        assert!(!holders.begin("a", &s), "it is no new one");
        assert_eq!(holders.due(&s), Due::Keep, "it is open again");
        assert_eq!(holders.call_ended("a"), Some(s.clone()));
        assert_eq!(holders.call_ended("a"), None, "told once");
        holders.observe(&InformerEvent::Delete(claim("a", &s, "Pending")));
        assert_eq!(holders.due(&s), Due::Keep, "that it is closed is told later");
        assert!(!holders.is_orphan(&s));
        assert_eq!(names(holders.closed("a")), ["s"]);
    }
    let mut holders = Holders::new(false);
    holders.observe(&InformerEvent::Apply(source_claim("o", true, true)));
    holders.observe(&InformerEvent::Apply(foreign("x", "a", &origin())));
    holders.begin("a", &origin());
    assert_eq!(holders.call_ended("a"), Some(origin()), "a grant decides");
    assert_eq!(holders.due(&origin()), Due::TakeOffUnlessGranted("o".into(), spaces(&["x"])));
    assert_eq!(holders.call_ended("unknown"), None);
}

#[test]
fn the_time_out_of_a_source_is_not_that_of_its_namesake() {
    let mut holders = Holders::new(false);
    holders.observe(&pending("a", &origin()));
    holders.observe(&InformerEvent::Apply(source_claim("o2", true, true)));
    holders.set_overdue(SourceKind::Claim, overdue(&origin(), "o1"));
    assert_eq!(holders.due(&origin()), Due::Keep);
    let mut holders = restoring(Origin::Found, false);
    holders.observe(&pending("b", &snapshot("s")));
    holders.set_overdue(SourceKind::Snapshot, overdue(&snapshot("s"), "s2"));
    holders.closed("a");
    assert_eq!(holders.due(&snapshot("s")), Due::Keep);
}

/// What happens to a few claims that are made from two snapshots and a claim.
#[derive(Debug, Clone)]
enum Deed {
    Shown(u8, u8, &'static str),
    Foreign(u8, u8),
    Overdue(u8),
    Ended(u8),
    Gone(u8),
    Begin(u8, u8),
    Worn(u8, bool),
    Closed(u8),
    Freed,
}

fn deed() -> impl Strategy<Value = Deed> {
    let phase = prop_oneof![Just("Pending"), Just("Bound")];
    prop_oneof![
        (0..4_u8, 0..3_u8, phase)
            .prop_map(|(claim, source, phase)| Deed::Shown(claim, source, phase)),
        (0..4_u8, 0..3_u8).prop_map(|(claim, source)| Deed::Foreign(claim, source)),
        (0..3_u8).prop_map(Deed::Overdue),
        (0..4_u8).prop_map(Deed::Ended),
        (0..4_u8).prop_map(Deed::Gone),
        (0..4_u8, 0..3_u8).prop_map(|(claim, source)| Deed::Begin(claim, source)),
        (0..3_u8, any::<bool>()).prop_map(|(source, found)| Deed::Worn(source, found)),
        (0..4_u8).prop_map(Deed::Closed),
        Just(Deed::Freed),
    ]
}

fn source(number: u8) -> NamedSource {
    if number == 2 { origin() } else { snapshot(&number.to_string()) }
}

proptest! {
    /// Whatever happens: what was begun and not closed is kept by everyone, what is told to be
    /// looked at is due, and nothing is remembered of claims that are gone and closed.
    #[test]
    fn what_is_begun_is_kept_and_what_is_over_is_forgotten(
        peers: bool,
        deeds in vec(deed(), 0..40),
    ) {
        let mut holders = Holders::new(peers);
        let mut begun: BTreeMap<u8, u8> = BTreeMap::new();
        for deed in deeds {
            let touched = match deed {
                Deed::Shown(uid, from, phase) => {
                    holders.observe(&InformerEvent::Apply(claim(&uid.to_string(), &source(from), phase)))
                }
                Deed::Foreign(uid, from) => {
                    holders.observe(&InformerEvent::Apply(foreign("x", &uid.to_string(), &source(from))))
                }
                Deed::Overdue(from) => {
                    let from = source(from);
                    holders.set_overdue(from.kind, overdue(&from, "s1"))
                }
                Deed::Ended(uid) => {
                    begun.remove(&uid);
                    holders.call_ended(&uid.to_string()).into_iter().collect()
                }
                Deed::Gone(uid) => {
                    holders.observe(&InformerEvent::Delete(claim(&uid.to_string(), &source(0), "Pending")))
                }
                Deed::Begin(uid, from) => {
                    holders.begin(&uid.to_string(), &source(from));
                    begun.insert(uid, from);
                    BTreeSet::new()
                }
                Deed::Worn(from, found) => {
                    holders.worn(&source(from), worn(if found { Origin::Found } else { Origin::Ours }));
                    BTreeSet::new()
                }
                Deed::Closed(uid) => {
                    begun.remove(&uid);
                    holders.closed(&uid.to_string())
                }
                Deed::Freed => {
                    let free = |s: &NamedSource| holders.due(s).is_action();
                    let free: Vec<_> = (0..3).map(source).filter(free).collect();
                    for source in &free {
                        holders.taken_off(source);
                    }
                    BTreeSet::new()
                }
            };
            for from in begun.values() {
                prop_assert_eq!(holders.due(&source(*from)), Due::Keep);
                prop_assert!(!holders.is_orphan(&source(*from)));
            }
            for source in touched {
                prop_assert!(holders.due(&source).is_action());
            }
        }
        for uid in 0..4_u8 {
            holders.closed(&uid.to_string());
            holders.observe(&InformerEvent::Delete(claim(&uid.to_string(), &source(0), "Pending")));
        }
        (0..3).map(source).for_each(|source| holders.taken_off(&source));
        prop_assert!(holders.claims.is_empty() && holders.naming.is_empty());
        prop_assert!(holders.leaving.is_empty() && holders.begun.is_empty() && holders.held.is_empty());
        prop_assert!(holders.overdue.is_empty());
    }
}
