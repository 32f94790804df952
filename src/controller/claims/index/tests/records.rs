//! What is known of the open calls that are recorded on claims.

use super::{nodes::on_node, *};

/// The claim, marked with a record of this driver's.
pub(super) fn marked(uid: &str, driver: &str) -> Claim {
    recorded(uid, &json!({"driver": driver, "volume": format!("pvc-{uid}")}))
}

fn recorded(uid: &str, record: &Value) -> Claim {
    claim_with(uid, |claim| {
        claim["metadata"]["finalizers"] = json!([status::FINALIZER]);
        claim["metadata"]["annotations"][status::RECORD] = json!(record.to_string());
    })
}

fn is_open(book: &ClaimIndex, uid: &str) -> bool {
    book.standing(uid).unwrap().open
}

#[tokio::test]
async fn what_an_earlier_process_recorded_is_open_once_this_one_works() {
    let book = book();
    for uid in ["u", "closed"] {
        book.observe(InformerEvent::InitApply(marked(uid, DRIVER)));
        assert!(!is_open(&book, uid), "a standby follows nothing");
    }
    book.begin_term();
    book.observe(InformerEvent::Init);
    book.observe(InformerEvent::InitApply(marked("u", DRIVER)));
    book.observe(InformerEvent::InitDone);
    assert_eq!(book.all(), ["u"], "what the process before has closed since is over");
    let snapshot = book.snapshot("u").unwrap();
    assert_eq!(snapshot.recorded.map(|record| record.volume), Some("pvc-u".into()));
    assert!(snapshot.verification >= Verification::VolumeAndClaim);
    // What comes to light later is open at once.
    book.observe(InformerEvent::Apply(marked("v", DRIVER)));
    assert!(is_open(&book, "v"));
    assert!(book.snapshot("v").unwrap().verification >= Verification::VolumeAndClaim);
}

#[tokio::test]
async fn a_record_is_open_for_as_long_as_it_counts() {
    let book = working();
    let odd = |volume: &str| recorded("u", &json!({"driver": DRIVER, "volume": volume}));
    book.observe(InformerEvent::Apply(marked("u", DRIVER)));
    assert!(is_open(&book, "u"));
    assert_eq!(book.observe(InformerEvent::Apply(odd("x-u"))), ["u"]);
    assert!(!is_open(&book, "u"), "its user has written something else");
    let snapshot = book.snapshot("u").unwrap();
    assert!(snapshot.may_call && snapshot.recorded.is_none() && snapshot.order.is_none());
}

#[tokio::test]
async fn an_event_that_is_older_than_the_close_confirms_no_record() {
    let book = working();
    book.observe(InformerEvent::Apply(claim("u")));
    let Some(RecordStatus::Open(record)) = book.0.mark(&marked("u", DRIVER), None) else {
        panic!("a record of this driver counts");
    };
    book.marked("u", Some(RecordStatus::Open(record.clone())));
    assert!(book.is_recorded("u", &record));
    book.marked("u", Some(RecordStatus::Closed));
    // The watch lags behind: this is the claim as it was before.
    book.observe(InformerEvent::Apply(marked("u", DRIVER)));
    assert!(!book.is_recorded("u", &record), "the next call must be recorded again");
}

#[tokio::test]
async fn a_record_that_does_not_count_is_reported_once() {
    let book = working();
    let void = || recorded("u", &json!({"driver": DRIVER, "volume": "x-u"}));
    assert_eq!(book.observe(InformerEvent::Apply(void())), ["u"]);
    assert!(!is_open(&book, "u"));
    assert_eq!(book.take_unfollowed("u").unwrap().volume, "x-u");
    book.observe(InformerEvent::Apply(claim("u")));
    book.observe(InformerEvent::Apply(void()));
    assert_eq!(book.take_unfollowed("u"), None);
    // One of a claim that has its volume is of a call that is closed.
    book.observe(InformerEvent::Apply(recorded("v", &json!({"driver": DRIVER, "volume": "x-v"}))));
    book.volume_passes(&volume("pvc-v", "v"));
    assert_eq!(book.take_unfollowed("v"), None);
    // One made by hand says nothing of that.
    book.observe(InformerEvent::Apply(recorded("w", &json!({"driver": DRIVER, "volume": "x-w"}))));
    book.volume_passes(&volume("by-hand", "w"));
    assert!(!book.snapshot("w").unwrap().may_call && book.take_unfollowed("w").is_some());
}

/// It is about to be written over (seed 602628).
#[tokio::test]
async fn a_void_record_that_only_a_live_read_shows_is_reported_as_well() {
    let book = with_claim();
    let void = recorded("u", &json!({"driver": DRIVER, "volume": "x-u"}));
    assert!(!book.record_found(&void), "nothing to follow");
    assert_eq!(book.take_unfollowed("u").unwrap().volume, "x-u");
    assert!(!book.record_found(&void));
    assert_eq!(book.take_unfollowed("u"), None);
}

#[tokio::test]
async fn what_its_class_makes_void_is_no_obstacle() {
    let book = working();
    book.observe(InformerEvent::Apply(marked("u", DRIVER)));
    book.record_is_void("u");
    assert!(!is_open(&book, "u"));
    assert!(book.take_unfollowed("u").is_some());
    assert!(book.snapshot("u").unwrap().may_call);
}

/// What this process has asked for it follows whatever anybody writes.
#[tokio::test]
async fn a_call_of_this_process_needs_no_record() {
    let book = with_claim();
    book.called("u", &order("u"));
    book.answered("u", &background());
    book.marking("u");
    let void = recorded("u", &json!({"driver": DRIVER, "volume": "x-u"}));
    book.observe(InformerEvent::Apply(void));
    assert!(is_open(&book, "u") && book.snapshot("u").unwrap().order.is_some());
    assert_eq!(book.take_unfollowed("u"), None);
}

