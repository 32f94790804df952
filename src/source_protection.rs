//! Finalizers that keep the sources of volumes while volumes are created from them.
//!
//! Right before the driver is asked to create a volume from a snapshot or a claim,
//! [`Protection::protect`] adds the finalizer to the source, again if somebody else has taken it off;
//! when the claim needs its source no longer, [`Protection::claim_finished`] is called. The
//! finalizer of a snapshot is removed at that moment, if nobody else needs it (`holders`). The
//! finalizer of a cloned claim stays until that is deleted and no pending claim names it, as in
//! external-provisioner. `sweep` finds finalizers that a crash has left on snapshots. `source`
//! determines what a claim names, `free` executes what is due, `writer` writes.
//!
//! A pending claim that merely names a source holds it, with two limits:
//! - A claim of another namespace holds it only while a ReferenceGrant lets that claim use it
//!   (`grants`), and never without the feature gate.
//! - Once the source has been Terminating for `--claim-protection-timeout`, no claim holds it
//!   because of its name (`overdue`). This is reported.
//!
//! Both limits apply only to sources that no other driver made (`owner`): that driver's provisioner
//! shares the finalizer, and only it knows its calls. One of another driver goes once nobody names it
//! and the time-out is over.
//!
//! Guarantees: no source is freed while a call of this process is open for it, whatever has become
//! of the claim, the grant or the time-out, unless that call was not repeated for the time-out; one
//! actor at a time works on a source; a process that does not lead writes nothing.

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
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub(crate) use self::overdue::is_overdue;
pub use self::{
    grants::{GrantTarget, Grants},
    source::{NamedSource, SNAPSHOT_GROUP, SourceKind},
    writer::Unprotected,
};
use self::{holders::Holders, writer::Writer};
use crate::{
    kube::{
        Client, CoalescedReads, FirstList, InformerEvent, events::ComponentRecorder, objects::Claim,
    },
    metrics::Metrics,
    runtime::{Backoff, Clock, Random, Tasks},
    workqueue,
    workqueue::{KeyedMutex, Queue},
};

/// How many snapshots are freed concurrently.
const SNAPSHOT_WORKERS: usize = 4;

/// The interval at which shutdown checks whether the queues are empty.
const DRAIN_POLL: Duration = Duration::from_millis(10);

/// Configuration of source protection.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // each is a setting of its own
pub struct ProtectionSettings {
    /// Whether the driver restores snapshots; otherwise none is swept.
    pub restores: bool,
    /// Whether the driver clones; otherwise no source of clones is freed.
    pub clones: bool,
    /// `--cloning-protection-threads`: how many sources of clones are freed concurrently.
    pub workers: usize,
    /// `--snapshot-orphan-sweep-interval`; `None`: no sweep.
    pub sweep_interval: Option<Duration>,
    /// `--retry-interval-start` and `--retry-interval-max`.
    pub retry: Backoff,
    /// Whether other processes create volumes from the same sources concurrently
    /// (`--node-deployment`).
    pub peers: bool,
    /// Whether claims may name sources of other namespaces (`CrossNamespaceVolumeDataSource`).
    pub cross_namespace_sources: bool,
    /// `--claim-protection-timeout`: how long claims that merely name a deleted source hold it;
    /// `None`: for ever.
    pub timeout: Option<Duration>,
}

/// Dependencies of source protection.
pub struct ProtectionDeps {
    /// The lane for objects.
    pub client: Client,
    /// Metrics.
    pub metrics: Metrics,
    /// Jitter.
    pub random: Arc<dyn Random>,
    /// Measures for how long a deleted source was kept.
    pub clock: Arc<dyn Clock>,
    /// Emits events about sources.
    pub events: ComponentRecorder,
    /// The name of the driver whose calls are protected.
    pub driver: String,
    /// Runs the tasks.
    pub tasks: Tasks,
    /// Configuration.
    pub settings: ProtectionSettings,
}

/// Protects sources. Clones share the state.
#[derive(Clone)]
pub struct Protection(Arc<Shared>);

struct Shared {
    deps: ProtectionDeps,
    /// The grants of a namespace, for all its sources that are freed within a second.
    grants: CoalescedReads<Grants>,
    writer: Writer,
    holders: Mutex<Holders>,
    /// One actor at a time for each source.
    locks: KeyedMutex,
    /// Snapshots that may be due to be freed.
    snapshots: Queue<NamedSource>,
    /// Deleted sources of clones that may be due to be freed.
    clones: Queue<NamedSource>,
    /// Whether all claims have been listed once.
    listed: FirstList,
}

