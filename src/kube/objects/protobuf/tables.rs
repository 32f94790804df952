//! The fields of Kubernetes' messages that views read, with their numbers and their names in JSON.
//!
//! From `generated.proto` and `types.go` of k8s.io/api and k8s.io/apimachinery; released fields never
//! change. Tests with all fields set verify that no field of a view is missing.

/// The fields of a message.
pub(crate) type Table = &'static [Field];

/// One field.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its number in protobuf.
    pub(super) number: u64,
    /// Its name in JSON.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) value: Value,
}

/// How often a field may occur, and how JSON represents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Once. If empty or zero, protobuf has it and JSON omits it.
    Plain,
    /// Once, a pointer in Go. If empty or zero, JSON has it too.
    Pointer,
    /// Once. In JSON its members are those of the outer message.
    Embedded,
    /// A list.
    List,
    /// A map with texts as keys.
    Map,
}

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Text,
    Bool,
    Number,
    /// A `metav1.Time`.
    Time,
    /// A `resource.Quantity`: a message with its text.
    Quantity,
    Message(Table),
}

pub(super) const fn plain(number: u64, name: &'static str, value: Value) -> Field {
    Field { number, name, shape: Shape::Plain, value }
}

pub(super) const fn pointer(number: u64, name: &'static str, value: Value) -> Field {
    Field { number, name, shape: Shape::Pointer, value }
}

pub(super) const fn list(number: u64, name: &'static str, value: Value) -> Field {
    Field { number, name, shape: Shape::List, value }
}

pub(super) const fn map(number: u64, name: &'static str, value: Value) -> Field {
    Field { number, name, shape: Shape::Map, value }
}

pub(super) const fn embedded(number: u64, table: Table) -> Field {
    Field { number, name: "", shape: Shape::Embedded, value: Value::Message(table) }
}

// === lists and errors ===

/// `ListMeta`.
pub(crate) const LIST_META: Table =
    &[plain(2, "resourceVersion", Value::Text), plain(3, "continue", Value::Text)];

/// `Status`.
pub(crate) const STATUS: Table = &[
    plain(3, "message", Value::Text),
    plain(4, "reason", Value::Text),
    plain(6, "code", Value::Number),
];

/// Only the identity of an object.
pub(crate) const NAMES: Table = &[plain(
    1,
    "metadata",
    Value::Message(&[
        plain(1, "name", Value::Text),
        plain(3, "namespace", Value::Text),
        plain(5, "uid", Value::Text),
        plain(6, "resourceVersion", Value::Text),
    ]),
)];

const OBJECT_META: Table = &[
    plain(1, "name", Value::Text),
    plain(3, "namespace", Value::Text),
    plain(5, "uid", Value::Text),
    plain(6, "resourceVersion", Value::Text),
    plain(8, "creationTimestamp", Value::Time),
    pointer(9, "deletionTimestamp", Value::Time),
    map(11, "labels", Value::Text),
    map(12, "annotations", Value::Text),
    list(13, "ownerReferences", Value::Message(OWNER_REFERENCE)),
    list(14, "finalizers", Value::Text),
];

const OWNER_REFERENCE: Table = &[
    plain(1, "kind", Value::Text),
    plain(3, "name", Value::Text),
    plain(4, "uid", Value::Text),
    plain(5, "apiVersion", Value::Text),
    pointer(6, "controller", Value::Bool),
    pointer(7, "blockOwnerDeletion", Value::Bool),
];

// === claims ===

/// `PersistentVolumeClaim`.
pub(crate) const CLAIM: Table = &[
    plain(1, "metadata", Value::Message(OBJECT_META)),
    plain(2, "spec", Value::Message(CLAIM_SPEC)),
    plain(3, "status", Value::Message(CLAIM_STATUS)),
];

const CLAIM_SPEC: Table = &[
    list(1, "accessModes", Value::Text),
    plain(2, "resources", Value::Message(&[map(2, "requests", Value::Quantity)])),
    plain(3, "volumeName", Value::Text),
    pointer(4, "selector", Value::Message(LABEL_SELECTOR)),
    pointer(5, "storageClassName", Value::Text),
    pointer(6, "volumeMode", Value::Text),
    pointer(7, "dataSource", Value::Message(TYPED_REFERENCE)),
    pointer(8, "dataSourceRef", Value::Message(TYPED_REFERENCE)),
    pointer(9, "volumeAttributesClassName", Value::Text),
];

const CLAIM_STATUS: Table = &[
    plain(1, "phase", Value::Text),
    list(2, "accessModes", Value::Text),
    map(3, "capacity", Value::Quantity),
    list(4, "conditions", Value::Message(CLAIM_CONDITION)),
    map(5, "allocatedResources", Value::Quantity),
    map(7, "allocatedResourceStatuses", Value::Text),
    pointer(8, "currentVolumeAttributesClassName", Value::Text),
    pointer(9, "modifyVolumeStatus", Value::Message(MODIFY_VOLUME_STATUS)),
];

const CLAIM_CONDITION: Table = &[
    plain(1, "type", Value::Text),
    plain(2, "status", Value::Text),
    plain(3, "lastProbeTime", Value::Time),
    plain(4, "lastTransitionTime", Value::Time),
    plain(5, "reason", Value::Text),
    plain(6, "message", Value::Text),
];

const MODIFY_VOLUME_STATUS: Table =
    &[plain(1, "targetVolumeAttributesClassName", Value::Text), plain(2, "status", Value::Text)];

