//! Scenarios that run with less than the full rights: the service account `default/scenario` and its role.

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};

use super::{PlayError, api::Api, outcome::text, scenario::Rights};
use crate::apiserver::serve::manifests;

/// The service account, by its namespace and name.
pub(super) const ACCOUNT: (&str, &str) = ("default", "scenario");

/// How long an API server may take to heed changed rights.
const EFFECT: Duration = Duration::from_millis(400);

/// Gives the scenario's service account all rights of `rbac-full.yaml` but those left out.
pub(super) async fn grant(rights: &Rights, api: &Api, conformance: &Path) -> Result<(), PlayError> {
    let path = conformance.join("cluster/rbac-full.yaml");
    let manifest = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    let mut objects = manifests::parse(&manifest)?.into_iter();
    let role = objects.find(|object| text(object, "/kind") == "ClusterRole");
    let role = role.ok_or("no ClusterRole stands in cluster/rbac-full.yaml")?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "scenario"},
        "subjects": [{"kind": "ServiceAccount", "name": "scenario", "namespace": "default"}],
        "roleRef": {
            "kind": "ClusterRole", "name": "scenario", "apiGroup": "rbac.authorization.k8s.io",
        },
    });
    let named = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "scenario"},
    });
    api.ensure(&[named, binding]).await?;
    let rules = json!({"rules": without(&role, &rights.without)});
    api.patch("/apis/rbac.authorization.k8s.io/v1/clusterroles/scenario", &rules).await?;
    tokio::time::sleep(EFFECT).await;
    Ok(())
}

/// A role's rules, one per resource, less `RESOURCE`s and `RESOURCE:VERB`s.
fn without(role: &Value, without: &[String]) -> Vec<Value> {
    let list = |rule: &Value, key| -> Vec<String> {
        let items = rule.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut rules = Vec::new();
    for rule in role.get("rules").and_then(Value::as_array).into_iter().flatten() {
        for resource in list(rule, "resources") {
            let allowed = |verb: &String| {
                !without.iter().any(|no| *no == resource || *no == format!("{resource}:{verb}"))
            };
            let verbs: Vec<String> = list(rule, "verbs").into_iter().filter(allowed).collect();
            if !verbs.is_empty() {
                let groups = list(rule, "apiGroups");
                rules.push(json!({"apiGroups": groups, "resources": [resource], "verbs": verbs}));
            }
        }
    }
    rules
}
