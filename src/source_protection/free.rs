//! Executes what is due for a source's finalizer.
//!
//! Performs the live reads that are needed first: of all claims, for those that the watch has not
//! delivered yet, and of the grants for claims of other namespaces. A read that fails frees
//! nothing, and the decision is checked again at the write. The decision belongs to `holders`.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    time::Duration,
};

use super::{
    Protection, grants,
    holders::{Due, NamedBy},
    source::{NamedSource, SourceKind},
    writer::Removal,
};
use crate::{
    kube::{
        ApiError, Scope,
        objects::{Claim, View as _},
    },
    workqueue::Action,
};

/// When a snapshot is checked again that a claim holds which the watch has not delivered yet.
const RECHECK: Duration = Duration::from_secs(10);

/// The namespaces of the pending claims that need each source.
pub(super) type Namespaces = BTreeMap<NamedSource, BTreeSet<String>>;

impl Protection {
    /// Removes the source's finalizer, if that is due.
    pub(super) async fn free(&self, source: &NamedSource) -> Action {
        let _lock = self.0.locks.hold(&source.to_string()).await;
        self.free_if_due(source).await.unwrap_or_else(|error| {
            tracing::warn!(%source, %error, "cannot take our finalizer off");
            Action::Retry
        })
    }

    async fn free_if_due(&self, source: &NamedSource) -> Result<Action, ApiError> {
        let due = self.0.holders.lock().due(source);
        match due {
            Due::Nothing | Due::Keep => Ok(Action::Done),
            Due::Remove(uid) => {
                self.remove_finalizer_if_due(source, &uid).await.map(|_| Action::Done)
            }
            // Anybody can set our finalizer on his own snapshots. A list of all claims for each of them
            // would be his to order: one for all is the sweep's.
            Due::RemoveUnlessNamed(_) if self.0.settings.sweep_interval.is_some() => {
                Ok(Action::Done)
            }
            Due::RemoveUnlessNamed(uid) => self.free_unless_named(source, &uid).await,
            Due::RemoveUnlessGranted(uid, from) => {
                self.free_unless_granted(source, &uid, &from).await
            }
            Due::Release(uid) => self.release(source, &uid).await,
        }
    }

    async fn free_unless_named(&self, source: &NamedSource, uid: &str) -> Result<Action, ApiError> {
        let mut named = self.read_references(&BTreeSet::from([source.clone()])).await?;
        match NamedBy::of(named.remove(source).unwrap_or_default(), source) {
            NamedBy::OwnNamespace => return Ok(Action::RequeueAfter(RECHECK)),
            NamedBy::OtherNamespaces(from)
                if self.is_held_by_others(source, uid, &from).await? =>
            {
                return Ok(Action::Retry);
            }
            NamedBy::OtherNamespaces(_) | NamedBy::Nobody => {}
        }
        self.remove_finalizer_if_due(source, uid).await.map(|_| Action::Done)
    }

    async fn free_unless_granted(
        &self,
        source: &NamedSource,
        uid: &str,
        from: &BTreeSet<String>,
    ) -> Result<Action, ApiError> {
        if self.is_held_by_others(source, uid, from).await? {
            // No event announces the end of a grant.
            return Ok(Action::Retry);
        }
        match source.kind {
            SourceKind::Claim => {
                self.remove_finalizer_if_due(source, uid).await.map(|_| Action::Done)
            }
            SourceKind::Snapshot => self.free_unless_named(source, uid).await,
        }
    }

    /// Whether claims of other namespaces, those of `from`, hold the object `uid`: a grant lets
    /// them use it, or it belongs to another driver.
    pub(super) async fn is_held_by_others(
        &self,
        source: &NamedSource,
        uid: &str,
        from: &BTreeSet<String>,
    ) -> Result<bool, ApiError> {
        Ok(self.is_granted(source, from).await? || self.is_of_another_driver(source, uid).await?)
    }

    /// Without the feature gate no claim is provisioned from another namespace.
    async fn is_granted(
        &self,
        source: &NamedSource,
        from: &BTreeSet<String>,
    ) -> Result<bool, ApiError> {
        if !self.0.settings.cross_namespace_sources {
            return Ok(false);
        }
        let is_from = |namespace: &str| from.contains(namespace);
        grants::is_granted(&self.0.client, is_from, &source.target()).await
    }

    /// Removes the finalizer from the object if that is still due. The caller holds the source's
    /// lock.
    pub(super) async fn remove_finalizer_if_due(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> Result<bool, ApiError> {
        self.remove_finalizer(source, uid, || self.0.holders.lock().due(source).is_action()).await
    }

    /// Removes the finalizer from the object if `still` returns true; returns whether it was
    /// removed. The caller holds the source's lock.
    pub(super) async fn remove_finalizer(
        &self,
        source: &NamedSource,
        uid: &str,
        still: impl Fn() -> bool,
    ) -> Result<bool, ApiError> {
        // The write may succeed and its response be lost: a call that begins before the next try
        // reads the source again.
        self.0.holders.lock().removing_finalizer(source);
        let removal = self.0.writer.remove_finalizer(source, uid, still).await?;
        // What keeps the finalizer now may end without a call: then it is due again.
        if removal != Removal::Kept {
            // A call that began meanwhile waits for the lock, and reads the source again.
            self.0.holders.lock().finalizer_removed(source);
        }
        Ok(removal == Removal::Removed)
    }

    /// Reads live which of the sources pending claims need, and the namespaces of these claims.
    pub(super) async fn read_references(
        &self,
        sources: &BTreeSet<NamedSource>,
    ) -> Result<Namespaces, ApiError> {
        let mut named = Namespaces::new();
        let visit = |claim: Claim| {
            let needed = self.0.holders.lock().needed_by(&claim);
            if let Some(source) = needed.filter(|source| sources.contains(source)) {
                named.entry(source).or_default().insert(claim.namespace().to_owned());
            }
            ControlFlow::Continue(())
        };
        self.0.client.list(&Scope::all(), visit).await?;
        Ok(named)
    }
}
