use std::collections::BTreeMap as Map;

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolumeSpec};
use serde_json::{Value, json};

use tokio::time::Instant;

use super::*;
use crate::controller::provisioner::ProvisionedVolume;

fn request() -> ProvisionRequest {
    let claim = json!({"metadata": {"namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "7"},
                       "spec": {"storageClassName": "fast"}});
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "kubernetes.io/in-tree"});
    ProvisionRequest {
        claim: Arc::new(serde_json::from_value(claim).unwrap()),
        class: Arc::new(serde_json::from_value(class).unwrap()),
        volume_name: Ok("pvc-u".into()),
        selected_node: None,
        withdrawn: false,
        source: None,
        topology: None,
    }
}

fn provisioned() -> PersistentVolume {
    let csi = CSIPersistentVolumeSource {
        volume_handle: "h".into(),
        ..CSIPersistentVolumeSource::default()
    };
    let mut volume = PersistentVolume {
        spec: Some(PersistentVolumeSpec { csi: Some(csi), ..PersistentVolumeSpec::default() }),
        ..PersistentVolume::default()
    };
    volume.metadata.name = Some("pvc-u".into());
    volume.metadata.annotations = Some(Map::from([("driver's".into(), "own".into())]));
    volume
}

#[test]
fn a_saved_volume_has_claim_class_provisioner_and_finalizer() {
    let volume = serde_json::to_value(complete(provisioned(), &request())).unwrap();
    assert_eq!(
        volume["spec"]["claimRef"],
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "7"})
    );
    assert_eq!(volume["spec"]["storageClassName"], "fast");
    let annotations =
        json!({"driver's": "own", "pv.kubernetes.io/provisioned-by": "kubernetes.io/in-tree"});
    assert_eq!(volume["metadata"]["annotations"], annotations);
    assert_eq!(volume["metadata"]["finalizers"], json!([finalizer::PROTECTION]));
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
    let found = |uid: &str, handle: &str, terminating: bool| {
        let mut metadata = json!({"name": "pvc-u"});
        if terminating {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Some(
            json!({"metadata": metadata, "spec": {"claimRef": {"uid": uid}, "csi": {"volumeHandle": handle}}}),
        )
    };
    assert_eq!(judged(None), "post");
    assert_eq!(judged(found("u", "h", false)), "saved");
    assert_eq!(judged(found("u", "h", true)), "pvc-u is terminating");
    assert_eq!(judged(found("u", "other", false)), "superseded by other");
    let stranger = "PersistentVolume \"pvc-u\" exists already and is not for this claim";
    assert_eq!(judged(found("x", "h", false)), format!("HandleInUse: {stranger}"));
    // Its volume may be deleted already, and ours made since.
    assert_eq!(
        judged(found("x", "h", true)),
        format!("HandleMaybeInUse {{ refused: false }}: {stranger}")
    );
    let mut released = found("x", "h", false);
    released.as_mut().unwrap()["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    released.as_mut().unwrap()["status"] = json!({"phase": "Released"});
    assert_eq!(judged(released), format!("HandleMaybeInUse {{ refused: false }}: {stranger}"));
    let mut elsewhere = found("x", "h", false);
    elsewhere.as_mut().unwrap()["spec"]["csi"]["driver"] = json!("another");
    assert_eq!(judged(elsewhere), format!("HandleMaybeInUse {{ refused: false }}: {stranger}"));
    let taken = format!("NameTaken: {stranger}");
    assert_eq!(judged(found("x", "other", true)), taken);
    assert_eq!(judged(Some(json!({"metadata": {"name": "pvc-u"}}))), taken);
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
