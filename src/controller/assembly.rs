//! Creates the controller's workers and the state that they share: queues and indexes.

use std::sync::{Arc, atomic::AtomicBool};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Deps,
    claims::{call_record::CallRecords, index::ClaimIndex, save::PvStore, worker::ClaimWorker},
    dependencies::DependencyIndex,
    events::{ClaimEvents, VolumeEvents},
    live::Live,
    ownership::ProvisionerIdentity,
    provisioner::Provisioner,
    queues::Queues,
    volumes::{index::VolumeIndex, sync::VolumeWorker},
};
use crate::{kube::objects::Volume, metrics::ControllerMetrics};

/// The state that the workers share.
pub(super) struct Assembly<P> {
    pub(super) deps: Deps<P>,
    pub(super) queues: Queues,
    claim_index: ClaimIndex,
    volume_index: VolumeIndex,
    dependencies: DependencyIndex,
    live: Live,
}

impl<P: Provisioner> Assembly<P> {
    pub(super) fn new(deps: Deps<P>) -> Self {
        let Deps { provisioner, identity, protection, settings, .. } = &deps;
        let protection = protection.clone();
        let claim_index =
            ClaimIndex::new(identity.clone(), move |uid| protection.claim_finished(uid));
        let volume_index = Self::volume_index(provisioner, identity, &claim_index);
        let queues =
            Queues::new(settings, &deps.metrics, claim_index.clone(), volume_index.clone());
        let live = Live::new(Arc::clone(&deps.clock));
        Self {
            deps,
            queues,
            claim_index,
            volume_index,
            dependencies: DependencyIndex::default(),
            live,
        }
    }

    /// Registers the gauges that are computed at each scrape, and the list of existing classes.
    pub(super) fn register_gauges(&self) {
        let metrics = &self.deps.metrics;
        let index = self.claim_index.clone();
        let gauges = metrics.controller.clone();
        metrics.before_scrape(move || gauges.in_work(&index.census()));
        let volumes = self.volume_index.clone();
        let gauges = metrics.controller.clone();
        metrics.before_scrape(move || gauges.attached(volumes.attached_count()));
        let dependencies = self.dependencies.clone();
        let gauges = metrics.controller.clone();
        metrics.before_scrape(move || gauges.dependencies(&dependencies.count_by_resource()));
        let counters = metrics.controller.clone();
        let classes = &self.deps.classes;
        classes.on_change(move |name, class| counters.class_exists(name, class.is_some()));
    }

    pub(super) fn store(&self) -> PvStore {
        PvStore {
            client: self.deps.client.clone(),
            index: self.claim_index.clone(),
            classes: self.deps.classes.clone(),
            events: self.claim_events(),
            metrics: self.metrics(),
            queue: self.queues.unsaved.clone(),
            claims: self.queues.claims.clone(),
            unsaved: watch::Sender::default(),
        }
    }

    pub(super) fn volumes(&self, store: PvStore) -> VolumeWorker<P> {
        VolumeWorker {
            provisioner: Arc::clone(&self.deps.provisioner),
            index: self.volume_index.clone(),
            client: self.deps.client.clone(),
            events: VolumeEvents::new(self.deps.events.clone()),
            metrics: self.metrics(),
            volume_keys: self.claim_index.volume_keys().clone(),
            store,
            live: self.live.clone(),
            dependencies: self.dependencies.clone(),
            random: Arc::clone(&self.deps.random),
        }
    }

    pub(super) fn claims(&self, store: PvStore) -> ClaimWorker<P> {
        ClaimWorker {
            provisioner: Arc::clone(&self.deps.provisioner),
            protection: self.deps.protection.clone(),
            peers: self.deps.peers.clone(),
            identity: self.deps.identity.clone(),
            index: self.claim_index.clone(),
            classes: self.deps.classes.clone(),
            dependencies: self.dependencies.clone(),
            client: self.deps.client.clone(),
            live: self.live.clone(),
            store,
            call_records: self.call_records(),
            ending: CancellationToken::new(),
            events: self.claim_events(),
            metrics: self.metrics(),
            random: Arc::clone(&self.deps.random),
            retry_max: self.deps.settings.retry.max,
        }
    }

    fn volume_index(
        provisioner: &Arc<P>,
        identity: &ProvisionerIdentity,
        claims: &ClaimIndex,
    ) -> VolumeIndex {
        let reaching = Arc::clone(provisioner);
        let in_reach = move |volume: &Volume| reaching.should_delete(volume);
        let handling = Arc::clone(provisioner);
        let handle = move |volume: &Volume| handling.handle(volume);
        VolumeIndex::new(identity.clone(), claims.clone(), in_reach, handle)
    }

    fn call_records(&self) -> CallRecords<P> {
        CallRecords {
            provisioner: Arc::clone(&self.deps.provisioner),
            client: self.deps.client.clone(),
            events: self.claim_events(),
            metrics: self.metrics(),
            clock: Arc::clone(&self.deps.clock),
            identity: self.deps.identity.clone(),
            settings: self.deps.settings.open_calls,
            is_warned: AtomicBool::default(),
        }
    }

    fn claim_events(&self) -> ClaimEvents {
        ClaimEvents::new(self.deps.events.clone())
    }

    fn metrics(&self) -> ControllerMetrics {
        self.deps.metrics.controller.clone()
    }
}
