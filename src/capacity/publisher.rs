//! Asks the driver and writes objects.
//!
//! Owns the queue between "something changed" and "the object says so", its workers and the poll.
//! A key's turn begins with what the book says then, so that whatever happened while it waited is
//! done at once: changes are coalesced by the wait for a worker and for the lane. Promises that
//! nothing is asked or written before all that counts has been listed, and nothing by a standby;
//! that on SIGTERM a question is given up and a write is not. Leaves deciding to the book.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::{join, join3};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    Destination,
    book::{Book, Key, Standing},
    names::Names,
    object::{self, Object, Room, Shown},
    segment::{Pair, Segment},
    store::Store,
};
use crate::{
    csi::{
        CallError, Driver,
        proto::{GetCapacityRequest, Topology, controller_service_capability::rpc::Type as Rpc},
    },
    kube::{ApiError, Client, InformerEvent, objects::StorageClass},
    metrics::{CapacityMetrics, ControllerMetrics, Metrics, Panicked},
    nodes::Nodes,
    runtime::{Random, Tasks},
    workqueue,
    workqueue::{Action, Limiter, Queue},
};

/// The binding mode of classes whose room nobody looks at before a volume is made.
const IMMEDIATE: &str = "Immediate";

/// How many names are tried where strangers have them.
const NAMES: u32 = 8;

/// How to publish.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where the objects go.
    pub destination: Destination,
    /// The node that the objects are about; none: the whole cluster.
    pub node: Option<String>,
    /// `--capacity-threads`.
    pub workers: usize,
    /// `--capacity-poll-interval`.
    pub poll_interval: Duration,
    /// `--capacity-for-immediate-binding`.
    pub for_immediate_binding: bool,
    /// `--retry-interval-start`.
    pub retry_start: Duration,
    /// `--retry-interval-max`.
    pub retry_max: Duration,
}

/// What the publisher stands on.
pub struct Deps {
    /// Says how much room there is.
    pub driver: Driver,
    /// The lane for these objects.
    pub client: Client,
    /// Which segments there are.
    pub nodes: Nodes,
    /// Counts.
    pub metrics: Metrics,
    /// The publisher's own counts.
    pub counts: CapacityMetrics,
    /// Jitter.
    pub random: Arc<dyn Random>,
    /// Runs the work.
    pub tasks: Tasks,
    /// How to publish.
    pub settings: Settings,
}

/// Publishes how much room there is. Clones are the same publisher.
#[derive(Clone)]
pub struct Publisher(Arc<Inner>);

struct Inner {
    driver: Driver,
    /// Whether the driver says at all how much room it has.
    asks: bool,
    store: Store,
    names: Names,
    owner: Option<OwnerReference>,
    nodes: Nodes,
    book: Mutex<Book>,
    queue: Queue<Key>,
    /// Told when segments may have changed. Named as the original's in metrics.
    topology: Queue<()>,
    /// Whether anybody works: the queues of a standby would hold all it ever saw.
    working: AtomicBool,
    listed: watch::Sender<bool>,
    /// Cancelled when nothing new is to be begun.
    ending: CancellationToken,
    metrics: Metrics,
    random: Arc<dyn Random>,
    tasks: Tasks,
    settings: Settings,
}

/// Why a pair's object does not say how much room there is.
#[derive(Debug, thiserror::Error)]
enum NotPublished {
    /// The driver did not say.
    #[error("GetCapacity: {0}")]
    Unknown(#[from] CallError),
    /// The object could not be written.
    #[error("{what} CSIStorageCapacity {name}: {error}")]
    Unwritten {
        /// What was tried.
        what: &'static str,
        /// Its name.
        name: String,
        /// Why not.
        error: ApiError,
    },
    /// All names are taken by objects that are not ours.
    #[error(
        "CSIStorageCapacity objects that are not ours have all names tried, the last one {0}: delete those whose labels somebody took off"
    )]
    NoName(String),
    /// The process ends.
    #[error("the process ends")]
    Ending,
}

impl Publisher {
    /// A publisher that does nothing yet.
    pub fn new(parts: Deps) -> Self {
        let Deps { driver, client, nodes, metrics, counts, random, tasks, settings } = parts;
        let names = Names::new(driver.name(), settings.node.as_deref());
        let per_item = || Limiter::per_item(settings.retry_start, settings.retry_max);
        let inner = Inner {
            asks: driver.capabilities().controller.contains(&Rpc::GetCapacity),
            store: Store::new(client, &settings.destination, names.clone()),
            names,
            owner: settings.destination.owner.clone(),
            nodes,
            book: Mutex::default(),
            queue: Queue::new(per_item(), metrics.workqueue.queue("csistoragecapacity")),
            topology: Queue::new(per_item(), metrics.workqueue.queue("csitopology")),
            working: AtomicBool::new(false),
            listed: watch::Sender::new(false),
            ending: CancellationToken::new(),
            metrics,
            random,
            tasks,
            settings,
            driver,
        };
        if !inner.asks {
            tracing::warn!(
                "the CSI driver does not say how much room it has (GET_CAPACITY): no new CSIStorageCapacity objects"
            );
        }
        if inner.settings.node.is_some() {
            let segments = Segment::of_nodes(&inner.nodes);
            tracing::info!(
                manager = inner.names.manager,
                segment = segments.iter().map(ToString::to_string).collect::<String>(),
                "producing CSIStorageCapacity objects with fixed topology segment"
            );
        }
        let publisher = Self(Arc::new(inner));
        let counted = Arc::downgrade(&publisher.0);
        publisher.0.metrics.before_scrape(move || {
            if let Some(inner) = counted.upgrade() {
                let census = inner.book.lock().census();
                counts.objects(census.wanted, census.published, census.superfluous);
            }
        });
        publisher
    }

