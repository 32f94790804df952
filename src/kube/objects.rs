//! Slim views of Kubernetes objects: structs with only the fields that this program reads.
//!
//! Unknown fields, `managedFields` above all, are skipped and cost no memory. Absent fields read as
//! empty. Objects are never written from a view, because fields would be lost: see
//! [`Client::edit`](crate::kube::Client::edit).

mod in_tree;
pub(crate) mod kind;
mod metadata;

pub use kind::Kind;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use csi_translation::InTreeSource;
use k8s_openapi::{
    ByteString,
    api::core::v1::{self as core, TopologySelectorTerm, VolumeNodeAffinity},
};
use serde::{Deserialize, Deserializer};

pub use self::metadata::Metadata;

/// A view of one kind, with what requests for the kind need.
pub trait View:
    for<'de> Deserialize<'de> + Clone + std::fmt::Debug + Send + Sync + 'static
{
    /// What is read of the labels: all, or nothing.
    type Labels;
    /// The API group; empty for the core group.
    const GROUP: &'static str;
    /// The version within the group.
    const VERSION: &'static str;
    /// The kind, such as `PersistentVolumeClaim`.
    const KIND: &'static str;
    /// The plural name in URLs.
    const PLURAL: &'static str;
    /// Whether the kind is namespaced.
    const NAMESPACED: bool;
    /// Group, version and plural name.
    const API: &'static Kind = &Kind {
        group: Cow::Borrowed(Self::GROUP),
        version: Cow::Borrowed(Self::VERSION),
        plural: Cow::Borrowed(Self::PLURAL),
    };

    /// The object's metadata.
    fn meta(&self) -> &Metadata<Self::Labels>;

    /// Group and version, such as `storage.k8s.io/v1`.
    fn api_version() -> Cow<'static, str> {
        match Self::GROUP {
            "" => Self::VERSION.into(),
            group => format!("{group}/{}", Self::VERSION).into(),
        }
    }

    /// The object's name; empty only if the server sent none.
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// The object's namespace; empty for cluster-scoped kinds.
    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    /// The object's UID; empty only if the server sent none.
    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    /// The value of the annotation `key`.
    fn annotation(&self, key: &str) -> Option<&str> {
        self.meta().annotations.get(key).map(String::as_str)
    }

    /// Whether the object has the finalizer `name`.
    fn has_finalizer(&self, name: &str) -> bool {
        self.meta().finalizers.iter().any(|f| **f == *name)
    }

    /// Whether this and `before` are the same object at the same `resourceVersion`.
    fn is_same_version_as(&self, before: &Self) -> bool {
        let (new, old) = (&self.meta().resource_version, &before.meta().resource_version);
        self.uid() == before.uid() && new.is_some() && new == old
    }

    /// Whether the object has a deletion timestamp and only its finalizers keep it.
    fn is_terminating(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }
}

/// Reads a view from a JSON value by serializing it first: a second `Deserialize` instance of each
/// view, for values, would make the binary larger.
pub fn of_json<V: View>(object: &serde_json::Value) -> serde_json::Result<V> {
    serde_json::from_slice(&serde_json::to_vec(object)?)
}

/// Declares a view: the names of its kind, and a struct with `metadata` and the given fields. After
/// the scope, `+ labels` makes it read labels.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident: $scope:ident $(+ $labels:ident)? $group:literal $version:literal $kind:literal $plural:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            /// The metadata, for some kinds with labels.
            pub metadata: Metadata<view!(@labels $($labels)?)>,
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl View for $name {
            type Labels = view!(@labels $($labels)?);
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const KIND: &'static str = $kind;
            const PLURAL: &'static str = $plural;
            const NAMESPACED: bool = view!(@namespaced $scope);

            fn meta(&self) -> &Metadata<Self::Labels> {
                &self.metadata
            }
        }
    };
    (@labels) => { serde::de::IgnoredAny };
    (@labels labels) => { BTreeMap<String, String> };
    (@namespaced Namespaced) => { true };
    (@namespaced Cluster) => { false };
}

mod bounded;
mod clone_source;
mod grants;
mod snapshots;

pub use self::{
    bounded::MAX_SECRET,
    clone_source::CloneSource,
    grants::{ReferenceGrant, ReferenceGrantFrom, ReferenceGrantSpec, ReferenceGrantTo},
    snapshots::{
        SnapshotContentSpec, SnapshotContentStatus, SnapshotReference, SnapshotStatus,
        VolumeSnapshot, VolumeSnapshotContent,
    },
};
pub use super::name::MAX_NAME;

view! {
    /// A PersistentVolumeClaim.
    Claim: Namespaced "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" {
        /// The desired volume.
        spec: ClaimSpec,
        /// The current state.
        status: ClaimStatus,
    }
}

impl Claim {
    /// Whether the claim names no volume: neither the controller nor its user has set `volumeName`.
    pub fn is_unbound(&self) -> bool {
        self.spec.volume_name.as_deref().unwrap_or_default().is_empty()
    }
}

