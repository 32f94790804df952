//! `serviceaccounts/NAME/token`: tokens on demand, valid for as long as the server runs.

use http::Response;
use serde_json::{Value, json};

use super::auth::{Tokens, service_account};
use crate::apiserver::{
    ApiServer, Body, refuse, request_info::RequestInfo, respond, status::Status,
};

/// For how long a token is said to be valid.
const VALIDITY: jiff::SignedDuration = jiff::SignedDuration::from_hours(24 * 365);

/// The answer to a request for a token, which becomes known to `tokens`; nothing to other requests.
pub(in crate::apiserver) fn answer(
    tokens: &Tokens,
    server: &ApiServer,
    info: &RequestInfo,
) -> Option<Response<Body>> {
    let asked = (info.resource.as_str(), info.subresource.as_str(), info.verb.as_str());
    (info.group.is_empty() && asked == ("serviceaccounts", "token", "create")).then(
        || match create(tokens, server, info) {
            Ok(made) => respond(201, made.to_string()),
            Err(status) => refuse(&status),
        },
    )
}

fn create(tokens: &Tokens, server: &ApiServer, info: &RequestInfo) -> Result<Value, Status> {
    if server.get("ServiceAccount", &info.namespace, &info.name).is_none() {
        return Err(missing(server, &info.name));
    }
    let token = tokens.issue(service_account(&info.namespace, &info.name));
    let end = server.now().saturating_add(VALIDITY).unwrap_or(jiff::Timestamp::MAX);
    Ok(json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": info.name, "namespace": info.namespace},
        "status": {"token": token, "expirationTimestamp": end.to_string()},
    }))
}

fn missing(server: &ApiServer, name: &str) -> Status {
    let kinds = server.kinds();
    let account = kinds.iter().find(|kind| kind.is("", "ServiceAccount"));
    account.map_or_else(Status::no_such_path, |kind| Status::not_found(kind, name))
}
