//! Read-modify-write of whole objects (safety rule 11).
//!
//! [`Client::edit`] reads the raw object, checks its UID, calls the caller's function to change it,
//! writes it back with the version it was read with, and after a conflict starts again with the
//! read. Fields that this program does not know survive, no other object of the same name is
//! written, and the function decides on the same content that is written. An unclear outcome is
//! returned to the caller. With [`WriteBy::PatchOfFinalizers`] only the finalizers are written, by
//! a patch, for roles that grant `patch` but not `update`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Client, Name, Patch};
use crate::{
    kube::{
        error::{ApiError, fault},
        objects,
        objects::{View, kind::Kind},
    },
    runtime::Backoff,
};

/// How many conflicts are retried.
const MAX_CONFLICTS: u32 = 4;

/// The waits after conflicts.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(80));

/// The decision of the function that edits an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// Write the changed object.
    Write,
    /// There is nothing to change.
    Nothing,
}

/// The result of an edit.
#[derive(Debug, Clone, PartialEq)]
pub enum Edited<V> {
    /// The object as it was written.
    Written(V),
    /// The object as it was read; there was nothing to change.
    Unchanged(V),
    /// The object is gone, or an object with another UID has its name.
    Gone,
}

impl<V> Edited<V> {
    /// The same result with what `map` makes of the object.
    pub fn map<T>(self, map: impl FnOnce(V) -> T) -> Edited<T> {
        match self {
            Self::Written(object) => Edited::Written(map(object)),
            Self::Unchanged(object) => Edited::Unchanged(map(object)),
            Self::Gone => Edited::Gone,
        }
    }
}

/// The verb by which an edit is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBy {
    /// `update`: writes the whole object.
    Update,
    /// `patch`: writes only the finalizers.
    PatchOfFinalizers,
}

impl Client {
    /// Reads the object, lets `edit` change it and writes it back; retries after conflicts. `edit` is
    /// called with an object whose UID is `uid`, once per attempt.
    pub async fn edit<V: View>(
        &self,
        name: Name<'_>,
        uid: &str,
        edit: impl FnMut(&mut Value) -> Edit,
    ) -> Result<Edited<V>, ApiError> {
        self.edit_by(WriteBy::Update, name, uid, edit).await
    }

    /// Like [`edit`](Self::edit), but writes with the verb `by`.
    pub async fn edit_by<V: View>(
        &self,
        by: WriteBy,
        name: Name<'_>,
        uid: &str,
        mut edit: impl FnMut(&mut Value) -> Edit,
    ) -> Result<Edited<V>, ApiError> {
        let mut conflicts = 0;
        loop {
            match self.try_edit(by, name, uid, &mut edit).await {
                Err(error) if error.is_not_found() => return Ok(Edited::Gone),
                Err(error) if error.is_conflict() && conflicts < MAX_CONFLICTS => {
                    sleep(BACKOFF.jittered(conflicts, self.random.unit())).await;
                    conflicts += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_edit<V: View>(
        &self,
        by: WriteBy,
        name: Name<'_>,
        uid: &str,
        edit: &mut impl FnMut(&mut Value) -> Edit,
    ) -> Result<Edited<V>, ApiError> {
        // Held until the object is written.
        let (mut object, _held) = self.get_raw_with_permits(&Kind::of::<V>(), name).await?;
        let Some(identity) = Identity::of(&object) else {
            return Err(unreadable::<V>(name, "it has no UID or resourceVersion".to_owned()));
        };
        if identity.uid != uid {
            return Ok(Edited::Gone);
        }
        if edit(&mut object) == Edit::Nothing {
            return view(&object, name).map(Edited::Unchanged);
        }
        let written = match by {
            WriteBy::Update => {
                identity.pin(&mut object);
                self.replace_raw(name, &object).await
            }
            WriteBy::PatchOfFinalizers => {
                self.patch(name, &identity.patch_of_finalizers(&object)).await
            }
        };
        written.map(Edited::Written)
    }
}

/// The field `name` of the object's metadata, which becomes `empty` if it is absent or null.
pub(super) fn metadata_field<'a>(
    object: &'a mut Value,
    name: &str,
    empty: Value,
) -> Option<&'a mut Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let field = metadata.entry(name).or_insert(Value::Null);
    if field.is_null() {
        *field = empty;
    }
    Some(field)
}

/// The UID and the `resourceVersion` of an object.
struct Identity {
    uid: String,
    resource_version: String,
}

impl Identity {
    fn of(object: &Value) -> Option<Self> {
        let text = |field| {
            object.pointer(field)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let resource_version = text("/metadata/resourceVersion")?;
        Some(Self { uid: text("/metadata/uid")?, resource_version })
    }

    /// Sets UID and `resourceVersion` of `object`: without them the server would accept the write for any
    /// object of that name.
    fn pin(self, object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("uid".to_owned(), self.uid.into());
            metadata.insert("resourceVersion".to_owned(), self.resource_version.into());
        }
    }

    /// The patch that sets the finalizers of `edited` on the object if it still is at this `resourceVersion`. It
    /// holds the whole list, because custom resources support no strategic merge patch.
    fn patch_of_finalizers(self, edited: &Value) -> Patch<Value> {
        let finalizers = edited.pointer("/metadata/finalizers").and_then(Value::as_array);
        let finalizers = finalizers.filter(|finalizers| !finalizers.is_empty());
        Patch::Merge(json!({"metadata": {
            "uid": self.uid, "resourceVersion": self.resource_version, "finalizers": finalizers,
        }}))
    }
}

fn view<V: View>(object: &Value, name: Name<'_>) -> Result<V, ApiError> {
    objects::of_json(object).map_err(|error| unreadable::<V>(name, fault(&error)))
}

fn unreadable<V: View>(name: Name<'_>, fault: String) -> ApiError {
    ApiError::Unreadable { about: format!("{} {}", Kind::of::<V>().resource(), name.name()), fault }
}

#[cfg(test)]
mod tests;
