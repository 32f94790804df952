//! The provision controller: which claim gets a volume, which volume is deleted, and when.
//!
//! Knows nothing of any driver: it asks a [`provisioner::Provisioner`]. A claim walks
//! `claim_book` (what is known, fed by the watches) → the queue `claims` → `claims` (what to do
//! now) → the provisioner → `claim_state` (what follows) → `pv_store` (the PersistentVolume). A
//! volume walks `volume_book` → the queue `volumes` → `volumes`, which asks `finalizers` what is
//! due. `ownership` says whose either is, `pace` keeps to as many calls at once as the driver bears.
//!
//! Owns starting and stopping all of that ([`Controller`]). Promises that no work starts before what
//! it needs is listed: for a claim born under our eyes the classes and what the provisioner needs,
//! for one that stood the volumes as well (safety rule 6), for a deletion everything; and that
//! [`Controller::work`] ends only when nothing is in hand any more and all that was made is saved.

pub mod awaited;
pub mod claim_book;
pub mod claim_state;
pub mod claims;
pub mod classes;
mod discard;
pub mod events;
pub mod finalizers;
mod freshness;
mod handles;
pub mod item;
pub mod leftover;
mod look_up;
mod lookout;
pub mod open_calls;
pub mod ownership;
pub mod pace;
pub mod provisioner;
pub mod pv_store;
pub mod source;
pub mod topology;
pub mod volume_book;
pub mod volumes;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use self::{
    awaited::{Awaited, Waits},
    claim_book::ClaimBook,
    claims::ClaimWorker,
    classes::Classes,
    events::{ClaimEvents, VolumeEvents},
    freshness::Freshness,
    item::Item,
    lookout::Lookout,
    open_calls::OpenCalls,
    ownership::Identity,
    pace::Pace,
    provisioner::Provisioner,
    pv_store::PvStore,
    volume_book::{VolumeBook, Wake},
    volumes::VolumeWorker,
};
use crate::{
    kube_api::{
        Client, Extent, FirstList, Kind, Reflector, Scope, Sighting, View,
        events::Source,
        reflector,
        views::{Claim, StorageClass, Volume},
    },
    metrics::{Metrics, PaceMetrics},
    mutations::{self, Mutation},
    runtime::{Clock, Random, Tasks},
    workqueue::{self, Exclusive, Limiter, Queue},
};

/// How many unsaved PersistentVolumes are tried at once, as in the original.
const SAVERS: usize = 4;

/// How often everything in work is looked at again, as the original's resync does; jittered.
const AUDIT: Duration = Duration::from_secs(15 * 60);

/// The time between two volumes that get the protection finalizer: at most 20 a second.
const ADOPTION: Duration = Duration::from_millis(50);

/// How the controller works.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// `--worker-threads`: claims, and volumes, worked on at once.
    pub workers: usize,
    /// `--retry-interval-start`.
    pub retry_start: Duration,
    /// `--retry-interval-max`.
    pub retry_max: Duration,
    /// How open calls are recorded.
    pub open_calls: open_calls::Settings,
}

/// What the controller stands on.
pub struct Parts<P> {
    /// Makes and deletes volumes.
    pub provisioner: Arc<P>,
    /// The lane for objects.
    pub client: Client,
    /// The classes, which the provisioner reads as well.
    pub classes: Classes,
    /// Tells users.
    pub events: Source,
    /// Counts.
    pub metrics: Metrics,
    /// Tells for how long a deleted claim was kept.
    pub clock: Arc<dyn Clock>,
    /// Jitter.
    pub random: Arc<dyn Random>,
    /// Runs the work.
    pub tasks: Tasks,
    /// How to work.
    pub settings: Settings,
}

/// The provision controller.
pub struct Controller<P> {
    claims: Arc<ClaimWorker<P>>,
    volumes: Arc<VolumeWorker<P>>,
    queues: Queues,
    classes: Classes,
    client: Client,
    metrics: Metrics,
    random: Arc<dyn Random>,
    tasks: Tasks,
    settings: Settings,
    lists: Lists,
    /// Kinds whose changes open watches show, so that nobody else need look.
    shown: Vec<Kind>,
}

