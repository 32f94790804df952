//! What other controllers keep on claims and volumes: the annotation that says which driver took over from an in-tree
//! plugin, and the finalizers of what is in use.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};

use super::{Action, MIGRATED_TO, change, volumes};

/// In-tree plugins and the drivers that took over from them.
const DRIVERS: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

fn driver_of(plugin: &str) -> Option<&'static str> {
    DRIVERS.iter().find(|(in_tree, _)| *in_tree == plugin).map(|(_, driver)| *driver)
}

/// Who provisions for a class: the driver of an in-tree plugin in its place; `None` where nobody does.
pub(super) fn provisioner(of_class: &str) -> Option<&str> {
    driver_of(of_class).or_else(|| (!of_class.starts_with("kubernetes.io/")).then_some(of_class))
}

/// The patch that mends the annotation of an object whose annotations name `provisioner`.
pub(super) fn migration(
    annotations: &BTreeMap<String, String>,
    provisioner: Option<&String>,
) -> Option<Value> {
    let wanted = driver_of(provisioner?);
    let written = annotations.get(MIGRATED_TO).map(String::as_str);
    (written != wanted).then(|| json!({"metadata": {"annotations": {MIGRATED_TO: wanted}}}))
}

/// What is to be done about a claim's finalizer. Claims are never in use, as there are no Pods here.
pub(super) fn protected_claim(claim: &PersistentVolumeClaim) -> Option<Action> {
    let patch = finalizer(&claim.metadata, "kubernetes.io/pvc-protection", false)?;
    Some(change(claim, patch))
}

/// What is to be done about a volume's finalizer. It is in use while it is bound.
pub(super) fn protected_volume(volume: &PersistentVolume) -> Option<Action> {
    let used = volumes::phase(volume) == Some("Bound");
    Some(change(volume, finalizer(&volume.metadata, "kubernetes.io/pv-protection", used)?))
}

/// The finalizer stands there while the object is not deleted, and goes once it is deleted and not in use.
fn finalizer(metadata: &ObjectMeta, finalizer: &str, used: bool) -> Option<Value> {
    let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
    let has = finalizers.iter().any(|name| name == finalizer);
    match (metadata.deletion_timestamp.is_some(), has) {
        (false, false) => finalizers.push(finalizer.to_owned()),
        (true, true) if !used => finalizers.retain(|name| name != finalizer),
        _ => return None,
    }
    Some(json!({"metadata": {"finalizers": finalizers}}))
}
