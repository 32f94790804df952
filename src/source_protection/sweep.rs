//! The sweep: snapshots that have our finalizer although nobody needs them, for example after a
//! crash.
//!
//! Lists snapshots periodically (`--snapshot-orphan-sweep-interval`): one paged list, no watch and
//! no cache. The same list shows the deleted snapshots whose time-out is over (`overdue`).
//!
//! As in external-provisioner, a snapshot is skipped if any pending claim of its namespace names
//! it, for whichever driver. Beyond external-provisioner: a claim of another namespace counts only
//! with a grant; a claim which has its volume does not count; calls that were begun here count,
//! whatever has become of their claims; claims which the watch has not delivered yet are read; and
//! a snapshot which cannot be written does not block others. Logs nothing if there are no snapshots
//! to list.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{
    Protection,
    holders::{NamedBy, Terminating},
    overdue::Observed,
    source::{NamedSource, SourceKind},
};
use crate::kube::{
    ApiError, Scope,
    objects::{View as _, VolumeSnapshot},
};

/// Snapshots that have our finalizer.
#[derive(Debug, Default)]
struct Candidates {
    /// Those that no known claim or call needs, with their UIDs.
    orphans: BTreeMap<NamedSource, String>,
    /// Those that are terminating.
    terminating: BTreeMap<NamedSource, Terminating>,
}

impl Protection {
    /// Sweeps now and then periodically, for ever.
    pub(super) async fn sweep(&self) {
        let settings = self.0.deps.settings;
        let Some(interval) = settings.sweep_interval.filter(|_| settings.restores) else {
            return std::future::pending().await;
        };
        let mut logged = false;
        let mut observed = Observed::default();
        loop {
            if let Err(error) = self.sweep_once(&mut observed).await {
                log_list_error(&error, &mut logged);
            }
            sleep(jittered(interval, self.0.deps.random.unit())).await;
        }
    }

    /// Frees whatever can be freed; returns the first of several errors.
    pub(super) async fn sweep_once(&self, observed: &mut Observed) -> Result<(), Arc<ApiError>> {
        let Candidates { orphans, terminating } = self.list_candidates().await?;
        self.release_overdue(&terminating, observed).await;
        if orphans.is_empty() {
            return Ok(());
        }
        let mut named = self.read_references(&orphans.keys().cloned().collect()).await?;
        let mut freed = Ok(());
        for (source, uid) in &orphans {
            let named = NamedBy::of(named.remove(source).unwrap_or_default(), source);
            // A snapshot that cannot be written must not block those after it.
            freed = freed.and(self.free_orphan(source, uid, named).await);
        }
        freed
    }

    async fn list_candidates(&self) -> Result<Candidates, ApiError> {
        let mut candidates = Candidates::default();
        let visit = |snapshot: VolumeSnapshot| {
            if snapshot.has_finalizer(SourceKind::Snapshot.finalizer()) {
                self.add_candidate(&snapshot, &mut candidates);
            }
            ControlFlow::Continue(())
        };
        self.0.deps.client.list(&Scope::all(), visit).await?;
        Ok(candidates)
    }

    /// Adds a snapshot that has our finalizer.
    fn add_candidate(&self, snapshot: &VolumeSnapshot, candidates: &mut Candidates) {
        let source = NamedSource::itself(SourceKind::Snapshot, snapshot);
        if let Some(terminating) = Terminating::of(snapshot, SourceKind::Snapshot) {
            candidates.terminating.insert(source.clone(), terminating);
        }
        if self.0.holders.lock().is_orphan(&source) {
            candidates.orphans.insert(source, snapshot.uid().to_owned());
        }
    }

    /// Frees the snapshot, unless the pending claims that name it hold it.
    async fn free_orphan(
        &self,
        source: &NamedSource,
        uid: &str,
        named: NamedBy,
    ) -> Result<(), Arc<ApiError>> {
        let _lock = self.0.locks.lock(&source.to_string()).await;
        let is_orphan = || self.0.holders.lock().is_orphan(source);
        let is_held = match named {
            NamedBy::OwnNamespace => true,
            NamedBy::OtherNamespaces(from) => self.is_held_by_others(source, uid, &from).await?,
            NamedBy::Nobody => false,
        };
        if !is_held && is_orphan() && self.remove_finalizer(source, uid, is_orphan).await? {
            tracing::info!(%source, "a snapshot that nobody needs had kept our finalizer");
        }
        Ok(())
    }
}

/// external-provisioner's interval with jitter, so that the sidecars of a cluster do not sweep at
/// the same time.
fn jittered(interval: Duration, unit: f64) -> Duration {
    interval.mul_f64(0.9 + 0.2 * unit)
}

/// Logs a failed list. A cluster without the kind has nothing to sweep; a missing permission is
/// logged once.
fn log_list_error(error: &ApiError, logged: &mut bool) {
    if error.is_not_found() {
        return;
    }
    if !error.is_forbidden() {
        tracing::warn!(%error, "cannot look for snapshots that kept our finalizer; tried again");
    } else if !std::mem::replace(logged, true) {
        tracing::info!(
            %error,
            "What a crash leaves of our finalizers on snapshots stays: grant \"list\" on volumesnapshots.snapshot.storage.k8s.io; logged once"
        );
    }
}

#[cfg(test)]
mod tests;
