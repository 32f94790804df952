//! Which driver took over from an in-tree plugin.
//!
//! Owns the plugins' names and the annotation `pv.kubernetes.io/migrated-to`, which stands beside the
//! name of such a plugin and nowhere else.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::MIGRATED_TO;

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
pub(super) fn mend(
    annotations: &BTreeMap<String, String>,
    provisioner: Option<&String>,
) -> Option<Value> {
    let wanted = driver_of(provisioner?);
    let written = annotations.get(MIGRATED_TO).map(String::as_str);
    let patch = || json!({"metadata": {"annotations": {MIGRATED_TO: wanted}}});
    (written != wanted).then(patch)
}
