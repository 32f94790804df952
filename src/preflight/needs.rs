//! All permissions that this program uses, with their purpose.
//!
//! [`preflight`](super) checks these, and `tests/docs/rights.rs` compares them with
//! `deploy/kubernetes/rbac.yaml`, where rules of optional features are commented out.

use crate::kube::client::access::Permission;

/// What a permission is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Provisioning and deletion, for all flags and drivers.
    Provisioning,
    /// Drivers that attach volumes (`PUBLISH_UNPUBLISH_VOLUME`).
    Attachments,
    /// Drivers with topology (`VOLUME_ACCESSIBILITY_CONSTRAINTS`), if the feature gate is on.
    Topology,
    /// `--node-deployment`.
    NodeDeployment,
    /// `--leader-election`.
    LeaderElection,
    /// StorageClasses with secrets for the driver.
    Secrets,
    /// Drivers that modify volumes (`MODIFY_VOLUME`), if the feature gate is on.
    VolumeAttributesClass,
    /// Drivers that restore snapshots (`CREATE_DELETE_SNAPSHOT`), in clusters with snapshots.
    Snapshots,
    /// The feature gate `CrossNamespaceVolumeDataSource`.
    CrossNamespaceSources,
    /// `--enable-capacity`.
    Capacity,
    /// `--enable-capacity` with an owner: this pod or its controller.
    CapacityOwner,
    /// `--enable-capacity` with an owner two or more levels above this pod.
    CapacityOwnersOwner,
}

/// Where a permission is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RightScope {
    /// In the whole cluster.
    Everywhere,
    /// In the namespace of the Lease.
    LeaseNamespace,
    /// In the namespace of this pod and of CSIStorageCapacity objects.
    CapacityNamespace,
}

/// A permission that a feature needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The feature.
    pub feature: Feature,
    /// Where.
    pub scope: RightScope,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The plural name.
    pub resource: &'static str,
    /// The verb.
    pub verb: &'static str,
    /// An alternative verb.
    pub or: Option<&'static str>,
    /// The consequence if it is missing, or its purpose.
    pub why: &'static str,
}

impl Need {
    /// The permission.
    pub fn right(&self) -> Permission<'static> {
        Permission { verb: self.verb, group: self.group, resource: self.resource }
    }

    /// The permission and its alternative; one of them is enough.
    pub fn rights(&self) -> impl Iterator<Item = Permission<'static>> {
        let other = self.or.map(|verb| Permission { verb, ..self.right() });
        [self.right()].into_iter().chain(other)
    }

    const fn or(self, verb: &'static str) -> Self {
        Self { or: Some(verb), ..self }
    }
}

const fn need(
    feature: Feature,
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
    why: &'static str,
) -> Need {
    let scope = match feature {
        LeaderElection => RightScope::LeaseNamespace,
        Capacity | CapacityOwner | CapacityOwnersOwner => RightScope::CapacityNamespace,
        _ => RightScope::Everywhere,
    };
    Need { feature, scope, group, resource, verb, or: None, why }
}

use Feature::{
    Attachments, Capacity, CapacityOwner, CapacityOwnersOwner, CrossNamespaceSources,
    LeaderElection, NodeDeployment, Provisioning, Secrets, Snapshots, Topology,
    VolumeAttributesClass,
};

const STORAGE: &str = "storage.k8s.io";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";
const GATEWAY: &str = "gateway.networking.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";

/// All needs.
#[rustfmt::skip] // one line a need: it is a table
pub const NEEDS: &[Need] = &[
    need(Provisioning, "", "persistentvolumes", "get", "was the claim given a volume before this process saw it?"),
    need(Provisioning, "", "persistentvolumes", "list", "which volumes are due for deletion?"),
    need(Provisioning, "", "persistentvolumes", "watch", "which volumes come to be due?"),
    need(Provisioning, "", "persistentvolumes", "create", "saves what the driver made"),
    need(Provisioning, "", "persistentvolumes", "patch", "puts the protection finalizer on volumes and takes it off"),
    need(Provisioning, "", "persistentvolumes", "delete", "the object goes after its volume"),
    need(Provisioning, "", "persistentvolumeclaims", "get", "is a claim whose volume vanished still unbound?"),
    need(Provisioning, "", "persistentvolumeclaims", "list", "which claims are there?"),
    need(Provisioning, "", "persistentvolumeclaims", "watch", "which claims are new?"),
    need(Provisioning, "", "persistentvolumeclaims", "update", "records open calls on their claims, gives the selected node back when it has no room, and chooses it with --node-deployment"),
    need(Provisioning, STORAGE, "storageclasses", "list", "which classes are there?"),
    need(Provisioning, STORAGE, "storageclasses", "watch", "which classes are there?"),
    need(Provisioning, "", "events", "create", "reports to users what happened"),
    need(Provisioning, "", "events", "patch", "counts repetitions of an event"),
    need(Attachments, STORAGE, "volumeattachments", "list", "what is attached is not deleted"),
    need(Attachments, STORAGE, "volumeattachments", "watch", "what is attached is not deleted"),
    need(Topology, STORAGE, "csinodes", "list", "where is the driver, and what are its topology keys?"),
    need(Topology, STORAGE, "csinodes", "watch", "where is the driver, and what are its topology keys?"),
    need(Topology, "", "nodes", "list", "where are the nodes?"),
    need(Topology, "", "nodes", "watch", "where are the nodes?"),
    need(Topology, "", "nodes", "get", "which labels does a selected node have that seems to lack some?"),
    need(NodeDeployment, "", "nodes", "get", "is the node gone on which a claim's call is open?"),
    need(LeaderElection, COORDINATION, "leases", "get", "who leads?"),
    need(LeaderElection, COORDINATION, "leases", "watch", "a standby takes over as soon as it may"),
    need(LeaderElection, COORDINATION, "leases", "create", "the first leader writes the Lease"),
    need(LeaderElection, COORDINATION, "leases", "update", "the leader renews the Lease"),
    need(Secrets, "", "secrets", "get", "reads the secrets that classes name for the driver"),
    need(VolumeAttributesClass, STORAGE, "volumeattributesclasses", "get", "reads the parameters that claims ask for by a VolumeAttributesClass"),
    need(Snapshots, SNAPSHOT, "volumesnapshots", "get", "reads the snapshots that claims are to be made from"),
    need(Snapshots, SNAPSHOT, "volumesnapshots", "list", "finds the finalizers that a crash left on snapshots"),
    need(Snapshots, SNAPSHOT, "volumesnapshots", "patch", "keeps a snapshot while volumes are made from it").or("update"),
    need(Snapshots, SNAPSHOT, "volumesnapshotcontents", "get", "finds the driver's handle of a snapshot"),
    need(CrossNamespaceSources, GATEWAY, "referencegrants", "list", "may a claim use a source of another namespace?"),
    need(Capacity, STORAGE, "csistoragecapacities", "list", "what is published already?"),
    need(Capacity, STORAGE, "csistoragecapacities", "watch", "what is published already?"),
    need(Capacity, STORAGE, "csistoragecapacities", "create", "publishes the free capacity"),
    need(Capacity, STORAGE, "csistoragecapacities", "patch", "publishes changes of the free capacity"),
    need(Capacity, STORAGE, "csistoragecapacities", "delete", "takes back what is published of classes and nodes that are gone"),
    need(CapacityOwner, "", "pods", "get", "who owns CSIStorageCapacity objects?"),
    need(CapacityOwnersOwner, "apps", "replicasets", "get", "which Deployment owns CSIStorageCapacity objects?"),
];