/// The three queues, named as the original's are in metrics.
#[derive(Clone)]
struct Queues {
    /// Claims by UID.
    claims: Queue<String>,
    /// Volumes by name.
    volumes: Queue<String>,
    /// Unsaved volumes by their claim's UID.
    unsaved: Queue<String>,
    /// Told when a volume is to be adopted.
    adoption: Arc<Notify>,
    /// Whether anybody works. Until then the books alone say what there is to do: the queues of a
    /// standby would hold every key that it ever saw.
    working: Arc<AtomicBool>,
}

/// How far the first list of each kind is.
#[derive(Default)]
struct Lists {
    classes: FirstList,
    claims: FirstList,
    volumes: FirstList,
    /// Cancelled when claims and PersistentVolumes are to be listed.
    wanted: CancellationToken,
    /// Asks for another list of claims.
    claims_anew: Arc<Notify>,
    /// Asks for another list of PersistentVolumes.
    volumes_anew: Arc<Notify>,
}

impl<P: Provisioner> Controller<P> {
    /// A controller that does nothing yet.
    pub fn new(parts: Parts<P>) -> Self {
        let Parts { provisioner, client, classes, events, metrics, clock, random, tasks, settings } =
            parts;
        let identity = Identity {
            driver: provisioner.name().to_owned(),
            in_tree: provisioner.in_tree_name().map(str::to_owned),
            node: provisioner.node().map(str::to_owned),
        };
        let queues = Queues::new(&settings, &metrics);
        let exclusive = Exclusive::default();
        let (naming, closing) = (Arc::clone(&provisioner), Arc::clone(&provisioner));
        let book = ClaimBook::new(
            identity.clone(),
            move |uid| naming.volume_name(uid).ok(),
            move |uid| closing.closed(uid),
        );
        let creates = queues.pace(settings.workers, metrics.pace.of("create"));
        let deletes = queues.pace(settings.workers, metrics.pace.of("delete"));
        let waits = Waits::default();
        count_at_scrapes(&metrics, &book, [&creates, &deletes], &waits);
        let freshness = Freshness::new(Arc::clone(&clock));
        let store = PvStore {
            client: client.clone(),
            book: book.clone(),
            freshness: freshness.clone(),
            events: ClaimEvents::new(events.clone()),
            metrics: metrics.controller.clone(),
            exclusive: exclusive.clone(),
            queue: queues.unsaved.clone(),
            claims: queues.claims.clone(),
            unsaved: watch::Sender::default(),
        };
        let reaching = Arc::clone(&provisioner);
        let in_reach = move |volume: &Volume| reaching.should_delete(volume);
        let telling_apart = Arc::clone(&provisioner);
        let key = move |volume: &Volume| {
            let handle = telling_apart.handle(volume)?;
            Some(telling_apart.key(&handle).to_owned())
        };
        let volumes = VolumeWorker {
            provisioner: Arc::clone(&provisioner),
            book: VolumeBook::new(identity.clone(), book.clone(), freshness.clone(), in_reach, key),
            client: client.clone(),
            events: VolumeEvents::new(events.clone()),
            metrics: metrics.controller.clone(),
            exclusive: exclusive.clone(),
            pace: deletes.clone(),
            store: store.clone(),
            freshness,
            waits: waits.clone(),
            random: Arc::clone(&random),
        };
        let open_calls = OpenCalls::new(
            client.clone(),
            book.clone(),
            ClaimEvents::new(events.clone()),
            metrics.controller.clone(),
            clock,
            identity.clone(),
            settings.open_calls,
        );
        let claims = ClaimWorker {
            provisioner,
            identity,
            book,
            classes: classes.clone(),
            waits,
            client: client.clone(),
            store,
            open_calls,
            ending: CancellationToken::new(),
            events: ClaimEvents::new(events),
            metrics: metrics.controller.clone(),
            exclusive,
            creates,
            deletes,
            random: Arc::clone(&random),
            tasks: tasks.clone(),
            retry_max: settings.retry_max,
        };
        Self {
            claims: Arc::new(claims),
            volumes: Arc::new(volumes),
            queues,
            classes,
            client,
            metrics,
            random,
            tasks,
            settings,
            lists: Lists::default(),
            shown: vec![Kind::of::<StorageClass>(), Kind::of::<Claim>(), Kind::of::<Volume>()],
        }
    }

