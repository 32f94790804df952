//! Finalizers that keep what volumes are made from while they are made.
//!
//! Calls no driver. Whoever is about to ask one for a volume of a snapshot or a claim
//! lets [`Protection::take`] put the finalizer on it right before; when the claim needs its source
//! no longer, [`Protection::closed`] is told. A snapshot gives its finalizer back at that moment,
//! if nobody else needs it (`holders`); a claim that was cloned keeps it until it is deleted and
//! nobody pending names it, as in the original. What a crash has left on a snapshot is found by the
//! `sweep`. `source` says what a claim names, `free` carries out what is due, `writer` writes.
//!
//! A pending claim that merely names a source holds it, with two limits:
//! - A claim of another namespace holds it only while a ReferenceGrant lets that claim use it
//!   (`grants`), and never without the feature gate.
//! - Once the source has been Terminating for `--claim-protection-timeout`, no claim holds it
//!   because of its name (`overdue`). This is reported.
//!
//! Both limits apply only to sources that no other driver made (`owner`): that driver's provisioner
//! shares the finalizer, and only it knows its calls.
//!
//! Promises that no source is freed while a call of this process is open for it, whatever has
//! become of the claim, the grant or the time-out; that one actor at a time works on a source; and
//! that nothing is written by a process that does not lead. Leaves who may use which source, and
//! what becomes of a claim, to others.

mod free;
mod grants;
mod holders;
mod overdue;
mod owner;
mod source;
mod sweep;
mod writer;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

pub use self::{
    grants::{Target, is_granted},
    source::{NamedSource, SourceKind},
    writer::Unprotected,
};
use self::{holders::Holders, writer::Writer};
use crate::{
    kube::{Client, InformerEvent, events::Source as Events, objects::Claim},
    metrics::{Metrics, Panicked},
    runtime::{Clock, Random, Tasks},
    workqueue,
    workqueue::{KeyedMutex, Limiter, Queue},
};

/// How many snapshots are freed at once.
const FREEING: usize = 4;

/// How often the end of the last work is looked for.
const GLANCE: Duration = Duration::from_millis(10);

/// How sources are guarded.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // each is a setting of its own
pub struct Settings {
    /// Whether the driver restores snapshots: without, none is swept.
    pub restores: bool,
    /// Whether the driver clones: without, no source of clones is freed.
    pub clones: bool,
    /// `--cloning-protection-threads`: sources of clones freed at once.
    pub workers: usize,
    /// `--snapshot-orphan-sweep-interval`; `None`: no sweep.
    pub sweep_interval: Option<Duration>,
    /// `--retry-interval-start`.
    pub retry_start: Duration,
    /// `--retry-interval-max`.
    pub retry_max: Duration,
    /// Whether other processes make volumes of the same sources at the same time (`--node-deployment`).
    pub peers: bool,
    /// Whether claims may name sources of other namespaces (`CrossNamespaceVolumeDataSource`).
    pub cross_namespace_sources: bool,
    /// `--claim-protection-timeout`: how long claims that merely name a deleted source keep it;
    /// `None`: for ever.
    pub timeout: Option<Duration>,
}

/// What the guard stands on.
pub struct Deps {
    /// The lane for objects.
    pub client: Client,
    /// Counts.
    pub metrics: Metrics,
    /// Jitter.
    pub random: Arc<dyn Random>,
    /// Tells for how long a deleted source was kept.
    pub clock: Arc<dyn Clock>,
    /// Tells users about sources.
    pub events: Events,
    /// The name of the driver whose calls are guarded.
    pub driver: String,
    /// Runs the work.
    pub tasks: Tasks,
    /// How to work.
    pub settings: Settings,
}

/// Guards sources. Clones share it.
#[derive(Clone)]
pub struct Protection(Arc<Shared>);

struct Shared {
    client: Client,
    writer: Writer,
    holders: Mutex<Holders>,
    /// One actor a source.
    exclusive: KeyedMutex,
    /// Snapshots that may be due to be freed.
    snapshots: Queue<NamedSource>,
    /// Deleted sources of clones that may be due to be freed.
    clones: Queue<NamedSource>,
    /// Whether all claims were listed once.
    listed: watch::Sender<bool>,
    /// Whether this process works: a standby's queues stay empty.
    working: watch::Sender<bool>,
    metrics: Metrics,
    random: Arc<dyn Random>,
    clock: Arc<dyn Clock>,
    events: Events,
    driver: String,
    tasks: Tasks,
    settings: Settings,
}

