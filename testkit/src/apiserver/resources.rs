//! The kinds the server serves, their names and traits. A `CustomResourceDefinition` makes its kind served.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::tree;

/// The group of an API, its resource's plural: what names stored objects across versions.
pub type GroupResource = (String, String);

/// How names of a kind must look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS-1123 subdomain: most kinds.
    Subdomain,
    /// A DNS-1123 label: namespaces.
    Label,
    /// Anything that can stand in a path: RBAC's kinds.
    PathSegment,
}

/// A kind as one version of its API serves it.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // independent traits of a kind, each asked on its own
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The kind's name.
    pub kind: String,
    /// The name of a list of them.
    pub list_kind: String,
    /// The resource in paths.
    pub plural: String,
    /// The singular resource name, as kubectl knows it.
    pub singular: String,
    /// kubectl's short names.
    pub short_names: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether there is a status subresource.
    pub status: bool,
    /// Whether a `CustomResourceDefinition` made it.
    pub custom: bool,
    /// Whether the server counts `metadata.generation`.
    pub generation: bool,
    /// Whether a PUT may come without a resourceVersion.
    pub unconditional_update: bool,
    /// Whether a PUT may create.
    pub create_on_update: bool,
    /// Whether a DELETE answers the object rather than a Status.
    pub returns_deleted: bool,
    /// How names must look.
    pub names: NameRule,
}

impl Kind {
    fn new(group: &str, version: &str, kind: &str, plural: &str, traits: &str) -> Self {
        let is = |name: &str| traits.split_whitespace().any(|one| one == name);
        let short = traits.split_whitespace().filter_map(|one| one.strip_prefix("short="));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: short.map(str::to_owned).collect(),
            namespaced: is("namespaced"),
            status: is("status"),
            custom: false,
            generation: is("generation"),
            unconditional_update: !is("conditional"),
            create_on_update: is("create-on-update"),
            returns_deleted: is("returns-deleted"),
            names: match group {
                RBAC => NameRule::PathSegment,
                "" if kind == "Namespace" => NameRule::Label,
                _ => NameRule::Subdomain,
            },
        }
    }

    /// `v1`, `storage.k8s.io/v1`: what stands in an object's `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `persistentvolumes`, `storageclasses.storage.k8s.io`: how error messages name the resource.
    pub fn qualified_resource(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// What the kind's objects are stored under.
    pub fn group_resource(&self) -> GroupResource {
        (self.group.clone(), self.plural.clone())
    }

    /// Whether it is this kind of this group, whatever the version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

/// `name` or `name.group`.
pub fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

// === Versions ===

/// The release of Kubernetes the server behaves like, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerVersion {
    /// The minor number of 1.x.
    pub minor: u8,
}

impl ServerVersion {
    /// Kubernetes 1.`minor` as released, with its default gates.
    pub fn minor(minor: u8) -> Self {
        Self { minor }
    }

    /// The versions `CSIStorageCapacity` is served in, the preferred first.
    fn capacity_versions(self) -> &'static [&'static str] {
        match self.minor {
            0..=20 => &["v1alpha1"],
            21..=23 => &["v1beta1"],
            24..=26 => &["v1", "v1beta1"],
            _ => &["v1"],
        }
    }

    /// The versions `VolumeAttributesClass` is served in with default gates.
    fn attributes_class_versions(self) -> &'static [&'static str] {
        if self.minor >= 34 { &["v1"] } else { &[] }
    }
}

impl Default for ServerVersion {
    /// The release the conformance scenarios were recorded on.
    fn default() -> Self {
        Self::minor(36)
    }
}

// === Kinds ===

const STORAGE: &str = "storage.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The group of `CustomResourceDefinitions`.
pub const EXTENSIONS: &str = "apiextensions.k8s.io";

/// All kinds served now.
#[derive(Debug, Clone)]
pub struct Kinds {
    builtin: Vec<Arc<Kind>>,
    /// By the name of the `CustomResourceDefinition`.
    custom: BTreeMap<String, Vec<Arc<Kind>>>,
}

impl Kinds {
    /// The kinds a server of `version` has built in.
    pub fn of(version: ServerVersion) -> Self {
        let kinds = BUILTIN.iter().map(|[group, version, kind, plural, traits]| {
            Kind::new(group, version, kind, plural, traits)
        });
        let capacities = version.capacity_versions().iter().map(|version| {
            let traits = "namespaced conditional returns-deleted";
            Kind::new(STORAGE, version, "CSIStorageCapacity", "csistoragecapacities", traits)
        });
        let attributes = version.attributes_class_versions().iter().map(|version| {
            let (kind, plural) = ("VolumeAttributesClass", "volumeattributesclasses");
            Kind::new(STORAGE, version, kind, plural, "short=vac returns-deleted")
        });
        let builtin = kinds.chain(capacities).chain(attributes).map(Arc::new).collect();
        Self { builtin, custom: BTreeMap::new() }
    }

