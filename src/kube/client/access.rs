//! What the API server lets us do, asked of the server itself.
//!
//! Owns the two questions of `authorization.k8s.io/v1`: all rights in a namespace at once
//! (`SelfSubjectRulesReview`), and one right (`SelfSubjectAccessReview`). Neither changes anything,
//! and every authenticated user may ask as a rule. Leaves what is needed to `preflight`.

use serde::Deserialize;
use serde_json::json;

use super::Client;
use crate::kube::error::ApiError;

/// One right, as a rule of RBAC grants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right<'a> {
    /// The verb.
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
}

/// All rights in a namespace, those that hold in every one included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rules {
    /// Some part of the server could not tell its rules: what is not listed may be granted still.
    pub incomplete: bool,
    resource_rules: Vec<Layer>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Layer {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Review<T> {
    status: T,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Access {
    allowed: bool,
}

impl Rules {
    /// Whether a rule grants the right, be it on one name only.
    pub fn grant(&self, right: Right<'_>) -> bool {
        self.resource_rules.iter().any(|rule| rule.grants(right))
    }
}

impl Layer {
    fn grants(&self, right: Right<'_>) -> bool {
        let has = |list: &[String], it: &str| list.iter().any(|one| one == "*" || one == it);
        // Names keep nobody from what is created or listed, since they are not known yet.
        let named = self.resource_names.is_empty()
            || matches!(right.verb, "get" | "update" | "patch" | "delete");
        named
            && has(&self.verbs, right.verb)
            && has(&self.api_groups, right.group)
            && has(&self.resources, right.resource)
    }
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

impl Client {
    /// All rights in `namespace`.
    pub async fn rules_in(&self, namespace: &str) -> Result<Rules, ApiError> {
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        });
        let path = format!("{REVIEWS}/selfsubjectrulesreviews");
        self.ask(path, &question).await.map(|review: Review<Rules>| review.status)
    }

    /// Whether there is this right in `namespace`, or in all of them.
    pub async fn may(&self, right: Right<'_>, namespace: Option<&str>) -> Result<bool, ApiError> {
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": right.verb,
                "group": right.group,
                "resource": right.resource,
                "namespace": namespace.unwrap_or_default(),
            }},
        });
        let path = format!("{REVIEWS}/selfsubjectaccessreviews");
        self.ask(path, &question).await.map(|review: Review<Access>| review.status.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rule: &serde_json::Value) -> Rules {
        serde_json::from_value(json!({"resourceRules": [rule]})).unwrap()
    }

    fn right(verb: &'static str) -> Right<'static> {
        Right { verb, group: "storage.k8s.io", resource: "csinodes" }
    }

    #[test]
    fn a_rule_grants_what_it_lists_and_stars_are_everything() {
        for (rule, granted) in [
            (
                json!({"verbs": ["get"], "apiGroups": ["storage.k8s.io"], "resources": ["csinodes"]}),
                true,
            ),
            (json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}), true),
            (
                json!({"verbs": ["list"], "apiGroups": ["storage.k8s.io"], "resources": ["csinodes"]}),
                false,
            ),
            (json!({"verbs": ["get"], "apiGroups": [""], "resources": ["csinodes"]}), false),
            (
                json!({"verbs": ["get"], "apiGroups": ["storage.k8s.io"], "resources": ["nodes"]}),
                false,
            ),
            (json!({"verbs": ["get"], "nonResourceURLs": ["*"]}), false),
        ] {
            assert_eq!(rules(&rule).grant(right("get")), granted, "{rule}");
        }
    }

    #[test]
    fn names_grant_single_objects_but_no_lists() {
        let rules = rules(&json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                                  "resourceNames": ["a"]}));
        assert!(rules.grant(right("get")) && rules.grant(right("update")));
        assert!(!rules.grant(right("list")) && !rules.grant(right("create")));
    }
}
