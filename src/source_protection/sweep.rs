//! The sweep: snapshots that kept our finalizer though nobody needs them, as after a crash.
//!
//! Owns looking for them now and then (`--snapshot-orphan-sweep-interval`): one paged list, no watch
//! and no cache. The same list shows the deleted snapshots whose time-out is over (`overdue`).
//!
//! Promises, as the original, that a snapshot is left alone that any pending claim of its namespace
//! names, whoever's. Promises beyond the original: a claim of another namespace counts only with a
//! grant; a claim which has its volume does not count; what was begun here counts, whatever has
//! become of its claim; claims which no watch has shown yet are seen; and a snapshot which cannot be
//! written keeps no other waiting. Says nothing where there are no snapshots to list.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::sleep;

use super::{
    Protection,
    holders::{NamedBy, Terminating},
    overdue::Seen,
    source::{NamedSource, SourceKind},
};
use crate::kube::{
    ApiError, Scope,
    objects::{View as _, VolumeSnapshot},
};

/// Snapshots that wear our finalizer.
#[derive(Debug, Default)]
struct Found {
    /// Those that nobody known needs, with their UIDs.
    orphans: BTreeMap<NamedSource, String>,
    /// Those that are deleted.
    terminating: BTreeMap<NamedSource, Terminating>,
}

impl Protection {
    /// Sweeps now and from then on at the interval, for ever.
    pub(super) async fn sweep(&self) {
        let settings = self.0.settings;
        let Some(interval) = settings.sweep_interval.filter(|_| settings.restores) else {
            return std::future::pending().await;
        };
        let (told, mut seen) = (AtomicBool::new(false), Seen::default());
        loop {
            if let Err(error) = self.sweep_once(&mut seen).await {
                tell(&error, &told);
            }
            sleep(jittered(interval, self.0.random.unit())).await;
        }
    }

    /// Frees whatever can be freed. Of several errors the first is told.
    pub(super) async fn sweep_once(&self, seen: &mut Seen) -> Result<(), ApiError> {
        let Found { orphans, terminating } = self.find().await?;
        self.find_overdue(SourceKind::Snapshot, seen, Some(&terminating));
        if orphans.is_empty() {
            return Ok(());
        }
        let mut named = self.named(&orphans.keys().cloned().collect()).await?;
        let mut freed = Ok(());
        for (source, uid) in &orphans {
            let named = NamedBy::of(named.remove(source).unwrap_or_default(), source);
            // One that can never be written must not keep those behind it.
            freed = freed.and(self.free_orphan(source, uid, named).await);
        }
        freed
    }

    async fn find(&self) -> Result<Found, ApiError> {
        let mut found = Found::default();
        let note = |snapshot: VolumeSnapshot| {
            if snapshot.has_finalizer(SourceKind::Snapshot.finalizer()) {
                self.note(&snapshot, &mut found);
            }
            ControlFlow::Continue(())
        };
        self.0.client.list(&Scope::all(), note).await?;
        Ok(found)
    }

    /// Takes in a snapshot that wears our finalizer.
    fn note(&self, snapshot: &VolumeSnapshot, found: &mut Found) {
        let source = named(snapshot);
        if let Some(terminating) = Terminating::of(snapshot, SourceKind::Snapshot) {
            found.terminating.insert(source.clone(), terminating);
        }
        if self.0.holders.lock().is_orphan(&source) {
            found.orphans.insert(source, snapshot.uid().to_owned());
        }
    }

    /// Frees the snapshot, which pending claims name so, unless they hold it.
    async fn free_orphan(
        &self,
        source: &NamedSource,
        uid: &str,
        named: NamedBy,
    ) -> Result<(), ApiError> {
        let _held = self.0.exclusive.hold(&source.to_string()).await;
        let is_orphan = || self.0.holders.lock().is_orphan(source);
        let is_held = match named {
            NamedBy::OwnNamespace => true,
            NamedBy::OtherNamespaces(from) => self.is_held_by_others(source, uid, &from).await?,
            NamedBy::Nobody => false,
        };
        if !is_held && is_orphan() && self.take_off(source, uid, is_orphan).await? {
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
