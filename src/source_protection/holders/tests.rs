use serde_json::{Value, json};

use super::*;
use crate::kube::Listed;

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

fn spaces(namespaces: &[&str]) -> BTreeSet<String> {
    namespaces.iter().map(|namespace| (*namespace).to_owned()).collect()
}

/// A source of clones, deleted or not, with or without our finalizer.
fn source_claim(uid: &str, deleted: bool, wears: bool) -> Claim {
    let deleted = deleted.then_some("2026-01-01T00:00:00Z");
    let finalizers: &[&str] =
        if wears { &[SourceKind::Claim.finalizer()] } else { &["kubernetes.io/pvc-protection"] };
    let claim = json!({"metadata": {"namespace": "ns", "name": "origin", "uid": uid,
                                    "deletionTimestamp": deleted, "finalizers": finalizers},
                       "status": {"phase": "Bound"}});
    serde_json::from_value(claim).unwrap()
}

fn pending(uid: &str, source: &NamedSource) -> InformerEvent<Claim> {
    InformerEvent::Apply(claim(uid, source, "Pending"))
}

fn names(sources: BTreeSet<NamedSource>) -> Vec<String> {
    sources.into_iter().map(|source| source.name).collect()
}

/// A restore of `s` for the claim `a`, with a finalizer of this origin.
fn restoring(origin: FinalizerOrigin, peers: bool) -> Holders {
    let mut holders = Holders::new(peers);
    holders.on_event(&pending("a", &snapshot("s")));
    assert!(holders.begin_call("a", &snapshot("s")));
    holders.record_finalizer(&snapshot("s"), "s1", origin);
    holders
}

/// Other processes may need a snapshot that had the finalizer before.
#[test]
fn an_existing_finalizer_stays_while_a_claim_names_the_snapshot() {
    for (origin, peers) in [
        (FinalizerOrigin::Existing, false),
        (FinalizerOrigin::Added, true),
        (FinalizerOrigin::Existing, true),
    ] {
        let mut holders = restoring(origin, peers);
        let s = snapshot("s");
        holders.on_event(&pending("b", &s));
        assert!(holders.claim_finished("a", true).is_empty());
        assert_eq!(holders.due(&s), None, "b may have been asked for by another process");
        let bound = InformerEvent::Apply(claim("b", &s, "Bound"));
        assert_eq!(
            names(holders.on_event(&bound)),
            ["s"],
            "and is released when it needs it no longer"
        );
        assert_eq!(holders.due(&s), Some(Due::RemoveUnlessHeld("s1".into(), spaces(&[]))));
    }
    let mut holders = restoring(FinalizerOrigin::Added, false);
    holders.on_event(&pending("b", &snapshot("s")));
    assert_eq!(
        names(holders.claim_finished("a", true)),
        ["s"],
        "b has not begun, and nobody was before us"
    );
}

/// The next node of a claim that was given back, or that somebody else gave another node, may have begun already.
#[test]
fn among_peers_a_claim_that_was_not_served_here_holds_its_source_until_it_is_bound() {
    let s = snapshot("s");
    for has_ended in [false, true] {
        let mut holders = restoring(FinalizerOrigin::Added, true);
        if has_ended {
            holders.call_ended("a");
        }
        assert!(holders.claim_finished("a", false).is_empty());
        assert_eq!(holders.due(&s), None);
        let bound = InformerEvent::Apply(claim("a", &s, "Bound"));
        assert_eq!(names(holders.on_event(&bound)), ["s"]);
        assert_eq!(holders.due(&s), Some(Due::RemoveUnlessHeld("s1".into(), spaces(&[]))));
    }
    let mut holders = restoring(FinalizerOrigin::Added, true);
    assert_eq!(names(holders.claim_finished("a", true)), ["s"]);
}

#[test]
fn a_known_origin_is_kept() {
    let mut holders = restoring(FinalizerOrigin::Existing, false);
    let s = snapshot("s");
    holders.record_finalizer(&s, "s1", FinalizerOrigin::Added);
    holders.claim_finished("a", true);
    assert_eq!(holders.due(&s), Some(Due::RemoveUnlessHeld("s1".into(), spaces(&[]))));
    let mut holders = restoring(FinalizerOrigin::Existing, false);
    holders.record_finalizer(&s, "s2", FinalizerOrigin::Added);
    assert!(
        holders.is_finalized(&s, "s2") && !holders.is_finalized(&s, "s1"),
        "another of its name"
    );
    holders.claim_finished("a", true);
    assert_eq!(holders.due(&s), Some(Due::Remove("s2".into())));
}

/// The response may be lost: the finalizer is uncertain then, and due as before.
#[test]
fn a_possibly_removed_finalizer_is_uncertain_until_it_is_read_again() {
    for (first, again) in [
        (FinalizerOrigin::Added, FinalizerOrigin::Existing),
        (FinalizerOrigin::Existing, FinalizerOrigin::Added),
    ] {
        let mut holders = restoring(first, false);
        let s = snapshot("s");
        holders.claim_finished("a", true);
        let due = holders.due(&s);
        holders.removing_finalizer(&s);
        assert!(!holders.is_finalized(&s, "s1"));
        assert_eq!(holders.due(&s), due);
        holders.begin_call("b", &s);
        assert!(!holders.is_finalized(&s, "s1"), "that it is needed again does not put it on");
        holders.record_finalizer(&s, "s1", again);
        assert!(holders.is_finalized(&s, "s1"));
        holders.claim_finished("b", true);
        assert_eq!(holders.due(&s), due, "{first:?} is not forgotten");
    }
}

