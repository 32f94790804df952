//! Finalizers that keep what volumes are made from while they are made.
//!
//! Knows nothing of any driver. Whoever is about to ask one for a volume of a snapshot or a claim
//! lets [`Protection::take`] put the finalizer on it right before; when the claim needs its source
//! no longer, [`Protection::closed`] is told. A snapshot gives its finalizer back at that moment,
//! if nobody else needs it (`holders`); a claim that was cloned keeps it until it is deleted and
//! nobody pending names it, as in the original (`clones`). What a crash has left on a snapshot is
//! found by the `sweep`. `source` says what a claim names, `writer` writes.
//!
//! Promises that no source is freed while a volume is being made of it, not even of a claim that is
//! deleted; that one actor at a time works on a source; and that nothing is written by a process
//! that does not lead. Leaves who may use which source, and what becomes of a claim, to others.

mod grants;
mod holders;
mod source;
mod sweep;
mod writer;

use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

pub use self::{
    grants::{Target, is_granted},
    source::{NamedSource, SourceKind},
    writer::Unprotected,
};
use self::{
    holders::{Due, Holders, Worn},
    writer::Writer,
};
use crate::{
    kube_api::{ApiError, Client, Scope, Sighting, views::Claim},
    metrics::Metrics,
    runtime::{Random, Tasks},
    workqueue::{self, Exclusive, Limiter, Queue, Verdict},
};

/// How many snapshots are freed at once.
const FREEING: usize = 4;

/// When a snapshot is looked at again that a claim keeps which no watch has shown yet.
const SOON: Duration = Duration::from_secs(10);

/// How often the end of the last work is looked for.
const GLANCE: Duration = Duration::from_millis(10);

/// How sources are guarded.
#[derive(Debug, Clone, Copy)]
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
}

/// What the guard stands on.
pub struct Parts {
    /// The lane for objects.
    pub client: Client,
    /// Counts.
    pub metrics: Metrics,
    /// Jitter.
    pub random: Arc<dyn Random>,
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
    exclusive: Exclusive,
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
    tasks: Tasks,
    settings: Settings,
}

impl Protection {
    /// Guards nothing yet.
    pub fn new(parts: Parts) -> Self {
        let Parts { client, metrics, random, tasks, settings } = parts;
        let queue = |name| {
            let limiter = Limiter::per_item(settings.retry_start, settings.retry_max);
            Queue::new(limiter, metrics.workqueue.queue(name))
        };
        Self(Arc::new(Shared {
            writer: Writer::new(client.clone()),
            client,
            holders: Mutex::new(Holders::new(settings.peers)),
            exclusive: Exclusive::default(),
            snapshots: queue("snapshotprotection"),
            clones: queue("cloningprotection"),
            listed: watch::Sender::new(false),
            working: watch::Sender::new(false),
            metrics,
            random,
            tasks,
            settings,
        }))
    }

    /// Takes in what the watch of claims shows.
    pub fn observe(&self, sighting: &Sighting<Claim>) {
        let touched = self.0.holders.lock().observe(sighting);
        self.look_at(touched);
        if matches!(sighting, Sighting::Complete) {
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
        self.begin(claim_uid, source, uid, Writer::put_on).await
    }

    /// The same of a source that may not deserve to be guarded: our finalizer stays where it is, and
    /// is not put where it is not.
    ///
    /// # Errors
    /// The API server does not say whether it is there.
    pub async fn hold(
        &self,
        claim_uid: &str,
        source: &NamedSource,
        uid: &str,
    ) -> Result<(), Unprotected> {
        self.begin(claim_uid, source, uid, Writer::find).await
    }

    async fn begin(
        &self,
        claim_uid: &str,
        source: &NamedSource,
        uid: &str,
        wear: impl AsyncFnOnce(&Writer, &NamedSource, &str) -> Result<Option<Worn>, Unprotected>,
    ) -> Result<(), Unprotected> {
        // Before anything is read: from now on nobody frees it.
        let is_new = self.0.holders.lock().begin(claim_uid, source);
        let _held = self.0.exclusive.hold(&source.to_string()).await;
        if self.0.holders.lock().is_worn(source, uid) {
            return Ok(());
        }
        let worn = wear(&self.0.writer, source, uid).await;
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

    /// The claim needs its source no longer. Waits for nothing: what follows is done by
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
            () = self.sweep() => {}
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
            metrics.panicked("sources");
        };
        let (queue, tasks) = (queue.clone(), self.0.tasks.clone());
        workqueue::work(queue, workers, tasks, "source of volumes", handler, on_panic).await;
    }

    /// Takes the source's finalizer off, if that is due.
    async fn free(&self, source: &NamedSource) -> Verdict {
        let _held = self.0.exclusive.hold(&source.to_string()).await;
        let due = || self.0.holders.lock().due(source);
        let still = || matches!(due(), Due::TakeOff(_) | Due::TakeOffUnlessNamed(_));
        let freed = match due() {
            Due::Nothing | Due::Keep => return Verdict::Done,
            Due::TakeOff(uid) => self.take_off(source, &uid, still).await,
            Due::TakeOffUnlessNamed(uid) => {
                match self.named(&BTreeSet::from([source.clone()])).await {
                    Ok(named) if !named.is_empty() => return Verdict::RetryAfter(SOON),
                    Ok(_) => self.take_off(source, &uid, still).await,
                    Err(error) => Err(error),
                }
            }
        };
        match freed {
            Ok(()) => Verdict::Done,
            Err(error) => {
                tracing::warn!(%source, %error, "cannot take our finalizer off");
                Verdict::Retry
            }
        }
    }

    /// Takes the finalizer off the object, while `still` allows. The caller holds the source's key.
    async fn take_off(
        &self,
        source: &NamedSource,
        uid: &str,
        still: impl Fn() -> bool,
    ) -> Result<(), ApiError> {
        // The write may be done and its answer lost: who begins before the next try looks anew.
        self.0.holders.lock().taking_off(source);
        self.0.writer.take_off(source, uid, still).await?;
        // Who began meanwhile waits for the key, and looks anew.
        self.0.holders.lock().taken_off(source);
        Ok(())
    }

    /// Which of the sources pending claims need, by what the API server says now.
    async fn named(
        &self,
        sources: &BTreeSet<NamedSource>,
    ) -> Result<BTreeSet<NamedSource>, ApiError> {
        let mut named = BTreeSet::new();
        let note = |claim: Claim| {
            let needed = self.0.holders.lock().needed_by(&claim);
            named.extend(needed.filter(|source| sources.contains(source)));
            ControlFlow::Continue(())
        };
        self.0.client.list(&Scope::all(), note).await?;
        Ok(named)
    }
}

#[cfg(test)]
mod tests;
