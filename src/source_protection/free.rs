//! Executes what is due for a source's finalizer.
//!
//! Performs the live reads that are needed first: of all claims, for those that the watch has not
//! delivered yet, and of the grants for claims of other namespaces. A read that fails frees
//! nothing, and the decision is checked again at the write. The decision belongs to `holders`.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Protection,
    holders::{Due, NamedBy},
    source::{NamedSource, SourceKind},
};
use crate::{
    kube::{
        ApiError, Edited, Scope,
        objects::{Claim, View as _},
    },
    workqueue::Action,
};

/// When a snapshot is checked again that a claim holds which the watch has not delivered yet.
const RECHECK: Duration = Duration::from_secs(10);

/// The least time between two lists of all claims for single snapshots.
const LIST_INTERVAL: Duration = Duration::from_secs(10);

/// What a list of all claims says of a source.
enum References {
    /// The namespaces of the claims that need it.
    In(BTreeSet<String>),
    /// The next list is due after this time.
    Later(Duration),
}

/// The lists of all claims for single snapshots.
#[derive(Debug, Default)]
pub(super) struct ReferenceLists {
    /// What the next list is for.
    wanted: BTreeSet<NamedSource>,
    /// When the next one may begin.
    next: Option<Instant>,
    /// What the last one found for others than its caller, and when it ended.
    results: Option<(Instant, Namespaces)>,
}

/// The namespaces of the pending claims that need each source.
pub(super) type Namespaces = BTreeMap<NamedSource, BTreeSet<String>>;

impl Protection {
    /// Removes the source's finalizer, if that is due.
    pub(super) async fn free(&self, source: &NamedSource) -> Action {
        let _lock = self.0.locks.lock(&source.to_string()).await;
        self.free_if_due(source).await.unwrap_or_else(|error| {
            tracing::warn!(%source, %error, "cannot take our finalizer off");
            Action::Retry
        })
    }

    async fn free_if_due(&self, source: &NamedSource) -> Result<Action, Arc<ApiError>> {
        let due = self.0.holders.lock().due(source);
        let Some(due) = due else { return Ok(Action::Done) };
        match due {
            Due::Remove(uid) => self.remove_if_due(source, &uid).await,
            Due::RemoveUnlessNamed(uid) => self.free_unless_named(source, &uid).await,
            Due::RemoveUnlessGranted(uid, from) => {
                self.free_unless_granted(source, &uid, &from).await
            }
        }
    }

    async fn free_unless_named(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> Result<Action, Arc<ApiError>> {
        let namespaces = match self.references_of(source).await? {
            References::In(namespaces) => namespaces,
            References::Later(wait) => return Ok(Action::RequeueAfter(wait)),
        };
        match NamedBy::of(namespaces, source) {
            NamedBy::OwnNamespace => return Ok(Action::RequeueAfter(RECHECK)),
            NamedBy::OtherNamespaces(from)
                if self.is_held_by_others(source, uid, &from).await? =>
            {
                return Ok(Action::Retry);
            }
            NamedBy::OtherNamespaces(_) | NamedBy::Nobody => {}
        }
        self.remove_if_due(source, uid).await
    }

    async fn free_unless_granted(
        &self,
        source: &NamedSource,
        uid: &str,
        from: &BTreeSet<String>,
    ) -> Result<Action, Arc<ApiError>> {
        if self.is_held_by_others(source, uid, from).await? {
            // No event announces the end of a grant.
            return Ok(Action::Retry);
        }
        match source.kind {
            SourceKind::Claim => self.remove_if_due(source, uid).await,
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
    ) -> Result<bool, Arc<ApiError>> {
        Ok(self.is_granted(source, from).await? || self.is_of_another_driver(source, uid).await?)
    }

    /// Without the feature gate no claim is provisioned from another namespace. All sources of a namespace
    /// that are asked for within a second share one list of its grants.
    async fn is_granted(
        &self,
        source: &NamedSource,
        from: &BTreeSet<String>,
    ) -> Result<bool, Arc<ApiError>> {
        if !self.0.deps.settings.cross_namespace_sources {
            return Ok(false);
        }
        let is_from = |namespace: &str| from.contains(namespace);
        let grants = self.0.grants.get(Some(&source.namespace), "").await?;
        Ok(grants.allow(is_from, &source.target()))
    }

    /// Removes the finalizer from the object if that is still due. The caller holds the source's
    /// lock.
    async fn remove_if_due(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> Result<Action, Arc<ApiError>> {
        let is_due = || self.0.holders.lock().due(source).is_some();
        self.remove_finalizer(source, uid, is_due).await?;
        Ok(Action::Done)
    }

    /// Removes the finalizer from the object if `still` returns true; returns whether it was
    /// removed. The caller holds the source's lock.
    pub(super) async fn remove_finalizer(
        &self,
        source: &NamedSource,
        uid: &str,
        still: impl Fn() -> bool,
    ) -> Result<bool, Arc<ApiError>> {
        // The write may succeed and its response be lost: a call that begins before the next try
        // reads the source again.
        self.0.holders.lock().removing_finalizer(source);
        let edited = self.0.writer.remove_finalizer(source, uid, still).await?;
        // What keeps the finalizer now may end without a call: then it is due again.
        if edited != Some(Edited::Unchanged(true)) {
            // A call that began meanwhile waits for the lock, and reads the source again.
            self.0.holders.lock().finalizer_removed(source);
        }
        Ok(matches!(edited, Some(Edited::Written(_))))
    }

    /// The namespaces of the pending claims that need the source, by a list of all claims. Anybody can set
    /// our finalizer on snapshots of his own, and so order such a list: one serves all that wait for one,
    /// and the next comes [`LIST_INTERVAL`] later.
    async fn references_of(&self, source: &NamedSource) -> Result<References, ApiError> {
        let wanted = {
            let mut lists = self.0.reference_lists.lock();
            let now = Instant::now();
            // Who waited comes back soon: what is left is of those who asked again while the list ran.
            lists.results.take_if(|(ended, _)| now > *ended + 2 * LIST_INTERVAL);
            let found = lists.results.as_mut().and_then(|(_, results)| results.remove(source));
            if let Some(namespaces) = found {
                return Ok(References::In(namespaces));
            }
            lists.wanted.insert(source.clone());
            if let Some(next) = lists.next.filter(|next| now < *next) {
                return Ok(References::Later(next - now));
            }
            lists.next = Some(now + LIST_INTERVAL);
            std::mem::take(&mut lists.wanted)
        };
        let mut named = self.read_references(&wanted).await?;
        let own = named.remove(source).unwrap_or_default();
        let others = wanted.into_iter().filter(|other| other != source);
        let of_others = others.map(|it| (it.clone(), named.remove(&it).unwrap_or_default()));
        self.0.reference_lists.lock().results = Some((Instant::now(), of_others.collect()));
        Ok(References::In(own))
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
        self.0.deps.client.list(&Scope::all(), visit).await?;
        Ok(named)
    }
}
