//! Edits of whole objects that lose nothing.
//!
//! Owns the protocol of safety rule 11: read the raw object, check that it is the one meant,
//! change it, put it back under the version it was read with, and after a conflict begin anew.
//! Promises that fields newer than this program survive, that no other object is ever hit, and
//! that the reason for the edit is judged on the very content that is put back. An unclear outcome
//! is the caller's: it comes back and finds out. Finalizers can be edited by a patch as well, where
//! that is what a role grants. Leaves what is edited to the caller.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Client, Patch, name::Name};
use crate::kube::{
    error::{ApiError, fault},
    objects,
    objects::{View, kind::Kind},
};

/// After so many conflicts the next one is told.
const MAX_CONFLICTS: u32 = 4;

/// The wait after the first conflict; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_millis(10);

/// What an edit decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// Put the changed object back.
    Write,
    /// There is nothing to change.
    Nothing,
}

/// What became of an edit.
#[derive(Debug, Clone, PartialEq)]
pub enum Edited<V> {
    /// The object as it was put back.
    Written(V),
    /// The object as it stands; there was nothing to change.
    Unchanged(V),
    /// The object is gone, or another one has its name.
    Gone,
}

/// By which verb an edit is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBy {
    /// `update`: the whole object is put back.
    Update,
    /// `patch`: of what was edited only the finalizers are written.
    PatchOfFinalizers,
}

impl Client {
    /// Reads the object, lets `edit` change it and puts it back; after a conflict all over again.
    /// `edit` is given a fresh object whose UID is `uid`, so it may run several times.
    pub async fn edit<V: View>(
        &self,
        name: Name<'_>,
        uid: &str,
        edit: impl FnMut(&mut Value) -> Edit,
    ) -> Result<Edited<V>, ApiError> {
        self.edit_by(WriteBy::Update, name, uid, edit).await
    }

    /// The same by the verb `by`.
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
                    let wait = FIRST_WAIT * 2_u32.pow(conflicts);
                    tokio::time::sleep(wait.mul_f64(1.0 + self.random.unit())).await;
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
        let mut object = self.get_raw(&Kind::of::<V>(), name).await?;
        let Some(identity) = Identity::of(&object) else {
            return Err(unreadable::<V>(name, "it has no UID or version".to_owned()));
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

/// Which object in which version.
struct Identity {
    uid: String,
    version: String,
}

impl Identity {
    fn of(object: &Value) -> Option<Self> {
        let text = |field| {
            object.pointer(field)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Some(Self { uid: text("/metadata/uid")?, version: text("/metadata/resourceVersion")? })
    }

    /// Makes sure that what is put back names its object and version: without them the server
    /// would take it for whatever has the name (safety.md, fact 6).
    fn pin(self, object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("uid".to_owned(), self.uid.into());
            metadata.insert("resourceVersion".to_owned(), self.version.into());
        }
    }

    /// The patch that gives the object, in that very version, the finalizers of `edited`. It holds
    /// the whole list: custom resources take no patch that adds to a list or takes from it.
    fn patch_of_finalizers(self, edited: &Value) -> Patch {
        let finalizers = edited.pointer("/metadata/finalizers").and_then(Value::as_array);
        let finalizers = finalizers.filter(|finalizers| !finalizers.is_empty());
        Patch::Merge(json!({"metadata": {
            "uid": self.uid, "resourceVersion": self.version, "finalizers": finalizers,
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