/// `TypedLocalObjectReference` and `TypedObjectReference`.
const TYPED_REFERENCE: Table = &[
    pointer(1, "apiGroup", Value::Text),
    plain(2, "kind", Value::Text),
    plain(3, "name", Value::Text),
    pointer(4, "namespace", Value::Text),
];

const LABEL_SELECTOR: Table = &[
    map(1, "matchLabels", Value::Text),
    list(2, "matchExpressions", Value::Message(SELECTOR_REQUIREMENT)),
];

/// `LabelSelectorRequirement` and `NodeSelectorRequirement`.
const SELECTOR_REQUIREMENT: Table = &[
    plain(1, "key", Value::Text),
    plain(2, "operator", Value::Text),
    list(3, "values", Value::Text),
];

// === volumes ===

/// `PersistentVolume`.
pub(crate) const VOLUME: Table = &[
    plain(1, "metadata", Value::Message(OBJECT_META)),
    plain(2, "spec", Value::Message(VOLUME_SPEC)),
    plain(3, "status", Value::Message(&[plain(1, "phase", Value::Text)])),
];

const VOLUME_SPEC: Table = &[
    embedded(2, VOLUME_SOURCE),
    pointer(4, "claimRef", Value::Message(CLAIM_REFERENCE)),
    plain(5, "persistentVolumeReclaimPolicy", Value::Text),
    plain(6, "storageClassName", Value::Text),
    pointer(8, "volumeMode", Value::Text),
    pointer(9, "nodeAffinity", Value::Message(NODE_AFFINITY)),
];

/// `ObjectReference`.
const CLAIM_REFERENCE: Table = &[
    plain(2, "namespace", Value::Text),
    plain(3, "name", Value::Text),
    plain(4, "uid", Value::Text),
];

const NODE_AFFINITY: Table = &[pointer(
    1,
    "required",
    Value::Message(&[list(1, "nodeSelectorTerms", Value::Message(NODE_SELECTOR_TERM))]),
)];

const NODE_SELECTOR_TERM: Table = &[
    list(1, "matchExpressions", Value::Message(SELECTOR_REQUIREMENT)),
    list(2, "matchFields", Value::Message(SELECTOR_REQUIREMENT)),
];

/// `PersistentVolumeSource`, without plugins that were not migrated to CSI.
const VOLUME_SOURCE: Table = &[
    pointer(1, "gcePersistentDisk", Value::Message(GCE_PERSISTENT_DISK)),
    pointer(2, "awsElasticBlockStore", Value::Message(AWS_ELASTIC_BLOCK_STORE)),
    pointer(6, "rbd", Value::Message(RBD)),
    pointer(8, "cinder", Value::Message(CINDER)),
    pointer(13, "azureFile", Value::Message(AZURE_FILE)),
    pointer(14, "vsphereVolume", Value::Message(VSPHERE_VOLUME)),
    pointer(16, "azureDisk", Value::Message(AZURE_DISK)),
    pointer(18, "portworxVolume", Value::Message(PORTWORX_VOLUME)),
    pointer(22, "csi", Value::Message(CSI)),
];

const CSI: Table = &[plain(1, "driver", Value::Text), plain(2, "volumeHandle", Value::Text)];

const GCE_PERSISTENT_DISK: Table = &[
    plain(1, "pdName", Value::Text),
    plain(2, "fsType", Value::Text),
    plain(3, "partition", Value::Number),
    plain(4, "readOnly", Value::Bool),
];

const AWS_ELASTIC_BLOCK_STORE: Table = &[
    plain(1, "volumeID", Value::Text),
    plain(2, "fsType", Value::Text),
    plain(3, "partition", Value::Number),
    plain(4, "readOnly", Value::Bool),
];

const RBD: Table = &[
    list(1, "monitors", Value::Text),
    plain(2, "image", Value::Text),
    plain(3, "fsType", Value::Text),
    plain(4, "pool", Value::Text),
    plain(5, "user", Value::Text),
    plain(6, "keyring", Value::Text),
    pointer(7, "secretRef", Value::Message(SECRET_REFERENCE)),
    plain(8, "readOnly", Value::Bool),
];

const CINDER: Table = &[
    plain(1, "volumeID", Value::Text),
    plain(2, "fsType", Value::Text),
    plain(3, "readOnly", Value::Bool),
    pointer(4, "secretRef", Value::Message(SECRET_REFERENCE)),
];

const AZURE_FILE: Table = &[
    plain(1, "secretName", Value::Text),
    plain(2, "shareName", Value::Text),
    plain(3, "readOnly", Value::Bool),
    pointer(4, "secretNamespace", Value::Text),
];

const VSPHERE_VOLUME: Table = &[
    plain(1, "volumePath", Value::Text),
    plain(2, "fsType", Value::Text),
    plain(3, "storagePolicyName", Value::Text),
    plain(4, "storagePolicyID", Value::Text),
];

const AZURE_DISK: Table = &[
    plain(1, "diskName", Value::Text),
    plain(2, "diskURI", Value::Text),
    pointer(3, "cachingMode", Value::Text),
    pointer(4, "fsType", Value::Text),
    pointer(5, "readOnly", Value::Bool),
    pointer(6, "kind", Value::Text),
];

const PORTWORX_VOLUME: Table = &[
    plain(1, "volumeID", Value::Text),
    plain(2, "fsType", Value::Text),
    plain(3, "readOnly", Value::Bool),
];

const SECRET_REFERENCE: Table =
    &[plain(1, "name", Value::Text), plain(2, "namespace", Value::Text)];
