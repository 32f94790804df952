//! What is read of the cluster for calls.
//!
//! Owns which reads are shared among calls ([`CoalescedReads`]): secrets and classes of attributes, which
//! many volumes name. Sources are read for each claim. Promises that what failed, a call or
//! what comes before it, is not repeated with what it failed with: whoever asks then gets what is
//! there by then.

use crate::{
    controller::dependencies::index::Dependency,
    kube::{
        Client, CoalescedReads, Kind,
        objects::{Secret, VolumeAttributesClass},
    },
    runtime::Tasks,
};

/// The ways to read for a call.
#[derive(Debug)]
pub struct Reads {
    /// For what is read for one claim only.
    pub(super) client: Client,
    pub(super) secrets: CoalescedReads<Secret>,
    pub(super) attributes_classes: CoalescedReads<VolumeAttributesClass>,
}

impl Reads {
    /// Reads through `client`; `tasks` forget what was shared.
    pub fn new(client: Client, tasks: &Tasks) -> Self {
        let secrets = CoalescedReads::new(client.clone(), tasks.clone());
        let attributes_classes = CoalescedReads::new(client.clone(), tasks.clone());
        Self { client, secrets, attributes_classes }
    }

    /// An attempt with these failed.
    pub(super) fn failed<'a>(&self, read: impl IntoIterator<Item = &'a Dependency>) {
        let (secret, class) = (Kind::of::<Secret>(), Kind::of::<VolumeAttributesClass>());
        for Dependency { kind, namespace, name, .. } in read {
            let (namespace, name) = (namespace.as_deref(), name.as_deref().unwrap_or_default());
            if *kind == secret {
                self.secrets.forget(namespace, name);
            } else if *kind == class {
                self.attributes_classes.forget(namespace, name);
            }
        }
    }
}
