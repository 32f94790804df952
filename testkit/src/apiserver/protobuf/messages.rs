//! The messages of claims, PersistentVolumes and refusals, read from their JSON.
//!
//! Fields and numbers are those of the `generated.proto` files of k8s.io/api. What is no pointer in Go
//! is `required` here: Go writes it although it is empty. Left out are `managedFields` and volumes
//! of most plugins that no CSI driver took over from.

use std::{collections::BTreeMap, fmt::Debug};

use prost::Message;
use serde::{Deserialize, Deserializer};

/// A list as it begins. Its [`ListItem`]s follow.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListHead {
    #[prost(message, required, tag = "1")]
    pub(super) metadata: ListMeta,
}

/// A list's next item.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListItem<M: Message + Default + Debug> {
    #[prost(message, required, tag = "2")]
    pub(super) item: M,
}

/// A list's metadata.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ListMeta {
    #[prost(string, required, tag = "2")]
    resource_version: String,
    #[prost(string, required, tag = "3")]
    #[serde(rename = "continue")]
    next: String,
    #[prost(int64, optional, tag = "4")]
    remaining_item_count: Option<i64>,
}

/// An answer that is no object.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    #[prost(message, required, tag = "1")]
    metadata: ListMeta,
    #[prost(string, required, tag = "2")]
    #[serde(rename = "status")]
    outcome: String,
    #[prost(string, required, tag = "3")]
    message: String,
    #[prost(string, required, tag = "4")]
    reason: String,
    #[prost(message, optional, tag = "5")]
    details: Option<StatusDetails>,
    #[prost(int32, required, tag = "6")]
    code: i32,
}

/// What it is about.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StatusDetails {
    #[prost(string, required, tag = "1")]
    name: String,
    #[prost(string, required, tag = "2")]
    group: String,
    #[prost(string, required, tag = "3")]
    kind: String,
    #[prost(message, repeated, tag = "4")]
    causes: Vec<StatusCause>,
    #[prost(int32, required, tag = "5")]
    retry_after_seconds: i32,
    #[prost(string, required, tag = "6")]
    uid: String,
}

/// One of several reasons.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StatusCause {
    #[prost(string, required, tag = "1")]
    reason: String,
    #[prost(string, required, tag = "2")]
    message: String,
    #[prost(string, required, tag = "3")]
    field: String,
}

/// Every object's metadata.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ObjectMeta {
    #[prost(string, required, tag = "1")]
    name: String,
    #[prost(string, required, tag = "2")]
    generate_name: String,
    #[prost(string, required, tag = "3")]
    namespace: String,
    #[prost(string, required, tag = "4")]
    self_link: String,
    #[prost(string, required, tag = "5")]
    uid: String,
    #[prost(string, required, tag = "6")]
    resource_version: String,
    #[prost(int64, required, tag = "7")]
    generation: i64,
    #[prost(message, required, tag = "8")]
    creation_timestamp: Time,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Time>,
    #[prost(int64, optional, tag = "10")]
    deletion_grace_period_seconds: Option<i64>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<OwnerReference>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

/// Whose an object is.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct OwnerReference {
    #[prost(string, required, tag = "1")]
    kind: String,
    #[prost(string, required, tag = "3")]
    name: String,
    #[prost(string, required, tag = "4")]
    uid: String,
    #[prost(string, required, tag = "5")]
    api_version: String,
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    block_owner_deletion: Option<bool>,
}

/// A claim.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PersistentVolumeClaim {
    #[prost(message, required, tag = "1")]
    metadata: ObjectMeta,
    #[prost(message, required, tag = "2")]
    spec: ClaimSpec,
    #[prost(message, required, tag = "3")]
    status: ClaimStatus,
}

/// What a claim's user asks for.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClaimSpec {
    #[prost(string, repeated, tag = "1")]
    access_modes: Vec<String>,
    #[prost(message, required, tag = "2")]
    resources: Resources,
    #[prost(string, required, tag = "3")]
    volume_name: String,
    #[prost(message, optional, tag = "4")]
    selector: Option<LabelSelector>,
    #[prost(string, optional, tag = "5")]
    storage_class_name: Option<String>,
    #[prost(string, optional, tag = "6")]
    volume_mode: Option<String>,
    #[prost(message, optional, tag = "7")]
    data_source: Option<TypedReference>,
    #[prost(message, optional, tag = "8")]
    data_source_ref: Option<TypedReference>,
    #[prost(string, optional, tag = "9")]
    volume_attributes_class_name: Option<String>,
}

