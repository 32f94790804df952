//! Executes what is due for a source's finalizer.
//!
//! Performs the live reads that are needed first: of the grants for claims of other namespaces, and of the driver
//! that the source belongs to. A read that fails frees nothing, and the decision is checked again at the write.
//! The decision belongs to `holders`.

use std::{collections::BTreeSet, sync::Arc};

use super::{Protection, holders::Due, source::NamedSource};
use crate::{
    kube::{ApiError, Edited},
    workqueue::{Action, Worker},
};

impl Worker<NamedSource> for Protection {
    /// Removes the source's finalizer, if that is due.
    async fn sync(&self, source: &NamedSource) -> Action {
        let _lock = self.0.locks.lock(&source.to_string()).await;
        self.free_if_due(source).await.unwrap_or_else(|error| {
            tracing::warn!(%source, %error, "cannot take our finalizer off");
            Action::Retry
        })
    }
}

impl Protection {
    async fn free_if_due(&self, source: &NamedSource) -> Result<Action, Arc<ApiError>> {
        let due = self.0.holders.lock().due(source);
        match due {
            None => Ok(Action::Done),
            Some(Due::Remove(uid)) => self.remove_if_due(source, &uid).await,
            Some(Due::RemoveUnlessHeld(uid, from)) => {
                self.free_unless_held(source, &uid, &from).await
            }
        }
    }

    async fn free_unless_held(
        &self,
        source: &NamedSource,
        uid: &str,
        from: &BTreeSet<String>,
    ) -> Result<Action, Arc<ApiError>> {
        if self.is_granted(source, from).await? {
            // No event announces the end of a grant.
            return Ok(Action::Retry);
        }
        if self.is_of_another_driver(source, uid).await? {
            // If its provisioner does not free it, it is looked at again by the sweep or after the time-out.
            self.0.holders.lock().finalizer_removed(source);
            return Ok(Action::Done);
        }
        self.remove_if_due(source, uid).await
    }

    /// Without the feature gate no claim is provisioned from another namespace. All sources of a namespace
    /// that are asked for within a second share one list of its grants.
    async fn is_granted(
        &self,
        source: &NamedSource,
        from: &BTreeSet<String>,
    ) -> Result<bool, Arc<ApiError>> {
        if from.is_empty() || !self.0.deps.settings.cross_namespace_sources {
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
}
