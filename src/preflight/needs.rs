//! Every right that this program uses, and what for.
//!
//! The one table of them: [`preflight`](super) asks for these, and `tests/rights.rs` holds
//! `deploy/kubernetes/rbac.yaml` against it, where rules of optional features stand commented.

use crate::kube::client::access::Right;

/// What a right is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// The life of a claim, whatever the flags and the driver.
    Provisioning,
    /// Drivers that attach volumes (`PUBLISH_UNPUBLISH_VOLUME`).
    Attachments,
    /// Drivers that know of places (`VOLUME_ACCESSIBILITY_CONSTRAINTS`), where the feature gate is on.
    Topology,
    /// `--leader-election`.
    LeaderElection,
    /// StorageClasses that name secrets for the driver.
    Secrets,
    /// Drivers that modify volumes (`MODIFY_VOLUME`), where the feature gate is on.
    VolumeAttributesClass,
    /// Drivers that restore snapshots (`CREATE_DELETE_SNAPSHOT`), in clusters that have these.
    Snapshots,
    /// The feature gate `CrossNamespaceVolumeDataSource`.
    CrossNamespaceSources,
    /// `--enable-capacity`.
    Capacity,
    /// `--enable-capacity` with an owner: this pod or what controls it.
    CapacityOwner,
    /// The same, where what controls the pod's controller is the owner, or is asked for it.
    CapacityOwnersOwner,
}

impl Feature {
    /// Whether the rules stand commented in our manifest, for those who need them to take in.
    pub fn is_optional(self) -> bool {
        matches!(
            self,
            Self::Secrets
                | Self::CrossNamespaceSources
                | Self::Capacity
                | Self::CapacityOwner
                | Self::CapacityOwnersOwner
        )
    }
}

/// Where a right must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the whole cluster.
    Everywhere,
    /// In the namespace of the Lease.
    LeaseNamespace,
    /// In the namespace of this pod and of CSIStorageCapacity objects.
    CapacityNamespace,
}

/// A right that a feature needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The feature.
    pub feature: Feature,
    /// Where.
    pub place: Place,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The plural name.
    pub resource: &'static str,
    /// The verb.
    pub verb: &'static str,
    /// Another verb that does as well.
    pub or: Option<&'static str>,
    /// What goes wrong without, or what it does.
    pub why: &'static str,
}

impl Need {
    /// The right.
    pub fn right(&self) -> Right<'static> {
        Right { verb: self.verb, group: self.group, resource: self.resource }
    }

    /// The rights of which one is enough.
    pub fn rights(&self) -> impl Iterator<Item = Right<'static>> {
        let other = self.or.map(|verb| Right { verb, ..self.right() });
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
    let place = match feature {
        LeaderElection => Place::LeaseNamespace,
        Capacity | CapacityOwner | CapacityOwnersOwner => Place::CapacityNamespace,
        _ => Place::Everywhere,
    };
    Need { feature, place, group, resource, verb, or: None, why }
}

use Feature::{
    Attachments, Capacity, CapacityOwner, CapacityOwnersOwner, CrossNamespaceSources,
    LeaderElection, Provisioning, Secrets, Snapshots, Topology, VolumeAttributesClass,
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
    need(Provisioning, "", "events", "create", "tells users what happened"),
    need(Provisioning, "", "events", "patch", "counts repetitions of an event"),
    need(Attachments, STORAGE, "volumeattachments", "list", "what is attached is not deleted"),
    need(Attachments, STORAGE, "volumeattachments", "watch", "what is attached is not deleted"),
    need(Topology, STORAGE, "csinodes", "list", "where is the driver, and what are its topology keys?"),
    need(Topology, STORAGE, "csinodes", "watch", "where is the driver, and what are its topology keys?"),
    need(Topology, "", "nodes", "list", "where are the nodes?"),
    need(Topology, "", "nodes", "watch", "where are the nodes?"),
    need(Topology, "", "nodes", "get", "which labels does a selected node have that seems to lack some?"),
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
    need(Capacity, STORAGE, "csistoragecapacities", "get", "whose is the object that has the name of a new one?"),
    need(Capacity, STORAGE, "csistoragecapacities", "create", "publishes how much room there is"),
    need(Capacity, STORAGE, "csistoragecapacities", "patch", "publishes that there is more room or less").or("update"),
    need(Capacity, STORAGE, "csistoragecapacities", "delete", "takes back what is published of classes and nodes that are gone"),
    need(CapacityOwner, "", "pods", "get", "who owns CSIStorageCapacity objects?"),
    need(CapacityOwnersOwner, "apps", "replicasets", "get", "which Deployment owns CSIStorageCapacity objects?"),
];
