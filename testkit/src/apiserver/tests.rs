//! The server as a client sees it, in process and in paused time.

use serde_json::{Value, json};

use super::{ApiServer, Options, User};

mod lists;
mod watches;

fn server() -> ApiServer {
    let server = ApiServer::new(Options::default());
    server.namespace("sc");
    server
}

fn volume(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "csi": {"driver": "d.example.com", "volumeHandle": name}}})
}

async fn get(server: &ApiServer, uri: &str) -> (u16, Value) {
    let request = http::Request::builder().uri(uri).body(bytes::Bytes::new()).unwrap();
    let response = server.handle(&User::new("tester"), request).await;
    let code = response.status().as_u16();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}
