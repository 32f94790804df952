//! Which rights the features in use need, asked for once it is known what is in use.

use std::time::Duration;

use super::Program;
use crate::{
    csi::proto::controller_service_capability::rpc::Type as Rpc,
    csi_provisioner::reads_secret,
    kube_api::views::VolumeSnapshot,
    migration::Migration,
    preflight::{self, Feature},
    runtime::Tasks,
};

/// So many seconds the question for missing rights waits for the first lists.
const PREFLIGHT_PATIENCE: u32 = 10;

impl Program<'_> {
    /// Asks which rights there are, once all that is watched has been listed. Where that cannot
    /// be, the answer says why.
    pub(super) fn preflight(&self, tasks: &Tasks) {
        let readiness = self.readiness();
        let (client, metrics) = (self.lanes.reviews.clone(), self.metrics.api.clone());
        let (features, classes) = (self.features(), self.classes.clone());
        let driver = self.driver.name().to_owned();
        let migration = Migration::of_driver(&driver, self.flags.gates.csi_migration_rbd);
        let restores = self.driver.capabilities().controller.contains(&Rpc::CreateDeleteSnapshot);
        let capacity = self.flags.capacity.as_ref().map(|flags| flags.namespace.clone());
        let namespaces = preflight::Namespaces {
            lease: self.lease_namespace(),
            capacity: capacity.unwrap_or_default(),
        };
        tasks.passing("preflight", async move {
            for _ in 0..PREFLIGHT_PATIENCE {
                if readiness().is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let reads_secrets = classes.any(|class| reads_secret(class, &driver, migration));
            let secrets = reads_secrets.then_some(Feature::Secrets);
            let snapshots = restores && client.serves::<VolumeSnapshot>().await.unwrap_or(false);
            let snapshots = snapshots.then_some(Feature::Snapshots);
            let features = features.into_iter().chain(secrets).chain(snapshots);
            let features: Vec<Feature> = features.collect();
            preflight::run(client, &features, &namespaces, &metrics).await;
        });
    }

    /// The features in use, as far as flags and driver tell.
    fn features(&self) -> Vec<Feature> {
        let capabilities = self.driver.capabilities();
        let modifies =
            self.attributes_classes && capabilities.controller.contains(&Rpc::ModifyVolume);
        let owner = self.flags.capacity.as_ref().and_then(|flags| flags.owner.as_ref());
        [
            (true, Feature::Provisioning),
            (self.attachments.is_some(), Feature::Attachments),
            (self.nodes.is_some(), Feature::Topology),
            (self.flags.leader_election.is_some(), Feature::LeaderElection),
            (modifies, Feature::VolumeAttributesClass),
            (self.flags.gates.cross_namespace_volume_data_source, Feature::CrossNamespaceSources),
            (self.publisher.is_some(), Feature::Capacity),
            (owner.is_some(), Feature::CapacityOwner),
            (owner.is_some_and(|owner| owner.level > 1), Feature::CapacityOwnersOwner),
        ]
        .into_iter()
        .filter_map(|(used, feature)| used.then_some(feature))
        .collect()
    }
}
