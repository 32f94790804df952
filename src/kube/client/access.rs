//! Asks the API server which rights this program has.
//!
//! Uses the reviews of `authorization.k8s.io/v1`: `SelfSubjectRulesReview` for all rights in a namespace,
//! `SelfSubjectAccessReview` for one right. None changes anything. By default every authenticated user may
//! create both.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Client;
use crate::kube::error::ApiError;

/// One right, as a rule of RBAC grants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission<'a> {
    /// The verb.
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
}

/// All rights in a namespace, including cluster-wide ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rules {
    /// Whether an authorizer of the server cannot list its rules: a right that is not listed may be
    /// granted all the same.
    pub incomplete: bool,
    resource_rules: Vec<ResourceRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceRule {
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
    /// Whether a rule grants the right, at least for one name.
    pub fn grant(&self, right: Permission<'_>) -> bool {
        self.resource_rules.iter().any(|rule| rule.grants(right))
    }
}

impl ResourceRule {
    fn grants(&self, right: Permission<'_>) -> bool {
        let has = |list: &[String], it: &str| list.iter().any(|one| one == "*" || one == it);
        // A rule with names grants no verb whose requests name no object.
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
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        });
        let path = format!("{REVIEWS}/selfsubjectrulesreviews");
        self.review(path, &review).await.map(|review: Review<Rules>| review.status)
    }

    /// Whether this program has `right` in `namespace`; `None` means in all namespaces.
    pub async fn may(
        &self,
        right: Permission<'_>,
        namespace: Option<&str>,
    ) -> Result<bool, ApiError> {
        let spec = json!({"resourceAttributes": attributes(right, namespace)});
        self.access("SelfSubjectAccessReview", &spec).await
    }

    /// Posts a review of this kind, such as `SubjectAccessReview`, about one right.
    pub async fn access(&self, kind: &str, spec: &Value) -> Result<bool, ApiError> {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
        let path = format!("{REVIEWS}/{}s", kind.to_ascii_lowercase());
        self.review(path, &review).await.map(|review: Review<Access>| review.status.allowed)
    }
}

/// The right as `resourceAttributes` of a review, in `namespace` or, if `None`, in all namespaces.
pub fn attributes(right: Permission<'_>, namespace: Option<&str>) -> Value {
    json!({
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "namespace": namespace.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_grants_what_it_lists_a_star_all_and_one_with_names_no_lists() {
        let (all, named) = ([&["*"][..]; 3], &["a"][..]);
        let only = [&["get"][..], &["storage.k8s.io"], &["csinodes"]];
        let [mut list, mut core, mut nodes] = [only; 3];
        (list[0], core[1], nodes[2]) = (&["list"], &[""], &["nodes"]);
        for (rule, names, verb, is_granted) in [
            (only, &[][..], "get", true),
            (all, &[], "get", true),
            (list, &[], "get", false),
            (core, &[], "get", false),
            (nodes, &[], "get", false),
            ([only[0], &[], &[]], &[], "get", false),
            (all, named, "get", true),
            (all, named, "update", true),
            (all, named, "list", false),
            (all, named, "create", false),
        ] {
            let [verbs, groups, resources] = rule;
            let rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names});
            let rules: Rules = serde_json::from_value(json!({"resourceRules": [rule]})).unwrap();
            let right = Permission { verb, group: "storage.k8s.io", resource: "csinodes" };
            assert_eq!(rules.grant(right), is_granted, "{verb}: {rule}");
        }
    }
}