/// How much of it.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Resources {
    #[prost(btree_map = "string, message", tag = "1")]
    limits: BTreeMap<String, Quantity>,
    #[prost(btree_map = "string, message", tag = "2")]
    requests: BTreeMap<String, Quantity>,
}

/// Which objects are meant.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LabelSelector {
    #[prost(btree_map = "string, string", tag = "1")]
    match_labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    match_expressions: Vec<Requirement>,
}

/// Of labels, of a selector as of a node's.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Requirement {
    #[prost(string, required, tag = "1")]
    key: String,
    #[prost(string, required, tag = "2")]
    operator: String,
    #[prost(string, repeated, tag = "3")]
    values: Vec<String>,
}

/// Another object, of the claim's namespace or, in `dataSourceRef`, of any.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TypedReference {
    #[prost(string, optional, tag = "1")]
    api_group: Option<String>,
    #[prost(string, required, tag = "2")]
    kind: String,
    #[prost(string, required, tag = "3")]
    name: String,
    #[prost(string, optional, tag = "4")]
    namespace: Option<String>,
}

/// What the cluster says of a claim.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClaimStatus {
    #[prost(string, required, tag = "1")]
    phase: String,
    #[prost(string, repeated, tag = "2")]
    access_modes: Vec<String>,
    #[prost(btree_map = "string, message", tag = "3")]
    capacity: BTreeMap<String, Quantity>,
    #[prost(message, repeated, tag = "4")]
    conditions: Vec<ClaimCondition>,
    #[prost(btree_map = "string, message", tag = "5")]
    allocated_resources: BTreeMap<String, Quantity>,
    #[prost(btree_map = "string, string", tag = "7")]
    allocated_resource_statuses: BTreeMap<String, String>,
    #[prost(string, optional, tag = "8")]
    current_volume_attributes_class_name: Option<String>,
    #[prost(message, optional, tag = "9")]
    modify_volume_status: Option<ModifyVolumeStatus>,
}

/// What else is the case.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClaimCondition {
    #[prost(string, required, tag = "1")]
    #[serde(rename = "type")]
    kind: String,
    #[prost(string, required, tag = "2")]
    status: String,
    #[prost(message, required, tag = "3")]
    last_probe_time: Time,
    #[prost(message, required, tag = "4")]
    last_transition_time: Time,
    #[prost(string, required, tag = "5")]
    reason: String,
    #[prost(string, required, tag = "6")]
    message: String,
}

/// A change of attributes under way.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ModifyVolumeStatus {
    #[prost(string, required, tag = "1")]
    target_volume_attributes_class_name: String,
    #[prost(string, required, tag = "2")]
    status: String,
}

/// A volume.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PersistentVolume {
    #[prost(message, required, tag = "1")]
    metadata: ObjectMeta,
    #[prost(message, required, tag = "2")]
    spec: VolumeSpec,
    #[prost(message, required, tag = "3")]
    status: VolumeStatus,
}

/// Where a volume is and whose.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct VolumeSpec {
    #[prost(btree_map = "string, message", tag = "1")]
    capacity: BTreeMap<String, Quantity>,
    #[prost(message, required, tag = "2")]
    #[serde(flatten)]
    source: VolumeSource,
    #[prost(string, repeated, tag = "3")]
    access_modes: Vec<String>,
    #[prost(message, optional, tag = "4")]
    claim_ref: Option<ObjectReference>,
    #[prost(string, required, tag = "5")]
    persistent_volume_reclaim_policy: String,
    #[prost(string, required, tag = "6")]
    storage_class_name: String,
    #[prost(string, repeated, tag = "7")]
    mount_options: Vec<String>,
    #[prost(string, optional, tag = "8")]
    volume_mode: Option<String>,
    #[prost(message, optional, tag = "9")]
    node_affinity: Option<NodeAffinity>,
    #[prost(string, optional, tag = "10")]
    volume_attributes_class_name: Option<String>,
}

