//! Kinds of external-snapshotter's API, version v1.

use serde::{Deserialize, Deserializer};

use super::{Metadata, View};

view! {
    /// A VolumeSnapshot, which claims name as a source.
    VolumeSnapshot: Namespaced "snapshot.storage.k8s.io" "v1" "VolumeSnapshot" "volumesnapshots" {
        /// The current state.
        status: SnapshotStatus,
    }
}

/// `status` of a VolumeSnapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotStatus {
    /// The name of the VolumeSnapshotContent that it is bound to.
    pub bound_volume_snapshot_content_name: Option<String>,
    /// Whether volumes can be created from it.
    pub ready_to_use: Option<bool>,
    /// The minimum size of a volume created from it: a quantity, which may be a JSON number.
    #[serde(deserialize_with = "text_or_number")]
    pub restore_size: Option<String>,
}

view! {
    /// A VolumeSnapshotContent: a snapshot of a driver.
    VolumeSnapshotContent: Cluster "snapshot.storage.k8s.io" "v1" "VolumeSnapshotContent" "volumesnapshotcontents" {
        /// The driver and the VolumeSnapshot.
        spec: SnapshotContentSpec,
        /// The current state.
        status: SnapshotContentStatus,
    }
}

/// `spec` of a VolumeSnapshotContent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotContentSpec {
    /// The CSI driver's name.
    pub driver: String,
    /// The VolumeSnapshot it is bound to.
    pub volume_snapshot_ref: SnapshotReference,
    /// The volume mode of the source volume, if known.
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

/// `status` of a VolumeSnapshotContent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotContentStatus {
    /// The driver's id of the snapshot.
    pub snapshot_handle: Option<String>,
}

/// Reads a quantity of a custom resource: there, unlike in built-in kinds, the server keeps JSON
/// numbers.
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
    fn a_restore_size_may_be_a_text_a_number_or_absent() {
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
}
