//! Claims that were another provisioner's meanwhile, and events during live look-ups.

use super::*;

/// The claim while it is another driver's.
fn handed_over(uid: &str) -> Claim {
    let other = json!({"volume.kubernetes.io/storage-provisioner": "other.example.com"});
    claim_with(uid, |claim| claim["metadata"]["annotations"] = other)
}

/// The claim without the annotation that names its provisioner.
fn nobodys(uid: &str) -> Claim {
    claim_with(uid, |claim| claim["metadata"]["annotations"] = json!({}))
}

/// A live read after `snapshot` found the PersistentVolume. Returns whether that counts.
fn volume_found(index: &ClaimIndex, snapshot: &KnownClaim, volume: &Volume) -> bool {
    let required = snapshot.required;
    let read = |it: &mut Entry| it.volume_read(volume, required, index.identity());
    index.update(snapshot.claim.uid(), read) == Some(true)
}

/// Another driver may have made a volume for it of which no event has come.
#[test]
fn a_claim_that_was_another_drivers_is_verified_when_it_returns() {
    for away in [handed_over("u"), nobodys("u")] {
        let index = with_claim();
        assert!(!must_verify(&index, "u"));
        index.on_event(InformerEvent::Apply(away));
        assert!(index.is_empty());
        assert_eq!(index.on_event(InformerEvent::Apply(claim("u"))), ["u"].map(Key::from));
        assert!(must_verify(&index, "u"));
        assert!(index.0.inner.lock().others.is_empty());
    }
}

#[test]
fn a_claim_created_for_another_driver_is_verified_once_it_is_ours() {
    let index = with_claim();
    index.on_event(InformerEvent::Apply(handed_over("v")));
    index.on_event(InformerEvent::Apply(claim("v")));
    assert!(must_verify(&index, "v"));
    index.on_event(InformerEvent::Apply(handed_over("w")));
    index.on_event(InformerEvent::Delete(handed_over("w")));
    assert!(index.0.inner.lock().others.is_empty(), "claims that are gone are not kept there");
}

/// A slow read says that a PersistentVolume exists, and the watch that it is gone by now.
#[test]
fn a_deletion_seen_during_a_live_read_overrides_it() {
    let index = working_on_a_claim_in_doubt();
    let snapshot = index.known("u").unwrap();
    let volume = volume("pvc-u", "u");
    index.on_volume(&volume);
    index.update("u", Entry::await_pv_gone);
    assert_eq!(index.on_volume_deleted(&volume).as_deref(), Some("u"));
    assert!(!volume_found(&index, &snapshot, &volume));
    let now = index.known("u").unwrap();
    assert!(now.must_verify() && now.state.may_call());
    assert!(volume_found(&index, &now, &volume));
    assert!(!index.known("u").unwrap().state.may_call(), "it has its volume");
}

/// Also if the same verification was required before.
#[test]
fn a_name_taken_during_a_live_read_requires_another_one() {
    let index = working_on_a_claim_in_doubt();
    let snapshot = index.known("u").unwrap();
    index.on_volume(&volume("pvc-u", "somebody"));
    index.update("u", |it| it.verified(snapshot.required));
    assert!(must_verify(&index, "u"));
    let required = index.known("u").unwrap().required;
    index.update("u", |it| it.verified(required));
    assert!(!must_verify(&index, "u"));
}

/// An unchanged claim in a relist does not shorten a back-off.
#[test]
fn a_relist_of_an_unchanged_claim_queues_nothing() {
    let index = with_claim();
    let in_version = |version: &str| {
        let mut claim = claim("v");
        claim.metadata.resource_version = Some(version.into());
        claim
    };
    assert_eq!(index.on_event(InformerEvent::Apply(in_version("5"))), ["v"].map(Key::from));
    assert!(index.on_event(InformerEvent::InitApply(in_version("5"))).is_empty());
    assert_eq!(index.on_event(InformerEvent::InitApply(in_version("6"))), ["v"].map(Key::from));
}

/// The index of a leader with the claim `u`, whose node was given back.
fn working_on_a_claim_in_doubt() -> ClaimIndex {
    let index = with_claim();
    index.update("u", Entry::require_reads);
    assert!(must_verify(&index, "u"));
    index
}
