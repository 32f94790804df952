//! Calls GetCapacity and writes the objects.
//!
//! Owns the work queue, its workers and the poll. A worker reads the index when it takes a key, so
//! changes are coalesced while the key waits. Guarantees: no call and no write before all inputs
//! are listed, none by a standby; on SIGTERM a call is abandoned and a write is finished. Decisions
//! belong to the index.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::{join, join3};
use k8s_openapi::api::core::v1::NodeSelector;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    index::{CapacityIndex, Key},
    labels::ObjectLabels,
    object::{self, Object, Sizes},
    segment::{Pair, Segment},
    store::Store,
};
use crate::{
    csi::{
        CallError, Driver,
        proto::{GetCapacityRequest, Topology, controller_service_capability::rpc::Type as Rpc},
    },
    flags,
    kube::{
        FirstList, InformerEvent,
        objects::{StorageCapacity, StorageClass, View as _},
    },
    metrics::Metrics,
    nodes::Nodes,
    runtime::{Backoff, Random, Tasks},
    workqueue,
    workqueue::{Action, Queue, Worker},
};

/// The binding mode of classes whose capacity the scheduler does not look at.
const IMMEDIATE: &str = "Immediate";

/// What the publisher works with.
pub struct PublisherDeps {
    /// Answers GetCapacity.
    pub driver: Driver,
    /// Where the objects go.
    pub store: Store,
    /// The node that the objects are for; `None`: the whole cluster.
    pub node: Option<String>,
    /// The nodes, from which the segments follow.
    pub nodes: Nodes,
    /// The flags.
    pub flags: flags::Capacity,
    /// `--retry-interval-start` and `--retry-interval-max`.
    pub retry: Backoff,
    /// Metrics.
    pub metrics: Metrics,
    /// Jitter.
    pub random: Arc<dyn Random>,
    /// Runs the tasks.
    pub tasks: Tasks,
}

/// Publishes capacity. Clones are the same publisher.
#[derive(Clone)]
pub struct Publisher(Arc<Inner>);

struct Inner {
    deps: PublisherDeps,
    /// Whether the driver supports GetCapacity.
    supports_get_capacity: bool,
    labels: ObjectLabels,
    index: Mutex<CapacityIndex>,
    queue: Queue<Key>,
    /// Holds an item when segments may have changed. The queue's name in metrics is
    /// external-provisioner's.
    topology: Queue<()>,
    /// Whether workers run. Nothing is queued while the first lists run.
    working: AtomicBool,
    listed: FirstList,
    /// Cancelled when no new work may begin.
    stopping: CancellationToken,
}

impl Publisher {
    /// Creates a publisher; [`watch`](Self::watch) and [`work`](Self::work) start it.
    pub fn new(deps: PublisherDeps) -> Self {
        let PublisherDeps { driver, metrics, .. } = &deps;
        let inner = Inner {
            supports_get_capacity: driver.capabilities().has(Rpc::GetCapacity),
            labels: ObjectLabels::new(driver.name(), deps.node.as_deref()),
            index: Mutex::default(),
            queue: Queue::new("csistoragecapacity", deps.retry, metrics),
            topology: Queue::new("csitopology", deps.retry, metrics),
            working: AtomicBool::new(false),
            listed: FirstList::default(),
            stopping: CancellationToken::new(),
            deps,
        };
        inner.log_start();
        let publisher = Self(Arc::new(inner));
        publisher.report_objects();
        publisher
    }

    /// Updates the metrics of objects before each scrape.
    fn report_objects(&self) {
        let counts = self.0.deps.metrics.capacity();
        let weak = Arc::downgrade(&self.0);
        self.0.deps.metrics.before_scrape(move || {
            if let Some(inner) = weak.upgrade() {
                let objects = inner.index.lock().object_counts();
                counts.objects(objects.wanted, objects.published, objects.obsolete);
            }
        });
    }

    /// Starts watching. Writes nothing and does not call the driver.
    pub fn watch(&self) {
        let inner = Arc::clone(&self.0);
        let PublisherDeps { store, tasks, random, metrics, .. } = &self.0.deps;
        let handler = self.0.listed.clone().completed_by(move |event| inner.on_event(event));
        store.watch(&self.0.labels, tasks, Arc::clone(random), metrics, handler);
    }

