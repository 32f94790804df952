//! Kinds: custom ones, versions, conversions, and what is refused by path.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{get, send, server, volume};
use crate::apiserver::{ApiServer, Options, User, resources::ServerVersion};

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "volumesnapshots.snapshot.storage.k8s.io"},
        "spec": {"group": "snapshot.storage.k8s.io", "scope": "Namespaced",
            "names": {"plural": "volumesnapshots", "singular": "volumesnapshot", "kind": "VolumeSnapshot", "listKind": "VolumeSnapshotList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}}]}})
}

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/sc/volumesnapshots";

#[tokio::test(start_paused = true)]
async fn a_definition_makes_its_kind_served_and_takes_it_along() {
    let server = server();
    assert_eq!(get(&server, SNAPSHOTS).await.0, 404);
    let created = server.create(&definition()).unwrap();
    assert!(
        created["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["type"] == "Established")
    );
    let snapshot = json!({"kind": "VolumeSnapshot", "apiVersion": "snapshot.storage.k8s.io/v1", "metadata": {"name": "s"},
        "spec": {"future": [1]}, "status": {"readyToUse": true}});
    let (code, made) = send(&server, "POST", SNAPSHOTS, "application/json", &snapshot).await;
    assert_eq!((code, &made["spec"]["future"], &made["status"]), (201, &json!([1]), &Value::Null));
    let status =
        json!({"status": {"readyToUse": true}, "metadata": {"labels": {"ignored": "here"}}});
    let (_, ready) = send(
        &server,
        "PATCH",
        &format!("{SNAPSHOTS}/s/status"),
        "application/merge-patch+json",
        &status,
    )
    .await;
    assert_eq!(
        (
            &ready["status"]["readyToUse"],
            &ready["metadata"]["labels"],
            &ready["metadata"]["generation"]
        ),
        (&json!(true), &Value::Null, &json!(1))
    );
    let strategic = send(
        &server,
        "PATCH",
        &format!("{SNAPSHOTS}/s"),
        "application/strategic-merge-patch+json",
        &json!({}),
    )
    .await;
    assert_eq!(strategic.0, 415);
    let (_, list) = get(&server, SNAPSHOTS).await;
    assert_eq!(
        (&list["kind"], &list["items"][0]["kind"]),
        (&json!("VolumeSnapshotList"), &json!("VolumeSnapshot"))
    );
    server
        .delete("CustomResourceDefinition", "", "volumesnapshots.snapshot.storage.k8s.io")
        .unwrap();
    assert_eq!(get(&server, SNAPSHOTS).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn the_same_capacity_is_read_through_each_version_served() {
    let server =
        ApiServer::new(Options { version: ServerVersion::minor(24), ..Options::default() });
    let capacity =
        json!({"metadata": {"name": "c"}, "storageClassName": "s", "capacity": "1024Mi"});
    let path =
        |version| format!("/apis/storage.k8s.io/{version}/namespaces/default/csistoragecapacities");
    assert_eq!(send(&server, "POST", &path("v1beta1"), "application/json", &capacity).await.0, 201);
    let (_, read) = get(&server, &format!("{}/c", path("v1"))).await;
    assert_eq!(
        (&read["apiVersion"], &read["capacity"]),
        (&json!("storage.k8s.io/v1"), &json!("1Gi"))
    );
    let invalid = json!({"metadata": {"name": "#%123-invalid-name"}, "storageClassName": "s"});
    let (code, status) = send(&server, "POST", &path("v1"), "application/json", &invalid).await;
    assert_eq!(code, 422);
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("CSIStorageCapacity.storage.k8s.io \"#%123-invalid-name\" is invalid: metadata.name: Invalid value: "), "{message}");
    let changed = json!({"storageClassName": "t"});
    let (code, status) = send(
        &server,
        "PATCH",
        &format!("{}/c", path("v1")),
        "application/merge-patch+json",
        &changed,
    )
    .await;
    assert_eq!(code, 422);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .ends_with("storageClassName: Invalid value: \"t\": field is immutable")
    );
}

#[tokio::test(start_paused = true)]
async fn what_no_kind_answers_is_refused_in_the_real_shape() {
    let server = server();
    server.create(&volume("v")).unwrap();
    for path in [
        "/api/v1/tapes",
        "/apis/storage.k8s.io/v9/storageclasses",
        "/api/v1/persistentvolumes/v/scale",
        "/nothing",
        "/api/v1/namespaces/sc/nodes",
    ] {
        let request = http::Request::get(path).body(Bytes::new()).unwrap();
        let response = server.handle(&User::new("tester"), request).await;
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        assert_eq!(body.to_bytes(), "404 page not found\n");
    }
    let (code, status) =
        send(&server, "POST", "/api/v1/persistentvolumes/v", "application/json", &volume("v"))
            .await;
    assert_eq!((code, status["reason"].as_str()), (405, Some("MethodNotAllowed")));
    assert_eq!(
        send(&server, "PUT", "/api/v1/persistentvolumes", "application/json", &volume("v")).await.0,
        405
    );
    let (code, status) = send(
        &server,
        "POST",
        "/api/v1/persistentvolumes",
        "application/vnd.kubernetes.protobuf",
        &volume("w"),
    )
    .await;
    assert_eq!((code, status["reason"].as_str()), (415, Some("UnsupportedMediaType")));
    let request =
        http::Request::post("/api/v1/persistentvolumes").body("{not json".into()).unwrap();
    assert_eq!(server.handle(&crate::apiserver::User::default(), request).await.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn an_event_stands_in_its_objects_namespace() {
    let server = server();
    let event = |involved: &str| json!({"kind": "Event", "metadata": {"name": format!("e-{involved}"), "namespace": "sc"}, "involvedObject": {"namespace": involved}});
    assert!(server.create(&event("sc")).is_ok());
    let refused = server.create(&event("other")).unwrap_err();
    assert_eq!(
        refused.message(),
        "Event \"e-other\" is invalid: involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_has_one_controller() {
    let server = server();
    let owner = |name: &str| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true});
    let mut object = volume("v");
    object["metadata"]["ownerReferences"] = json!([owner("old"), owner("new")]);
    let refused = server.create(&object).unwrap_err();
    assert!(refused.message().contains(
        "Only one reference can have Controller set to true. Found \"true\" in references for ReplicaSet/old and ReplicaSet/new"
    ));
}
