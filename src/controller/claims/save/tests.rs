use serde_json::{Value, json};

use tokio::time::Instant;

use super::*;
use crate::controller::provisioner::ProvisionedVolume;

fn request() -> ProvisionRequest {
    let claim = json!({"metadata": {"uid": "u"}});
    ProvisionRequest {
        claim: Arc::new(serde_json::from_value(claim).unwrap()),
        class: Arc::default(),
        volume_name: Ok("pvc-u".into()),
        selected_node: None,
        withdrawn: false,
        source: None,
        topology: None,
    }
}

fn provisioned() -> PersistentVolume {
    let volume = json!({"metadata": {"name": "pvc-u"}, "spec": {"csi": {"driver": "", "volumeHandle": "h"}}});
    serde_json::from_value(volume).unwrap()
}

/// What a PersistentVolume found under the name means: saved, superseded, or the message for the
/// user.
fn judged(found: Option<Value>) -> String {
    let made = ProvisionedVolume { volume: provisioned(), ..ProvisionedVolume::default() };
    let unsaved = Arc::new(UnsavedVolume::new(&made, Instant::now()));
    let unsaved = ToSave { request: Arc::new(request()), unsaved };
    let found: Option<Volume> = found.map(|found| serde_json::from_value(found).unwrap());
    match judge(found.as_ref(), &unsaved) {
        None => "post".into(),
        Some(Attempt::Saved) => "saved".into(),
        Some(Attempt::PvTerminating(volume)) => format!("{} is terminating", volume.name()),
        Some(Attempt::Superseded(volume)) => format!("superseded by {volume}"),
        Some(Attempt::PvGone) => "PvGone".into(),
        Some(Attempt::NotSaved(reason, why)) => format!("{reason:?}: {why}"),
    }
}

#[tokio::test]
async fn the_persistent_volume_under_the_name_decides() {
    let found = |uid: &str, handle: &str| json!({"metadata": {"name": "pvc-u"}, "spec": {"claimRef": {"uid": uid}, "csi": {"volumeHandle": handle}}});
    let terminating = |mut found: Value| {
        found["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        found
    };
    let mut released = found("x", "h");
    released["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    released["status"] = json!({"phase": "Released"});
    let mut elsewhere = found("x", "h");
    elsewhere["spec"]["csi"]["driver"] = json!("another");
    let stranger = "PersistentVolume \"pvc-u\" exists already and is not for this claim";
    let taken = format!("NameTaken: {stranger}");
    let maybe = format!("HandleMaybeInUse {{ refused: false }}: {stranger}");
    for (found, expected) in [
        (None, "post"),
        (Some(found("u", "h")), "saved"),
        (Some(terminating(found("u", "h"))), "pvc-u is terminating"),
        (Some(found("u", "other")), "superseded by other"),
        (Some(found("x", "h")), &format!("HandleInUse: {stranger}")),
        // Its volume may be deleted already, and ours made since.
        (Some(terminating(found("x", "h"))), &maybe),
        (Some(released), &maybe),
        (Some(elsewhere), &maybe),
        (Some(terminating(found("x", "other"))), &taken),
        (Some(json!({"metadata": {"name": "pvc-u"}})), &taken),
    ] {
        assert_eq!(judged(found), expected);
    }
}

#[tokio::test]
async fn an_unread_persistent_volume_under_the_name_may_have_this_volume() {
    let taken = ApiError::NoAnswer("taken".into());
    let not_saved = |reason| Some(Attempt::NotSaved(reason, "why".into()));
    let after = |found| match after_conflict(found, &taken) {
        Attempt::NotSaved(NotSaved::HandleMaybeInUse { refused }, _) => Some(refused),
        _ => None,
    };
    assert_eq!(after(None), Some(false), "it came and went");
    assert_eq!(after(not_saved(NotSaved::NotYet { unclear: false })), Some(false));
    assert_eq!(after(not_saved(NotSaved::Forbidden)), Some(true));
    assert_eq!(after(not_saved(NotSaved::NameTaken)), None);
    assert_eq!(after(Some(Attempt::Saved)), None);
}

#[test]
fn the_class_at_the_post_decides_the_policy_and_retain_wins_for_a_gone_claim() {
    let (delete, retain) = (Some("Delete"), Some("Retain"));
    for (then, now, live, gone) in [
        (delete, delete, delete, delete),
        (delete, retain, retain, retain),
        (retain, delete, delete, retain),
        (retain, None, retain, retain),
        (delete, None, delete, delete),
    ] {
        assert_eq!(policy(then, now, true), live, "{then:?} {now:?}");
        assert_eq!(policy(then, now, false), gone, "{then:?} {now:?}, gone");
    }
}

#[test]
fn what_the_watch_has_shown_meanwhile_counts_more_than_the_answer() {
    let refused = |reason| Attempt::NotSaved(reason, "why".into());
    for refuse in [NotSaved::Invalid, NotSaved::NameTaken, NotSaved::NotYet { unclear: true }] {
        assert!(matches!(refused(refuse).beside_watch(true), Attempt::Saved), "{refuse:?}");
        assert!(matches!(refused(refuse).beside_watch(false), Attempt::NotSaved(..)), "{refuse:?}");
    }
    assert!(matches!(Attempt::Superseded("other".into()).beside_watch(true), Attempt::Saved));
    let terminating = Attempt::PvTerminating(Box::default());
    assert!(matches!(terminating.beside_watch(true), Attempt::PvTerminating(_)));
}
