//! Scenarios that run with less than the full rights: the service account `default/scenario`, its role and its
//! kubeconfig.

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};

use super::{PlayError, api::Api, outcome::text, scenario::Rights, yaml};

/// How long an API server may take to heed changed rights.
const EFFECT: Duration = Duration::from_millis(400);

/// Gives the scenario's service account all rights of `rbac-full.yaml` but those left out.
pub(super) async fn grant(rights: &Rights, api: &Api, conformance: &Path) -> Result<(), PlayError> {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let named = |kind: &str| {
        let version = if kind == "ServiceAccount" { "v1" } else { "rbac.authorization.k8s.io/v1" };
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": "scenario"}})
    };
    let manifest = read(&conformance.join("cluster/rbac-full.yaml"))?;
    let role = manifest.into_iter().find(|object| text(object, "/kind") == "ClusterRole");
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
    api.ensure("/api/v1/namespaces/default/serviceaccounts", &named("ServiceAccount")).await?;
    api.ensure(&format!("{RBAC}/clusterroles"), &named("ClusterRole")).await?;
    let rules = json!({"rules": without(&role, &rights.without)});
    api.patch(&format!("{RBAC}/clusterroles/scenario"), &rules).await?;
    api.ensure(&format!("{RBAC}/clusterrolebindings"), &binding).await?;
    tokio::time::sleep(EFFECT).await;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Value>, PlayError> {
    let failed = |why: PlayError| format!("{}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|why| failed(why.into()))?;
    let documents = yaml::documents(&text).map_err(failed)?;
    documents.into_iter().map(yaml::json).collect()
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

/// Writes a kubeconfig for the scenario's service account: `sa.kubeconfig` with another token.
pub(super) async fn kubeconfig(
    api: &Api,
    directory: &Path,
    target: &Path,
) -> Result<(), PlayError> {
    let path = "/api/v1/namespaces/default/serviceaccounts/scenario/token";
    let wish = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    });
    let answer = api.post(path, &wish).await?;
    let mut config = read(&directory.join("sa.kubeconfig"))?.into_iter().next().unwrap_or_default();
    if let Some(user) = config.pointer_mut("/users/0/user") {
        *user = json!({"token": text(&answer, "/status/token")});
    }
    // JSON is YAML.
    Ok(fs::write(target, config.to_string())?)
}
