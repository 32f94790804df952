//! What other controllers keep on claims and volumes: the annotation that says which driver took over from an in-tree
//! plugin, and the finalizers of what is in use.

use serde_json::{Value, json};

use super::{
    Action, MIGRATED_TO,
    book::{CLAIM, Item, VOLUME},
    change,
    fit::annotation,
};
use crate::apiserver::tree::{items, text};

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

/// Mends the annotation of an object whose annotations name `provisioner`.
pub(super) fn migration(
    kind: &'static str,
    object: &Value,
    provisioner: Option<&str>,
) -> Option<Action> {
    let wanted = driver_of(provisioner?);
    let patch = json!({"metadata": {"annotations": {MIGRATED_TO: wanted}}});
    (annotation(object, MIGRATED_TO) != wanted).then(|| change(kind, object, patch))
}

/// What is to be done about the finalizer of a claim, which is never in use as there are no Pods here, or of a volume,
/// which is in use while it is bound. It stands there while the object is not deleted, and goes once the object is
/// deleted and not in use.
pub(super) fn protected(item: &Item, object: &Value) -> Option<Action> {
    let (finalizer, used) = match item.kind {
        CLAIM => ("kubernetes.io/pvc-protection", false),
        VOLUME => ("kubernetes.io/pv-protection", text(object, &["status", "phase"]) == "Bound"),
        _ => return None,
    };
    let mut finalizers = items(object, &["metadata", "finalizers"]).to_vec();
    let is_deleted = !text(object, &["metadata", "deletionTimestamp"]).is_empty();
    match (is_deleted, finalizers.iter().any(|name| name == finalizer)) {
        (false, false) => finalizers.push(finalizer.into()),
        (true, true) if !used => finalizers.retain(|name| name != finalizer),
        _ => return None,
    }
    Some(change(item.kind, object, json!({"metadata": {"finalizers": finalizers}})))
}
