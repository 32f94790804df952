//! Objects in Kubernetes' protobuf, as our views read them in JSON.
//!
//! Owns showing a message to serde as the JSON that the server would have written of it, as far as
//! the [`tables`] go: whatever is not in them is skipped and costs next to nothing, `managedFields`
//! above all. So each view has one reader for both. Promises that bytes which are no such message
//! are a [`Fault`]; that what JSON leaves out because it is empty is left out, and what JSON writes
//! although it is empty is shown; and that nothing is lost silently: a field that comes twice, which
//! Kubernetes never writes, is a fault. Leaves frames and lists to whoever reads answers.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod read;
#[cfg(test)]
pub(crate) mod samples;
mod tables;
mod wire;

use self::read::last;
pub(crate) use self::{
    read::read,
    tables::{CLAIM, LIST_META, NAMES, STATUS, VOLUME},
    wire::{Fault, Fields},
};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What stands before every answer's envelope.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// Fields of the envelope, a `runtime.Unknown`: what it holds, and that itself.
pub(crate) const TYPE_META: u64 = 1;
pub(crate) const RAW: u64 = 2;

/// The message in an envelope that has come whole.
pub(crate) fn unwrapped(answer: &[u8]) -> Result<&[u8], Fault> {
    let envelope = answer.strip_prefix(MAGIC).ok_or(Fault::NotProtobuf)?;
    Ok(last(envelope, RAW)?.map(|raw| raw.bytes(RAW)).transpose()?.unwrap_or_default())
}

/// The kind that a `TypeMeta` names.
pub(crate) fn kind_of(type_meta: &[u8]) -> Result<&[u8], Fault> {
    Ok(last(type_meta, 2)?.map(|kind| kind.bytes(2)).transpose()?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