/// `spec` of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// Access modes such as `ReadWriteOnce`, in the user's order.
    #[serde(deserialize_with = "bounded::names")]
    pub access_modes: Vec<Box<str>>,
    /// The requested size.
    pub resources: ResourceRequirements,
    /// Whether there is a label selector.
    #[serde(deserialize_with = "bounded::is_present")]
    pub selector: bool,
    /// The name of the StorageClass; the legacy annotation wins over it.
    #[serde(deserialize_with = "bounded::optional_name")]
    pub storage_class_name: Option<Box<str>>,
    /// The PersistentVolume that the claim is bound to, or that its user chose.
    #[serde(deserialize_with = "bounded::optional_name")]
    pub volume_name: Option<Box<str>>,
    /// `Filesystem` (also when absent) or `Block`.
    #[serde(deserialize_with = "bounded::optional_name")]
    pub volume_mode: Option<Box<str>>,
    /// The source of the volume's content, in the claim's namespace. Boxed, as most claims have none.
    pub data_source: Option<Box<ObjectReference>>,
    /// The source of the volume's content, of any kind and possibly of another namespace.
    pub data_source_ref: Option<Box<ObjectReference>>,
    /// The name of the VolumeAttributesClass.
    #[serde(deserialize_with = "bounded::optional_name")]
    pub volume_attributes_class_name: Option<Box<str>>,
}

/// `resources` of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceRequirements {
    /// The minimum.
    pub requests: ResourceRequests,
}

/// Quantities by resource name; claims use one.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceRequests {
    /// The size of the volume.
    #[serde(deserialize_with = "bounded::optional_name")]
    pub storage: Option<Box<str>>,
}

/// `status` of a claim.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimStatus {
    /// `Pending`, `Bound` or `Lost`.
    #[serde(deserialize_with = "bounded::name")]
    pub phase: Box<str>,
}

/// A reference to another object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// API group without version; absent means core.
    #[serde(deserialize_with = "bounded::optional_name")]
    pub api_group: Option<String>,
    /// Kind.
    #[serde(deserialize_with = "bounded::name")]
    pub kind: String,
    /// Name.
    #[serde(deserialize_with = "bounded::name")]
    pub name: String,
    /// Namespace, for references across namespaces.
    #[serde(deserialize_with = "bounded::optional_name")]
    pub namespace: Option<String>,
}

view! {
    /// A PersistentVolume.
    Volume: Cluster + labels "" "v1" "PersistentVolume" "persistentvolumes" {
        /// The volume and its claim.
        spec: VolumeSpec,
        /// The current state.
        status: VolumeStatus,
    }
}

/// Names the CSI driver that has taken an in-tree volume or claim over; kube-controller-manager writes it.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";

impl Volume {
    /// The CSI driver of the volume: its own, or that which has taken the in-tree volume over.
    pub fn csi_driver(&self) -> Option<&str> {
        let own = self.spec.csi.as_ref().map(|csi| csi.driver.as_str());
        own.or_else(|| self.annotation(MIGRATED_TO))
    }

    /// The volume's id in the PersistentVolume's CSI or in-tree source; empty for other volumes.
    pub fn source_id(&self) -> &str {
        match (&self.spec.csi, &self.spec.in_tree) {
            (Some(csi), _) => &csi.volume_handle,
            (None, Some(in_tree)) => in_tree.id(),
            (None, None) => "",
        }
    }

    /// The [`source_id`](Self::source_id) of a complete PersistentVolume.
    pub fn source_id_of(volume: &core::PersistentVolume) -> String {
        let Some(spec) = &volume.spec else { return String::new() };
        match &spec.csi {
            Some(csi) => csi.volume_handle.clone(),
            None => InTreeSource::of(spec).map(|it| it.id().to_owned()).unwrap_or_default(),
        }
    }
}

/// `spec` of a volume.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "in_tree::RawVolumeSpec")]
pub struct VolumeSpec {
    /// The volume's claim.
    pub claim_ref: Option<ClaimReference>,
    /// The CSI source; absent for other volumes.
    pub csi: Option<CsiSource>,
    /// The nodes that can access the volume; `None` means all.
    pub node_affinity: Option<VolumeNodeAffinity>,
    /// `Delete`, `Retain` or `Recycle`.
    pub persistent_volume_reclaim_policy: String,
    /// The name of the StorageClass.
    pub storage_class_name: String,
    /// `Filesystem` (also when absent) or `Block`.
    pub volume_mode: Option<String>,
    /// The source of an in-tree plugin that was migrated to CSI; absent for other volumes.
    pub in_tree: Option<Box<InTreeSource>>,
}

/// `claimRef` of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimReference {
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The claim's UID; empty in references that users wrote.
    pub uid: String,
}

/// The CSI source of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    /// The driver's name.
    pub driver: String,
    /// The driver's id of the volume.
    pub volume_handle: String,
}

