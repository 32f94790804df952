//! How the controller is put together.
//!
//! Owns what its workers share: queues, books, paces. Promises that all of them get the same ones.

use std::sync::{Arc, atomic::AtomicBool};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Deps,
    claims::{call_record::CallRecords, index::ClaimIndex, save::PvStore, sync::ClaimWorker},
    dependencies::index::DependencyIndex,
    events::{ClaimEvents, VolumeEvents},
    limiter::ConcurrencyLimiter,
    live::Live,
    model::record,
    ownership::Identity,
    provisioner::Provisioner,
    queues::Queues,
    volumes::{index::VolumeIndex, sync::VolumeWorker},
};
use crate::{kube::objects::Volume, metrics::ControllerMetrics, workqueue::KeyedMutex};

/// What the workers share.
pub(super) struct Assembly<P> {
    pub(super) parts: Deps<P>,
    pub(super) queues: Queues,
    identity: Identity,
    book: ClaimIndex,
    exclusive: KeyedMutex,
    creates: ConcurrencyLimiter,
    deletes: ConcurrencyLimiter,
    waits: DependencyIndex,
    live: Live,
}

impl<P: Provisioner> Assembly<P> {
    pub(super) fn new(parts: Deps<P>) -> Self {
        let (provisioner, settings) = (&parts.provisioner, &parts.settings);
        let identity = Identity {
            driver: provisioner.name().to_owned(),
            in_tree: provisioner.in_tree_name().map(str::to_owned),
            node: provisioner.node().map(str::to_owned),
        };
        let (naming, closing) = (Arc::clone(provisioner), Arc::clone(provisioner));
        let book = ClaimIndex::new(
            identity.clone(),
            move |uid| naming.volume_name(uid).ok(),
            move |uid| closing.release_source(uid),
        );
        let queues = Queues::new(settings, &parts.metrics);
        let limiter = |kind| queues.limiter(settings.workers, parts.metrics.limiter.of(kind));
        let (creates, deletes) = (limiter("create"), limiter("delete"));
        let live = Live::new(Arc::clone(&parts.clock));
        let (exclusive, waits) = (KeyedMutex::default(), DependencyIndex::default());
        Self { parts, queues, identity, book, exclusive, creates, deletes, waits, live }
    }

    /// What is in work is counted whenever somebody asks, under the classes that exist.
    pub(super) fn count_at_scrapes(&self) {
        let metrics = &self.parts.metrics;
        let (book, gauges) = (self.book.clone(), metrics.controller.clone());
        metrics.before_scrape(move || gauges.in_work(&book.census()));
        let paces = [self.creates.clone(), self.deletes.clone()];
        let gauges = metrics.limiter.clone();
        metrics.before_scrape(move || {
            gauges.clear();
            paces.iter().for_each(ConcurrencyLimiter::tell);
        });
        let (waits, gauges) = (self.waits.clone(), metrics.controller.clone());
        metrics.before_scrape(move || gauges.awaited(&waits.census()));
        let counters = metrics.controller.clone();
        let classes = &self.parts.classes;
        classes.follow(move |name, class| counters.class_exists(name, class.is_some()));
    }

    pub(super) fn store(&self) -> PvStore {
        PvStore {
            client: self.parts.client.clone(),
            index: self.book.clone(),
            classes: self.parts.classes.clone(),
            events: self.claim_events(),
            metrics: self.metrics(),
            exclusive: self.exclusive.clone(),
            queue: self.queues.unsaved.clone(),
            claims: self.queues.claims.clone(),
            unsaved: watch::Sender::default(),
        }
    }

    pub(super) fn volumes(&self, store: PvStore) -> VolumeWorker<P> {
        VolumeWorker {
            provisioner: Arc::clone(&self.parts.provisioner),
            book: self.volume_book(),
            client: self.parts.client.clone(),
            events: VolumeEvents::new(self.parts.events.clone()),
            metrics: self.metrics(),
            exclusive: self.exclusive.clone(),
            limiter: self.deletes.clone(),
            store,
            live: self.live.clone(),
            waits: self.waits.clone(),
            random: Arc::clone(&self.parts.random),
        }
    }

    pub(super) fn claims(&self, store: PvStore) -> ClaimWorker<P> {
        ClaimWorker {
            provisioner: Arc::clone(&self.parts.provisioner),
            identity: self.identity.clone(),
            index: self.book.clone(),
            classes: self.parts.classes.clone(),
            dependencies: self.waits.clone(),
            client: self.parts.client.clone(),
            live: self.live.clone(),
            store,
            call_records: self.call_records(),
            ending: CancellationToken::new(),
            events: self.claim_events(),
            metrics: self.metrics(),
            exclusive: self.exclusive.clone(),
            creates: self.creates.clone(),
            deletes: self.deletes.clone(),
            random: Arc::clone(&self.parts.random),
            tasks: self.parts.tasks.clone(),
            retry_max: self.parts.settings.retry_max,
        }
    }

    fn volume_book(&self) -> VolumeIndex {
        let reaching = Arc::clone(&self.parts.provisioner);
        let in_reach = move |volume: &Volume| reaching.should_delete(volume);
        let telling_apart = Arc::clone(&self.parts.provisioner);
        let key = move |volume: &Volume| {
            let handle = telling_apart.handle(volume)?;
            Some(telling_apart.key(&handle).to_owned())
        };
        let book = VolumeIndex::new(self.identity.clone(), self.book.clone(), in_reach, key);
        let metrics = &self.parts.metrics;
        let (volumes, gauges) = (book.clone(), metrics.controller.clone());
        metrics.before_scrape(move || gauges.attached(volumes.attached()));
        book
    }

    fn call_records(&self) -> CallRecords {
        let provisioner = Arc::clone(&self.parts.provisioner);
        CallRecords {
            client: self.parts.client.clone(),
            index: self.book.clone(),
            events: self.claim_events(),
            metrics: self.metrics(),
            clock: Arc::clone(&self.parts.clock),
            identity: self.identity.clone(),
            digest: Box::new(move |order| record::digest(&*provisioner, order)),
            settings: self.parts.settings.open_calls,
            is_warned: AtomicBool::default(),
        }
    }

    fn claim_events(&self) -> ClaimEvents {
        ClaimEvents::new(self.parts.events.clone())
    }

    fn metrics(&self) -> ControllerMetrics {
        self.parts.metrics.controller.clone()
    }
}
