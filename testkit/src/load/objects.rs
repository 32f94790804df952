//! Claims and volumes as a long-lived cluster holds them: with the labels of a deployed application, the annotations
//! that the cluster's own components leave, and the `managedFields` of everyone who wrote, which make up half of a
//! real object's two to five kilobytes. The same number gives the same object.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::apiserver::tree;

/// The annotation that names a claim's provisioner, in its newer and older spelling.
const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];

/// Where a claim's volume is, and that kube-controller-manager put it there.
const BOUND: [&str; 2] =
    ["pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"];

/// The finalizer by which a provisioner keeps a PersistentVolume until the volume is deleted.
const PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// When everything was written.
const TIME: &str = "2025-06-01T12:00:00Z";

/// The driver, the class and the namespace of a run's claims.
pub(super) const DRIVER: &str = "load.csi.example.com";
pub(super) const CLASS: &str = "load";
pub(super) const NAMESPACE: &str = "load";

/// Whose the objects are.
#[derive(Debug, Clone)]
pub struct Family {
    /// The driver of the volumes.
    pub driver: String,
    /// The class of the claims.
    pub class: String,
    /// The namespace of the claims.
    pub namespace: String,
    /// What the names begin with.
    pub prefix: String,
    /// Labels of claims and volumes beside those of the application.
    pub labels: BTreeMap<String, String>,
}

/// Where a volume stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// `Bound`, `Released` and so on.
    pub phase: &'static str,
    /// `Delete` or `Retain`.
    pub policy: &'static str,
}

/// In use.
pub const IN_USE: Standing = Standing { phase: "Bound", policy: "Delete" };

/// Kept after its claim has gone.
pub const ARCHIVED: Standing = Standing { phase: "Released", policy: "Retain" };

impl Family {
    /// The claims of a run that are called after `what`, and their volumes.
    pub(super) fn of_run(what: &str) -> Self {
        Self {
            driver: DRIVER.to_owned(),
            class: CLASS.to_owned(),
            namespace: NAMESPACE.to_owned(),
            prefix: format!("{what}-"),
            labels: BTreeMap::new(),
        }
    }

    /// The name of a claim.
    pub fn claim_name(&self, number: usize) -> String {
        format!("{}{number:06}", self.prefix)
    }

    /// The name of a volume.
    pub fn volume_name(&self, number: usize) -> String {
        format!("pvc-{}", self.uid("claim", number))
    }

    /// A UID, the same for the same number.
    pub fn uid(&self, what: &str, number: usize) -> String {
        let text = format!("{}{}{what}", self.prefix, self.driver);
        // FNV-1a: no more is asked of it than to differ between families.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let [a, b, c] = [hash >> 32, (hash >> 16) & 0xffff, hash & 0xffff];
        format!("{a:08x}-{b:04x}-4000-{c:04x}-{number:012x}")
    }

    /// A claim that waits for its volume, as kube-controller-manager's first look leaves it.
    pub fn waiting_claim(&self, number: usize) -> Value {
        with_managers(self.claim(number), &["kubectl-create", "kube-controller-manager"])
    }

