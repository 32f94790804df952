//! `serviceaccounts/NAME/token`: tokens on demand.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::auth::{Tokens, service_account};
use crate::apiserver::{
    ApiServer, Body, User,
    hooks::Extension,
    refuse,
    request_info::RequestInfo,
    respond,
    status::{FieldError, Status},
    tree::at,
};

/// How long a token is valid when nothing is said; the real server's default.
const DEFAULT_SECONDS: i64 = 3600;

/// The shortest time the real server accepts.
const LEAST_SECONDS: i64 = 600;

/// Makes tokens for service accounts.
#[derive(Debug)]
pub(crate) struct TokenRequests(Arc<Tokens>);

impl TokenRequests {
    /// Made tokens become known to `tokens`.
    pub(crate) fn new(tokens: Arc<Tokens>) -> Self {
        Self(tokens)
    }

    fn create(&self, server: &ApiServer, info: &RequestInfo, body: &[u8]) -> Result<Value, Status> {
        if server.get("ServiceAccount", &info.namespace, &info.name).is_none() {
            return Err(missing(server, &info.name));
        }
        let asked: Value = serde_json::from_slice(body)
            .map_err(|error| Status::bad_request(format!("invalid JSON: {error}")))?;
        let seconds = lifetime(&asked)?;
        let user = service_account(&info.namespace, &info.name);
        let (token, expires) =
            self.0.issue(user, SignedDuration::from_secs(seconds), server.now())?;
        Ok(json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": info.name, "namespace": info.namespace,
                "creationTimestamp": server.timestamp(),
            },
            "spec": {
                "audiences": at(&asked, &["spec", "audiences"]), "expirationSeconds": seconds,
                "boundObjectRef": null,
            },
            "status": {
                "token": token,
                "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            },
        }))
    }
}

fn missing(server: &ApiServer, name: &str) -> Status {
    let kinds = server.kinds();
    let account = kinds.iter().find(|kind| kind.is("", "ServiceAccount"));
    account.map_or_else(Status::no_such_path, |kind| Status::not_found(kind, name))
}

fn lifetime(asked: &Value) -> Result<i64, Status> {
    let seconds = at(asked, &["spec", "expirationSeconds"]);
    let number = seconds.as_i64().unwrap_or(DEFAULT_SECONDS);
    if number >= LEAST_SECONDS {
        return Ok(number);
    }
    let detail = "may not specify a duration less than 10 minutes";
    let error = FieldError::invalid("spec.expirationSeconds", seconds, detail);
    Err(Status::invalid_kind("authentication.k8s.io", "TokenRequest", "", &[error]))
}

impl Extension for TokenRequests {
    fn answer(
        &self,
        server: &ApiServer,
        _user: &User,
        info: &RequestInfo,
        request: &Request<Bytes>,
    ) -> Option<Response<Body>> {
        let asked = (info.resource.as_str(), info.subresource.as_str(), info.verb.as_str());
        (info.group.is_empty() && asked == ("serviceaccounts", "token", "create")).then(|| {
            match self.create(server, info, request.body()) {
                Ok(made) => respond(201, made.to_string()),
                Err(status) => refuse(&status),
            }
        })
    }
}
