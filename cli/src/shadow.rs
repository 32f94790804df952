//! Shadow mode (`kubectl-csi_provisioner shadow`): runs beside external-provisioner, and compares what it does
//! with what the sidecar would have done. Nothing is written, and the driver is not called.
//!
//! | module | content |
//! |---|---|
//! | `arguments` | the sidecar's flags, and those that describe the driver |
//! | `program` | creates all parts, starts them, and waits for the end |
//! | `worker` | looks at one claim: what this program would do for it, and what happened |
//! | `judgement` | decides what that says: a pure function |
//! | `prediction` | what the sidecar would request and save |
//! | `compare` | compares two PersistentVolumes field by field |
//! | `tracker` | claims without a PersistentVolume, due deletions, and the results |
//! | `metrics` | counts of results |
//! | `report` | the results, for the status and for `kubectl csi-provisioner shadow-report` |
//!
//! For each claim without a volume the checks before a call make the request, from the cluster as it is
//! then. When the claim's PersistentVolume appears, the code that builds PersistentVolumes builds the one
//! that this program would have saved, with the driver's response as the existing one shows it. For each
//! PersistentVolume that goes, the rules of deletion say whether that was due.
//!
//! It is bounded as `tracker` says. It costs the watches that leading costs, the reads before a call, and
//! one read of each new PersistentVolume.

mod arguments;
mod compare;
mod judgement;
mod metrics;
mod prediction;
mod program;
mod report;
mod tracker;
mod worker;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub use self::{
    arguments::{Described, parse},
    judgement::{Agreement, Subject},
    metrics::ShadowMetrics,
    program::run,
    report::{Row, ShadowReport, Total},
};
use self::{
    judgement::DeletionPlan,
    tracker::{Tracker, volume_name},
    worker::Worker,
};
use csi_provisioner::{
    app::Env,
    controller::classes::Classes,
    csi_provisioner::{ProvisionerSettings, Reads, Topology},
    kube::{
        Client, FirstList, Informer, InformerEvent, Scope, View,
        objects::{Claim, StorageClass, Volume},
    },
    metrics::Metrics,
    runtime::{Backoff, Random, Tasks},
    workqueue::{self, Queue},
};

/// The number of claims that are looked at at once.
const WORKERS: usize = 10;

/// How often what was kept for long enough is forgotten.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// The name of the queue in metrics.
const QUEUE: &str = "shadow";

/// Shadow mode. Clones are the same.
#[derive(Clone)]
struct Shadow {
    worker: Worker,
    queue: Queue<String>,
    lists: Lists,
    metrics: Metrics,
    random: Arc<dyn Random>,
    tasks: Tasks,
}

/// What has been listed.
#[derive(Clone, Default)]
struct Lists {
    classes: FirstList,
    claims: FirstList,
    volumes: FirstList,
}

impl Shadow {
    /// Creates it, once with the same metrics; nothing is read yet. `topology`: of a driver with topology.
    /// `retry`: of claims that this program would not serve now.
    fn new(
        env: &Env,
        tasks: &Tasks,
        client: Client,
        topology: Option<Topology>,
        settings: ProvisionerSettings,
        retry: Backoff,
    ) -> Self {
        let metrics = env.metrics.clone();
        let worker = Worker {
            tracker: Arc::new(Mutex::new(Tracker::default())),
            identity: Arc::new(settings.provisioner_identity()),
            settings: Arc::new(settings),
            reads: Arc::new(Reads::new(client.clone(), tasks)),
            client,
            classes: Classes::default(),
            topology,
            clock: Arc::clone(&env.clock),
            metrics: ShadowMetrics::new(&metrics),
        };
        let (queue, random) = (Queue::new(QUEUE, retry, &metrics), Arc::clone(&env.random));
        Self { worker, queue, lists: Lists::default(), metrics, random, tasks: tasks.clone() }
    }

    /// Starts the watches and the workers.
    fn start(&self) {
        let Worker { tracker, metrics, .. } = self.worker.clone();
        self.metrics.before_scrape(move || {
            let (claims, deletions) = tracker.lock().kept();
            metrics.kept(claims, deletions);
        });
        self.watch_classes();
        self.watch_claims();
        self.watch_volumes();
        self.tasks.spawn_critical("shadow workers", self.clone().work());
        self.tasks.spawn_critical("shadow sweep", self.clone().sweep());
    }