impl Protection {
    /// Guards nothing yet.
    pub fn new(parts: Deps) -> Self {
        let Deps { client, metrics, random, clock, events, driver, tasks, settings } = parts;
        let queue = |name| {
            let limiter = Limiter::per_item(settings.retry_start, settings.retry_max);
            Queue::new(limiter, metrics.workqueue.queue(name))
        };
        Self(Arc::new(Shared {
            writer: Writer::new(client.clone()),
            client,
            holders: Mutex::new(Holders::new(settings.peers)),
            exclusive: KeyedMutex::default(),
            snapshots: queue("snapshotprotection"),
            clones: queue("cloningprotection"),
            listed: watch::Sender::new(false),
            working: watch::Sender::new(false),
            metrics,
            random,
            clock,
            events,
            driver,
            tasks,
            settings,
        }))
    }

    /// Takes in what the watch of claims shows.
    pub fn observe(&self, event: &InformerEvent<Claim>) {
        let touched = self.0.holders.lock().observe(event);
        self.look_at(touched);
        if matches!(event, InformerEvent::InitDone) {
            self.0.listed.send_replace(true);
        }
    }

    /// Guards the source, of which the object `uid` was checked, for the claim: right before the
    /// driver is asked to make the claim's volume from it, each time. It is held from then on, until
    /// the claim is [`closed`](Self::closed). A snapshot that we have no right to write is used
    /// without, which is told once.
    ///
    /// # Errors
    /// The source is not guarded: no call may begin. A call that is open anyhow may go on where the
    /// source is gone or being deleted.
    pub async fn take(
        &self,
        claim_uid: &str,
        source: &NamedSource,
        uid: &str,
    ) -> Result<(), Unprotected> {
        // Before anything is read: from now on nobody frees it.
        let is_new = self.0.holders.lock().begin(claim_uid, source);
        let _held = self.0.exclusive.hold(&source.to_string()).await;
        if self.0.holders.lock().is_worn(source, uid) {
            return Ok(());
        }
        let worn = self.0.writer.put_on(source, uid).await;
        let mut holders = self.0.holders.lock();
        match worn {
            Ok(Some(worn)) => holders.worn(source, worn),
            Ok(None) => {}
            Err(error) => {
                if is_new {
                    holders.end(claim_uid);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// No call is open for the claim, which may be asked for again: [`take`](Self::take) comes before
    /// that. Until then it holds its source no more than a claim that merely names it.
    pub fn call_ended(&self, claim_uid: &str) {
        let touched = self.0.holders.lock().call_ended(claim_uid);
        self.look_at(touched.into_iter().collect());
    }

    /// The claim needs its source no longer. DependencyIndex for nothing: what follows is done by
    /// [`work`](Self::work).
    pub fn closed(&self, claim_uid: &str) {
        let touched = self.0.holders.lock().closed(claim_uid);
        self.look_at(touched);
    }

    fn look_at(&self, sources: BTreeSet<NamedSource>) {
        if !*self.0.working.borrow() {
            return;
        }
        for source in sources {
            match source.kind {
                SourceKind::Snapshot => self.0.snapshots.add(source),
                // A driver that does not clone frees no source of clones, as in the original.
                SourceKind::Claim if !self.0.settings.clones => {}
                SourceKind::Claim => self.0.clones.add(source),
            }
        }
    }

    /// Frees what nobody needs any more, until `ended`; then what is due still. To be called when
    /// this process leads.
    pub async fn work(&self, ended: CancellationToken) {
        // The sender lives as long as `self`.
        let mut listed = self.0.listed.subscribe();
        tokio::select! {
            biased;
            _ = listed.wait_for(|listed| *listed) => {}
            () = ended.cancelled() => return,
        }
        self.0.working.send_replace(true);
        // What was seen before has waited for this.
        let due = self.0.holders.lock().all_due();
        self.look_at(due);
        let freeing = futures::future::join(
            self.free_from(&self.0.snapshots, FREEING),
            self.free_from(&self.0.clones, self.0.settings.workers),
        );
        tokio::pin!(freeing);
        tokio::select! {
            biased;
            _ = &mut freeing => return,
            () = ended.cancelled() => {}
            _ = futures::future::join(self.sweep(), self.find_overdue_claims()) => {}
        }
        // What the last calls closed is freed still.
        futures::future::join(freeing, self.shut_down_when_empty()).await;
    }

    async fn shut_down_when_empty(&self) {
        while !(self.0.snapshots.is_empty() && self.0.clones.is_empty()) {
            sleep(GLANCE).await;
        }
        self.0.snapshots.shut_down();
        self.0.clones.shut_down();
    }

    async fn free_from(&self, queue: &Queue<NamedSource>, workers: usize) {
        let this = self.clone();
        let handler = move |source: NamedSource| {
            let this = this.clone();
            async move { this.free(&source).await }
        };
        let metrics = self.0.metrics.controller.clone();
        let on_panic = move |source: &NamedSource, panic: &str| {
            tracing::error!(%source, panic, "freeing a source panicked; this is a bug");
            metrics.panicked(Panicked::Sources);
        };
        let (queue, tasks) = (queue.clone(), self.0.tasks.clone());
        workqueue::work(queue, workers, tasks, "source of volumes", handler, on_panic).await;
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
