//! Reads views from Kubernetes' protobuf.
//!
//! A serde `Deserializer` presents a message as the JSON that the server would have sent, so that each
//! view has one `Deserialize` implementation for both encodings. Fields that are not in the [`tables`]
//! are skipped cheaply, `managedFields` above all. Empty fields are presented or omitted as in JSON.
//! Invalid messages are a [`Fault`]; so is a field that occurs twice, which Kubernetes never sends,
//! because one of its values would be lost silently.

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

/// The prefix of every answer, before its envelope.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// The field of the envelope, a `runtime.Unknown`, that names the object's type.
pub(crate) const TYPE_META: u64 = 1;
/// The field of the envelope that holds the object.
pub(crate) const RAW: u64 = 2;

/// The message in a complete envelope.
pub(crate) fn unwrapped(answer: &[u8]) -> Result<&[u8], Fault> {
    let envelope = answer.strip_prefix(MAGIC).ok_or(Fault::NotProtobuf)?;
    Ok(last(envelope, RAW)?.map(|raw| raw.bytes(RAW)).transpose()?.unwrap_or_default())
}

/// The kind in a `TypeMeta`.
pub(crate) fn kind_of(type_meta: &[u8]) -> Result<&[u8], Fault> {
    Ok(last(type_meta, 2)?.map(|kind| kind.bytes(2)).transpose()?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
