//! What is known of the open calls that are recorded on claims.

use super::{nodes::on_node, *};
use crate::controller::model::record::Record;

/// The claim with a record of this driver.
pub(super) fn with_record(uid: &str, driver: &str) -> Claim {
    recorded(uid, &json!({"driver": driver, "volume": format!("pvc-{uid}")}))
}

fn recorded(uid: &str, record: &Value) -> Claim {
    claim_with(uid, |claim| {
        claim["metadata"]["finalizers"] = json!([record_status::FINALIZER]);
        claim["metadata"]["annotations"][record_status::RECORD] = json!(record.to_string());
    })
}

/// The void record on the claim, if it is to be reported.
fn reports_void_record(index: &ClaimIndex, uid: &str) -> Option<Record> {
    (index.update(uid, Entry::report_void_record) == Some(true))
        .then(|| index.known(uid)?.void_record().cloned())?
}

/// Whether a live read of the claim finds a record that is followed from now on.
fn record_found(index: &ClaimIndex, live: &Claim) -> bool {
    index.update(live.uid(), |it| it.claim_read(live, index.identity())) == Some(true)
}

fn is_open(index: &ClaimIndex, uid: &str) -> bool {
    index.known(uid).unwrap().state.is_open()
}

#[tokio::test]
async fn a_record_is_open_for_as_long_as_it_counts() {
    let index = leading_index();
    let odd = |volume: &str| recorded("u", &json!({"driver": DRIVER, "volume": volume}));
    index.on_event(InformerEvent::Apply(with_record("u", DRIVER)));
    assert!(is_open(&index, "u"));
    assert_eq!(index.on_event(InformerEvent::Apply(odd("x-u"))), ["u"].map(Key::from));
    assert!(!is_open(&index, "u"), "its user has written something else");
    let snapshot = index.known("u").unwrap();
    assert!(
        snapshot.state.may_call() && snapshot.recorded().is_none() && snapshot.request.is_none()
    );
}

/// The class is another provisioner's for a while: before the next call a live read finds the record again.
#[tokio::test]
async fn a_claim_whose_record_became_void_is_verified_before_its_next_call() {
    let index = leading_index();
    index.on_event(InformerEvent::Apply(with_record("u", DRIVER)));
    set_verified(&index, "u");
    index.update("u", Entry::record_void);
    assert!(!is_open(&index, "u") && must_verify(&index, "u"));
    assert!(reports_void_record(&index, "u").is_some());
    assert!(index.known("u").unwrap().state.may_call(), "it is no obstacle");
    assert!(record_found(&index, &with_record("u", DRIVER)) && is_open(&index, "u"));
}

#[tokio::test]
async fn a_void_record_is_reported_once() {
    let index = leading_index();
    let void = |uid: &str| {
        let record = json!({"driver": DRIVER, "volume": format!("x-{uid}")});
        InformerEvent::Apply(recorded(uid, &record))
    };
    assert_eq!(index.on_event(void("u")), ["u"].map(Key::from));
    assert!(!is_open(&index, "u"));
    assert_eq!(reports_void_record(&index, "u").unwrap().volume, "x-u");
    index.on_event(InformerEvent::Apply(claim("u")));
    index.on_event(void("u"));
    assert_eq!(reports_void_record(&index, "u"), None);
    // The claim's volume closes the recorded call, but not one that was made by hand, whatever its name
    // (seed 1310680).
    for (uid, volume, reported) in [
        ("v", provisioned_pv("pvc-v", "v"), false),
        ("w", volume("by-hand", "w"), true),
        ("z", volume("pvc-z", "z"), true),
    ] {
        index.on_event(void(uid));
        index.on_volume(&volume);
        assert!(!index.known(uid).unwrap().state.may_call());
        assert_eq!(reports_void_record(&index, uid).is_some(), reported, "{uid}");
    }
}

/// The record is about to be overwritten (seed 602628).
#[tokio::test]
async fn a_void_record_found_by_a_live_read_is_reported() {
    let index = with_claim();
    let void = recorded("u", &json!({"driver": DRIVER, "volume": "x-u"}));
    assert!(!record_found(&index, &void), "nothing to follow");
    assert_eq!(reports_void_record(&index, "u").unwrap().volume, "x-u");
    assert!(!record_found(&index, &void));
    assert_eq!(reports_void_record(&index, "u"), None);
}

/// This process follows its own calls, whatever anybody writes.
#[tokio::test]
async fn a_call_of_this_process_needs_no_record() {
    let index = with_claim();
    index.start_call("u", &request("u"));
    index.on_outcome("u", &background());
    index.update("u", Entry::record_write_started);
    let void = recorded("u", &json!({"driver": DRIVER, "volume": "x-u"}));
    index.on_event(InformerEvent::Apply(void));
    assert!(is_open(&index, "u") && index.known("u").unwrap().request.is_some());
    assert_eq!(reports_void_record(&index, "u"), None);
}

#[tokio::test]
async fn a_volume_made_by_hand_closes_no_recorded_call() {
    let index = leading_index();
    index.on_event(InformerEvent::InitApply(with_record("u", DRIVER)));
    index.on_volume(&volume("by-hand", "u"));
    assert!(is_open(&index, "u"));
}

/// A write of the previous process may arrive late, and its event even later.
#[tokio::test]
async fn a_late_record_of_another_process_is_followed() {
    let index = leading_index();
    index.on_event(InformerEvent::Apply(claim("u")));
    assert_eq!(
        index.on_event(InformerEvent::Apply(with_record("u", DRIVER))),
        ["u"].map(Key::from)
    );
    assert!(is_open(&index, "u"));
    assert!(!index.start_call("u", &request("u")), "it is verified first");
    assert!(!record_found(&index, &with_record("u", DRIVER)), "it is followed already");
    index.on_event(InformerEvent::Apply(claim("v")));
    assert!(record_found(&index, &with_record("v", DRIVER)), "a live read has found it");
    assert!(is_open(&index, "v"));
}

/// The call may have left a PersistentVolume of which no event has come.
#[tokio::test]
async fn a_claim_is_verified_after_another_nodes_call() {
    let index = lead(index_of_node(Some("n1")));
    let must_verify = || must_verify(&index, "u");
    index.on_event(InformerEvent::Apply(on_node("u", Some("n1"), Some("n2"))));
    set_verified(&index, "u");
    assert!(!must_verify());
    index.on_event(InformerEvent::Apply(on_node("u", Some("n1"), None)));
    assert!(must_verify(), "the call and its end were in the watch");
    set_verified(&index, "u");
    index.update("u", Entry::require_reads);
    assert!(must_verify(), "a live read found the call");
    set_verified(&index, "u");
    index.update("u", Entry::released);
    assert!(must_verify(), "this process took the record off");
}
