//! Reads of the cluster that calls need.
//!
//! Reads of secrets, VolumeAttributesClasses and sources, which many claims name, are shared among calls
//! ([`CoalescedReads`]). After a failed attempt the shared result is dropped, so that the next one reads
//! again.

use crate::{
    controller::{
        dependencies::Dependency,
        model::source::{NamedSource, SourceKind},
    },
    kube::{
        Client, CoalescedReads, Kind,
        objects::{Claim, CloneSource, Secret, VolumeAttributesClass, VolumeSnapshot},
    },
    runtime::Tasks,
};

/// The clients for reads.
#[derive(Debug)]
pub struct Reads {
    /// For objects that are read for one claim only.
    pub(super) client: Client,
    pub(super) secrets: CoalescedReads<Secret>,
    pub(super) attributes_classes: CoalescedReads<VolumeAttributesClass>,
    pub(super) claims: CoalescedReads<CloneSource>,
    pub(super) snapshots: CoalescedReads<VolumeSnapshot>,
}

impl Reads {
    /// Reads through `client`; `tasks` run the expiry of shared results.
    pub fn new(client: Client, tasks: &Tasks) -> Self {
        let secrets = CoalescedReads::new(client.clone(), tasks.clone());
        let attributes_classes = CoalescedReads::new(client.clone(), tasks.clone());
        let claims = CoalescedReads::new(client.clone(), tasks.clone());
        let snapshots = CoalescedReads::new(client.clone(), tasks.clone());
        Self { client, secrets, attributes_classes, claims, snapshots }
    }

    /// The source has changed: drops its shared result.
    pub(super) fn forget_source(&self, source: &NamedSource) {
        let NamedSource { kind, namespace, name } = source;
        match kind {
            SourceKind::Claim => self.claims.forget(Some(namespace), name),
            SourceKind::Snapshot => self.snapshots.forget(Some(namespace), name),
        }
    }

    /// An attempt with these objects failed: drops their shared results.
    pub fn failed<'a>(&self, read: impl IntoIterator<Item = &'a Dependency>) {
        let (secret, class) = (Kind::of::<Secret>(), Kind::of::<VolumeAttributesClass>());
        let (claim, snapshot) = (Kind::of::<Claim>(), Kind::of::<VolumeSnapshot>());
        for Dependency { kind, namespace, name } in read {
            let (namespace, name) = (namespace.as_deref(), name.as_deref().unwrap_or_default());
            if *kind == secret {
                self.secrets.forget(namespace, name);
            } else if *kind == class {
                self.attributes_classes.forget(namespace, name);
            } else if *kind == claim {
                self.claims.forget(namespace, name);
            } else if *kind == snapshot {
                self.snapshots.forget(namespace, name);
            }
        }
    }
}
