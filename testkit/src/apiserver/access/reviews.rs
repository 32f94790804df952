//! Questions a client asks about itself, and one about others: may I, what may I, who am I, may they.
//!
//! Owns the answers to `SelfSubjectAccessReview`, `SelfSubjectRulesReview`, `SelfSubjectReview` and
//! `SubjectAccessReview`, which are made and never stored: pure functions of the policy, the user and the question.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};

use super::{
    authorizer::Rbac,
    rbac::{Attempt, Decision, Policy, Rule},
};
use crate::apiserver::{
    ApiServer, Body, User,
    hooks::Extension,
    refuse,
    request_info::RequestInfo,
    respond,
    status::Status,
    tree::{at, set, text},
};

/// Answers clients' questions about themselves.
#[derive(Debug)]
pub struct Reviews(Arc<Rbac>);

impl Reviews {
    /// By the same policy requests are authorized by.
    pub fn new(rbac: Arc<Rbac>) -> Self {
        Self(rbac)
    }
}

impl Extension for Reviews {
    fn answer(
        &self,
        server: &ApiServer,
        user: &User,
        info: &RequestInfo,
        request: &Request<Bytes>,
    ) -> Option<Response<Body>> {
        let ours = matches!(info.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io");
        if !ours || info.verb != "create" {
            return None;
        }
        let Ok(review) = serde_json::from_slice(request.body()) else {
            return Some(refuse(&Status::bad_request("the review is not valid JSON")));
        };
        let answered = answer(&self.0.policy(server), user, &info.resource, &review)?;
        Some(respond(201, answered.to_string()))
    }
}

/// The answer to the question `review` posted to `resource` by `user`; `None` when `resource`
/// is no such question.
pub(crate) fn answer(
    policy: &Policy,
    user: &User,
    resource: &str,
    review: &Value,
) -> Option<Value> {
    let status = match resource {
        "selfsubjectaccessreviews" => access(policy, user, at(review, &["spec"])),
        "subjectaccessreviews" => {
            let spec = at(review, &["spec"]);
            let groups = at(spec, &["groups"]).as_array().into_iter().flatten();
            let groups = groups.filter_map(Value::as_str).map(str::to_owned).collect();
            access(policy, &User { name: text(spec, &["user"]).to_owned(), groups }, spec)
        }
        "selfsubjectrulesreviews" => {
            rules(&policy.rules(user, text(review, &["spec", "namespace"])))
        }
        "selfsubjectreviews" => {
            json!({"userInfo": {"username": user.name, "groups": user.groups}})
        }
        _ => return None,
    };
    let mut answered = review.clone();
    set(&mut answered, &["metadata", "creationTimestamp"], Value::Null);
    set(&mut answered, &["status"], status);
    Some(answered)
}

fn access(policy: &Policy, user: &User, spec: &Value) -> Value {
    match policy.decide(user, &attempt(spec)) {
        Decision::Allowed(reason) if reason.is_empty() => json!({"allowed": true}),
        Decision::Allowed(reason) => json!({"allowed": true, "reason": reason}),
        Decision::NoOpinion(reason) if reason.is_empty() => json!({"allowed": false}),
        Decision::NoOpinion(reason) => json!({"allowed": false, "reason": reason}),
    }
}

fn attempt(spec: &Value) -> Attempt<'_> {
    if at(spec, &["nonResourceAttributes"]).is_object() {
        let field = |name| text(spec, &["nonResourceAttributes", name]);
        return Attempt::Path { verb: field("verb"), path: field("path") };
    }
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

fn rules(rules: &[Rule]) -> Value {
    let (paths, resources): (Vec<&Rule>, Vec<&Rule>) =
        rules.iter().partition(|rule| !rule.paths.is_empty());
    let resource_rules: Vec<Value> = resources.into_iter().map(resource_rule).collect();
    let path_rules: Vec<Value> = paths
        .into_iter()
        .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths}))
        .collect();
    json!({
        "resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": false,
    })
}

fn resource_rule(rule: &Rule) -> Value {
    let mut shown = json!({
        "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
    });
    if !rule.names.is_empty() {
        set(&mut shown, &["resourceNames"], rule.names.clone().into());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::access::rbac::Objects;

    fn policy() -> Policy {
        Policy::new(&Objects {
            cluster_roles: vec![json!({"metadata": {"name": "r"}, "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["a"]},
                {"nonResourceURLs": ["/version"], "verbs": ["get"]},
            ]})],
            cluster_role_bindings: vec![json!({
                "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
                "subjects": [{"kind": "User", "name": "jane"}],
            })],
            ..Objects::default()
        })
    }

    fn jane() -> User {
        User { name: "jane".to_owned(), groups: vec!["g".to_owned()] }
    }

    fn allowed(spec: &Value) -> Value {
        let review = json!({"kind": "SelfSubjectAccessReview", "spec": spec});
        answer(&policy(), &jane(), "selfsubjectaccessreviews", &review).unwrap()["status"].clone()
    }

    #[test]
    fn a_review_of_access_says_what_the_policy_says() {
        let get = |name| json!({"resourceAttributes": {"verb": "get", "resource": "secrets", "name": name}});
        assert_eq!(
            allowed(&get("a")),
            json!({"allowed": true, "reason":
                "RBAC: allowed by ClusterRoleBinding \"b\" of ClusterRole \"r\" to User \"jane\""})
        );
        assert_eq!(allowed(&get("b")), json!({"allowed": false}));
        let path = json!({"nonResourceAttributes": {"verb": "get", "path": "/version"}});
        assert_eq!(allowed(&path)["allowed"], true);
    }

    #[test]
    fn a_review_of_anothers_access_is_about_that_user() {
        let attributes = json!({"verb": "get", "resource": "secrets", "name": "a"});
        for (user, expected) in [("jane", true), ("joe", false)] {
            let review = json!({"spec": {"user": user, "resourceAttributes": attributes}});
            let answer = answer(&policy(), &User::new("joe"), "subjectaccessreviews", &review);
            assert_eq!(answer.unwrap()["status"]["allowed"], expected, "{user}");
        }
    }

    #[test]
    fn a_review_of_rules_lists_them_apart_by_kind() {
        let review = json!({"spec": {"namespace": "sc"}});
        let answer = answer(&policy(), &jane(), "selfsubjectrulesreviews", &review).unwrap();
        let status = &answer["status"];
        assert_eq!(status["resourceRules"][0]["resourceNames"], json!(["a"]));
        assert_eq!(status["nonResourceRules"][0]["nonResourceURLs"], json!(["/version"]));
        assert_eq!(status["incomplete"], false);
    }

    #[test]
    fn who_am_i_tells_name_and_groups() {
        let answer = answer(&policy(), &jane(), "selfsubjectreviews", &json!({})).unwrap();
        assert_eq!(answer["status"]["userInfo"], json!({"username": "jane", "groups": ["g"]}));
    }

    #[test]
    fn other_resources_are_no_questions() {
        assert_eq!(answer(&policy(), &jane(), "secrets", &json!({})), None);
    }
}
