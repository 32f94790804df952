//! What the server fills in: defaults and canonical spellings, as kube-apiserver 1.36 with `AnyVolumeDataSource`
//! does. The scenarios' server ran without the admission that protects objects in use, so none is added here.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{quantity, resources::Kind, tree};

/// Fills in what a new or changed object lacks.
pub(crate) fn apply(kind: &Kind, object: &mut Value) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "PersistentVolume") => persistent_volume(object),
        ("", "PersistentVolumeClaim") => persistent_volume_claim(object),
        ("", "Secret") => secret(object),
        ("", "Namespace") => namespace(object),
        ("storage.k8s.io", "StorageClass") => storage_class(object),
        _ => {}
    }
    quantity::canonicalize(kind, object);
}

fn persistent_volume(object: &mut Value) {
    tree::set_default(object, &["status", "phase"], json!("Pending"));
    tree::set_default(object, &["spec", "persistentVolumeReclaimPolicy"], json!("Retain"));
    tree::set_default(object, &["spec", "volumeMode"], json!("Filesystem"));
    for (path, value) in volume_source_defaults() {
        if !tree::at(object, &path[..2]).is_null() {
            tree::set_default(object, &path, value);
        }
    }
    // `omitempty` of the real server's types: what says nothing is not written.
    if tree::text(object, &["spec", "storageClassName"]).is_empty() {
        tree::remove(object, &["spec", "storageClassName"]);
    }
    for source in [
        "awsElasticBlockStore",
        "azureFile",
        "cinder",
        "csi",
        "gcePersistentDisk",
        "portworxVolume",
        "rbd",
        "vsphereVolume",
    ] {
        for member in ["fsType", "partition", "readOnly", "storagePolicyName", "storagePolicyID"] {
            let path = ["spec", source, member];
            if [json!(""), json!(0), json!(false)].contains(tree::at(object, &path)) {
                tree::remove(object, &path);
            }
        }
    }
}

/// What sources of volumes lack; only Azure's bear what says nothing, too.
fn volume_source_defaults() -> [([&'static str; 3], Value); 8] {
    [
        (["spec", "azureDisk", "cachingMode"], json!("ReadWrite")),
        (["spec", "azureDisk", "fsType"], json!("ext4")),
        (["spec", "azureDisk", "kind"], json!("Shared")),
        (["spec", "azureDisk", "readOnly"], json!(false)),
        (["spec", "azureFile", "secretNamespace"], Value::Null),
        (["spec", "rbd", "keyring"], json!("/etc/ceph/keyring")),
        (["spec", "rbd", "pool"], json!("rbd")),
        (["spec", "rbd", "user"], json!("admin")),
    ]
}

fn persistent_volume_claim(object: &mut Value) {
    if tree::text(object, &["status", "phase"]).is_empty() {
        tree::set(object, &["status", "phase"], json!("Pending"));
    }
    tree::set_default(object, &["spec", "volumeMode"], json!("Filesystem"));
    data_sources(object);
}

/// A claim's `dataSource` and `dataSourceRef` say the same, unless a namespace stands in the latter.
fn data_sources(object: &mut Value) {
    let (source, reference) = (["spec", "dataSource"], ["spec", "dataSourceRef"]);
    if !tree::at(object, &source).is_null() && !is_known_source(tree::at(object, &source)) {
        tree::remove(object, &source);
    }
    let spec = tree::at(object, &["spec"]);
    let (has_source, has_reference) =
        (spec.get("dataSource").is_some(), spec.get("dataSourceRef").is_some());
    let elsewhere = !tree::text(spec, &["dataSourceRef", "namespace"]).is_empty();
    match (has_source, has_reference) {
        (true, false) => {
            let copied = tree::at(object, &source).clone();
            tree::set(object, &reference, copied);
        }
        (false, true) if !elsewhere => {
            let mut copied = tree::at(object, &reference).clone();
            tree::remove(&mut copied, &["namespace"]);
            tree::set(object, &source, copied);
        }
        _ => {}
    }
}

/// Sources of other kinds are dropped without a word: a populator's belong into `dataSourceRef`.
fn is_known_source(source: &Value) -> bool {
    let name = (tree::text(source, &["apiGroup"]), tree::text(source, &["kind"]));
    matches!(name, ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
}

/// Every namespace can be selected by its name.
fn namespace(object: &mut Value) {
    let name = tree::at(object, &["metadata", "name"]).clone();
    tree::set(object, &["metadata", "labels", "kubernetes.io/metadata.name"], name);
}

fn secret(object: &mut Value) {
    if tree::text(object, &["type"]).is_empty() {
        tree::set(object, &["type"], json!("Opaque"));
    }
    if let Some(Value::Object(plain)) = tree::remove(object, &["stringData"]) {
        for (key, text) in plain {
            let encoded = BASE64_STANDARD.encode(text.as_str().unwrap_or_default());
            tree::set(object, &["data", &key], json!(encoded));
        }
    }
}

fn storage_class(object: &mut Value) {
    tree::set_default(object, &["reclaimPolicy"], json!("Delete"));
    tree::set_default(object, &["volumeBindingMode"], json!("Immediate"));
}
