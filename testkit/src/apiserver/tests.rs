//! The server as a client sees it, in process and in paused time.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams},
};
use serde_json::{Value, json};

use super::{
    ApiServer, Options, User,
    faults::{Effect, Rule, StreamFault},
    resources::{ServerVersion, StreamingLists},
    status::Status,
};

fn server() -> ApiServer {
    let server = ApiServer::new(Options::default());
    server.namespace("sc");
    server
}

fn client(server: &ApiServer) -> Client {
    server.client(User::new("tester"))
}

fn volumes(server: &ApiServer) -> Api<PersistentVolume> {
    Api::all(client(server))
}

fn claims(server: &ApiServer) -> Api<PersistentVolumeClaim> {
    Api::namespaced(client(server), "sc")
}

fn volume(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "csi": {"driver": "d.example.com", "volumeHandle": name}}})
}

fn claim(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "sc"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn refusal(error: kube::Error) -> (u16, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.message),
        other => panic!("no answer of the server: {other}"),
    }
}

/// A request without a client in between.
async fn send(server: &ApiServer, method: &str, uri: &str, content_type: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = http::Request::builder().method(method).uri(uri).header("content-type", content_type).body(body.into()).unwrap();
    let response = server.handle(&User::new("tester"), request).await;
    let code = response.status().as_u16();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

async fn get(server: &ApiServer, uri: &str) -> (u16, Value) {
    send(server, "GET", uri, "", &Value::Null).await
}

// === Create, read, update, delete ===

#[tokio::test(start_paused = true)]
async fn a_created_object_has_what_the_server_gives_it() {
    let server = server();
    let created = claims(&server).create(&PostParams::default(), &typed(claim("c"))).await.unwrap();
    assert_eq!(created.metadata.namespace.as_deref(), Some("sc"));
    assert_eq!(created.metadata.uid.as_deref().map(str::len), Some(36));
    assert!(created.metadata.creation_timestamp.is_some() && created.metadata.resource_version.is_some());
    assert_eq!(created.status.unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(created.spec.unwrap().volume_mode.as_deref(), Some("Filesystem"));
    let again = claims(&server).create(&PostParams::default(), &typed(claim("c"))).await.unwrap_err();
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
    let (code, message) = refusal(api.replace("c", &PostParams::default(), &changed).await.unwrap_err());
    assert_eq!(code, 409);
    assert_eq!(message, Status::modified(server.kinds().iter().find(|k| k.kind == "PersistentVolumeClaim").unwrap(), "c").message());
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
    let added = json!({"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}});
    let (code, message) = refusal(api.patch("v", &PatchParams::default(), &Patch::Merge(added)).await.unwrap_err());
    assert_eq!(code, 422);
    assert!(message.contains("no new finalizers can be added if the object is being deleted"), "{message}");
    let remove = |name| Patch::Strategic(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [name]}}));
    api.patch("v", &PatchParams::default(), &remove("example.com/a")).await.unwrap();
    assert!(server.get("PersistentVolume", "", "v").is_some());
    api.patch("v", &PatchParams::default(), &remove("example.com/b")).await.unwrap();
    assert!(server.get("PersistentVolume", "", "v").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_delete_keeps_to_its_preconditions() {
    let server = server();
    let api = volumes(&server);
    let uid = api.create(&PostParams::default(), &typed(volume("v"))).await.unwrap().metadata.uid;
    let other = Preconditions { uid: Some("other".to_owned()), resource_version: None };
    let (code, message) = refusal(api.delete("v", &DeleteParams::default().preconditions(other)).await.unwrap_err());
    assert_eq!(code, 409);
    assert!(message.contains("the UID in the precondition (other) does not match the UID in record"), "{message}");
    api.delete("v", &DeleteParams::default().preconditions(Preconditions { uid, resource_version: None })).await.unwrap();
    assert_eq!(server.count("PersistentVolume"), 0);
}

// === Watches ===

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_happened_since_its_version() {
    let server = server();
    let api = volumes(&server);
    let since = server.revision().to_string();
    server.create(&volume("a")).unwrap();
    server.merge("PersistentVolume", "", "a", &json!({"metadata": {"labels": {"x": "1"}}})).unwrap();
    server.delete("PersistentVolume", "", "a").unwrap();
    let mut events = api.watch(&WatchParams::default(), &since).await.unwrap().boxed();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(match events.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            other => panic!("unexpected {other:?}"),
        });
    }
    assert_eq!(seen, ["added", "modified", "deleted"]);
}
