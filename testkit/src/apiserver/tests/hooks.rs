//! The hooks: each is asked, and what it says counts.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::json;

use super::{get, send, volume};
use crate::apiserver::{
    ApiServer, Body, Options, User,
    audit::Recorded,
    hooks::{AuditSink, Authorizer, Denied, Extension, Hooks},
    request_info::RequestInfo,
    respond,
};

/// Lets a user do only what a `ConfigMap` of the server says.
struct ReadsRoles;

impl Authorizer for ReadsRoles {
    fn authorize(
        &self,
        server: &ApiServer,
        user: &User,
        request: &RequestInfo,
    ) -> Result<(), Denied> {
        let roles = server.get("ConfigMap", "default", "roles");
        let may = roles.is_some_and(|roles| roles["data"][&request.verb] == json!(user.name));
        if may {
            Ok(())
        } else {
            Err(Denied { message: format!("User {:?} cannot {} it", user.name, request.verb) })
        }
    }
}

/// Answers health checks and one subresource.
struct Health;

impl Extension for Health {
    fn answer(
        &self,
        _: &ApiServer,
        _: &User,
        info: &RequestInfo,
        request: &Request<Bytes>,
    ) -> Option<Response<Body>> {
        match (info.path.as_str(), info.subresource.as_str()) {
            ("/healthz", _) => Some(respond(200, "\"ok\"")),
            (_, "token") => Some(respond(201, request.body().clone())),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct Log(Mutex<Vec<String>>);

impl AuditSink for Log {
    fn record(&self, recorded: &Recorded) {
        self.0.lock().push(format!("{} {}", recorded.what(), recorded.code));
    }
}

fn hooked(hooks: Hooks) -> ApiServer {
    ApiServer::new(Options { hooks, ..Options::default() })
}

#[tokio::test(start_paused = true)]
async fn the_authorizer_refuses_with_its_words_and_can_read_the_server() {
    let server = hooked(Hooks { authorizer: Arc::new(ReadsRoles), ..Hooks::default() });
    let (code, status) = get(&server, "/api/v1/persistentvolumes/v").await;
    assert_eq!((code, status["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(
        status["message"],
        "persistentvolumes \"v\" is forbidden: User \"tester\" cannot get it"
    );
    server.create(&json!({"kind": "ConfigMap", "metadata": {"name": "roles", "namespace": "default"}, "data": {"get": "tester"}})).unwrap();
    assert_eq!(get(&server, "/api/v1/persistentvolumes/v").await.0, 404);
    assert_eq!(get(&server, "/api/v1/persistentvolumes").await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn extensions_answer_what_the_kinds_do_not() {
    let server = hooked(Hooks { extensions: vec![Arc::new(Health)], ..Hooks::default() });
    assert_eq!(get(&server, "/healthz").await, (200, json!("ok")));
    let token = json!({"spec": {"expirationSeconds": 60}});
    let path = "/api/v1/namespaces/default/serviceaccounts/s/token";
    assert_eq!(send(&server, "POST", path, "application/json", &token).await, (201, token));
    assert_eq!(get(&server, "/readyz").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn the_audit_sink_gets_each_request() {
    let log = Arc::new(Log::default());
    let server = hooked(Hooks { audit: vec![log.clone()], ..Hooks::default() });
    get(&server, "/api/v1/persistentvolumes/v").await;
    send(&server, "POST", "/api/v1/persistentvolumes", "application/json", &volume("v")).await;
    get(&server, "/healthz").await;
    assert_eq!(
        *log.0.lock(),
        ["get persistentvolumes 404", "create persistentvolumes 201", "get /healthz 404"]
    );
}
