//! Reads of the cluster that calls need.
//!
//! Reads of secrets, VolumeAttributesClasses, sources and grants, which many claims name, are shared among
//! calls ([`CoalescedReads`]). After a failed attempt the shared secrets and classes are dropped, so that the
//! next one reads again. What the claim's user writes stays shared: any number of claims costs no more
//! than ten reads of it a second, fewer if they take long, but for grants that allow a source.

use std::time::Duration;

use crate::{
    controller::{
        dependencies::Dependency,
        model::source::{NamedSource, SourceKind},
    },
    kube::{
        Client, CoalescedReads, View as _,
        objects::{CloneSource, Secret, VolumeAttributesClass, VolumeSnapshot},
    },
    runtime::Tasks,
    source_protection::Grants,
};

/// How long reads of what users write are shared: no longer than a short back-off, so that an attempt does not see what
/// the one before it has seen.
const OF_USERS: Duration = Duration::from_millis(100);

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
        let claims = CoalescedReads::new(client.clone(), tasks.clone()).sharing_for(OF_USERS);
        let snapshots = CoalescedReads::new(client.clone(), tasks.clone()).sharing_for(OF_USERS);
        let grants = CoalescedReads::new(client.clone(), tasks.clone()).sharing_for(OF_USERS);
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

    /// An attempt with these objects failed: drops their shared results.
    pub fn failed<'a>(&self, read: impl IntoIterator<Item = &'a Dependency>) {
        for Dependency { kind, namespace, name } in read {
            let (namespace, name) = (namespace.as_deref(), name.as_deref().unwrap_or_default());
            if *kind == Secret::API {
                self.secrets.forget(namespace, name);
            } else if *kind == VolumeAttributesClass::API {
                self.attributes_classes.forget(namespace, name);
            }
        }
    }
}