/// The sweep skips what any pending claim names, or a call of this process needs.
#[test]
fn a_finalizer_that_is_found_is_due_if_nobody_needs_the_snapshot() {
    let s = snapshot("s");
    for (phase, due) in [("Pending", false), ("", false), ("Bound", true), ("Lost", true)] {
        let mut holders = Holders::new(false);
        holders.on_event(&pending("other", &snapshot("t")));
        holders.on_event(&InformerEvent::Apply(claim("a", &s, phase)));
        assert_eq!(holders.finalizer_found(&s, "s1"), due, "{phase}");
        assert_eq!(holders.finalized.len(), usize::from(due), "anybody can set it");
        let expected = due.then(|| Due::RemoveUnlessHeld("s1".into(), spaces(&[])));
        assert_eq!(holders.due(&s), expected);
    }
    for (peers, due) in [(false, true), (true, false)] {
        let mut holders = Holders::new(peers);
        holders.on_event(&pending("a", &s));
        holders.claim_finished("a", true);
        assert_eq!(holders.finalizer_found(&s, "s1"), due, "a peer may work on it: {peers}");
    }
    let mut holders = restoring(FinalizerOrigin::Added, false);
    assert!(!holders.finalizer_found(&s, "s1"), "a restore is under way");
    holders.claim_finished("a", true);
    assert!(holders.finalizer_found(&s, "s1"));
    assert_eq!(holders.due(&s), Some(Due::Remove("s1".into())), "it is known whose it is");
}

#[test]
fn claims_deleted_between_lists_hold_nothing() {
    let mut holders = Holders::new(false);
    holders.on_event(&InformerEvent::Apply(source_claim("o", true, true)));
    for uid in ["a", "b"] {
        holders.on_event(&pending(uid, &origin()));
    }
    let unreadable =
        InformerEvent::Unreadable { namespace: "ns".into(), name: "b".into(), uid: "b".into() };
    holders.on_event(&unreadable);
    let source = source_claim("o", true, true);
    let both = Listed::of(&[source.clone(), claim("b", &origin(), "Pending")]);
    assert!(holders.on_event(&InformerEvent::InitDone(both)).is_empty());
    assert_eq!(holders.due(&origin()), None, "b may still be pending");
    let one = Listed::of(&[source]);
    assert_eq!(names(holders.on_event(&InformerEvent::InitDone(one))), ["origin"]);
}

/// A page shows a deleted source, the next one a claim that was created before its deletion.
#[test]
fn nothing_is_due_while_claims_are_listed() {
    let source = source_claim("o", true, true);
    let clone = claim("z", &origin(), "Pending");
    for (rest, due) in [(vec![], vec!["origin"]), (vec![clone], vec![])] {
        let mut holders = Holders::new(false);
        let all: Vec<_> = std::iter::once(source.clone()).chain(rest).collect();
        for listed in &all {
            let affected = holders.on_event(&InformerEvent::InitApply(listed.clone()));
            assert!(affected.is_empty() && holders.due(&origin()).is_none());
        }
        let whole = InformerEvent::InitDone(Listed::of(&all));
        assert_eq!(names(holders.on_event(&whole)), due);
        assert_eq!(holders.due(&origin()).is_some(), !due.is_empty());
    }
}

#[test]
fn a_namesake_of_a_source_is_another_one() {
    let mut holders = Holders::new(false);
    holders.on_event(&InformerEvent::Apply(source_claim("o1", true, true)));
    for event in InformerEvent::list(vec![source_claim("o2", true, true)]) {
        holders.on_event(&event);
    }
    assert_eq!(holders.due(&origin()), Some(Due::RemoveUnlessHeld("o2".into(), spaces(&[]))));
}

#[test]
fn the_time_out_of_a_source_is_not_that_of_its_namesake() {
    let mut holders = Holders::new(false);
    holders.on_event(&pending("a", &origin()));
    holders.on_event(&InformerEvent::Apply(source_claim("o2", true, true)));
    assert!(!holders.may_be_released(&origin(), "o1"));
    let mut holders = restoring(FinalizerOrigin::Existing, false);
    holders.on_event(&pending("b", &snapshot("s")));
    holders.claim_finished("a", true);
    assert!(!holders.may_be_released(&snapshot("s"), "s2"));
}

#[test]
fn nothing_is_kept_of_claims_that_are_gone_and_of_sources_that_are_free() {
    let mut holders = restoring(FinalizerOrigin::Added, false);
    holders.on_event(&InformerEvent::Apply(source_claim("o", true, true)));
    holders.on_event(&pending("b", &origin()));
    holders.claim_finished("a", true);
    for uid in ["a", "b", "o"] {
        holders.on_event(&InformerEvent::Delete(claim(uid, &origin(), "Pending")));
    }
    holders.finalizer_removed(&snapshot("s"));
    assert!(holders.claims.is_empty() && holders.named_by.is_empty());
    assert!(holders.calls.is_empty() && holders.called_for.is_empty());
    assert!(holders.terminating.is_empty() && holders.finalized.is_empty());
}

#[test]
fn a_claim_that_a_watch_shows_after_the_deletion_of_its_source_is_late() {
    let mut holders = Holders::new(false);
    let at_rest = |uid, deleted| InformerEvent::Apply(source_claim(uid, deleted, true));
    holders.on_event(&at_rest("s1", false));
    holders.on_event(&pending("before", &origin()));
    holders.on_event(&at_rest("s1", true));
    holders.on_event(&pending("before", &origin()));
    holders.on_event(&pending("after", &origin()));
    let listed = InformerEvent::InitApply(claim("listed", &origin(), "Pending"));
    holders.on_event(&listed);
    let late = ["before", "after", "listed", "unknown"].map(|uid| holders.late_for(uid));
    assert_eq!(late, [None, Some("s1".to_owned()), None, None]);
}
