//! The server as a client sees it, in process and in paused time.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{ApiServer, Options, User};

mod faults;
mod lists;
mod watches;
mod writes;

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
async fn send(
    server: &ApiServer,
    method: &str,
    uri: &str,
    content_type: &str,
    body: &Value,
) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = http::Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", content_type)
        .body(body.into())
        .unwrap();
    let response = server.handle(&User::new("tester"), request).await;
    let code = response.status().as_u16();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

async fn get(server: &ApiServer, uri: &str) -> (u16, Value) {
    send(server, "GET", uri, "", &Value::Null).await
}