    /// Starts watching. Nothing is written and the driver is not called: a standby does this too.
    pub fn watch(&self) {
        let inner = Arc::clone(&self.0);
        let random = Arc::clone(&self.0.random);
        self.0.store.watch(&self.0.tasks, random, &self.0.metrics, move |seen| inner.observe(seen));
    }

    /// A class came, changed or went.
    pub fn class_changed(&self, name: &str, class: Option<Arc<StorageClass>>) {
        let published = class.filter(|class| self.0.publishes(class));
        self.0.learn(|book| match published {
            Some(class) => book.class_seen(class, name),
            None => book.class_gone(name),
        });
    }

    /// What says when room may have been taken or given back.
    pub fn refresher(&self) -> super::Refresher {
        super::Refresher::new(self.clone())
    }

    /// A volume of the class was made, or was to be made, in no known segment.
    pub(super) fn refresh_class(&self, class: &str) {
        self.0.learn(|book| book.refresh_class(class));
    }

    /// A volume in these segments was made or deleted.
    pub(super) fn refresh_segments(&self, segments: impl IntoIterator<Item = Segment>) {
        self.0.learn(|book| book.refresh_segments(segments));
    }

    /// Works from when `classes` says that all classes are listed until `stop`; ends when nothing
    /// is in hand any more.
    pub async fn work(&self, classes: impl Future<Output = ()>, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = join3(classes, self.0.nodes.listed(), self.0.objects_listed()) => {}
        }
        // Changes from here on are told; what there is, is looked at now.
        let changes = self.0.nodes.changes();
        self.0.working.store(true, Ordering::Relaxed);
        self.0.find_segments();
        self.0.look_at_all();
        let working = join(self.work_objects(), self.work_topology());
        tokio::pin!(working);
        tokio::select! {
            biased;
            _ = &mut working => return,
            () = stop.cancelled() => {}
            _ = join(self.poll(), self.follow(changes)) => {}
        }
        self.0.ending.cancel();
        self.0.queue.shut_down();
        self.0.topology.shut_down();
        working.await;
    }

    async fn work_objects(&self) {
        let inner = Arc::clone(&self.0);
        let handler = move |key: Key| {
            let inner = Arc::clone(&inner);
            async move { inner.sync(&key).await }
        };
        let (queue, tasks) = (self.0.queue.clone(), self.0.tasks.clone());
        let on_panic = panicked(self.0.metrics.controller.clone(), Panicked::Capacity);
        let workers = self.0.settings.workers;
        workqueue::work(queue, workers, tasks, "storage capacity", handler, on_panic).await;
    }

    async fn work_topology(&self) {
        let inner = Arc::clone(&self.0);
        let handler = move |()| {
            let inner = Arc::clone(&inner);
            async move {
                inner.find_segments();
                Action::Done
            }
        };
        let (queue, tasks) = (self.0.topology.clone(), self.0.tasks.clone());
        let on_panic = panicked(self.0.metrics.controller.clone(), Panicked::Topology);
        workqueue::work(queue, 1, tasks, "topology segments", handler, on_panic).await;
    }

    /// Has the segments found anew whenever nodes change.
    async fn follow(&self, mut changes: watch::Receiver<u64>) {
        while changes.changed().await.is_ok() {
            self.0.topology.add(());
        }
    }

    async fn poll(&self) {
        let every = self.0.settings.poll_interval.max(Duration::from_millis(1));
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.0.look_at_all();
        }
    }
}

/// Tells of a piece of work that panicked.
fn panicked<K: std::fmt::Debug>(metrics: ControllerMetrics, queue: Panicked) -> impl Fn(&K, &str) {
    move |key, panic| {
        metrics.panicked(queue);
        tracing::error!(?key, panic, "work on storage capacity panicked; this is a bug");
    }
}