    /// Handles a class that was added, changed or removed.
    pub fn class_changed(&self, name: &str, class: Option<Arc<StorageClass>>) {
        let published = class.filter(|class| self.0.publishes(class));
        self.0.update_index(|index| match published {
            Some(class) => index.upsert_class(class, name),
            None => index.remove_class(name),
        });
    }

    /// A volume of the class was created: refreshes its segments, or the whole class if the volume is accessible
    /// from everywhere. As in external-provisioner, this guesses which capacity has changed, so that the
    /// scheduler knows before the next poll.
    pub fn volume_created(&self, affinity: Option<&NodeSelector>, class: &str) {
        self.0.update_index(|index| match affinity {
            Some(affinity) => index.refresh_segments(Segment::of_affinity(affinity)),
            None => index.refresh_class(class),
        });
    }

    /// A volume of the class could not be created, perhaps for lack of space.
    pub fn volume_failed(&self, class: &str) {
        self.0.update_index(|index| index.refresh_class(class));
    }

    /// A volume was deleted. Without an affinity its segments are unknown, and the next poll updates them.
    pub fn volume_deleted(&self, affinity: Option<&NodeSelector>) {
        if let Some(affinity) = affinity {
            self.0.update_index(|index| index.refresh_segments(Segment::of_affinity(affinity)));
        }
    }

    /// Works from when `classes` completes (all classes are listed) until `stop`; returns once no
    /// work is in flight.
    pub async fn work(&self, classes: impl Future<Output = ()>, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = join3(classes, self.0.deps.nodes.listed(), self.0.listed.whole()) => {}
        }
        // Subscribe first: the segments are computed below from the current state, and later
        // changes are signalled.
        let changes = self.0.deps.nodes.changes();
        self.0.working.store(true, Ordering::Relaxed);
        self.0.update_segments();
        self.0.enqueue_all();
        let working = join(self.work_objects(), self.work_topology());
        tokio::pin!(working);
        tokio::select! {
            biased;
            _ = &mut working => return,
            () = stop.cancelled() => {}
            _ = join(self.poll(), self.watch_nodes(changes)) => {}
        }
        self.0.stopping.cancel();
        self.0.queue.shut_down();
        self.0.topology.shut_down();
        working.await;
    }

    async fn work_objects(&self) {
        let PublisherDeps { flags, tasks, .. } = &self.0.deps;
        workqueue::work(&self.0.queue, flags.workers, tasks, Arc::clone(&self.0)).await;
    }

    async fn work_topology(&self) {
        workqueue::work(&self.0.topology, 1, &self.0.deps.tasks, Arc::clone(&self.0)).await;
    }

    /// Recomputes the segments whenever nodes change.
    async fn watch_nodes(&self, mut changes: watch::Receiver<u64>) {
        while changes.changed().await.is_ok() {
            self.0.topology.add(());
        }
    }

    async fn poll(&self) {
        let every = self.0.deps.flags.poll_interval.max(Duration::from_millis(1));
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.0.enqueue_all();
        }
    }
}

impl Worker<Key> for Arc<Inner> {
    async fn sync(&self, key: &Key) -> Action {
        let outcome = match key {
            Key::Query(pair) => self.publish(pair).await,
            Key::Sweep(name) => self.sweep(name).await,
        };
        match outcome {
            Ok(()) => Action::Done,
            Err(error) => {
                tracing::warn!(error, %key, "Storage capacity is not up to date; trying again");
                Action::Retry
            }
        }
    }
}

/// The nodes have changed.
impl Worker<()> for Arc<Inner> {
    async fn sync(&self, (): &()) -> Action {
        self.update_segments();
        Action::Done
    }
}

impl Inner {
    /// Logs what is published, and whether the driver supports it.
    fn log_start(&self) {
        if !self.supports_get_capacity {
            tracing::warn!(
                "the CSI driver does not report its free capacity (GET_CAPACITY): no new CSIStorageCapacity objects"
            );
        }
        if self.deps.node.is_some() {
            let segments = Segment::of_nodes(&self.deps.nodes);
            tracing::info!(
                manager = self.labels.manager,
                segment = segments.iter().map(ToString::to_string).collect::<String>(),
                "producing CSIStorageCapacity objects with fixed topology segment"
            );
        }
    }

    /// Whether capacity is published for the class. An unset binding mode counts as late binding.
    fn publishes(&self, class: &StorageClass) -> bool {
        class.provisioner == self.labels.driver
            && (self.deps.flags.for_immediate_binding
                || class.volume_binding_mode.as_deref() != Some(IMMEDIATE))
    }