impl Protection {
    /// Creates it; nothing is protected yet.
    pub fn new(deps: ProtectionDeps) -> Self {
        let ProtectionDeps { client, metrics, tasks, settings, .. } = &deps;
        let queue = |name| Queue::new(name, settings.retry, metrics);
        Self(Arc::new(Shared {
            writer: Writer::new(client.clone()),
            grants: CoalescedReads::new(client.clone(), tasks.clone()).for_a_second(),
            holders: Mutex::new(Holders::new(settings.peers)),
            locks: KeyedMutex::default(),
            snapshots: queue("snapshotprotection"),
            clones: queue("cloningprotection"),
            listed: FirstList::default(),
            deps,
        }))
    }

    /// The UID of the source that the claim names, if the claim is known to have been created after the deletion of
    /// that.
    pub fn late_for(&self, uid: &str) -> Option<String> {
        self.0.holders.lock().late_for(uid)
    }

    /// Handles an event of the watch of claims.
    pub fn on_event(&self, event: &InformerEvent<Claim>) {
        let affected = self.0.holders.lock().on_event(event);
        self.enqueue(affected);
        if matches!(event, InformerEvent::InitDone(_)) {
            self.0.listed.complete();
        }
    }

    /// Protects the source for the claim. Call it each time right before the driver is asked to
    /// create the claim's volume; `uid` is that of the source object that was checked. The claim
    /// holds the source until [`claim_finished`](Self::claim_finished). A snapshot that we are not
    /// permitted to write is used without protection, which is logged once.
    ///
    /// # Errors
    /// The source is not protected, and no call may begin. An open call may continue if the source
    /// is gone or being deleted.
    pub async fn protect(
        &self,
        claim_uid: &str,
        source: &NamedSource,
        uid: &str,
    ) -> Result<(), Unprotected> {
        // Before anything is read: from now on the source is not freed.
        let is_new = self.0.holders.lock().begin_call(claim_uid, source);
        let _lock = self.0.locks.lock(&source.to_string()).await;
        if self.0.holders.lock().is_finalized(source, uid) {
            return Ok(());
        }
        let finalized = self.0.writer.add_finalizer(source, uid).await;
        let mut holders = self.0.holders.lock();
        match finalized {
            Ok(Some(origin)) => {
                holders.record_finalizer(source, uid, origin);
                if holders.due(source).is_some() {
                    drop(holders);
                    self.enqueue([source.clone()].into());
                }
            }
            Ok(None) => {}
            Err(error) => {
                if is_new {
                    holders.drop_call(claim_uid);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// No call is open for the claim, or none that is repeated; it may be tried again, with [`protect`](Self::protect)
    /// before it. Until then it holds its source only as a claim that names it.
    pub fn call_ended(&self, claim_uid: &str) {
        let affected = self.0.holders.lock().call_ended(claim_uid);
        self.enqueue(affected.into_iter().collect());
    }

    /// This process needs the claim's source no longer; if `is_served`, as the claim has its volume. Returns at once;
    /// [`work`](Self::work) frees the source.
    pub fn claim_finished(&self, claim_uid: &str, is_served: bool) {
        let affected = self.0.holders.lock().claim_finished(claim_uid, is_served);
        self.enqueue(affected);
    }

    fn enqueue(&self, sources: BTreeSet<NamedSource>) {
        for source in sources {
            match source.kind {
                SourceKind::Snapshot => self.0.snapshots.add(source),
                // A driver that does not clone frees no source of clones, as in
                // external-provisioner.
                SourceKind::Claim if !self.0.deps.settings.clones => {}
                SourceKind::Claim => self.0.clones.add(source),
            }
        }
    }

    /// Frees unneeded sources until `ended`, then what is still due. Call it when this process
    /// leads. Nothing is freed while the claims are listed: another one may still need a source.
    pub async fn work(&self, ended: CancellationToken) {
        tokio::select! {
            biased;
            () = self.0.listed.whole() => {}
            () = ended.cancelled() => return,
        }
        let freeing = futures::future::join(
            self.free_from(&self.0.snapshots, SNAPSHOT_WORKERS),
            self.free_from(&self.0.clones, self.0.deps.settings.workers),
        );
        tokio::pin!(freeing);
        tokio::select! {
            biased;
            _ = &mut freeing => return,
            () = ended.cancelled() => {}
            _ = futures::future::join(self.sweep(), self.release_overdue_claims()) => {}
        }
        // The last calls may still have enqueued sources.
        futures::future::join(freeing, self.shut_down_when_empty()).await;
    }

    async fn shut_down_when_empty(&self) {
        while !(self.0.snapshots.is_empty() && self.0.clones.is_empty()) {
            sleep(DRAIN_POLL).await;
        }
        self.0.snapshots.shut_down();
        self.0.clones.shut_down();
    }

    async fn free_from(&self, queue: &Queue<NamedSource>, workers: usize) {
        workqueue::work(queue, workers, &self.0.deps.tasks, self.clone()).await;
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
