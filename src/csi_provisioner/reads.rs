//! Reads of the cluster that calls need.
//!
//! Reads of secrets, VolumeAttributesClasses, sources and grants, which many claims name, are shared among
//! calls ([`CoalescedReads`]): any number of claims costs no more than ten reads of an object a second, fewer if
//! they take long, but for grants that allow a source.

use crate::{
    controller::model::source::{NamedSource, SourceKind},
    kube::{
        Client, CoalescedReads,
        objects::{CloneSource, Secret, VolumeAttributesClass, VolumeSnapshot},
    },
    runtime::Tasks,
    source_protection::Grants,
};

/// The clients for reads.
pub struct Reads {
    /// For objects that are read for one claim only.
    pub(super) client: Client,
    pub(super) secrets: CoalescedReads<Secret>,
    pub(super) attributes_classes: CoalescedReads<VolumeAttributesClass>,
    pub(super) claims: CoalescedReads<CloneSource>,
    pub(super) snapshots: CoalescedReads<VolumeSnapshot>,
    pub(super) grants: CoalescedReads<Grants>,
}

impl Reads {
    /// Reads through `client`; `tasks` run the expiry of shared results.
    pub fn new(client: Client, tasks: &Tasks) -> Self {
        let secrets = CoalescedReads::new(client.clone(), tasks.clone());
        let attributes_classes = CoalescedReads::new(client.clone(), tasks.clone());
        let claims = CoalescedReads::new(client.clone(), tasks.clone());
        let snapshots = CoalescedReads::new(client.clone(), tasks.clone());
        let grants = CoalescedReads::new(client.clone(), tasks.clone());
        Self { client, secrets, attributes_classes, claims, snapshots, grants }
    }

    /// The source has changed: drops its shared result.
    pub(super) fn forget_source(&self, source: &NamedSource) {
        let NamedSource { kind, namespace, name } = source;
        match kind {
            SourceKind::Claim => self.claims.forget(Some(namespace), name),
            SourceKind::Snapshot => self.snapshots.forget(Some(namespace), name),
        }
    }
}
