//! Scenarios that run with less than the full rights.
//!
//! Owns the service account `default/scenario`, its role and its kubeconfig.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    api::{Api, ApiError},
    outcome::text,
    scenario::Rights,
    yaml::{self, YamlError},
};

/// How long an API server may take to heed changed rights.
const EFFECT: Duration = Duration::from_millis(400);

/// Why the rights could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// A manifest or kubeconfig cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A manifest or kubeconfig does not hold what it should.
    #[error("{path}: {source}")]
    Yaml {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: YamlError,
    },
    /// The API server refused something.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// Gives the scenario's service account all rights of `rbac-full.yaml` but those left out.
pub(super) async fn grant(
    rights: &Rights,
    api: &Api,
    conformance: &Path,
) -> Result<(), RightsError> {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let named = |kind: &str| {
        let version = if kind == "ServiceAccount" { "v1" } else { "rbac.authorization.k8s.io/v1" };
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": "scenario"}})
    };
    let role = full_role(&conformance.join("cluster/rbac-full.yaml"))?;
    let rules = json!({"rules": without(&role, &rights.without)});
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
    api.patch(&format!("{RBAC}/clusterroles/scenario"), &rules).await?;
    api.ensure(&format!("{RBAC}/clusterrolebindings"), &binding).await?;
    tokio::time::sleep(EFFECT).await;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Value>, RightsError> {
    let text = fs::read_to_string(path)
        .map_err(|source| RightsError::File { path: path.to_owned(), source })?;
    let documents = yaml::documents(&text)
        .map_err(|source| RightsError::Yaml { path: path.to_owned(), source })?;
    Ok(documents.into_iter().map(Value::from).collect())
}

fn full_role(path: &Path) -> Result<Value, RightsError> {
    let role = read(path)?.into_iter().find(|object| text(object, "/kind") == "ClusterRole");
    role.ok_or_else(|| RightsError::Yaml {
        path: path.to_owned(),
        source: YamlError::Shape("no ClusterRole stands here".to_owned()),
    })
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
) -> Result<(), RightsError> {
    let path = "/api/v1/namespaces/default/serviceaccounts/scenario/token";
    let wish = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    });
    let answer = api.post(path, &wish).await?;
    let source = directory.join("sa.kubeconfig");
    let mut config = read(&source)?.into_iter().next().unwrap_or_default();
    if let Some(user) = config.pointer_mut("/users/0/user") {
        *user = json!({"token": text(&answer, "/status/token")});
    }
    // JSON is YAML.
    fs::write(target, config.to_string())
        .map_err(|source| RightsError::File { path: target.to_owned(), source })
}
