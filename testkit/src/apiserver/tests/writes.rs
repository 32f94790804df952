//! Create, update and delete.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{claim, claims, refusal, send, server, typed, volume, volumes};
use crate::apiserver::status::Status;

#[tokio::test(start_paused = true)]
async fn a_created_object_has_what_the_server_gives_it() {
    let server = server();
    let created = claims(&server).create(&PostParams::default(), &typed(claim("c"))).await.unwrap();
    assert_eq!(created.metadata.namespace.as_deref(), Some("sc"));
    assert_eq!(created.metadata.uid.as_deref().map(str::len), Some(36));
    assert!(
        created.metadata.creation_timestamp.is_some()
            && created.metadata.resource_version.is_some()
    );
    assert_eq!(created.status.unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(created.spec.unwrap().volume_mode.as_deref(), Some("Filesystem"));
    let again =
        claims(&server).create(&PostParams::default(), &typed(claim("c"))).await.unwrap_err();
    assert_eq!(refusal(again), (409, "persistentvolumeclaims \"c\" already exists".to_owned()));
    let missing = claims(&server).get("x").await.unwrap_err();
    assert_eq!(refusal(missing), (404, "persistentvolumeclaims \"x\" not found".to_owned()));
}

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
async fn a_put_checks_uid_and_names_and_may_need_a_version() {
    let server = server();
    server.create(&volume("v")).unwrap();
    let path = "/api/v1/persistentvolumes/v";
    let put = async |change: &[&str], value: serde_json::Value| {
        let mut object = server.get("PersistentVolume", "", "v").unwrap();
        crate::apiserver::tree::set(&mut object, change, value);
        send(&server, "PUT", path, "application/json", &object).await
    };
    let (code, status) = put(&["metadata", "uid"], json!("other")).await;
    assert_eq!((code, status["reason"].as_str()), (409, Some("Conflict")));
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("Precondition failed: UID in precondition: other, UID in object meta: ")
    );
    assert_eq!(put(&["metadata", "name"], json!("w")).await.0, 400);
    assert_eq!(put(&["metadata", "resourceVersion"], json!("1")).await.0, 409);
    assert_eq!(
        put(&["metadata", "resourceVersion"], json!("")).await.0,
        200,
        "a volume may be put without"
    );

    server
        .create(&json!({"kind": "Lease", "metadata": {"name": "l", "namespace": "sc"}, "spec": {}}))
        .unwrap();
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/sc/leases";
    let (code, status) =
        send(&server, "PUT", &format!("{path}/l"), "application/json", &lease).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Lease.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    let new = json!({"metadata": {"name": "new"}, "spec": {}});
    assert_eq!(send(&server, "PUT", &format!("{path}/new"), "application/json", &new).await.0, 201);
    let absent = send(
        &server,
        "PUT",
        "/api/v1/persistentvolumes/absent",
        "application/json",
        &volume("absent"),
    )
    .await;
    assert_eq!(absent.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_create_needs_its_namespace_and_no_version() {
    let server = server();
    let post = async |namespace: &str, object: serde_json::Value| {
        send(
            &server,
            "POST",
            &format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims"),
            "application/json",
            &object,
        )
        .await
    };
    let mut elsewhere = claim("c");
    elsewhere["metadata"]["namespace"] = json!("nowhere");
    let (code, status) = post("nowhere", elsewhere.clone()).await;
    assert_eq!((code, status["message"].as_str()), (404, Some("namespaces \"nowhere\" not found")));
    assert_eq!(post("sc", elsewhere).await.0, 400);
    let mut versioned = claim("c");
    versioned["metadata"]["resourceVersion"] = json!("5");
    assert_eq!(post("sc", versioned).await.0, 500);
    let mut other = claim("c");
    other["kind"] = json!("Secret");
    assert_eq!(post("sc", other).await.0, 400);
    assert_eq!(post("sc", json!("text")).await.0, 400);
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