    /// The same as a client creates it: without what only the server and its controllers give it.
    pub(super) fn new_claim(&self, number: usize) -> Value {
        let mut claim = self.waiting_claim(number);
        if let Some(metadata) = claim.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["uid", "resourceVersion", "creationTimestamp", "finalizers"] {
                metadata.remove(field);
            }
        }
        claim
    }

    /// A claim that has its volume.
    pub fn bound_claim(&self, number: usize) -> Value {
        let mut claim = self.claim(number);
        tree::set(&mut claim, &["spec", "volumeName"], self.volume_name(number).into());
        for key in BOUND {
            tree::set(&mut claim, &["metadata", "annotations", key], "yes".into());
        }
        let status = json!({
            "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        });
        tree::set(&mut claim, &["status"], status);
        with_managers(
            claim,
            &["kubectl-create", "kube-controller-manager", "kube-controller-manager"],
        )
    }

    fn claim(&self, number: usize) -> Value {
        let mut annotations: BTreeMap<&str, &str> =
            PROVISIONER.map(|key| (key, self.driver.as_str())).into();
        annotations.insert("meta.helm.sh/release-name", "orders");
        annotations.insert("meta.helm.sh/release-namespace", "shop");
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": self.claim_name(number), "namespace": self.namespace,
                "uid": self.uid("claim", number), "creationTimestamp": TIME,
                "resourceVersion": (1_000_000 + number).to_string(),
                "labels": self.labels_of(number), "annotations": annotations,
                "finalizers": ["kubernetes.io/pvc-protection"],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": self.class,
                "volumeMode": "Filesystem", "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Pending"},
        })
    }

    /// The volume of the claim with the same number, whose UID is `claim_uid`; protected by its
    /// provisioner's finalizer where it is to be deleted some day.
    pub fn volume(&self, number: usize, claim_uid: &str, standing: Standing) -> Value {
        let protection = (standing.policy == "Delete").then_some(PROTECTION);
        let finalizers = protection.into_iter().chain(["kubernetes.io/pv-protection"]);
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {
                "name": self.volume_name(number), "uid": self.uid("volume", number),
                "creationTimestamp": TIME, "labels": self.labels_of(number),
                "resourceVersion": (1_000_000 + number).to_string(),
                "annotations": {
                    "pv.kubernetes.io/provisioned-by": self.driver,
                    "volume.kubernetes.io/provisioner-deletion-secret-name": "csi-provisioner",
                    "volume.kubernetes.io/provisioner-deletion-secret-namespace": "kube-system",
                },
                "finalizers": finalizers.collect::<Vec<_>>(),
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": claim_uid,
                    "namespace": self.namespace, "name": self.claim_name(number),
                    "resourceVersion": (1_000_000 + number).to_string(),
                },
                "csi": self.source(number),
                "persistentVolumeReclaimPolicy": standing.policy,
                "storageClassName": self.class, "volumeMode": "Filesystem",
            },
            "status": {"phase": standing.phase, "lastPhaseTransitionTime": TIME},
        });
        with_managers(volume, &["csi-provisioner", "kube-controller-manager"])
    }

    /// The driver's part of a volume, as large as ceph-csi makes it.
    fn source(&self, number: usize) -> Value {
        let cluster = "b9127830-b0cc-4e34-aa47-9d1a2e9949a8";
        let uid = self.uid("image", number);
        json!({
            "driver": self.driver, "fsType": "ext4",
            "volumeHandle": format!("0001-0024-{cluster}-0000000000000002-{uid}"),
            "volumeAttributes": {
                "clusterID": cluster, "imageFeatures": "layering", "imageName": format!("csi-vol-{uid}"),
                "journalPool": "kubernetes", "pool": "kubernetes",
                "storage.kubernetes.io/csiProvisionerIdentity": format!("1717243200000-8081-{}", self.driver),
            },
            "controllerExpandSecretRef": {"name": "csi-provisioner", "namespace": "kube-system"},
            "nodeStageSecretRef": {"name": "csi-node", "namespace": "kube-system"},
        })
    }

    /// The attachment of a volume to one of a hundred nodes.
    pub fn attachment(&self, number: usize) -> Value {
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {
                "name": format!("csi-{}{}", self.uid("attachment", number), self.uid("more", number)),
                "uid": self.uid("attachment", number), "creationTimestamp": TIME,
                "resourceVersion": (1_000_000 + number).to_string(), "labels": self.labels,
                "annotations": {"csi.alpha.kubernetes.io/node-id": format!("worker-{:03}", number % 100)},
                "finalizers": ["external-attacher/csi-driver"],
            },
            "spec": {
                "attacher": self.driver, "nodeName": format!("worker-{:03}", number % 100),
                "source": {"persistentVolumeName": self.volume_name(number)},
            },
            "status": {"attached": true},
        });
        with_managers(attachment, &["kube-controller-manager", "csi-attacher"])
    }

    /// A class of the driver; number 0 is the claims' own.
    pub fn storage_class(&self, number: usize) -> Value {
        let name = match number {
            0 => self.class.clone(),
            _ => format!("{}-{number}", self.class),
        };
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {
                "name": name, "uid": self.uid("class", number), "creationTimestamp": TIME,
                "resourceVersion": (1_000_000 + number).to_string(), "labels": self.labels,
            },
            "provisioner": self.driver, "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
            "parameters": {"pool": "kubernetes", "imageFeatures": "layering"},
        });
        with_managers(class, &["helm"])
    }

    fn labels_of(&self, number: usize) -> BTreeMap<String, String> {
        let application = [
            ("app.kubernetes.io/name", "postgresql".to_owned()),
            ("app.kubernetes.io/instance", format!("orders-{}", number % 500)),
            ("app.kubernetes.io/component", "primary".to_owned()),
            ("app.kubernetes.io/managed-by", "Helm".to_owned()),
            ("helm.sh/chart", "postgresql-15.5.1".to_owned()),
        ];
        let own = self.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        application.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(own).collect()
    }
}

/// The object with an entry of `managedFields` for each writer.
fn with_managers(mut object: Value, managers: &[&str]) -> Value {
    let entries = managers.iter().map(|manager| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": object.get("apiVersion"),
            "time": TIME, "fieldsType": "FieldsV1", "fieldsV1": fields(&object),
        })
    });
    let entries = entries.collect();
    tree::set(&mut object, &["metadata", "managedFields"], Value::Array(entries));
    object
}

/// What `fieldsV1` says of one who has written all of `value` (lists count as one field).
fn fields(value: &Value) -> Value {
    let Value::Object(members) = value else { return json!({}) };
    let of = |(key, value): (&String, &Value)| (format!("f:{key}"), fields(value));
    let mut all: Map<String, Value> = members.iter().map(of).collect();
    all.insert(".".to_owned(), json!({}));
    Value::Object(all)
}