    /// Every kind of every version, built-in ones first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.builtin.iter().chain(self.custom.values().flatten())
    }

    /// The kind a path names.
    pub fn served(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.iter().find(|k| k.plural == plural && k.group == group && k.version == version)
    }

    /// The kind of a name, whatever its group, in its preferred version.
    pub fn by_name(&self, kind: &str) -> Option<&Arc<Kind>> {
        self.iter().find(|k| k.kind == kind)
    }

    /// Serves what a `CustomResourceDefinition` defines from now on.
    pub fn define(&mut self, definition: &Value) {
        let name = tree::text(definition, &["metadata", "name"]).to_owned();
        self.custom.insert(name, custom(definition).into_iter().map(Arc::new).collect());
    }

    /// Serves what the `CustomResourceDefinition` `name` defined no longer; says what that was.
    pub fn undefine(&mut self, name: &str) -> Vec<Arc<Kind>> {
        self.custom.remove(name).unwrap_or_default()
    }
}

/// Group, version, kind, plural and traits of the kinds that every release has.
const BUILTIN: [[&str; 5]; 24] = [
    ["", "v1", "Namespace", "namespaces", "short=ns status"],
    ["", "v1", "Node", "nodes", "short=no status"],
    ["", "v1", "PersistentVolume", "persistentvolumes", "short=pv status returns-deleted"],
    [
        "",
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        "short=pvc namespaced status returns-deleted",
    ],
    ["", "v1", "Pod", "pods", "short=po namespaced status generation returns-deleted"],
    ["", "v1", "Secret", "secrets", "namespaced"],
    ["", "v1", "ConfigMap", "configmaps", "short=cm namespaced"],
    ["", "v1", "ServiceAccount", "serviceaccounts", "short=sa namespaced returns-deleted"],
    ["", "v1", "Event", "events", "short=ev namespaced create-on-update"],
    [STORAGE, "v1", "StorageClass", "storageclasses", "short=sc returns-deleted"],
    [STORAGE, "v1", "CSINode", "csinodes", "conditional returns-deleted"],
    [STORAGE, "v1", "CSIDriver", "csidrivers", "conditional generation returns-deleted"],
    [STORAGE, "v1", "VolumeAttachment", "volumeattachments", "status conditional returns-deleted"],
    ["apps", "v1", "DaemonSet", "daemonsets", "short=ds namespaced status generation"],
    ["apps", "v1", "Deployment", "deployments", "short=deploy namespaced status generation"],
    ["apps", "v1", "ReplicaSet", "replicasets", "short=rs namespaced status generation"],
    ["apps", "v1", "StatefulSet", "statefulsets", "short=sts namespaced status generation"],
    [RBAC, "v1", "ClusterRole", "clusterroles", ""],
    [RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", ""],
    [RBAC, "v1", "Role", "roles", "namespaced"],
    [RBAC, "v1", "RoleBinding", "rolebindings", "namespaced"],
    ["coordination.k8s.io", "v1", "Lease", "leases", "namespaced conditional create-on-update"],
    [
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "short=pdb namespaced status generation",
    ],
    [
        EXTENSIONS,
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "short=crd short=crds status generation conditional",
    ],
];

/// The kinds a `CustomResourceDefinition` defines: one a served version.
fn custom(definition: &Value) -> Vec<Kind> {
    let spec = tree::at(definition, &["spec"]);
    let served = |v: &&Value| tree::at(v, &["served"]).as_bool().unwrap_or(false);
    tree::items(spec, &["versions"])
        .iter()
        .filter(served)
        .map(|version| custom_version(spec, version))
        .collect()
}

fn custom_version(spec: &Value, version: &Value) -> Kind {
    let names = tree::at(spec, &["names"]);
    let strings = |field| {
        tree::items(names, &[field]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let or = |field, default: String| match tree::text(names, &[field]) {
        "" => default,
        text => text.to_owned(),
    };
    let kind = tree::text(names, &["kind"]);
    let mut custom = Kind::new(
        tree::text(spec, &["group"]),
        tree::text(version, &["name"]),
        kind,
        tree::text(names, &["plural"]),
        "generation conditional",
    );
    custom.list_kind = or("listKind", format!("{kind}List"));
    custom.singular = or("singular", kind.to_lowercase());
    custom.short_names = strings("shortNames");
    custom.namespaced = tree::text(spec, &["scope"]) == "Namespaced";
    custom.status = tree::at(version, &["subresources", "status"]).is_object();
    custom.custom = true;
    custom
}