#[tokio::test]
async fn a_volume_made_by_hand_closes_no_recorded_call() {
    let book = working();
    book.observe(InformerEvent::InitApply(marked("u", DRIVER)));
    book.volume_passes(&volume("by-hand", "u"));
    assert!(is_open(&book, "u"));
}

#[tokio::test]
async fn a_bound_claim_has_no_open_call_whatever_is_recorded() {
    let mut bound = marked("u", DRIVER);
    bound.spec.volume_name = Some("pvc-u".into());
    let book = working();
    book.observe(InformerEvent::InitApply(bound));
    let standing = book.standing("u").unwrap();
    assert!(standing.mark.is_some() && !standing.open);
}

#[tokio::test]
async fn another_drivers_mark_is_of_no_interest() {
    let book = working();
    let mut foreign = marked("u", "other.example.com");
    foreign.spec.volume_name = Some("pv".into());
    assert!(book.observe(InformerEvent::Apply(foreign)).is_empty() && book.is_empty());
    book.observe(InformerEvent::Apply(marked("ours", "other.example.com")));
    let snapshot = book.snapshot("ours").unwrap();
    assert!(snapshot.may_call && snapshot.recorded.is_none(), "it is no obstacle");
}

#[tokio::test]
async fn a_marked_claim_is_kept_when_it_is_bound_until_its_mark_goes() {
    let book = working();
    let mut claim = marked("u", DRIVER);
    book.observe(InformerEvent::Apply(claim.clone()));
    assert_eq!(book.volume_passes(&volume("pvc-u", "u")), Some("u".into()), "its mark can go");
    claim.spec.volume_name = Some("pvc-u".into());
    assert_eq!(book.observe(InformerEvent::Apply(claim.clone())), ["u"]);
    let standing = book.standing("u").unwrap();
    assert!(standing.mark.is_some() && !standing.open && standing.demand == Demand::Withdrawn);
    claim.metadata.finalizers = None;
    book.observe(InformerEvent::Apply(claim));
    assert!(book.is_empty());
}

#[tokio::test]
async fn our_own_mark_wakes_nobody() {
    let book = working();
    book.observe(InformerEvent::Apply(claim("u")));
    book.marking("u");
    assert!(book.observe(InformerEvent::Apply(marked("u", DRIVER))).is_empty());
    assert!(!is_open(&book, "u"), "it says nothing new of the call");
    assert!(book.observe(InformerEvent::Apply(claim("u"))).is_empty());
}

/// A write of the process before may come late, and its event later still.
#[tokio::test]
async fn anothers_mark_that_is_heard_of_after_its_claim_is_taken_up() {
    let book = working();
    book.observe(InformerEvent::Apply(claim("u")));
    assert_eq!(book.observe(InformerEvent::Apply(marked("u", DRIVER))), ["u"]);
    assert!(is_open(&book, "u"));
    assert!(!book.called("u", &order("u")), "it is looked up first");
    assert!(!book.record_found(&marked("u", DRIVER)), "it is followed already");
    book.observe(InformerEvent::Apply(claim("v")));
    assert!(book.record_found(&marked("v", DRIVER)), "a live read has found it");
    assert!(is_open(&book, "v"));
}

/// What nothing was asked for here yet is for whoever finds the record, once nobody wants it here.
#[tokio::test]
async fn a_call_that_was_taken_over_is_left_once_its_claim_is_not_wanted_here() {
    let taken_over = || {
        let book = works(book_of(Some("n1")));
        book.observe(InformerEvent::Apply(on_node("u", Some("n1"), Some("n2"))));
        book.adopt("u", "n2");
        book
    };
    let book = taken_over();
    let mut deleted = on_node("u", Some("n1"), Some("n2"));
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    book.observe(InformerEvent::Apply(deleted));
    let snapshot = book.snapshot("u").unwrap();
    assert!(snapshot.recorded.is_none() && snapshot.elsewhere.is_some());
    assert_eq!(book.adopted("u"), None);

    let book = taken_over();
    book.observe(InformerEvent::Apply(on_node("u", Some("n2"), Some("n2"))));
    assert!(book.is_empty(), "moved back");

    let book = taken_over();
    looked_up(&book, "u", book.snapshot("u").unwrap().verification);
    assert!(book.called("u", &order("u")));
    book.observe(InformerEvent::Apply(on_node("u", Some("n2"), Some("n2"))));
    assert_eq!(book.adopted("u").as_deref(), Some("n2"), "asked for here");
}

/// It may have left a PersistentVolume that no watch has shown.
#[tokio::test]
async fn a_claim_is_looked_up_after_another_nodes_call() {
    let book = works(book_of(Some("n1")));
    let verification = || book.snapshot("u").unwrap().verification;
    book.observe(InformerEvent::Apply(on_node("u", Some("n1"), Some("n2"))));
    looked_up(&book, "u", verification());
    assert_eq!(verification(), Verification::None);
    book.observe(InformerEvent::Apply(on_node("u", Some("n1"), None)));
    assert_eq!(
        verification(),
        Verification::VolumeAndClaim,
        "a watch has shown the call and its end"
    );
    looked_up(&book, "u", verification());
    book.called_elsewhere("u");
    assert_eq!(verification(), Verification::VolumeAndClaim, "a live read has shown the call");
}

#[tokio::test]
async fn that_a_claim_may_have_been_let_go_is_told_once() {
    let book = with_claim();
    assert!(book.tells_letting_go("u") && !book.tells_letting_go("u"));
    assert!(book.tells_letting_go("gone"), "nothing is known of it any more");
}
