//! The sweep: snapshots that kept our finalizer though nobody needs them, as after a crash.
//!
//! Owns looking for them now and then (`--snapshot-orphan-sweep-interval`): one paged list, no watch
//! and no cache. Promises, as the original, that a snapshot is left alone that any pending claim
//! names, whoever's; beyond the original, that a claim which has its volume does not count, that
//! what was begun here does whatever has become of its claim, that claims which no watch has shown
//! yet are seen, and that a snapshot which cannot be written keeps no other waiting. Says nothing
//! where there are no snapshots to list.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::sleep;

use super::{
    Protection,
    source::{NamedSource, SourceKind},
};
use crate::kube_api::{
    ApiError, Scope,
    views::{View as _, VolumeSnapshot},
};

/// Snapshots that wear our finalizer, with their UIDs.
type Found = BTreeMap<NamedSource, String>;

impl Protection {
    /// Sweeps now and from then on at the interval, for ever.
    pub(super) async fn sweep(&self) {
        let settings = self.0.settings;
        let Some(interval) = settings.sweep_interval.filter(|_| settings.restores) else {
            return std::future::pending().await;
        };
        let told = AtomicBool::new(false);
        loop {
            if let Err(error) = self.sweep_once().await {
                tell(&error, &told);
            }
            sleep(jittered(interval, self.0.random.unit())).await;
        }
    }

    /// Frees whatever can be freed. Of several errors the first is told.
    pub(super) async fn sweep_once(&self) -> Result<(), ApiError> {
        let orphans = self.orphans().await?;
        if orphans.is_empty() {
            return Ok(());
        }
        let named = self.named(&orphans.keys().cloned().collect()).await?;
        let mut freed = Ok(());
        for (source, uid) in orphans.iter().filter(|(source, _)| !named.contains(source)) {
            // One that can never be written must not keep those behind it.
            freed = freed.and(self.free_orphan(source, uid).await);
        }
        freed
    }

    /// The snapshots that nobody known needs.
    async fn orphans(&self) -> Result<Found, ApiError> {
        let mut orphans = Found::new();
        let note = |snapshot: VolumeSnapshot| {
            if snapshot.has_finalizer(SourceKind::Snapshot.finalizer()) {
                let source = named(&snapshot);
                if self.0.holders.lock().is_orphan(&source) {
                    orphans.insert(source, snapshot.uid().to_owned());
                }
            }
            ControlFlow::Continue(())
        };
        self.0.client.list(&Scope::all(), note).await?;
        Ok(orphans)
    }

    async fn free_orphan(&self, source: &NamedSource, uid: &str) -> Result<(), ApiError> {
        let _held = self.0.exclusive.hold(&source.to_string()).await;
        let is_orphan = || self.0.holders.lock().is_orphan(source);
        if is_orphan() {
            self.take_off(source, uid, is_orphan).await?;
            tracing::info!(%source, "a snapshot that nobody needs had kept our finalizer");
        }
        Ok(())
    }
}

/// The snapshot as claims name it.
fn named(snapshot: &VolumeSnapshot) -> NamedSource {
    let (namespace, name) = (snapshot.namespace().to_owned(), snapshot.name().to_owned());
    NamedSource { kind: SourceKind::Snapshot, namespace, name }
}

/// The original's interval, but not at the same time in all sidecars of a cluster.
fn jittered(interval: Duration, unit: f64) -> Duration {
    interval.mul_f64(0.9 + 0.2 * unit)
}

/// A cluster without the kind has nothing to sweep; what is forbidden is told once.
fn tell(error: &ApiError, told: &AtomicBool) {
    if error.is_not_found() {
        return;
    }
    if !error.is_forbidden() {
        tracing::warn!(%error, "cannot look for snapshots that kept our finalizer; tried again");
    } else if !told.swap(true, Ordering::Relaxed) {
        tracing::info!(
            %error,
            "What a crash leaves of our finalizers on snapshots stays: grant \"list\" on volumesnapshots.snapshot.storage.k8s.io; told once"
        );
    }
}

#[cfg(test)]
mod tests;
