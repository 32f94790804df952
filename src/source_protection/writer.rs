//! Writes the finalizers of sources.
//!
//! Adds and removes finalizers, only on the object with the expected UID. Claims are written by
//! `update`, the only verb that roles grant; snapshots by `patch`, or by `update` if only that is
//! granted. If neither is granted, that is logged once and provisioning continues.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::{
    holders::FinalizerOrigin,
    source::{NamedSource, SourceKind},
};
use crate::kube::{
    ApiError, Client, Edit, Edited, Name, WriteBy,
    client::finalizers,
    objects::{Claim, View as _, VolumeSnapshot},
};

/// Writes finalizers.
pub(super) struct Writer {
    client: Client,
    /// Whether snapshots are updated, because patching was forbidden.
    prefers_update: AtomicBool,
    /// Whether it was logged that snapshots can't be written.
    warned: AtomicBool,
}

/// Why a source does not have our finalizer.
#[derive(Debug, thiserror::Error)]
pub enum Unprotected {
    /// It is gone, or replaced by another object of its name.
    #[error("{0} is gone")]
    Gone(NamedSource),
    /// It is being deleted, so that no finalizer can be added.
    #[error("{0} is being deleted")]
    Terminating(NamedSource),
    /// The API server refused the write.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

impl Writer {
    /// Writes by `client`.
    pub(super) fn new(client: Client) -> Self {
        Self { client, prefers_update: AtomicBool::new(false), warned: AtomicBool::new(false) }
    }

    /// Adds the finalizer to the object `uid`, unless it has it. Returns `None` if the source is
    /// not protected because of missing permissions.
    ///
    /// # Errors
    /// It is not protected, and may not be used unprotected.
    pub(super) async fn add_finalizer(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> Result<Option<FinalizerOrigin>, Unprotected> {
        let finalizer = source.kind.finalizer();
        let add = |object: &mut Value| {
            let terminating =
                object.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string);
            if terminating { Edit::Nothing } else { finalizers::add(object, finalizer) }
        };
        let origin = match self.edit(source, uid, add).await {
            Ok(Edited::Written(_)) => FinalizerOrigin::Added,
            Ok(Edited::Unchanged(true)) => FinalizerOrigin::Existing,
            Ok(Edited::Unchanged(false)) => {
                return Err(Unprotected::Terminating(source.clone()));
            }
            Ok(Edited::Gone) => return Err(Unprotected::Gone(source.clone())),
            Err(error) if self.is_missing_permission(source, &error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(origin))
    }

    /// Removes the finalizer from the object `uid`, if it exists and has it and `still` returns
    /// true. The result says whether it has it now; `None` if we are not permitted to write it. Once we are,
    /// the sweep removes it.
    ///
    /// # Errors
    /// It may still have it.
    pub(super) async fn remove_finalizer(
        &self,
        source: &NamedSource,
        uid: &str,
        still: impl Fn() -> bool,
    ) -> Result<Option<Edited<bool>>, ApiError> {
        let finalizer = source.kind.finalizer();
        let remove = |object: &mut Value| {
            if still() { finalizers::remove(object, finalizer) } else { Edit::Nothing }
        };
        match self.edit(source, uid, remove).await {
            Ok(edited) => {
                tracing::debug!(%source, result = ?edited, "removal of the finalizer");
                Ok(Some(edited))
            }
            Err(error) if self.is_missing_permission(source, &error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Edits the object `uid`; the result says whether it has the finalizer.
    async fn edit(
        &self,
        source: &NamedSource,
        uid: &str,
        edit: impl Fn(&mut Value) -> Edit,
    ) -> Result<Edited<bool>, ApiError> {
        let name = Name::namespaced(&source.namespace, &source.name)?;
        let finalizer = source.kind.finalizer();
        Ok(match source.kind {
            SourceKind::Claim => {
                let edited = self.client.edit::<Claim>(name, uid, edit).await?;
                edited.map(|claim| claim.has_finalizer(finalizer))
            }
            SourceKind::Snapshot => {
                let edited = self.edit_snapshot(name, uid, edit).await?;
                edited.map(|snapshot| snapshot.has_finalizer(finalizer))
            }
        })
    }

    /// Edits with the verb that worked last; if that is forbidden, with the other.
    async fn edit_snapshot(
        &self,
        name: Name<'_>,
        uid: &str,
        edit: impl Fn(&mut Value) -> Edit,
    ) -> Result<Edited<VolumeSnapshot>, ApiError> {
        let prefers_update = self.prefers_update.load(Ordering::Relaxed);
        match self.client.edit_by(verb(prefers_update), name, uid, &edit).await {
            Err(error) if error.is_forbidden() => {}
            edited => return edited,
        }
        let edited = self.client.edit_by(verb(!prefers_update), name, uid, &edit).await;
        if edited.is_ok() {
            self.prefers_update.store(!prefers_update, Ordering::Relaxed);
        }
        edited
    }

    /// Whether the error means that we are not permitted to write snapshots; logged once.
    fn is_missing_permission(&self, source: &NamedSource, error: &ApiError) -> bool {
        let lacks = !source.kind.is_claim() && error.is_forbidden();
        if lacks && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %error,
                "Snapshots cannot be protected while volumes are made from them: grant \"patch\" (or \"update\") on volumesnapshots.snapshot.storage.k8s.io. Restores go on without; logged once"
            );
        }
        lacks
    }
}

fn verb(prefers_update: bool) -> WriteBy {
    if prefers_update { WriteBy::Update } else { WriteBy::PatchOfFinalizers }
}

#[cfg(test)]
mod tests;
