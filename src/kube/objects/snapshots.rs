//! Snapshots of volumes: the kinds of the external snapshotter's API, version v1.

use serde::{Deserialize, Deserializer};

use super::{Cow, NamespaceResourceScope, ObjectMeta, Resource, View, slim_metadata};
use kube::core::ClusterResourceScope;

view! {
    /// A VolumeSnapshot: what users name as a source.
    VolumeSnapshot: Namespaced "snapshot.storage.k8s.io" "v1" "VolumeSnapshot" "volumesnapshots" {
        /// What the cluster says of it.
        status: SnapshotStatus,
    }
}

/// What the cluster says of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotStatus {
    /// The VolumeSnapshotContent that holds it, by name.
    pub bound_volume_snapshot_content_name: Option<String>,
    /// Whether volumes can be made from it.
    pub ready_to_use: Option<bool>,
    /// The least size of a volume made from it: a quantity, which may stand there as a number.
    #[serde(deserialize_with = "text_or_number")]
    pub restore_size: Option<String>,
}

view! {
    /// A VolumeSnapshotContent: a snapshot as the driver knows it.
    VolumeSnapshotContent: Cluster "snapshot.storage.k8s.io" "v1" "VolumeSnapshotContent" "volumesnapshotcontents" {
        /// Whose and of what it is.
        spec: SnapshotContentSpec,
        /// What the driver says of it.
        status: SnapshotContentStatus,
    }
}

/// Whose and of what a snapshot's content is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotContentSpec {
    /// The CSI driver's name.
    pub driver: String,
    /// The VolumeSnapshot it is bound to.
    pub volume_snapshot_ref: SnapshotReference,
    /// The volume mode of the volume that was snapshotted, where it is known.
    pub source_volume_mode: Option<String>,
}

/// The VolumeSnapshot that a content is bound to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SnapshotReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// What the driver says of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotContentStatus {
    /// The driver's id of the snapshot.
    pub snapshot_handle: Option<String>,
}

/// Reads a quantity of a custom resource: other than in built-in kinds the server does not turn
/// numbers into texts there.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Quantity {
        Text(String),
        Number(serde_json::Number),
    }
    let quantity = Option::<Quantity>::deserialize(deserializer)?;
    Ok(quantity.map(|quantity| match quantity {
        Quantity::Text(text) => text,
        Quantity::Number(number) => number.to_string(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_restore_size_is_a_text_or_a_number_or_missing() {
        let read = |size: Value| {
            let snapshot = json!({"metadata": {"name": "s"}, "status": {"restoreSize": size}});
            serde_json::from_value::<VolumeSnapshot>(snapshot).unwrap().status.restore_size
        };
        assert_eq!(read(json!("1Gi")).as_deref(), Some("1Gi"));
        assert_eq!(read(json!(1_073_741_824)).as_deref(), Some("1073741824"));
        assert_eq!(read(Value::Null), None);
        let bare: VolumeSnapshot = serde_json::from_value(json!({})).unwrap();
        assert_eq!(bare.status, SnapshotStatus::default());
    }

    #[test]
    fn an_empty_handle_is_another_thing_than_none() {
        let read = |status: Value| {
            let content = json!({"spec": {"driver": "d"}, "status": status});
            let content: VolumeSnapshotContent = serde_json::from_value(content).unwrap();
            content.status.snapshot_handle
        };
        assert_eq!(read(json!({"snapshotHandle": ""})).as_deref(), Some(""));
        assert_eq!(read(json!({})), None);
    }
}