    /// Whoever calls this watches all objects of the kind that `V` reads, and tells
    /// [`Controller::claim_waker`] of their changes: they are not watched by name.
    pub fn shows<V: View>(&mut self) {
        self.shown.push(Kind::of::<V>());
    }

    /// Starts watching, claims and PersistentVolumes from [`Controller::stand_by`] or
    /// [`Controller::work`] on. `claims` is shown all claims as well, just before this controller takes
    /// them in.
    pub fn watch(&self, claims: impl Fn(&Sighting<Claim>) + Send + 'static) {
        self.watch_classes();
        self.watch_claims(claims);
        self.watch_volumes();
        self.look_out();
    }

    /// Keeps an eye on what claims and volumes wait for and no other watch shows.
    fn look_out(&self) {
        let queues = self.queues.clone();
        let wake = Box::new(move |item| queues.wake_items(vec![item]));
        let (client, waits) = (self.client.clone(), self.claims.waits.clone());
        let lookout = Lookout::new(client, waits, wake, self.shown.clone());
        self.tasks.vital("watch of awaited objects", lookout.run());
    }

    fn watch_classes(&self) {
        let (book, queues) = (self.claims.book.clone(), self.queues.clone());
        let wake = move |class: &str| queues.wake_claims(book.of_class(class));
        let observer = self.classes.observer(self.lists.classes.clone(), Box::new(wake));
        self.tasks.vital("watch of StorageClasses", self.reflector::<StorageClass>().run(observer));
    }

    fn watch_claims(&self, also: impl Fn(&Sighting<Claim>) + Send + 'static) {
        let (book, queues) = (self.claims.book.clone(), self.queues.clone());
        let (first_list, waits) = (self.lists.claims.clone(), self.claims.waits.clone());
        let observer = move |sighting: Sighting<Claim>| {
            also(&sighting);
            let extent = Extent::of(&sighting);
            // Whoever is gone unnoticed ceases to wait when its back-off ends.
            if let Sighting::Deleted(claim) = &sighting {
                waits.forget(&Item::claim(claim.uid()));
            }
            // Others may wait for a claim that is of no interest itself: it is to be cloned.
            queues.wake_items(waits.of_shown(&sighting));
            let claims = book.observe(sighting);
            // Nobody is left to mend what keeps its volume from being saved.
            let given_up = claims.iter().filter(|uid| book.is_saving(uid) && book.is_gone(uid));
            queues.wake_unsaved(given_up.cloned().collect());
            queues.wake_claims(claims);
            first_list.reached(extent);
        };
        // New claims are served while the old ones are listed, however many these are.
        let reflector = self.reflector_of_many::<Claim>().anew_when(self.lists.claims_anew.clone());
        let (volumes, wanted) = (self.lists.volumes.clone(), self.lists.wanted.clone());
        self.tasks.vital("watch of PersistentVolumeClaims", async move {
            wanted.cancelled().await;
            if mutations::is_on(Mutation::VolumesListedFirst) {
                volumes.whole().await;
            }
            reflector.run_overlapped(observer).await;
        });
    }