impl Inner {
    async fn objects_listed(&self) {
        // The sender lives as long as `self`.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Whether room is published of the class. One that does not say when it binds binds late.
    fn publishes(&self, class: &StorageClass) -> bool {
        class.provisioner == self.names.driver
            && (self.settings.for_immediate_binding
                || class.volume_binding_mode.as_deref() != Some(IMMEDIATE))
    }

    /// Takes something into the book, and queues what follows.
    fn learn(&self, learn: impl FnOnce(&mut Book) -> Vec<Key>) {
        let keys = learn(&mut self.book.lock());
        if self.working.load(Ordering::Relaxed) {
            for key in keys {
                self.queue.add(key);
            }
        }
    }

    fn look_at_all(&self) {
        self.learn(Book::poll);
    }

    fn find_segments(&self) {
        let segments = Segment::of_nodes(&self.nodes);
        self.learn(|book| book.segments_are(segments));
    }

    fn observe(&self, event: InformerEvent<Shown>) {
        let complete = matches!(event, InformerEvent::InitDone);
        self.learn(|book| match event {
            InformerEvent::Init => {
                book.restarted();
                Vec::new()
            }
            InformerEvent::InitApply(shown) | InformerEvent::Apply(shown)
                if shown.is_ours(&self.names) =>
            {
                book.seen(shown.keep())
            }
            InformerEvent::InitApply(shown)
            | InformerEvent::Apply(shown)
            | InformerEvent::Delete(shown) => book.gone(shown.name()),
            InformerEvent::Unreadable { name, .. } => {
                book.unreadable(&name);
                Vec::new()
            }
            InformerEvent::InitDone => book.complete(),
        });
        if complete {
            self.listed.send_replace(true);
        }
    }

    async fn sync(&self, key: &Key) -> Action {
        let outcome = match key {
            Key::Ask(pair) => self.publish(pair).await,
            Key::Sweep(name) => self.sweep(name).await,
        };
        match outcome {
            Ok(()) | Err(NotPublished::Ending) => Action::Done,
            Err(error) => {
                tracing::warn!(%error, %key, "Storage capacity is not up to date; trying again");
                Action::Retry
            }
        }
    }

    /// Asks about a pair that is wanted, and has its object say the answer.
    async fn publish(&self, pair: &Pair) -> Result<(), NotPublished> {
        if !self.asks {
            return Ok(());
        }
        let class = match self.book.lock().standing(pair) {
            Standing::Unwanted => return Ok(()),
            Standing::Absent(class) | Standing::Published(class, _) => class,
        };
        let room = self.ask(pair, &class).await?;
        // Whatever happened meanwhile, to what is there now.
        let standing = self.book.lock().standing(pair);
        match standing {
            Standing::Unwanted => return Ok(()),
            Standing::Absent(_) => self.create(pair, room).await?,
            Standing::Published(_, object) => self.correct(pair, &object, room).await?,
        }
        if self.book.lock().asked(pair) {
            self.queue.add(Key::Ask(pair.clone()));
        }
        Ok(())
    }

    async fn ask(&self, pair: &Pair, class: &StorageClass) -> Result<Room, NotPublished> {
        let segments = pair.segment.labels().clone();
        let request = GetCapacityRequest {
            // As in the original: with the keys that are meant for this program.
            parameters: class.parameters.clone(),
            accessible_topology: Some(Topology { segments }),
            ..GetCapacityRequest::default()
        };
        tokio::select! {
            biased;
            () = self.ending.cancelled() => Err(NotPublished::Ending),
            answer = self.driver.get_capacity(request) => Ok(Room::from(&answer?)),
        }
    }

    async fn create(&self, pair: &Pair, room: Room) -> Result<(), NotPublished> {
        let mut name = String::new();
        for attempt in 0..NAMES {
            name = self.names.object(pair, attempt);
            let body = object::body(&self.names, &name, pair, room, self.owner.as_ref());
            match self.store.create(&body).await {
                Ok(object) => {
                    self.book.lock().wrote(pair, object);
                    return Ok(());
                }
                Err(error) if error.is_already_exists() => {}
                Err(error) => return Err(NotPublished::Unwritten { what: "create", name, error }),
            }
            if let Some(object) = self.found(pair, &name).await? {
                self.book.lock().wrote(pair, object.clone());
                return self.correct(pair, &object, room).await;
            }
        }
        Err(NotPublished::NoName(name))
    }

    /// The pair's object that no watch has shown yet; none where the name is a stranger's.
    async fn found(&self, pair: &Pair, name: &str) -> Result<Option<Object>, NotPublished> {
        match self.store.find(name).await {
            Ok(found) => Ok(found.filter(|object| object.pair.as_ref() == Some(pair))),
            Err(error) => {
                Err(NotPublished::Unwritten { what: "look at", name: name.to_owned(), error })
            }
        }
    }

    async fn correct(&self, pair: &Pair, object: &Object, room: Room) -> Result<(), NotPublished> {
        let Some(correction) = object.correction(room, self.owner.as_ref()) else {
            return Ok(());
        };
        match self.store.correct(object, &correction).await {
            Ok(Some(object)) => self.book.lock().wrote(pair, object),
            Ok(None) => self.learn(|book| book.missing(&object.name)),
            Err(error) => {
                let name = object.name.clone();
                return Err(NotPublished::Unwritten { what: "correct", name, error });
            }
        }
        Ok(())
    }

    /// Deletes an object that is one too many.
    async fn sweep(&self, name: &str) -> Result<(), NotPublished> {
        let Some(object) = self.book.lock().superfluous(name).cloned() else { return Ok(()) };
        match self.store.delete(&object).await {
            Ok(()) => Ok(()),
            // Gone already, or another object by now, which the watch will show.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => {
                Err(NotPublished::Unwritten { what: "delete", name: name.to_owned(), error })
            }
        }
    }
}