/// What the cluster says of a volume.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct VolumeStatus {
    #[prost(string, required, tag = "1")]
    phase: String,
    #[prost(string, required, tag = "2")]
    message: String,
    #[prost(string, required, tag = "3")]
    reason: String,
    #[prost(message, optional, tag = "4")]
    last_phase_transition_time: Option<Time>,
}

/// Another object.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ObjectReference {
    #[prost(string, required, tag = "1")]
    kind: String,
    #[prost(string, required, tag = "2")]
    namespace: String,
    #[prost(string, required, tag = "3")]
    name: String,
    #[prost(string, required, tag = "4")]
    uid: String,
    #[prost(string, required, tag = "5")]
    api_version: String,
    #[prost(string, required, tag = "6")]
    resource_version: String,
    #[prost(string, required, tag = "7")]
    field_path: String,
}

/// Which nodes can reach a volume.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeAffinity {
    #[prost(message, optional, tag = "1")]
    required: Option<NodeSelector>,
}

/// One of the terms must hold.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeSelector {
    #[prost(message, repeated, tag = "1")]
    node_selector_terms: Vec<NodeSelectorTerm>,
}

/// All of it must hold.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeSelectorTerm {
    #[prost(message, repeated, tag = "1")]
    match_expressions: Vec<Requirement>,
    #[prost(message, repeated, tag = "2")]
    match_fields: Vec<Requirement>,
}

/// One of these, its members among those of the spec.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct VolumeSource {
    #[prost(message, optional, tag = "1")]
    gce_persistent_disk: Option<GcePersistentDisk>,
    #[prost(message, optional, tag = "2")]
    aws_elastic_block_store: Option<AwsElasticBlockStore>,
    #[prost(message, optional, tag = "3")]
    host_path: Option<HostPath>,
    #[prost(message, optional, tag = "5")]
    nfs: Option<Nfs>,
    #[prost(message, optional, tag = "6")]
    rbd: Option<Rbd>,
    #[prost(message, optional, tag = "8")]
    cinder: Option<Cinder>,
    #[prost(message, optional, tag = "13")]
    azure_file: Option<AzureFile>,
    #[prost(message, optional, tag = "14")]
    vsphere_volume: Option<VsphereVolume>,
    #[prost(message, optional, tag = "16")]
    azure_disk: Option<AzureDisk>,
    #[prost(message, optional, tag = "18")]
    portworx_volume: Option<PortworxVolume>,
    #[prost(message, optional, tag = "20")]
    local: Option<Local>,
    #[prost(message, optional, tag = "22")]
    csi: Option<Csi>,
}

/// `kubernetes.io/gce-pd`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GcePersistentDisk {
    #[prost(string, required, tag = "1")]
    pd_name: String,
    #[prost(string, required, tag = "2")]
    fs_type: String,
    #[prost(int32, required, tag = "3")]
    partition: i32,
    #[prost(bool, required, tag = "4")]
    read_only: bool,
}

/// `kubernetes.io/aws-ebs`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AwsElasticBlockStore {
    #[prost(string, required, tag = "1")]
    #[serde(rename = "volumeID")]
    volume_id: String,
    #[prost(string, required, tag = "2")]
    fs_type: String,
    #[prost(int32, required, tag = "3")]
    partition: i32,
    #[prost(bool, required, tag = "4")]
    read_only: bool,
}

/// A directory of a node.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct HostPath {
    #[prost(string, required, tag = "1")]
    path: String,
    #[prost(string, optional, tag = "2")]
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// An export.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Nfs {
    #[prost(string, required, tag = "1")]
    server: String,
    #[prost(string, required, tag = "2")]
    path: String,
    #[prost(bool, required, tag = "3")]
    read_only: bool,
}

/// `kubernetes.io/rbd`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Rbd {
    #[prost(string, repeated, tag = "1")]
    monitors: Vec<String>,
    #[prost(string, required, tag = "2")]
    image: String,
    #[prost(string, required, tag = "3")]
    fs_type: String,
    #[prost(string, required, tag = "4")]
    pool: String,
    #[prost(string, required, tag = "5")]
    user: String,
    #[prost(string, required, tag = "6")]
    keyring: String,
    #[prost(message, optional, tag = "7")]
    secret_ref: Option<SecretReference>,
    #[prost(bool, required, tag = "8")]
    read_only: bool,
}

