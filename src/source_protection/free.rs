//! Carrying out what is due for a source's finalizer.
//!
//! Owns the reads that must come first: of all claims, for those that no watch has shown yet, and
//! of the grants that claims of other namespaces need. Promises that a read that fails frees
//! nothing, and that the decision still holds at the moment of the write. Leaves the decision to
//! `holders`.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    time::Duration,
};

use super::{
    Protection, grants,
    holders::{Due, NamedBy},
    source::{NamedSource, SourceKind},
};
use crate::{
    kube::{
        ApiError, Scope,
        objects::{Claim, View as _},
    },
    workqueue::Action,
};

/// When a snapshot is looked at again that a claim keeps which no watch has shown yet.
const SOON: Duration = Duration::from_secs(10);

/// The namespaces of the pending claims that need each source.
pub(super) type Namespaces = BTreeMap<NamedSource, BTreeSet<String>>;

impl Protection {
    /// Takes the source's finalizer off, if that is due.
    pub(super) async fn free(&self, source: &NamedSource) -> Action {
        let _held = self.0.exclusive.hold(&source.to_string()).await;
        self.free_if_due(source).await.unwrap_or_else(|error| {
            tracing::warn!(%source, %error, "cannot take our finalizer off");
            Action::Retry
        })
    }

    async fn free_if_due(&self, source: &NamedSource) -> Result<Action, ApiError> {
        let due = self.0.holders.lock().due(source);
        match due {
            Due::Nothing | Due::Keep => Ok(Action::Done),
            Due::TakeOff(uid) => self.take_off_if_due(source, &uid).await.map(|_| Action::Done),
            Due::TakeOffUnlessNamed(uid) => self.free_unless_named(source, &uid).await,
            Due::TakeOffUnlessGranted(uid, from) => {
                self.free_unless_granted(source, &uid, &from).await
            }
            Due::Release(uid) => self.release(source, &uid).await,
        }
    }

    async fn free_unless_named(&self, source: &NamedSource, uid: &str) -> Result<Action, ApiError> {
        let mut named = self.named(&BTreeSet::from([source.clone()])).await?;
        match NamedBy::of(named.remove(source).unwrap_or_default(), source) {
            NamedBy::OwnNamespace => return Ok(Action::RequeueAfter(SOON)),
            NamedBy::OtherNamespaces(from)
                if self.is_held_by_others(source, uid, &from).await? =>
            {
                return Ok(Action::Retry);
            }
            NamedBy::OtherNamespaces(_) | NamedBy::Nobody => {}
        }
        self.take_off_if_due(source, uid).await.map(|_| Action::Done)
    }

    async fn free_unless_granted(
        &self,
        source: &NamedSource,
        uid: &str,
        from: &BTreeSet<String>,
    ) -> Result<Action, ApiError> {
        if self.is_held_by_others(source, uid, from).await? {
            // No watch shows when that ends.
            return Ok(Action::Retry);
        }
        match source.kind {
            SourceKind::Claim => self.take_off_if_due(source, uid).await.map(|_| Action::Done),
            SourceKind::Snapshot => self.free_unless_named(source, uid).await,
        }
    }

    /// Whether claims of other namespaces, those of `from`, hold the object `uid`: a grant lets them
    /// use it, or another driver made it.
    pub(super) async fn is_held_by_others(
        &self,
        source: &NamedSource,
        uid: &str,
        from: &BTreeSet<String>,
    ) -> Result<bool, ApiError> {
        Ok(self.is_granted(source, from).await? || self.is_of_another_driver(source, uid).await?)
    }

    /// Without the feature gate no claim is ever served from another namespace.
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

    /// Takes the finalizer off the object, while that is due. The caller holds the source's key.
    pub(super) async fn take_off_if_due(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> Result<bool, ApiError> {
        self.take_off(source, uid, || self.0.holders.lock().due(source).is_action()).await
    }

    /// Takes the finalizer off the object, while `still` allows; whether it was there and came off.
    /// The caller holds the source's key.
    pub(super) async fn take_off(
        &self,
        source: &NamedSource,
        uid: &str,
        still: impl Fn() -> bool,
    ) -> Result<bool, ApiError> {
        // The write may be done and its answer lost: who begins before the next try looks anew.
        self.0.holders.lock().taking_off(source);
        let written = self.0.writer.take_off(source, uid, still).await?;
        // Who began meanwhile waits for the key, and looks anew.
        self.0.holders.lock().taken_off(source);
        Ok(written)
    }

    /// Which of the sources pending claims need, by what the API server says now.
    pub(super) async fn named(
        &self,
        sources: &BTreeSet<NamedSource>,
    ) -> Result<Namespaces, ApiError> {
        let mut named = Namespaces::new();
        let note = |claim: Claim| {
            let needed = self.0.holders.lock().needed_by(&claim);
            if let Some(source) = needed.filter(|source| sources.contains(source)) {
                named.entry(source).or_default().insert(claim.namespace().to_owned());
            }
            ControlFlow::Continue(())
        };
        self.0.client.list(&Scope::all(), note).await?;
        Ok(named)
    }
}
