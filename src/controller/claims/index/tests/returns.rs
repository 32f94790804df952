//! Claims that were somebody else's meanwhile, and what is heard of a claim while it is looked up.

use super::*;

/// The claim, as long as it is another driver's.
fn handed_over(uid: &str) -> Claim {
    let other = json!({"volume.kubernetes.io/storage-provisioner": "other.example.com"});
    claim_with(uid, |claim| claim["metadata"]["annotations"] = other)
}

/// The claim, as long as nobody is named who provisions it.
fn nobodys(uid: &str) -> Claim {
    claim_with(uid, |claim| claim["metadata"]["annotations"] = json!({}))
}

fn verification(book: &ClaimIndex, uid: &str) -> Verification {
    book.snapshot(uid).unwrap().verification
}

/// What another driver may have made for it meanwhile we have not been shown.
#[test]
fn a_claim_that_was_somebody_elses_is_looked_up_when_it_returns() {
    for away in [handed_over("u"), nobodys("u")] {
        let book = with_claim();
        assert_eq!(verification(&book, "u"), Verification::None);
        book.observe(InformerEvent::Apply(away));
        assert!(book.is_empty());
        assert_eq!(book.observe(InformerEvent::Apply(claim("u"))), ["u"]);
        assert_eq!(verification(&book, "u"), Verification::VolumeAndClaim);
        assert!(book.0.inner.lock().stood.is_empty());
    }
}

#[test]
fn a_claim_that_was_born_as_another_drivers_is_looked_up_once_it_is_ours() {
    let book = with_claim();
    book.observe(InformerEvent::Apply(handed_over("v")));
    book.observe(InformerEvent::Apply(claim("v")));
    assert_eq!(verification(&book, "v"), Verification::VolumeAndClaim);
    book.observe(InformerEvent::Apply(handed_over("w")));
    book.observe(InformerEvent::Delete(handed_over("w")));
    assert!(book.0.inner.lock().stood.is_empty(), "nothing is kept of who is gone");
}

/// A slow answer says of a PersistentVolume that it exists, and the watch that it is gone by now.
#[test]
fn an_end_that_was_seen_since_a_look_began_stands() {
    let book = working_on_a_claim_in_doubt();
    let snapshot = book.snapshot("u").unwrap();
    let volume = volume("pvc-u", "u");
    book.volume_passes(&volume);
    book.returns(&volume);
    assert_eq!(book.volume_gone(&volume).as_deref(), Some("u"));
    assert!(!book.volume_found(&snapshot, &volume));
    let now = book.snapshot("u").unwrap();
    assert_eq!((now.verification, now.may_call), (Verification::VolumeAndClaim, true));
    assert!(book.volume_found(&now, &volume));
    assert!(!book.snapshot("u").unwrap().may_call, "it has its volume");
}

/// Also where it was in as much doubt before.
#[test]
fn a_stranger_who_takes_the_name_during_a_look_is_not_settled_by_it() {
    let book = working_on_a_claim_in_doubt();
    let snapshot = book.snapshot("u").unwrap();
    book.volume_passes(&volume("pvc-u", "somebody"));
    book.looked_up(&snapshot);
    assert_eq!(verification(&book, "u"), Verification::VolumeAndClaim);
    book.looked_up(&book.snapshot("u").unwrap());
    assert_eq!(verification(&book, "u"), Verification::None);
}

/// One made by hand says nothing of what an open call may have made.
#[tokio::test]
async fn a_volume_made_by_hand_does_not_end_the_look_for_an_open_call() {
    let book = with_claim();
    book.called("u", &order("u"));
    book.answered("u", &background());
    let by_hand = volume("by-hand", "u");
    assert!(!book.is_served_by("u", &by_hand));
    assert!(!book.volume_found(&book.snapshot("u").unwrap(), &by_hand));
    let own = volume("pvc-u", "u");
    assert!(book.is_served_by("u", &own));
    assert!(book.volume_found(&book.snapshot("u").unwrap(), &own));
    assert!(!book.snapshot("u").unwrap().may_call);
}

/// What a new list shows again as it was is no reason to try before a back-off ends.
#[test]
fn a_list_that_shows_a_claim_as_it_was_wakes_nobody() {
    let book = with_claim();
    let in_version = |version: &str| {
        let mut claim = claim("v");
        claim.metadata.resource_version = Some(version.into());
        claim
    };
    assert_eq!(book.observe(InformerEvent::Apply(in_version("5"))), ["v"]);
    book.observe(InformerEvent::Init);
    assert!(book.observe(InformerEvent::InitApply(in_version("5"))).is_empty());
    assert_eq!(book.observe(InformerEvent::InitApply(in_version("6"))), ["v"]);
}

/// A book that works and knows the claim `u`, whose node was given back.
fn working_on_a_claim_in_doubt() -> ClaimIndex {
    let book = with_claim();
    book.node_given_back("u");
    assert_eq!(verification(&book, "u"), Verification::VolumeAndClaim);
    book
}
