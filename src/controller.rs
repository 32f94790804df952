//! The provision controller: decides which claim gets a volume, which volume is deleted, and when.
//!
//! The controller knows no CSI. It calls a [`provisioner::Provisioner`].
//!
//! | module | content |
//! |---|---|
//! | `watches` | starts the informers, keeps the order of the first lists, feeds indexes and queues |
//! | `queues` | the three work queues, their keys, and whose those are |
//! | `resync` | the periodic resync |
//! | `changes` | how often changes of a claim or of nodes queue it |
//! | [`claims`] | index, worker, states and records of claims; saves PersistentVolumes |
//! | [`volumes`] | index and worker of PersistentVolumes; deletion and protection finalizer |
//! | [`dependencies`] | objects that claims wait for, such as Secrets |
//! | `attempts` | how the last attempt for a claim or a volume failed |
//! | [`ownership`] | whether a claim or a volume belongs to this provisioner |
//! | `naming` | names of PersistentVolumes |
//! | [`peers`] | waits among the processes of a node deployment |
//! | [`classes`] | the cache of StorageClasses |
//! | [`events`] | the events about claims and volumes |
//! | [`overview`] | what is in work now, for the status |
//! | `live` | the maximum age of a live read |
//! | [`model`] | data types and pure functions, without locks |
//! | [`provisioner`] | the traits `Provisioner` and `Deleter`; what they take and return is in [`model`] |
//!
//! A claim passes `watches` → [`claims::index`] → queue `claims` → [`claims::sync`] → the provisioner
//! → [`claims::state`] → [`claims::save`]. A volume passes `watches` → [`volumes::index`] → queue
//! `volumes` → [`volumes::sync`] → the provisioner.
//!
//! [`Controller`] starts and stops all of this. It guarantees that:
//!
//! - no call is made before claims, then PersistentVolumes, and what the provisioner needs are listed
//!   (safety rule 6);
//! - no volume is deleted before all of that is listed since this process became the leader;
//! - [`Controller::work`] returns only when no work is in progress and all created volumes are saved.

mod attempts;
mod changes;
pub mod claims;
pub mod classes;
pub mod dependencies;
pub mod events;
mod live;
pub mod model;
mod naming;
pub mod overview;
pub mod ownership;
pub mod peers;
pub mod provisioner;
mod queues;
mod resync;
pub mod volumes;
mod watches;

use std::sync::{Arc, atomic::AtomicBool};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::{
    changes::Changes,
    claims::{discard::VolumeLists, index::ClaimIndex, save::Saver, worker::ClaimWorker},
    classes::Classes,
    dependencies::{Dependency, DependencyIndex},
    events::Events,
    ownership::ProvisionerIdentity,
    peers::Peers,
    provisioner::Provisioner,
    queues::Queues,
    volumes::{index::VolumeIndex, sync::VolumeWorker},
    watches::Lists,
};
use crate::{
    kube::{Client, CoalescedReads, FirstList},
    metrics::Metrics,
    nodes::Nodes,
    runtime::{Backoff, Clock, Random, Tasks},
    source_protection::Protection,
    workqueue::work,
};

/// The number of PersistentVolumes that are saved concurrently, as in external-provisioner.
const SAVE_WORKERS: usize = 4;

/// The key of a work queue: the UID of a claim or the name of a PersistentVolume. Clones share the text.
pub type Key = Arc<str>;

/// The controller's settings.
#[derive(Debug, Clone, Copy)]
pub struct ControllerSettings {
    /// `--worker-threads`: the number of concurrent workers for claims, and for volumes.
    pub workers: usize,
    /// `--retry-interval-start` and `--retry-interval-max`.
    pub retry: Backoff,
    /// How open calls are recorded on claims.
    pub open_calls: claims::call_record::RecordSettings,
}

/// The controller's dependencies.
pub struct Deps<P> {
    /// Creates and deletes volumes.
    pub provisioner: Arc<P>,
    /// The names under which claims, classes and volumes are this process's.
    pub identity: ProvisionerIdentity,
    /// The processes of other nodes, with node deployment.
    pub peers: Peers,
    /// Protects the sources of volumes while calls need them.
    pub protection: Protection,
    /// The list of VolumeAttachments, for a driver that attaches volumes.
    pub attachments: Option<FirstList>,
    /// The nodes, for a driver with topology.
    pub nodes: Option<Nodes>,
    /// The client on the lane for objects.
    pub client: Client,
    /// The cache of StorageClasses, shared with the provisioner.
    pub classes: Classes,
    /// Emits events about claims and volumes.
    pub events: Events,
    /// All metrics.
    pub metrics: Metrics,
    /// The clock for the age of live reads and for how long a deleted claim is kept.
    pub clock: Arc<dyn Clock>,
    /// For jitter.
    pub random: Arc<dyn Random>,
    /// Runs the background tasks.
    pub tasks: Tasks,
    /// The settings.
    pub settings: ControllerSettings,
}

