//! Checks the RBAC permissions of the features that are in use, for as long as this process leads.

use std::{convert::Infallible, time::Duration};

use csi_translation::Migration;
use tokio::time::timeout;

use super::{Base, Program, election};
use crate::{
    csi::proto::controller_service_capability::rpc::Type as Rpc,
    csi_provisioner::reads_secret,
    flags,
    kube::{
        events::Severity,
        objects::{StorageClass, VolumeSnapshot},
    },
    leader,
    leader::leases,
    preflight,
    preflight::{Feature, MissingPermissions, Preflight},
};

/// How long the first check waits for the list of classes, which a missing permission may prevent.
const LIST_WAIT: Duration = Duration::from_secs(10);

impl Program<'_> {
    /// Checks the permissions once the classes have been listed, or after [`LIST_WAIT`], and again from
    /// time to time.
    pub(super) async fn check_permissions(&self) -> Infallible {
        let mut preflight = self.base.preflight();
        let _ = timeout(LIST_WAIT, self.controller.class_list().whole()).await;
        loop {
            let features = self.features().await;
            if let Some(missing) = preflight.check(&features).await {
                *self.missing_permissions.lock() =
                    missing.iter().map(ToString::to_string).collect();
                self.report(missing).await;
            }
            preflight::wait(&self.base.lanes.forbidden).await;
        }
    }

    /// The features in use by flags and driver, current classes and API server.
    async fn features(&self) -> Vec<Feature> {
        let Base { flags, driver, lanes, attributes_classes, .. } = &self.base;
        let supports = |rpc| driver.capabilities().has(rpc);
        let migration = Migration::of_driver(driver.name(), flags.gates.csi_migration_rbd);
        let reads = |class: &StorageClass| reads_secret(class, driver.name(), migration);
        let restores = supports(Rpc::CreateDeleteSnapshot)
            && lanes.reviews.serves::<VolumeSnapshot>().await.unwrap_or(false);
        let owner = flags.capacity().and_then(flags::Capacity::owner_level);
        [
            (true, Feature::Provisioning),
            (self.classes.any(reads), Feature::Secrets),
            (restores, Feature::Snapshots),
            (self.attachments.is_some(), Feature::Attachments),
            (self.nodes.is_some(), Feature::Topology),
            (flags.node_deployment().is_some(), Feature::NodeDeployment),
            (flags.leader_election().is_some(), Feature::LeaderElection),
            (*attributes_classes && supports(Rpc::ModifyVolume), Feature::VolumeAttributesClass),
            (flags.gates.cross_namespace_volume_data_source, Feature::CrossNamespaceSources),
            (self.publisher.is_some(), Feature::Capacity),
            (owner.is_some(), Feature::CapacityOwner),
            (owner.is_some_and(|level| level > 1), Feature::CapacityOwnersOwner),
        ]
        .into_iter()
        .filter_map(|(used, feature)| used.then_some(feature))
        .collect()
    }

    /// Emits events about missing permissions on the Lease, if there is one that can be read.
    async fn report(&self, missing: &[MissingPermissions]) {
        let Some((namespace, name)) = self.base.lease_name() else { return };
        let Ok(lease) = leases::get(&self.base.lanes.reviews, &namespace, &name).await else {
            return;
        };
        let events = self.recorder.for_component(self.base.driver.name());
        for permission in missing {
            let subject = election::subject(&lease);
            events.event(subject, Severity::Warning, "MissingPermissions", permission.to_string());
        }
    }
}

impl Base<'_> {
    fn preflight(&self) -> Preflight {
        let capacity = self.flags.capacity().map(|flags| flags.namespace.clone());
        let namespaces = preflight::Namespaces {
            lease: self.lease_namespace(),
            capacity: capacity.unwrap_or_default(),
        };
        Preflight::new(self.lanes.reviews.clone(), namespaces, self.env.metrics.api.clone())
    }

    /// The Lease's namespace and name, with leader election.
    pub(super) fn lease_name(&self) -> Option<(String, String)> {
        self.flags.leader_election()?;
        Some((self.lease_namespace(), leader::lease_name(self.driver.name())))
    }
}