    /// Applies `update` to the index and enqueues the keys that it returns.
    fn update_index(&self, update: impl FnOnce(&mut CapacityIndex) -> Vec<Key>) {
        let keys = update(&mut self.index.lock());
        if self.working.load(Ordering::Relaxed) {
            for key in keys {
                self.queue.add(key);
            }
        }
    }

    fn enqueue_all(&self) {
        self.update_index(|index| index.poll());
    }

    fn update_segments(&self) {
        let segments = Segment::of_nodes(&self.deps.nodes);
        self.update_index(|index| index.set_segments(segments));
    }

    fn on_event(&self, event: InformerEvent<StorageCapacity>) {
        self.update_index(|index| match event {
            InformerEvent::InitApply(object) | InformerEvent::Apply(object)
                if self.labels.are_on(&object) =>
            {
                index.upsert_object(object.into())
            }
            InformerEvent::InitApply(object)
            | InformerEvent::Apply(object)
            | InformerEvent::Delete(object) => index.remove_object(object.name()),
            InformerEvent::Unreadable { .. } => Vec::new(),
            InformerEvent::InitDone(listed) => index.on_listed(&listed),
        });
    }

    /// Calls GetCapacity for a pair that is wanted, and updates its object. Fails with the reason, for the log.
    async fn publish(&self, pair: &Pair) -> Result<(), String> {
        if !self.supports_get_capacity {
            return Ok(());
        }
        let wanted = self.index.lock().wanted(pair);
        let Some((class, _)) = wanted else { return Ok(()) };
        let Some(answer) = self.get_capacity(pair, &class).await else { return Ok(()) };
        let sizes = answer.map_err(|error| format!("GetCapacity: {error}"))?;
        // The object may have changed during the call.
        let wanted = self.index.lock().wanted(pair);
        match wanted {
            None => return Ok(()),
            Some((_, None)) => self.create(pair, sizes).await?,
            Some((_, Some(object))) => self.correct(&object, sizes).await?,
        }
        if self.index.lock().mark_queried(pair) {
            self.queue.add(Key::Query(pair.clone()));
        }
        Ok(())
    }

    /// The driver's answer for the pair; `None` if the process ends before.
    async fn get_capacity(
        &self,
        pair: &Pair,
        class: &StorageClass,
    ) -> Option<Result<Sizes, CallError>> {
        let segments = pair.segment.labels().clone();
        let request = GetCapacityRequest {
            // As in external-provisioner: including the keys that are meant for the provisioner.
            parameters: class.parameters.clone(),
            accessible_topology: Some(Topology { segments }),
            ..GetCapacityRequest::default()
        };
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => None,
            answer = self.deps.driver.get_capacity(request) => {
                Some(answer.map(|answer| Sizes::from(&answer)))
            }
        }
    }

    async fn create(&self, pair: &Pair, sizes: Sizes) -> Result<(), String> {
        let store = &self.deps.store;
        let body = object::body(&self.labels, pair, sizes, store.owner.as_ref());
        let created = store.create(&body).await;
        let object =
            created.map_err(|error| format!("create CSIStorageCapacity for {pair}: {error}"))?;
        self.update_index(|index| index.upsert_object(object));
        Ok(())
    }

    async fn correct(&self, object: &Object, sizes: Sizes) -> Result<(), String> {
        let owner = self.deps.store.owner.as_ref();
        let Some(correction) = object.correction(sizes, owner) else { return Ok(()) };
        match self.deps.store.correct(object, correction).await {
            Ok(Some(after)) => self.update_index(|index| index.upsert_corrected(object, after)),
            Ok(None) => self.update_index(|index| index.remove_object(&object.name)),
            Err(error) => {
                return Err(format!("correct CSIStorageCapacity {}: {error}", object.name));
            }
        }
        Ok(())
    }

    /// Deletes an obsolete object.
    async fn sweep(&self, name: &str) -> Result<(), String> {
        let Some(object) = self.index.lock().obsolete(name).cloned() else { return Ok(()) };
        match self.deps.store.delete(&object).await {
            // Replaced by another object, which the watch will deliver.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) if error.is_not_found() => {
                self.update_index(|index| index.remove_object(name));
                Ok(())
            }
            deleted => {
                deleted.map_err(|error| format!("delete CSIStorageCapacity {name}: {error}"))
            }
        }
    }
}