    fn watch_volumes(&self) {
        let (book, queues) = (self.volumes.book.clone(), self.queues.clone());
        let (first_list, waits) = (self.lists.volumes.clone(), self.claims.waits.clone());
        let observer = move |sighting: Sighting<Volume>| {
            let extent = Extent::of(&sighting);
            if let Sighting::Deleted(volume) = &sighting {
                waits.forget(&Item::volume(volume.name()));
            }
            let Wake { volumes, adoption, claims } = book.observe(sighting);
            queues.wake_volumes(volumes);
            if adoption {
                queues.adoption.notify_one();
            }
            queues.wake_unsaved(claims.clone());
            queues.wake_claims(claims);
            first_list.reached(extent);
        };
        let reflector =
            self.reflector_of_many::<Volume>().anew_when(self.lists.volumes_anew.clone());
        let wanted = self.lists.wanted.clone();
        self.tasks.vital("watch of PersistentVolumes", async move {
            wanted.cancelled().await;
            reflector.run_overlapped(observer).await;
        });
    }

    fn reflector<V: View>(&self) -> Reflector<V> {
        self.reflector_as(reflector::Settings::default())
    }

    /// Of a kind of which a cluster may hold a hundred thousand.
    fn reflector_of_many<V: View>(&self) -> Reflector<V> {
        self.reflector_as(reflector::Settings::of_many())
    }

    fn reflector_as<V: View>(&self, settings: reflector::Settings) -> Reflector<V> {
        let random = Arc::clone(&self.random);
        Reflector::new(&self.client, Scope::all(), settings, random, &self.metrics)
    }

    /// Wakes a volume by name: what kept it from being deleted may be over.
    pub fn volume_waker(&self) -> impl Fn(String) + Send + use<P> {
        let queues = self.queues.clone();
        move |name| queues.wake_volumes(vec![name])
    }

    /// Brings back what waits for an object, which was just seen to change.
    pub fn claim_waker(&self) -> impl Fn(&Awaited) + Send + Sync + use<P> {
        let (queues, waits) = (self.queues.clone(), self.claims.waits.clone());
        move |object| queues.wake_items(waits.of(object))
    }

    /// Waits until all classes have been listed once.
    pub fn classes_listed(&self) -> impl Future<Output = ()> + Send + use<P> {
        let classes = self.lists.classes.clone();
        async move { classes.whole().await }
    }

    /// A check of whether everything has been listed once; an error names what has not.
    pub fn readiness(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<P> {
        let kinds = [
            ("StorageClasses", self.lists.classes.clone()),
            ("PersistentVolumeClaims", self.lists.claims.clone()),
            ("PersistentVolumes", self.lists.volumes.clone()),
        ];
        move || match kinds.iter().find(|(_, list)| !list.is_whole()) {
            None => Ok(()),
            Some((kind, _)) => Err(format!("{kind} are not listed yet")),
        }
    }

    /// The process is about to end: names the volumes that are made and have no PersistentVolume.
    pub fn tell_unsaved(&self) {
        self.claims.store.tell_unsaved();
    }

    /// The calls that still run are about to be cut: each is recorded on its claim, by whoever
    /// makes it and so holds the volume's key.
    pub fn record_running_calls(&self) {
        self.claims.ending.cancel();
    }

    /// Works until `stop`; then takes nothing new and ends when what is in hand has ended and
    /// every volume made is saved, or refused by the API server and recorded on its claim.
    pub async fn work(&self, stop: CancellationToken) {
        self.begin_term();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.may_create() => {}
        }
        self.queues.working.store(true, Ordering::Relaxed);
        self.wake_all();
        let calls = futures::future::join(self.work_claims(), self.work_volumes(&stop));
        let saving = self.work_unsaved();
        tokio::pin!(calls, saving);
        tokio::select! {
            biased;
            _ = futures::future::join(&mut calls, &mut saving) => return,
            () = stop.cancelled() => {}
            () = self.audit() => {}
            () = self.adopt() => {}
        }
        self.queues.claims.shut_down();
        self.queues.volumes.shut_down();
        // What the last calls made is still saved, for as long as our caller waits.
        let last_calls = async {
            calls.await;
            self.claims.store.ended().await;
            self.queues.unsaved.shut_down();
        };
        futures::future::join(last_calls, saving).await;
    }

    /// Another process works: claims and PersistentVolumes are followed meanwhile. Nothing is written
    /// and the driver is not called.
    pub fn stand_by(&self) {
        self.lists.wanted.cancel();
    }

