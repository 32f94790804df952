//! Patches through the server: types, preconditions, refusals.

use serde_json::{Value, json};

use super::{claim, send, server};
use crate::apiserver::ApiServer;

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const PATH: &str = "/api/v1/namespaces/sc/persistentvolumeclaims/c";

fn with_claim() -> ApiServer {
    let server = server();
    let mut object = claim("c");
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    object["metadata"]["annotations"] = json!({"a": "1"});
    server.create(&object).unwrap();
    server
}

async fn patch(server: &ApiServer, content_type: &str, body: Value) -> (u16, Value) {
    send(server, "PATCH", PATH, content_type, &body).await
}

#[tokio::test(start_paused = true)]
async fn each_type_of_patch_does_what_it_says() {
    let finalizers = |object: &Value| object["metadata"]["finalizers"].clone();
    let cases = [
        (MERGE, json!({"metadata": {"finalizers": ["example.com/b"]}}), json!(["example.com/b"])),
        (MERGE, json!({"metadata": {"finalizers": null}}), Value::Null),
        (
            STRATEGIC,
            json!({"metadata": {"finalizers": ["example.com/b"]}}),
            json!(["example.com/b", "example.com/a"]),
        ),
        (
            STRATEGIC,
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}),
            Value::Null,
        ),
        (
            JSON,
            json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b"}]),
            json!(["example.com/a", "example.com/b"]),
        ),
        (
            JSON,
            json!([{"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/a"}, {"op": "remove", "path": "/metadata/finalizers"}]),
            Value::Null,
        ),
        (
            APPLY,
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "finalizers": ["example.com/b"]}}),
            json!(["example.com/a", "example.com/b"]),
        ),
    ];
    for (content_type, body, expected) in cases {
        let server = with_claim();
        let (code, object) = patch(&server, content_type, body.clone()).await;
        assert_eq!((code, finalizers(&object)), (200, expected), "{content_type} {body}");
        assert_eq!(object["metadata"]["annotations"], json!({"a": "1"}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_without_precondition_never_conflicts_and_one_with_keeps_to_it() {
    let server = with_claim();
    let old = server.get("PersistentVolumeClaim", "sc", "c").unwrap();
    let (version, uid) = (&old["metadata"]["resourceVersion"], &old["metadata"]["uid"]);
    assert_eq!(
        patch(&server, MERGE, json!({"metadata": {"annotations": {"b": "2"}}})).await.0,
        200
    );
    let stale = json!({"metadata": {"resourceVersion": version, "annotations": {"c": "3"}}});
    let (code, status) = patch(&server, MERGE, stale).await;
    assert_eq!((code, status["reason"].as_str()), (409, Some("Conflict")));
    assert!(status["message"].as_str().unwrap().contains("the object has been modified"));
    assert_eq!(
        patch(&server, MERGE, json!({"metadata": {"uid": uid, "annotations": {"c": "3"}}})).await.0,
        200
    );
    let (code, status) = patch(&server, MERGE, json!({"metadata": {"uid": "other"}})).await;
    assert_eq!(code, 422, "as the real server: an UID in a patch is a change of the UID");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .ends_with("metadata.uid: Invalid value: \"other\": field is immutable")
    );
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_changes_nothing_keeps_the_version() {
    let server = with_claim();
    let before = server.revision();
    let (_, object) =
        patch(&server, STRATEGIC, json!({"metadata": {"finalizers": ["example.com/a"]}})).await;
    assert_eq!(
        (server.revision(), object["metadata"]["annotations"]["a"].as_str()),
        (before, Some("1"))
    );
}

#[tokio::test(start_paused = true)]
async fn patches_that_do_not_fit_are_refused() {
    let server = with_claim();
    assert_eq!(
        patch(&server, JSON, json!([{"op": "remove", "path": "/metadata/nothing"}])).await.0,
        422
    );
    assert_eq!(patch(&server, JSON, json!({"op": "remove"})).await.0, 400);
    let (code, status) = patch(&server, "application/json", json!({})).await;
    assert_eq!(code, 415);
    assert_eq!(
        status["message"],
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
         application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"
    );
    assert_eq!(patch(&server, MERGE, json!({"metadata": {"name": "d"}})).await.0, 400);
    assert_eq!(
        patch(&server, MERGE, json!({"spec": {"accessModes": ["ReadWriteMany"]}})).await.0,
        422
    );
    assert_eq!(
        send(&server, "PATCH", "/api/v1/persistentvolumes/absent", MERGE, &json!({})).await.0,
        404
    );
    assert_eq!(patch(&server, MERGE, json!("text")).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_server_side_apply_creates_what_is_absent() {
    let server = server();
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"}, "provisioner": "p"});
    let path = "/apis/storage.k8s.io/v1/storageclasses/s?fieldManager=me";
    assert_eq!(send(&server, "PATCH", path, APPLY, &class).await.0, 201);
    assert_eq!(send(&server, "PATCH", path, APPLY, &class).await.0, 200);
    assert_eq!(server.get("StorageClass", "", "s").unwrap()["reclaimPolicy"], "Delete");
}
