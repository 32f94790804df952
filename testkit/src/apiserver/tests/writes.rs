//! Create, update and delete.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{claim, claims, refusal, send, server, typed, volume, volumes};
use crate::apiserver::status::Status;

#[tokio::test(start_paused = true)]
async fn an_outdated_update_conflicts_and_one_that_changes_nothing_is_none() {
    let server = server();
    let api = claims(&server);
    let first = api.create(&PostParams::default(), &typed(claim("c"))).await.unwrap();
    let same = api.replace("c", &PostParams::default(), &first).await.unwrap();
    assert_eq!(same.metadata.resource_version, first.metadata.resource_version);
    let mut changed = first.clone();
    changed.metadata.labels = Some([("a".to_owned(), "1".to_owned())].into());
    let second = api.replace("c", &PostParams::default(), &changed).await.unwrap();
    assert_ne!(second.metadata.resource_version, first.metadata.resource_version);
    let (code, message) =
        refusal(api.replace("c", &PostParams::default(), &changed).await.unwrap_err());
    assert_eq!(code, 409);
    assert_eq!(
        message,
        Status::modified(
            server.kinds().iter().find(|k| k.kind == "PersistentVolumeClaim").unwrap(),
            "c"
        )
        .message()
    );
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_a_deleted_object_until_the_last_goes() {
    let server = server();
    let api = volumes(&server);
    let mut held = volume("v");
    held["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    api.create(&PostParams::default(), &typed(held)).await.unwrap();
    let waiting = api.delete("v", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(waiting.metadata.deletion_timestamp.is_some());
    assert_eq!(waiting.metadata.deletion_grace_period_seconds, Some(0));
    let version = waiting.metadata.resource_version.clone();
    let again = api.delete("v", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(again.metadata.resource_version, version, "a second delete changes nothing");
    let added =
        json!({"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}});
    let (code, message) =
        refusal(api.patch("v", &PatchParams::default(), &Patch::Merge(added)).await.unwrap_err());
    assert_eq!(code, 422);
    assert!(
        message.contains("no new finalizers can be added if the object is being deleted"),
        "{message}"
    );
    let remove = |name| {
        Patch::Strategic(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [name]}}))
    };
    api.patch("v", &PatchParams::default(), &remove("example.com/a")).await.unwrap();
    assert!(server.get("PersistentVolume", "", "v").is_some());
    api.patch("v", &PatchParams::default(), &remove("example.com/b")).await.unwrap();
    assert!(server.get("PersistentVolume", "", "v").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_put_to_the_object_leaves_its_status_and_the_other_way_round() {
    let server = server();
    server.create(&claim("c")).unwrap();
    let path = "/api/v1/namespaces/sc/persistentvolumeclaims/c";
    let (_, mut object) = send(&server, "GET", path, "", &json!(null)).await;
    object["status"]["phase"] = json!("Bound");
    object["metadata"]["labels"] = json!({"a": "1"});
    let (code, written) = send(&server, "PUT", path, "application/json", &object).await;
    assert_eq!(
        (code, &written["status"]["phase"], &written["metadata"]["labels"]["a"]),
        (200, &json!("Pending"), &json!("1"))
    );
    object["metadata"]["resourceVersion"] = written["metadata"]["resourceVersion"].clone();
    object["spec"]["volumeName"] = json!("v");
    let (code, written) =
        send(&server, "PUT", &format!("{path}/status"), "application/json", &object).await;
    assert_eq!(
        (code, &written["status"]["phase"], &written["spec"]["volumeName"]),
        (200, &json!("Bound"), &json!(null))
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_its_last_object() {
    let server = server();
    server.create(&claim("free")).unwrap();
    let mut held = claim("held");
    held["metadata"]["finalizers"] = json!(["example.com/a"]);
    server.create(&held).unwrap();
    server.delete("Namespace", "", "sc").unwrap();
    assert_eq!(server.get("Namespace", "", "sc").unwrap()["status"]["phase"], "Terminating");
    assert!(server.get("PersistentVolumeClaim", "sc", "free").is_none());
    let refused = server.create(&claim("late")).unwrap_err();
    assert_eq!(refused.code, 403);
    assert!(
        refused.message().contains(
            "unable to create new content in namespace sc because it is being terminated"
        )
    );
    server
        .merge("PersistentVolumeClaim", "sc", "held", &json!({"metadata": {"finalizers": null}}))
        .unwrap();
    assert!(server.get("Namespace", "", "sc").is_none());
}
