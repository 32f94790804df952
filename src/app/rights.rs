//! Starts the preflight check of RBAC permissions, for the features that are in use.

use std::{sync::Arc, time::Duration};

use csi_translation::Migration;
use tokio::time::sleep;

use super::{Base, Program, election};
use crate::{
    controller::classes::Classes,
    csi::proto::controller_service_capability::rpc::Type as Rpc,
    csi_provisioner::reads_secret,
    flags,
    kube::{
        Client,
        events::{Severity, Source},
        objects::{StorageClass, VolumeSnapshot},
    },
    leader,
    leader::Leases,
    preflight,
    preflight::{Feature, MissingRights, Preflight},
    status::MissingRightsNow,
};

/// The maximum time in seconds for which the first check waits for the first lists.
const LIST_WAIT_SECONDS: u32 = 10;

impl Program<'_> {
    /// Starts a task that checks the permissions once everything that is watched has been listed, or after
    /// [`LIST_WAIT_SECONDS`], as a missing permission may prevent a list. Checks again from time to time.
    pub(super) fn preflight(&self) {
        let Base { flags, driver, lanes, .. } = &self.base;
        let readiness = self.readiness();
        let forbidden = Arc::clone(&lanes.forbidden);
        let rights = Rights {
            client: lanes.reviews.clone(),
            classes: self.classes.clone(),
            driver: driver.name().to_owned(),
            migration: Migration::of_driver(driver.name(), flags.gates.csi_migration_rbd),
            restores: driver.capabilities().controller.contains(&Rpc::CreateDeleteSnapshot),
            features: self.features(),
            events: self.recorder.from(driver.name()),
            lease: self.base.lease_name(),
            missing: self.missing_rights.clone(),
        };
        let mut preflight = self.base.new_preflight();
        self.base.tasks.spawn_critical("preflight", async move {
            for _ in 0..LIST_WAIT_SECONDS {
                if readiness().is_ok() {
                    break;
                }
                sleep(Duration::from_secs(1)).await;
            }
            loop {
                let features = rights.features_now().await;
                if let Some(lacks) = preflight.check(&features).await {
                    rights.missing.set(lacks);
                    rights.report(lacks).await;
                }
                preflight::wait(&forbidden).await;
            }
        });
    }

    /// The features in use by flags and driver.
    fn features(&self) -> Vec<Feature> {
        let Base { flags, driver, attributes_classes, .. } = &self.base;
        let modifies = driver.capabilities().controller.contains(&Rpc::ModifyVolume);
        let owner = flags.capacity().and_then(flags::Capacity::owner_level);
        [
            (true, Feature::Provisioning),
            (self.attachments.is_some(), Feature::Attachments),
            (self.nodes.is_some(), Feature::Topology),
            (flags.leader_election().is_some(), Feature::LeaderElection),
            (*attributes_classes && modifies, Feature::VolumeAttributesClass),
            (flags.gates.cross_namespace_volume_data_source, Feature::CrossNamespaceSources),
            (self.publisher.is_some(), Feature::Capacity),
            (owner.is_some(), Feature::CapacityOwner),
            (owner.is_some_and(|level| level > 1), Feature::CapacityOwnersOwner),
        ]
        .into_iter()
        .filter_map(|(used, feature)| used.then_some(feature))
        .collect()
    }
}

impl Base<'_> {
    fn new_preflight(&self) -> Preflight {
        let capacity = self.flags.capacity().map(|flags| flags.namespace.clone());
        let namespaces = preflight::Namespaces {
            lease: self.lease_namespace(),
            capacity: capacity.unwrap_or_default(),
        };
        Preflight::new(self.lanes.reviews.clone(), namespaces, self.metrics.api.clone())
    }

    /// The Lease's namespace and name, with leader election.
    pub(super) fn lease_name(&self) -> Option<(String, String)> {
        self.flags.leader_election()?;
        Some((self.lease_namespace(), leader::lease_name(self.driver.name())))
    }
}

/// Determines the features in use, and reports missing permissions.
struct Rights {
    client: Client,
    classes: Classes,
    driver: String,
    migration: Option<Migration>,
    restores: bool,
    /// The features in use by flags and driver.
    features: Vec<Feature>,
    events: Source,
    /// The Lease's namespace and name.
    lease: Option<(String, String)>,
    /// For the status.
    missing: MissingRightsNow,
}

impl Rights {
    /// The features in use, including those that depend on the current classes and on the API server.
    async fn features_now(&self) -> Vec<Feature> {
        let reads = |class: &StorageClass| reads_secret(class, &self.driver, self.migration);
        let secrets = self.classes.any(reads).then_some(Feature::Secrets);
        let snapshots =
            self.restores && self.client.serves::<VolumeSnapshot>().await.unwrap_or(false);
        let snapshots = snapshots.then_some(Feature::Snapshots);
        self.features.iter().copied().chain(secrets).chain(snapshots).collect()
    }

    /// Emits events about missing permissions on the Lease, if there is one that can be read.
    async fn report(&self, lacks: &[MissingRights]) {
        let Some((namespace, name)) = &self.lease else { return };
        let Ok(lease) = Leases::get(&self.client, namespace, name).await else { return };
        for lack in lacks {
            let subject = election::subject(&lease);
            self.events.event(subject, Severity::Warning, "MissingPermissions", lack.to_string());
        }
    }
}
