//! `serviceaccounts/NAME/token`: tokens on demand, valid for as long as the server runs.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};

use super::auth::{Tokens, service_account};
use crate::apiserver::{
    ApiServer, Body, User, hooks::Extension, refuse, request_info::RequestInfo, respond,
    status::Status,
};

/// Makes tokens for service accounts.
#[derive(Debug)]
pub(crate) struct TokenRequests(Arc<Tokens>);

impl TokenRequests {
    /// Made tokens become known to `tokens`.
    pub(crate) fn new(tokens: Arc<Tokens>) -> Self {
        Self(tokens)
    }

    fn create(&self, server: &ApiServer, info: &RequestInfo) -> Result<Value, Status> {
        if server.get("ServiceAccount", &info.namespace, &info.name).is_none() {
            return Err(missing(server, &info.name));
        }
        let token = self.0.issue(service_account(&info.namespace, &info.name));
        Ok(json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": info.name, "namespace": info.namespace},
            "status": {"token": token},
        }))
    }
}

fn missing(server: &ApiServer, name: &str) -> Status {
    let kinds = server.kinds();
    let account = kinds.iter().find(|kind| kind.is("", "ServiceAccount"));
    account.map_or_else(Status::no_such_path, |kind| Status::not_found(kind, name))
}

impl Extension for TokenRequests {
    fn answer(
        &self,
        server: &ApiServer,
        _user: &User,
        info: &RequestInfo,
        _request: &Request<Bytes>,
    ) -> Option<Response<Body>> {
        let asked = (info.resource.as_str(), info.subresource.as_str(), info.verb.as_str());
        (info.group.is_empty() && asked == ("serviceaccounts", "token", "create")).then(|| {
            match self.create(server, info) {
                Ok(made) => respond(201, made.to_string()),
                Err(status) => refuse(&status),
            }
        })
    }
}