    /// Whether everything is listed.
    ///
    /// # Errors
    /// Names what is not.
    fn readiness(&self) -> Result<(), String> {
        let kinds = [
            ("StorageClasses", &self.lists.classes),
            ("PersistentVolumeClaims", &self.lists.claims),
            ("PersistentVolumes", &self.lists.volumes),
        ];
        let missing = kinds.into_iter().find(|(_, list)| !list.is_whole());
        missing.map_or(Ok(()), |(kind, _)| Err(format!("{kind} are not listed yet")))
    }

    /// The results so far.
    fn report(&self) -> ShadowReport {
        self.worker.tracker.lock().report()
    }

    /// Looks at claims for as long as the process runs.
    async fn work(self) {
        self.lists.classes.whole().await;
        if let Some(topology) = &self.worker.topology {
            topology.listed().await;
        }
        let Self { queue, tasks, worker, .. } = &self;
        workqueue::work(queue, WORKERS, tasks, worker.clone()).await;
    }

    /// Forgets what was kept for long enough. Never returns.
    async fn sweep(self) {
        let mut ticks = interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let results = self.worker.tracker.lock().sweep(Instant::now());
            for (object, judgement) in results {
                self.worker.record(object, &judgement);
            }
        }
    }

    // === watches ===

    fn watch_classes(&self) {
        let Self { worker: Worker { tracker, classes, .. }, queue, lists, .. } = self.clone();
        let first_list = lists.classes.clone();
        classes.on_change(move |class, _| {
            for uid in tracker.lock().class_changed(class, lists.classes.is_whole()) {
                queue.add(uid);
            }
        });
        let handler = first_list.completed_by(classes.event_handler());
        let informer = self.informer::<StorageClass>();
        self.tasks.spawn_critical("watch of StorageClasses", informer.run(handler));
    }

    fn watch_claims(&self) {
        let shadow = self.clone();
        let handler =
            self.lists.claims.clone().completed_by(move |event| shadow.on_claim_event(event));
        let informer = self.informer::<Claim>();
        self.tasks.spawn_critical("watch of PersistentVolumeClaims", informer.run(handler));
    }

    fn on_claim_event(&self, event: InformerEvent<Claim>) {
        let Worker { tracker, identity, .. } = &self.worker;
        match event {
            InformerEvent::InitApply(claim) | InformerEvent::Apply(claim) => {
                let uid = claim.uid().to_owned();
                if tracker.lock().claim_applied(identity, claim, Instant::now()) {
                    self.queue.add(uid);
                }
            }
            InformerEvent::Delete(claim) => {
                tracker.lock().claim_deleted(claim.uid(), Instant::now());
            }
            InformerEvent::InitDone(listed) => {
                tracker.lock().claims_listed(&listed, Instant::now());
            }
            InformerEvent::Unreadable { .. } => {}
        }
    }

    fn watch_volumes(&self) {
        let shadow = self.clone();
        let handler =
            self.lists.volumes.clone().completed_by(move |event| shadow.on_volume_event(event));
        let (claims, informer) = (self.lists.claims.clone(), self.informer::<Volume>());
        self.tasks.spawn_critical("watch of PersistentVolumes", async move {
            // A PersistentVolume is found for a claim that is known.
            claims.whole().await;
            informer.run(handler).await;
        });
    }

    fn on_volume_event(&self, event: InformerEvent<Volume>) {
        let Worker { tracker, identity, settings, .. } = &self.worker;
        let plan = |volume: &Volume| {
            if identity.owns_volume(volume) {
                DeletionPlan::of(volume, |volume| settings.handle(volume).map(drop))
            } else {
                DeletionPlan::Keep
            }
        };
        match event {
            InformerEvent::InitApply(volume) | InformerEvent::Apply(volume) => {
                let plan = plan(&volume);
                let claim = tracker.lock().volume_applied(&volume, plan, Instant::now());
                if let Some(uid) = claim {
                    self.queue.add(uid);
                }
            }
            InformerEvent::InitDone(listed) => {
                let gone = tracker.lock().volumes_listed(&listed, Instant::now());
                for (object, judgement) in gone {
                    self.worker.record(object, &judgement);
                }
            }
            InformerEvent::Delete(volume) if identity.owns_volume(&volume) => {
                let (plan, now) = (plan(&volume), Instant::now());
                let judgement = tracker.lock().volume_deleted(volume.name(), &plan, now);
                self.worker.record(volume_name(volume.name()), &judgement);
            }
            InformerEvent::Delete(_) | InformerEvent::Unreadable { .. } => {}
        }
    }

    fn informer<V: View>(&self) -> Informer<V> {
        let random = Arc::clone(&self.random);
        Informer::new(&self.worker.client, Scope::all(), random, &self.metrics)
    }
}
