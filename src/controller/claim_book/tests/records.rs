//! What is known of the open calls that are recorded on claims.

use super::*;

/// The claim, marked with a record of this driver's.
pub(super) fn marked(uid: &str, driver: &str) -> Claim {
    claim_with(uid, |claim| {
        claim["metadata"]["finalizers"] = json!([mark::FINALIZER]);
        let record = json!({"driver": driver, "volume": format!("old-{uid}")});
        claim["metadata"]["annotations"][mark::RECORD] = json!(record.to_string());
    })
}

#[tokio::test]
async fn what_an_earlier_process_recorded_is_open_once_this_one_works() {
    let book = book();
    for uid in ["u", "closed"] {
        book.observe(Sighting::Listed(marked(uid, DRIVER)));
        assert!(!book.standing(uid).unwrap().open, "a standby follows nothing");
    }
    book.take_over();
    list_volumes(&book);
    book.observe(Sighting::Restarted);
    book.observe(Sighting::Listed(marked("u", DRIVER)));
    book.observe(Sighting::Complete);
    assert_eq!(book.all(), ["u"], "what the process before has closed since is over");
    assert!(book.standing("u").unwrap().open);
    let glance = book.glance("u").unwrap();
    assert_eq!(glance.recorded.map(|record| record.volume), Some("old-u".into()));
    assert_eq!(book.key("u").as_deref(), Some("old-u"), "the name it was asked for under");
    // What comes to light later is open at once.
    book.observe(Sighting::Applied(marked("v", DRIVER)));
    assert!(book.standing("v").unwrap().open);
    assert_eq!(book.glance("v").unwrap().doubt, Doubt::VolumeAndClaim);
}

#[tokio::test]
async fn a_volume_made_by_hand_closes_no_recorded_call() {
    let book = book();
    book.start_working();
    book.observe(Sighting::Listed(marked("u", DRIVER)));
    book.volume_passes(&volume("by-hand", "u"));
    assert!(book.standing("u").unwrap().open);
}

/// Its PersistentVolume was saved, or the claim could not be bound to it, even if it is gone by now.
#[tokio::test]
async fn a_claim_bound_to_its_own_volume_has_no_open_call_whatever_is_recorded() {
    let mut bound = marked("u", DRIVER);
    bound.spec.volume_name = Some("old-u".into());
    let book = book();
    book.start_working();
    book.observe(Sighting::Listed(bound));
    let standing = book.standing("u").unwrap();
    assert!(standing.marked && !standing.open);
}

#[tokio::test]
async fn another_drivers_mark_is_of_no_interest() {
    let book = book();
    book.start_working();
    let mut foreign = marked("u", "other.example.com");
    foreign.spec.volume_name = Some("pv".into());
    assert!(book.observe(Sighting::Applied(foreign)).is_empty() && book.is_empty());
}

#[tokio::test]
async fn a_marked_claim_is_kept_when_it_is_bound_until_its_mark_goes() {
    let book = book();
    book.start_working();
    let mut claim = marked("u", DRIVER);
    book.observe(Sighting::Applied(claim.clone()));
    assert_eq!(book.volume_passes(&volume("old-u", "u")), Some("u".into()), "its mark can go");
    claim.spec.volume_name = Some("old-u".into());
    assert_eq!(book.observe(Sighting::Applied(claim.clone())), ["u"]);
    let standing = book.standing("u").unwrap();
    assert!(standing.marked && !standing.open && standing.demand == Demand::Withdrawn);
    claim.metadata.finalizers = None;
    book.observe(Sighting::Applied(claim));
    assert!(book.is_empty());
}

#[tokio::test]
async fn our_own_mark_wakes_nobody() {
    let book = book();
    book.start_working();
    book.observe(Sighting::Applied(claim("u")));
    book.marking("u");
    assert!(book.observe(Sighting::Applied(marked("u", DRIVER))).is_empty());
    assert!(!book.standing("u").unwrap().open, "it says nothing new of the call");
    assert!(book.observe(Sighting::Applied(claim("u"))).is_empty());
}

/// The events of both waited in a watch that stood still, while another process led: a live read
/// tells whether the call is open still, or that the claim is being deleted.
#[tokio::test]
async fn anothers_mark_that_is_heard_of_after_its_claim_is_taken_up() {
    let book = book();
    book.start_working();
    book.observe(Sighting::Applied(claim("u")));
    book.observe(Sighting::Applied(marked("u", DRIVER)));
    assert!(!book.standing("u").unwrap().open, "it may be closed by now");
    assert!(book.record_found(&marked("u", DRIVER)));
    let glance = book.glance("u").unwrap();
    assert!(glance.recorded.is_some() && glance.doubt >= Doubt::Volume);
    assert!(!book.called("u", &order("u")), "it is looked up first");
    assert!(!book.record_found(&marked("u", DRIVER)), "it is followed already");
    book.observe(Sighting::Applied(claim("v")));
    let mut deleted = marked("v", DRIVER);
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(book.observe(Sighting::Applied(deleted)), ["v"]);
    assert!(book.standing("v").unwrap().open);
}