    /// From now on this process works. What a standby was shown may be older than the last work of the
    /// process before: all that tells who has a volume is listed anew.
    fn begin_term(&self) {
        if self.lists.wanted.is_cancelled() {
            self.claims.book.take_over();
            self.lists.claims_anew.notify_one();
            self.lists.volumes_anew.notify_one();
        } else {
            self.claims.book.start_working();
            self.lists.wanted.cancel();
        }
    }

    /// Waits until volumes can be made for claims that nothing else keeps waiting. As in the original
    /// that is never where we may not list the volumes; but nobody waits for the end of their list.
    async fn may_create(&self) {
        self.lists.classes.whole().await;
        self.lists.volumes.begun().await;
        self.claims.provisioner.ready_to_create().await;
    }

    /// Waits until everything has been listed once: nothing is deleted before.
    async fn may_delete(&self) {
        for list in [&self.lists.classes, &self.lists.claims, &self.lists.volumes] {
            list.whole().await;
        }
        self.claims.provisioner.ready_to_delete().await;
    }

    async fn work_claims(&self) {
        let worker = Arc::clone(&self.claims);
        let dead = Arc::clone(&worker);
        let handler = move |uid: String| {
            let worker = Arc::clone(&worker);
            async move { worker.sync(&uid).await }
        };
        let on_panic = move |uid: &String, panic: &str| dead.panicked(uid, panic);
        let (queue, tasks) = (self.queues.claims.clone(), self.tasks.clone());
        // As many again find out whose turn it is, and save.
        let hands = self.settings.workers.saturating_mul(2);
        let work = workqueue::work(queue, hands, tasks, "claim", handler, on_panic);
        tokio::select! {
            biased;
            () = work => {}
            () = self.claims.creates.keep_time() => {}
        }
    }

    async fn work_volumes(&self, stop: &CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.may_delete() => {}
        }
        let worker = Arc::clone(&self.volumes);
        let dead = Arc::clone(&worker);
        let handler = move |name: String| {
            let worker = Arc::clone(&worker);
            async move { worker.sync(&name).await }
        };
        let on_panic = move |name: &String, panic: &str| dead.panicked(name, panic);
        let (queue, tasks) = (self.queues.volumes.clone(), self.tasks.clone());
        let workers = self.settings.workers;
        let work = workqueue::work(queue, workers, tasks, "volume", handler, on_panic);
        tokio::select! {
            biased;
            () = work => {}
            () = self.volumes.pace.keep_time() => {}
        }
    }

    async fn work_unsaved(&self) {
        let store = self.claims.store.clone();
        let metrics = self.metrics.controller.clone();
        let handler = move |uid: String| {
            let store = store.clone();
            async move { store.sync(&uid).await }
        };
        let on_panic = move |uid: &String, panic: &str| {
            tracing::error!(
                uid,
                panic,
                "saving a PersistentVolume panicked; this is a bug. It is tried again at the next audit"
            );
            metrics.panicked("unsavedpvs");
        };
        let (queue, tasks) = (self.queues.unsaved.clone(), self.tasks.clone());
        workqueue::work(queue, SAVERS, tasks, "unsaved volume", handler, on_panic).await;
    }

    /// Puts the protection finalizer on volumes that lack it: at the first start these may be all
    /// there are, and nobody waits for it. So it comes after all other work, and slowly.
    async fn adopt(&self) {
        self.may_delete().await;
        loop {
            for name in self.volumes.book.to_adopt() {
                while !self.queues.are_idle() {
                    tokio::time::sleep(ADOPTION).await;
                }
                // One that has failed comes when its back-off allows.
                if !self.queues.volumes.holds(&name) {
                    self.queues.wake_volumes(vec![name]);
                    tokio::time::sleep(ADOPTION).await;
                }
            }
            self.queues.adoption.notified().await;
        }
    }

    /// Queues everything in work again from time to time: the safety net under the watches.
    async fn audit(&self) {
        loop {
            tokio::time::sleep(AUDIT.mul_f64(0.9 + 0.2 * self.random.unit())).await;
            self.audit_once();
        }
    }

    /// Queues everything in work, and counts what no queue held although it had to.
    fn audit_once(&self) {
        let Queues { claims, volumes, unsaved, .. } = &self.queues;
        for uid in self.claims.book.all() {
            // Whether anything is due for a claim shows when it is looked at.
            if !claims.holds(&uid) && !self.claims.waits_for_a_call(&uid) {
                self.claims.book.audited(&uid);
            }
        }
        let forgotten = |name: &String| {
            !volumes.holds(name)
                && !self.volumes.pace.holds(&Item::volume(name))
                && !self.volumes.book.is_removed(name)
        };
        for _ in self.volumes.book.all().iter().filter(|name| forgotten(name)) {
            self.metrics.controller.audit_found("volumes");
        }
        for _ in self.claims.store.all().iter().filter(|uid| !unsaved.holds(uid)) {
            self.metrics.controller.audit_found("unsavedpvs");
        }
        self.wake_all();
        self.queues.wake_volumes(self.volumes.book.orphans());
    }

    /// Queues everything in work.
    fn wake_all(&self) {
        self.queues.wake_claims(self.claims.book.all());
        self.queues.wake_volumes(self.volumes.book.all());
        self.queues.adoption.notify_one();
        self.queues.wake_unsaved(self.claims.store.all());
    }
}