/// `kubernetes.io/cinder`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Cinder {
    #[prost(string, required, tag = "1")]
    #[serde(rename = "volumeID")]
    volume_id: String,
    #[prost(string, required, tag = "2")]
    fs_type: String,
    #[prost(bool, required, tag = "3")]
    read_only: bool,
    #[prost(message, optional, tag = "4")]
    secret_ref: Option<SecretReference>,
}

/// `kubernetes.io/azure-file`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AzureFile {
    #[prost(string, required, tag = "1")]
    secret_name: String,
    #[prost(string, required, tag = "2")]
    share_name: String,
    #[prost(bool, required, tag = "3")]
    read_only: bool,
    #[prost(string, optional, tag = "4")]
    secret_namespace: Option<String>,
}

/// `kubernetes.io/vsphere-volume`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct VsphereVolume {
    #[prost(string, required, tag = "1")]
    volume_path: String,
    #[prost(string, required, tag = "2")]
    fs_type: String,
    #[prost(string, required, tag = "3")]
    storage_policy_name: String,
    #[prost(string, required, tag = "4")]
    #[serde(rename = "storagePolicyID")]
    storage_policy_id: String,
}

/// `kubernetes.io/azure-disk`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AzureDisk {
    #[prost(string, required, tag = "1")]
    disk_name: String,
    #[prost(string, required, tag = "2")]
    #[serde(rename = "diskURI")]
    disk_uri: String,
    #[prost(string, optional, tag = "3")]
    caching_mode: Option<String>,
    #[prost(string, optional, tag = "4")]
    fs_type: Option<String>,
    #[prost(bool, optional, tag = "5")]
    read_only: Option<bool>,
    #[prost(string, optional, tag = "6")]
    kind: Option<String>,
}

/// `kubernetes.io/portworx-volume`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PortworxVolume {
    #[prost(string, required, tag = "1")]
    #[serde(rename = "volumeID")]
    volume_id: String,
    #[prost(string, required, tag = "2")]
    fs_type: String,
    #[prost(bool, required, tag = "3")]
    read_only: bool,
}

/// A disk of a node.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Local {
    #[prost(string, required, tag = "1")]
    path: String,
    #[prost(string, optional, tag = "2")]
    fs_type: Option<String>,
}

/// A CSI driver's.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Csi {
    #[prost(string, required, tag = "1")]
    driver: String,
    #[prost(string, required, tag = "2")]
    volume_handle: String,
    #[prost(bool, required, tag = "3")]
    read_only: bool,
    #[prost(string, required, tag = "4")]
    fs_type: String,
    #[prost(btree_map = "string, string", tag = "5")]
    volume_attributes: BTreeMap<String, String>,
    #[prost(message, optional, tag = "6")]
    controller_publish_secret_ref: Option<SecretReference>,
    #[prost(message, optional, tag = "7")]
    node_stage_secret_ref: Option<SecretReference>,
    #[prost(message, optional, tag = "8")]
    node_publish_secret_ref: Option<SecretReference>,
    #[prost(message, optional, tag = "9")]
    controller_expand_secret_ref: Option<SecretReference>,
    #[prost(message, optional, tag = "10")]
    node_expand_secret_ref: Option<SecretReference>,
}

/// A Secret.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SecretReference {
    #[prost(string, required, tag = "1")]
    name: String,
    #[prost(string, required, tag = "2")]
    namespace: String,
}

/// A time; an empty message for none.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Time {
    #[prost(int64, optional, tag = "1")]
    seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    nanos: Option<i32>,
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else {
            return Ok(Self::default());
        };
        let time: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self { seconds: Some(time.as_second()), nanos: Some(0) })
    }
}

/// A quantity by its text.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(from = "String")]
pub(super) struct Quantity {
    #[prost(string, required, tag = "1")]
    text: String,
}

impl From<String> for Quantity {
    fn from(text: String) -> Self {
        Self { text }
    }
}
