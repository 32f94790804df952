//! What the server says about itself: its API groups, their resources and its version.
//!
//! Owns the documents under `/api`, `/apis` and `/version` as pure functions of the list of served
//! resources. Promises the shapes of kube-apiserver's unaggregated discovery, which every client
//! falls back to when the aggregated form isn't offered. Leaves to others what is served and HTTP.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A resource as clients discover it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Name in URLs: `persistentvolumes`, or `persistentvolumes/status`.
    pub name: String,
    /// Name for one of them; empty for subresources.
    pub singular: String,
    /// Kind of the objects.
    pub kind: String,
    /// Group and version of the kind, where they differ from those it is served under.
    pub kind_from: Option<(String, String)>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Verbs, as RBAC and clients name them.
    pub verbs: Vec<String>,
    /// Abbreviations such as `pvc`.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
}

/// The verbs of a resource that is stored.
pub(crate) const STORED: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The discovery document for `path`, or `None` where no such group or version is served.
pub(crate) fn document(resources: &[Resource], path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api"] => Some(core_versions()),
        ["apis"] => Some(group_list(resources)),
        ["api", version] => resource_list(resources, "", version),
        ["apis", group] => named_group(resources, group),
        ["apis", group, version] => resource_list(resources, group, version),
        _ => None,
    }
}

/// The document at `/version`, for a server that says it is Kubernetes 1.`minor`.
pub(crate) fn version(minor: u32) -> Value {
    json!({
        "major": "1", "minor": minor.to_string(), "gitVersion": format!("v1.{minor}.0"),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    })
}

/// The versions of every named group, the one clients should prefer first.
fn versions(resources: &[Resource]) -> BTreeMap<&str, Vec<&str>> {
    let mut groups = BTreeMap::<&str, Vec<&str>>::new();
    for resource in resources.iter().filter(|resource| !resource.group.is_empty()) {
        let versions = groups.entry(&resource.group).or_default();
        if !versions.contains(&resource.version.as_str()) {
            versions.push(&resource.version);
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| std::cmp::Reverse(maturity(version)));
    }
    groups
}

/// Orders versions as Kubernetes does: `v1` > `v1beta2` > `v1beta1` > `v1alpha1`.
fn maturity(version: &str) -> (u8, u32, u32) {
    let number = |text: &str| text.parse().unwrap_or(0);
    let rest = version.strip_prefix('v').unwrap_or(version);
    for (stage, rank) in [("beta", 1), ("alpha", 0)] {
        if let Some((major, minor)) = rest.split_once(stage) {
            return (rank, number(major), number(minor));
        }
    }
    (2, number(rest), 0)
}

fn group_list(resources: &[Resource]) -> Value {
    let groups: Vec<Value> =
        versions(resources).iter().map(|(name, versions)| group(name, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn named_group(resources: &[Resource], name: &str) -> Option<Value> {
    let mut document = group(name, versions(resources).get(name)?);
    if let Value::Object(fields) = &mut document {
        fields.insert("kind".to_owned(), "APIGroup".into());
        fields.insert("apiVersion".to_owned(), "v1".into());
    }
    Some(document)
}

fn group(name: &str, versions: &[&str]) -> Value {
    let all: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": all.first(), "versions": all})
}

fn resource_list(resources: &[Resource], group: &str, version: &str) -> Option<Value> {
    let mut served: Vec<&Resource> = resources
        .iter()
        .filter(|resource| resource.group == group && resource.version == version)
        .collect();
    served.sort_by(|a, b| a.name.cmp(&b.name));
    let group_version = match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    };
    (!served.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
            "resources": served.into_iter().map(entry).collect::<Vec<_>>(),
        })
    })
}

fn entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.name, "singularName": resource.singular, "kind": resource.kind,
        "namespaced": resource.namespaced, "verbs": resource.verbs,
    });
    if let Value::Object(fields) = &mut entry {
        if let Some((group, version)) = &resource.kind_from {
            fields.insert("group".to_owned(), group.as_str().into());
            fields.insert("version".to_owned(), version.as_str().into());
        }
        for (key, list) in
            [("shortNames", &resource.short_names), ("categories", &resource.categories)]
        {
            if !list.is_empty() {
                fields.insert(key.to_owned(), list.clone().into());
            }
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, version: &str, name: &str, kind: &str) -> Resource {
        Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            name: name.to_owned(),
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            kind_from: None,
            namespaced: true,
            verbs: STORED.map(String::from).to_vec(),
            short_names: Vec::new(),
            categories: Vec::new(),
        }
    }

    fn storage() -> Vec<Resource> {
        vec![
            resource("", "v1", "pods", "Pod"),
            resource("storage.k8s.io", "v1beta1", "csistoragecapacities", "CSIStorageCapacity"),
            resource("storage.k8s.io", "v1", "storageclasses", "StorageClass"),
            resource("storage.k8s.io", "v1alpha1", "things", "Thing"),
        ]
    }

    #[test]
    fn the_core_group_is_not_among_the_named_groups() {
        let groups = document(&storage(), "/apis").unwrap();
        assert_eq!(groups["groups"].as_array().unwrap().len(), 1);
        assert_eq!(groups["groups"][0]["name"], "storage.k8s.io");
        assert_eq!(document(&storage(), "/api/").unwrap()["versions"], json!(["v1"]));
    }

    #[test]
    fn stable_versions_are_preferred_to_betas_and_those_to_alphas() {
        let group = document(&storage(), "/apis/storage.k8s.io").unwrap();
        assert_eq!(group["kind"], "APIGroup");
        assert_eq!(group["preferredVersion"]["groupVersion"], "storage.k8s.io/v1");
        let order: Vec<_> = group["versions"].as_array().unwrap().iter().collect();
        assert_eq!(
            order.iter().map(|v| v["version"].as_str().unwrap()).collect::<Vec<_>>(),
            ["v1", "v1beta1", "v1alpha1"]
        );
        assert!(maturity("v2beta1") < maturity("v1") && maturity("v10") > maturity("v9"));
    }

    #[test]
    fn a_resource_list_holds_what_its_group_version_serves_and_nothing_else() {
        let mut served = storage();
        served.push(Resource {
            kind_from: Some(("authentication.k8s.io".into(), "v1".into())),
            short_names: vec!["tk".into()],
            ..resource("", "v1", "serviceaccounts/token", "TokenRequest")
        });
        let list = document(&served, "/api/v1").unwrap();
        assert_eq!(list["groupVersion"], "v1");
        assert_eq!(list["resources"][0]["name"], "pods");
        assert!(list["resources"][0].get("shortNames").is_none());
        assert_eq!(list["resources"][1]["group"], "authentication.k8s.io");
        assert_eq!(list["resources"][1]["shortNames"], json!(["tk"]));
        assert_eq!(list["resources"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn an_unserved_group_or_version_has_no_document() {
        for path in ["/apis/apps", "/apis/apps/v1", "/apis/storage.k8s.io/v2", "/api/v2", "/other"]
        {
            assert_eq!(document(&storage(), path), None, "{path}");
        }
    }

    #[test]
    fn the_version_is_spelled_as_clients_parse_it() {
        assert_eq!(version(36)["gitVersion"], "v1.36.0");
        assert_eq!(version(36)["minor"], "36");
    }
}
