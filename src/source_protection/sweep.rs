//! The sweep: snapshots that have our finalizer although nobody needs them, for example after a
//! crash.
//!
//! Lists snapshots periodically (`--snapshot-orphan-sweep-interval`): one paged list, no watch and
//! no cache. What it finds is freed as after a call. The same list shows the deleted snapshots whose
//! time-out is over (`overdue`).
//!
//! As in external-provisioner, a snapshot is skipped if any pending claim of its namespace names
//! it, for whichever driver. Beyond external-provisioner: a claim of another namespace counts only
//! with a grant; a claim which has its volume does not count; calls that were begun here count,
//! whatever has become of their claims; and another driver's snapshot is left to that driver's
//! provisioner. Logs nothing if there are no snapshots to list.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use tokio::time::sleep;

use super::{
    Protection,
    holders::Terminating,
    overdue::Observed,
    source::{NamedSource, SourceKind},
};
use crate::kube::{
    ApiError, Scope,
    objects::{View as _, VolumeSnapshot},
};

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

    /// Enqueues the snapshots that may be freed, and releases those whose time-out is over.
    async fn sweep_once(&self, observed: &mut Observed) -> Result<(), ApiError> {
        let mut deleted = BTreeMap::new();
        let visit = |snapshot: VolumeSnapshot| {
            if snapshot.has_finalizer(SourceKind::Snapshot.finalizer()) {
                let source = NamedSource::itself(SourceKind::Snapshot, &snapshot);
                if self.0.holders.lock().finalizer_found(&source, snapshot.uid()) {
                    self.enqueue([source.clone()].into());
                }
                let terminating = Terminating::of(&snapshot, SourceKind::Snapshot);
                deleted.extend(terminating.map(|it| (source, it)));
            }
            ControlFlow::Continue(())
        };
        self.0.deps.client.list(&Scope::all(), visit).await?;
        self.release_overdue(&deleted, observed).await;
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
