//! The finalizers on the sources themselves.
//!
//! Owns putting them on and taking them off, on the object of the UID that is meant and on nothing
//! else, and by which verb: claims by `update`, which is all that roles grant; snapshots by `patch`,
//! or by `update` where only that is granted. Promises that whoever may do neither is told once,
//! and that nobody is kept from working by it. Leaves when to the rooms beside it.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::{
    holders::{Origin, Worn},
    source::{NamedSource, SourceKind},
};
use crate::kube::{
    ApiError, Client, Edit, Edited, Name, WriteBy,
    client::finalizers,
    objects::{Claim, View, VolumeSnapshot},
};

/// Writes finalizers.
#[derive(Debug)]
pub(super) struct Writer {
    client: Client,
    /// Whether snapshots may be updated and not patched, as was found out.
    updates: AtomicBool,
    /// Whether it was told that snapshots can't be written.
    told: AtomicBool,
}

/// Why a source does not wear our finalizer.
#[derive(Debug, thiserror::Error)]
pub enum Unprotected {
    /// It is gone, or another object has its name.
    #[error("{0} is gone")]
    Gone(NamedSource),
    /// It is being deleted, and takes no new finalizer.
    #[error("{0} is being deleted")]
    PvTerminating(NamedSource),
    /// The API server did not take it.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

impl Writer {
    /// Writes by `client`.
    pub(super) fn new(client: Client) -> Self {
        Self { client, updates: AtomicBool::new(false), told: AtomicBool::new(false) }
    }

    /// Puts the finalizer on the object `uid`, unless it wears it. `None`: it is not protected,
    /// for want of rights.
    ///
    /// # Errors
    /// It is not protected, and may not be used unprotected.
    pub(super) async fn put_on(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> Result<Option<Worn>, Unprotected> {
        let finalizer = source.kind.finalizer();
        let add = |object: &mut Value| {
            let leaving =
                object.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string);
            if leaving { Edit::Nothing } else { finalizers::add(object, finalizer) }
        };
        let origin = match self.edit(source, uid, add).await {
            Ok(Seen::Written) => Origin::Ours,
            Ok(Seen::Unchanged { wears: true }) => Origin::Found,
            Ok(Seen::Unchanged { wears: false }) => {
                return Err(Unprotected::PvTerminating(source.clone()));
            }
            Ok(Seen::Gone) => return Err(Unprotected::Gone(source.clone())),
            Err(error) if self.is_want_of_rights(source, &error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(Worn { uid: uid.to_owned(), origin }))
    }

    /// Takes the finalizer off the object `uid`, where it stands and wears it and `still` allows;
    /// whether it came off.
    ///
    /// # Errors
    /// It may wear it still.
    pub(super) async fn take_off(
        &self,
        source: &NamedSource,
        uid: &str,
        still: impl Fn() -> bool,
    ) -> Result<bool, ApiError> {
        let finalizer = source.kind.finalizer();
        let remove = |object: &mut Value| {
            if still() { finalizers::remove(object, finalizer) } else { Edit::Nothing }
        };
        match self.edit(source, uid, remove).await {
            Ok(seen) => {
                tracing::debug!(%source, ?seen, "the source is protected no longer");
                Ok(seen == Seen::Written)
            }
            // Whoever gets the rights gets what is left tidied up by the sweep.
            Err(error) if self.is_want_of_rights(source, &error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn edit(
        &self,
        source: &NamedSource,
        uid: &str,
        edit: impl Fn(&mut Value) -> Edit,
    ) -> Result<Seen, ApiError> {
        let name = Name::namespaced(&source.namespace, &source.name)?;
        let finalizer = source.kind.finalizer();
        match source.kind {
            SourceKind::Claim => {
                let edited = self.client.edit::<Claim>(name, uid, edit).await?;
                Ok(Seen::of(&edited, finalizer))
            }
            SourceKind::Snapshot => {
                let edited = self.edit_snapshot(name, uid, edit).await?;
                Ok(Seen::of(&edited, finalizer))
            }
        }
    }

    /// Edits by the verb that worked last, and where that is forbidden by the other.
    async fn edit_snapshot(
        &self,
        name: Name<'_>,
        uid: &str,
        edit: impl Fn(&mut Value) -> Edit,
    ) -> Result<Edited<VolumeSnapshot>, ApiError> {
        let updates = self.updates.load(Ordering::Relaxed);
        match self.client.edit_by(verb(updates), name, uid, &edit).await {
            Err(error) if error.is_forbidden() => {}
            edited => return edited,
        }
        let edited = self.client.edit_by(verb(!updates), name, uid, &edit).await;
        if edited.is_ok() {
            self.updates.store(!updates, Ordering::Relaxed);
        }
        edited
    }

    /// Whether snapshots stay as they are because we may not write them; told once.
    fn is_want_of_rights(&self, source: &NamedSource, error: &ApiError) -> bool {
        let lacks = source.kind == SourceKind::Snapshot && error.is_forbidden();
        if lacks && !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %error,
                "Snapshots cannot be protected while volumes are made from them: grant \"patch\" (or \"update\") on volumesnapshots.snapshot.storage.k8s.io. Restores go on without; told once"
            );
        }
        lacks
    }
}

fn verb(updates: bool) -> WriteBy {
    if updates { WriteBy::Update } else { WriteBy::PatchOfFinalizers }
}

/// What an edit has shown of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It was written.
    Written,
    /// It was left as it is.
    Unchanged {
        /// Whether it wears the finalizer.
        wears: bool,
    },
    /// It is gone.
    Gone,
}

impl Seen {
    fn of<V: View>(edited: &Edited<V>, finalizer: &str) -> Self {
        match edited {
            Edited::Written(_) => Self::Written,
            Edited::Unchanged(object) => Self::Unchanged { wears: object.has_finalizer(finalizer) },
            Edited::Gone => Self::Gone,
        }
    }
}

#[cfg(test)]
mod tests;
