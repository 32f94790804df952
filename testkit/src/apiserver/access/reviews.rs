//! Questions that a client asks about rights: may I, what may I, may they. The answers are made and
//! never stored.

use bytes::Bytes;
use http::{Request, Response};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use super::rbac::{Attempt, Policy, Rbac};
use crate::apiserver::{
    ApiServer, Body, User, refuse,
    request_info::RequestInfo,
    respond,
    status::Status,
    tree::{at, items, set, text},
};

/// The answer by the policy that requests are authorized by; nothing to a request that asks no such question.
pub(in crate::apiserver) fn answer(
    rbac: &Rbac,
    server: &ApiServer,
    user: &User,
    info: &RequestInfo,
    request: &Request<Bytes>,
) -> Option<Response<Body>> {
    if info.group != "authorization.k8s.io" || info.verb != "create" {
        return None;
    }
    let Ok(review) = serde_json::from_slice(request.body()) else {
        return Some(refuse(&Status::bad_request("the review is not valid JSON")));
    };
    let answered = answered(&rbac.policy(server), user, &info.resource, review)?;
    Some(respond(201, answered.to_string()))
}

/// The review with its answer; `None` when `resource` is no such question.
fn answered(policy: &Policy, user: &User, resource: &str, mut review: Value) -> Option<Value> {
    let spec = at(&review, &["spec"]);
    let status = match resource {
        "selfsubjectaccessreviews" => access(policy, user, spec),
        "subjectaccessreviews" => {
            let groups = items(spec, &["groups"]).iter().filter_map(Value::as_str);
            let groups = groups.map(str::to_owned).collect();
            access(policy, &User { name: text(spec, &["user"]).to_owned(), groups }, spec)
        }
        "selfsubjectrulesreviews" => rules(&policy.rules(user, text(spec, &["namespace"]))),
        _ => return None,
    };
    set(&mut review, &["metadata", "creationTimestamp"], Value::Null);
    set(&mut review, &["status"], status);
    Some(review)
}

fn access(policy: &Policy, user: &User, spec: &Value) -> Value {
    json!({"allowed": policy.allows(user, &attempt(spec))})
}

fn attempt(spec: &Value) -> Attempt<'_> {
    let field = |name| text(spec, &["resourceAttributes", name]);
    Attempt::Resource {
        verb: field("verb"),
        group: field("group"),
        resource: field("resource"),
        subresource: field("subresource"),
        namespace: field("namespace"),
        name: field("name"),
    }
}

fn rules(rules: &[PolicyRule]) -> Value {
    let is_path = |rule: &&PolicyRule| rule.non_resource_urls.is_some();
    let (paths, resources): (Vec<_>, Vec<_>) = rules.iter().partition(is_path);
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}