/// `status` of a volume.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    /// `Pending`, `Available`, `Bound`, `Released` or `Failed`.
    pub phase: String,
}

view! {
    /// A StorageClass.
    StorageClass: Cluster "storage.k8s.io" "v1" "StorageClass" "storageclasses" {
        /// The name of the driver, or of the in-tree plugin that it replaces.
        provisioner: String,
        /// Parameters for the driver and for this program.
        parameters: BTreeMap<String, String>,
        /// `Delete` or `Retain`.
        reclaim_policy: Option<String>,
        /// Mount options, in order.
        mount_options: Vec<String>,
        /// `Immediate` or `WaitForFirstConsumer`.
        volume_binding_mode: Option<String>,
        /// The topologies that volumes of the class may have.
        allowed_topologies: Vec<TopologySelectorTerm>,
    }
}

view! {
    /// A VolumeAttachment.
    VolumeAttachment: Cluster "storage.k8s.io" "v1" "VolumeAttachment" "volumeattachments" {
        /// The volume and its node.
        spec: VolumeAttachmentSpec,
    }
}

/// `spec` of an attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    /// The node's name.
    pub node_name: String,
    /// The volume.
    pub source: VolumeAttachmentSource,
}

/// The volume of an attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    /// The PersistentVolume's name; absent for inline volumes.
    pub persistent_volume_name: Option<String>,
}

view! {
    /// A Node: only its labels are read.
    Node: Cluster + labels "" "v1" "Node" "nodes" {}
}

view! {
    /// A CSINode: the CSI drivers on a node.
    CsiNode: Cluster "storage.k8s.io" "v1" "CSINode" "csinodes" {
        /// The drivers.
        spec: CsiNodeSpec,
    }
}

/// `spec` of a CSINode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    /// The drivers. The API requires the list, and servers serialize an empty one as null.
    #[serde(deserialize_with = "null_as_empty")]
    pub drivers: Vec<CsiNodeDriver>,
}

/// One driver on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeDriver {
    /// The driver's name.
    pub name: String,
    /// The labels of the Node that are the driver's topology keys; null if it has none.
    #[serde(deserialize_with = "null_as_empty")]
    pub topology_keys: Vec<String>,
}

view! {
    /// A Secret. Its values can't be printed.
    Secret: Namespaced "" "v1" "Secret" "secrets" {
        /// Values by key.
        data: SecretData,
    }
}

/// The values of a Secret by key. Clones share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretData {
    /// All values.
    Values(Arc<BTreeMap<String, SecretValue>>),
    /// Keys and values together take more than [`MAX_SECRET`]; they are not kept.
    TooLarge,
}

impl Default for SecretData {
    fn default() -> Self {
        Self::Values(Arc::default())
    }
}

/// One value of a Secret, decoded; `Debug` does not print it.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretValue(ByteString);

impl SecretValue {
    /// The value's bytes: for the driver, never to be logged.
    pub fn expose(&self) -> &[u8] {
        &self.0.0
    }
}

impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***stripped***")
    }
}

view! {
    /// A VolumeAttributesClass.
    VolumeAttributesClass: Cluster "storage.k8s.io" "v1" "VolumeAttributesClass" "volumeattributesclasses" {
        /// The CSI driver's name.
        driver_name: String,
        /// Mutable parameters for the driver.
        parameters: BTreeMap<String, String>,
    }
}

view! {
    /// A CSIStorageCapacity of version v1, since Kubernetes 1.24.
    StorageCapacity: Namespaced + labels "storage.k8s.io" "v1" "CSIStorageCapacity" "csistoragecapacities" {
        /// The name of the StorageClass.
        storage_class_name: String,
        /// The nodes; `None` means no nodes.
        node_topology: Option<LabelSelector>,
        /// The free capacity.
        capacity: Option<String>,
        /// The maximum size of a volume.
        maximum_volume_size: Option<String>,
    }
}

/// Selects objects by their labels.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Required labels.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements; this program only checks whether there are any.
    pub match_expressions: Vec<serde_json::Value>,
}

view! {
    /// A core/v1 Event. Events are only written; of the answers only the metadata is read.
    Event: Namespaced "" "v1" "Event" "events" {}
}

/// The metadata of an object of any kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AnyObject {
    /// As in every view.
    pub(super) metadata: Metadata,
}

/// Reads a list or map that Go serializes as null if it is nil.
fn null_as_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_and_null_lists_of_a_csi_node_are_empty() {
        let read = |spec| {
            let node = json!({"metadata": {"name": "n"}, "spec": spec});
            serde_json::from_value::<CsiNode>(node).unwrap().spec.drivers
        };
        for spec in [json!({"drivers": null}), json!({"drivers": []}), json!({})] {
            assert!(read(spec).is_empty());
        }
        for driver in [json!({"topologyKeys": null}), json!({"name": "d"})] {
            assert!(read(json!({"drivers": [driver]}))[0].topology_keys.is_empty());
        }
    }
}
