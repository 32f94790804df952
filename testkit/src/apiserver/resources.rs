//! The kinds the server serves.
//!
//! Owns each kind's names, scope and the traits by which the verbs treat it. Promises that a kind
//! is found by the path a client uses, and that a `CustomResourceDefinition` makes its kind served.
//! Leaves to `defaults` and `validation` what is special about a kind's fields.

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
    /// The categories the kind belongs to.
    pub categories: Vec<String>,
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
    fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: false,
            status: false,
            custom: false,
            generation: false,
            unconditional_update: true,
            create_on_update: false,
            returns_deleted: false,
            names: NameRule::Subdomain,
        }
    }

    fn short(mut self, names: &[&str]) -> Self {
        self.short_names = names.iter().map(ToString::to_string).collect();
        self
    }

    fn namespaced(mut self) -> Self {
        self.namespaced = true;
        self
    }

    fn status(mut self) -> Self {
        self.status = true;
        self
    }

    fn generation(mut self) -> Self {
        self.generation = true;
        self
    }

    fn conditional(mut self) -> Self {
        self.unconditional_update = false;
        self
    }

    fn create_on_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }

    fn named(mut self, names: NameRule) -> Self {
        self.names = names;
        self
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

/// What a server does with `sendInitialEvents`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamingLists {
    /// Serves streaming lists.
    Served,
    /// Knows the parameter and refuses it with 422: its gate is off.
    Refused,
    /// Does not know the parameter and overlooks it.
    Ignored,
    /// Takes the parameter, but its storage can't report its progress (etcd before 3.5.8 or so):
    /// the stream brings an ERROR of code 500.
    Failing,
}

/// The release of Kubernetes the server behaves like, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerVersion {
    /// The minor number of 1.x.
    pub minor: u8,
    /// What becomes of streaming lists.
    pub streaming_lists: StreamingLists,
}

impl ServerVersion {
    /// Kubernetes 1.`minor` as released, with its default gates.
    pub fn minor(minor: u8) -> Self {
        let streaming_lists = match minor {
            0..=26 => StreamingLists::Ignored,
            27..=31 | 33 => StreamingLists::Refused,
            _ => StreamingLists::Served,
        };
        Self { minor, streaming_lists }
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
const APPS: &str = "apps";
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
        let mut builtin = core();
        builtin.extend(storage(version));
        builtin.extend(workloads());
        builtin.extend(access());
        builtin.extend(others());
        Self { builtin: builtin.into_iter().map(Arc::new).collect(), custom: BTreeMap::new() }
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

fn core() -> Vec<Kind> {
    let core = |kind, plural| Kind::new("", "v1", kind, plural);
    vec![
        core("Namespace", "namespaces").short(&["ns"]).status().named(NameRule::Label),
        core("Node", "nodes").short(&["no"]).status(),
        core("PersistentVolume", "persistentvolumes").short(&["pv"]).status().returns_deleted(),
        core("PersistentVolumeClaim", "persistentvolumeclaims")
            .short(&["pvc"])
            .namespaced()
            .status()
            .returns_deleted(),
        core("Pod", "pods").short(&["po"]).namespaced().status().generation().returns_deleted(),
        core("Secret", "secrets").namespaced(),
        core("ConfigMap", "configmaps").short(&["cm"]).namespaced(),
        core("ServiceAccount", "serviceaccounts").short(&["sa"]).namespaced().returns_deleted(),
        core("Event", "events").short(&["ev"]).namespaced().create_on_update(),
    ]
}

fn storage(version: ServerVersion) -> Vec<Kind> {
    let storage = |kind, plural| Kind::new(STORAGE, "v1", kind, plural).returns_deleted();
    let mut kinds = vec![
        storage("StorageClass", "storageclasses").short(&["sc"]),
        storage("CSINode", "csinodes").conditional(),
        storage("CSIDriver", "csidrivers").conditional().generation(),
        storage("VolumeAttachment", "volumeattachments").status().conditional(),
    ];
    kinds.extend(version.capacity_versions().iter().map(|v| {
        Kind::new(STORAGE, v, "CSIStorageCapacity", "csistoragecapacities")
            .namespaced()
            .conditional()
            .returns_deleted()
    }));
    kinds.extend(version.attributes_class_versions().iter().map(|v| {
        Kind::new(STORAGE, v, "VolumeAttributesClass", "volumeattributesclasses")
            .short(&["vac"])
            .returns_deleted()
    }));
    kinds
}

fn workloads() -> Vec<Kind> {
    let apps = |kind, plural, short| {
        Kind::new(APPS, "v1", kind, plural).short(&[short]).namespaced().status().generation()
    };
    vec![
        apps("DaemonSet", "daemonsets", "ds"),
        apps("Deployment", "deployments", "deploy"),
        apps("ReplicaSet", "replicasets", "rs"),
        apps("StatefulSet", "statefulsets", "sts"),
    ]
}

fn access() -> Vec<Kind> {
    let rbac = |kind, plural| Kind::new(RBAC, "v1", kind, plural).named(NameRule::PathSegment);
    vec![
        rbac("ClusterRole", "clusterroles"),
        rbac("ClusterRoleBinding", "clusterrolebindings"),
        rbac("Role", "roles").namespaced(),
        rbac("RoleBinding", "rolebindings").namespaced(),
    ]
}

fn others() -> Vec<Kind> {
    vec![
        Kind::new("coordination.k8s.io", "v1", "Lease", "leases")
            .namespaced()
            .conditional()
            .create_on_update(),
        Kind::new("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
            .short(&["pdb"])
            .namespaced()
            .status()
            .generation(),
        Kind::new(EXTENSIONS, "v1", "CustomResourceDefinition", "customresourcedefinitions")
            .short(&["crd", "crds"])
            .status()
            .generation()
            .conditional(),
    ]
}

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
    );
    custom.list_kind = or("listKind", format!("{kind}List"));
    custom.singular = or("singular", kind.to_lowercase());
    custom.short_names = strings("shortNames");
    custom.categories = strings("categories");
    custom.namespaced = tree::text(spec, &["scope"]) == "Namespaced";
    custom.status = tree::at(version, &["subresources", "status"]).is_object();
    custom.custom = true;
    custom.generation = true;
    custom.unconditional_update = false;
    custom
}