/// What is in work is counted whenever somebody asks.
fn count_at_scrapes(metrics: &Metrics, book: &ClaimBook, paces: [&Pace; 2], waits: &Waits) {
    let (book, gauges) = (book.clone(), metrics.controller.clone());
    metrics.before_scrape(move || gauges.in_work(&book.census()));
    let (paces, gauges) = (paces.map(Clone::clone), metrics.pace.clone());
    metrics.before_scrape(move || {
        gauges.clear();
        paces.iter().for_each(Pace::tell);
    });
    let (waits, gauges) = (waits.clone(), metrics.controller.clone());
    metrics.before_scrape(move || gauges.awaited(&waits.census()));
}

impl Queues {
    fn new(settings: &Settings, metrics: &Metrics) -> Self {
        let queue = |name, limiter| Queue::new(limiter, metrics.workqueue.queue(name));
        let per_item = || Limiter::per_item(settings.retry_start, settings.retry_max);
        Self {
            claims: queue("claims", per_item()),
            volumes: queue("volumes", per_item()),
            unsaved: queue("unsavedpvs", Limiter::controller_default()),
            adoption: Arc::default(),
            working: Arc::default(),
        }
    }

    /// The pace of one kind of calls; whose turn it is comes back through its queue.
    fn pace(&self, workers: usize, metrics: PaceMetrics) -> Pace {
        let Self { claims, volumes, .. } = self.clone();
        let wake = move |item| match item {
            Item::Claim(uid) => claims.add(uid),
            Item::Volume(name) => volumes.add(name),
        };
        Pace::new(workers, wake, metrics)
    }

    /// Whether no claim and no volume is ready to be worked on.
    fn are_idle(&self) -> bool {
        self.claims.is_empty() && self.volumes.is_empty()
    }

    /// These need work.
    fn wake_items(&self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Claim(uid) => self.wake_claims(vec![uid]),
                Item::Volume(name) => self.wake_volumes(vec![name]),
            }
        }
    }

    /// These claims need work.
    fn wake_claims(&self, uids: Vec<String>) {
        self.wake(&self.claims, uids);
    }

    /// These volumes need work.
    fn wake_volumes(&self, names: Vec<String>) {
        self.wake(&self.volumes, names);
    }

    /// The unsaved volumes of these claims need work.
    fn wake_unsaved(&self, uids: Vec<String>) {
        self.wake(&self.unsaved, uids);
    }

    fn wake(&self, queue: &Queue<String>, keys: Vec<String>) {
        // Whoever sets it looks through the books afterwards, so nothing seen meanwhile is missed.
        if self.working.load(Ordering::Relaxed) {
            for key in keys {
                queue.add(key);
            }
        }
    }
}