/// The provision controller.
pub struct Controller<P> {
    deps: Arc<Deps<P>>,
    claims: Arc<ClaimWorker<P>>,
    volumes: Arc<VolumeWorker<P>>,
    queues: Queues,
    lists: Lists,
}

impl<P: Provisioner> Controller<P> {
    /// Creates a controller. Nothing is watched or written yet.
    pub fn new(deps: Deps<P>) -> Self {
        let deps = Arc::new(deps);
        let Deps { provisioner, identity, settings, .. } = &*deps;
        let releasing = deps.protection.clone();
        let index = ClaimIndex::new(identity.clone(), move |uid, is_served| {
            releasing.claim_finished(uid, is_served);
        });
        let volumes = Arc::new(VolumeIndex::new(identity.clone(), Arc::clone(provisioner)));
        let queues = Queues::new(settings, &deps.metrics, index.clone(), Arc::clone(&volumes));
        let volumes =
            VolumeWorker { deps: Arc::clone(&deps), index: volumes, claims: index.clone() };
        let claims = ClaimWorker {
            deps: Arc::clone(&deps),
            index,
            queue: queues.claims.clone(),
            unsaved_queue: queues.unsaved.clone(),
            save_attempted: Notify::new(),
            volume_lists: VolumeLists::default(),
            nodes: CoalescedReads::new(deps.client.clone(), deps.tasks.clone()).for_a_second(),
            dependencies: DependencyIndex::default(),
            is_warned: AtomicBool::default(),
            ending: CancellationToken::new(),
        };
        let lists = Lists::new(deps.attachments.clone(), deps.nodes.clone());
        let (claims, volumes) = (Arc::new(claims), Arc::new(volumes));
        let controller = Self { deps, claims, volumes, queues, lists };
        controller.register_gauges();
        controller
    }

    /// Registers the gauges that are computed at each scrape, and the list of existing classes.
    fn register_gauges(&self) {
        let (claims, volumes) = (self.claims.index.clone(), Arc::clone(&self.volumes.index));
        let dependencies = self.claims.dependencies.clone();
        let Deps { metrics, classes, .. } = &*self.deps;
        let gauges = metrics.controller.clone();
        metrics.before_scrape(move || {
            gauges.in_work(&claims.census());
            gauges.attached(volumes.attached_count());
            gauges.dependencies(&dependencies.count_by_resource());
        });
        let counters = metrics.controller.clone();
        classes.on_change(move |name, class| counters.class_exists(name, class.is_some()));
    }

    /// Returns a function that queues the volume of a given name, for when it was detached.
    pub fn volume_waker(&self) -> impl Fn(String) + Send + use<P> {
        let queues = self.queues.clone();
        move |name: String| queues.volumes.add(name.into())
    }

    /// Returns a function that queues the claims that wait for a given object, for when it has changed.
    pub fn claim_waker(&self) -> impl Fn(&Dependency) + Send + Sync + use<P> {
        let queues = self.queues.clone();
        let dependencies = self.claims.dependencies.clone();
        // A kubelet can change its objects as often as a user can change a claim.
        let changes = Mutex::new(Changes::default());
        move |object| {
            for (uid, _) in dependencies.waiting_for(object) {
                changes.lock().queue(&queues.claims, uid);
            }
        }
    }

    /// Logs, before the process ends, the volumes without a PersistentVolume and the open calls that nobody will
    /// follow.
    pub fn log_unfinished(&self) {
        self.claims.index.log_unfinished();
    }

    /// Makes the workers record the calls that still run on their claims, because the calls are about to
    /// be cancelled. Each worker does it for its own call, as it holds the volume's key.
    pub fn record_running_calls(&self) {
        self.claims.ending.cancel();
    }

    /// Works until `stop` is cancelled. Then starts nothing new, and returns when all work in progress
    /// has ended and every created volume is saved, or its PersistentVolume was refused by the API
    /// server and the call is recorded on its claim.
    pub async fn work(&self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.everything_listed() => {}
            () = self.report_missing_lists() => {}
        }
        let Self { deps, claims, volumes, queues, .. } = self;
        let (workers, tasks) = (deps.settings.workers, &deps.tasks);
        let calls = futures::future::join(
            work(&queues.claims, workers, tasks, Arc::clone(claims)),
            work(&queues.volumes, workers, tasks, Arc::clone(volumes)),
        );
        let saving = work(&queues.unsaved, SAVE_WORKERS, tasks, Saver(Arc::clone(claims)));
        tokio::pin!(calls, saving);
        tokio::select! {
            biased;
            _ = futures::future::join(&mut calls, &mut saving) => return,
            () = stop.cancelled() => {}
            () = self.resync() => {}
        }
        queues.claims.shut_down();
        queues.volumes.shut_down();
        // The volumes of the last calls are still saved, as long as the caller polls this.
        let last_calls = async {
            calls.await;
            claims.save_before_exit().await;
            queues.unsaved.shut_down();
        };
        futures::future::join(last_calls, saving).await;
    }
}
