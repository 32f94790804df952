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

/// A complete object: the name of its kind, and its message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope<'a> {
    pub(crate) kind: &'a [u8],
    pub(crate) raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads an envelope and what precedes it.
    pub(crate) fn of(object: &'a [u8]) -> Result<Self, Fault> {
        let envelope = object.strip_prefix(MAGIC).ok_or(Fault::NotProtobuf)?;
        Ok(Self { kind: kind_of(nested(envelope, TYPE_META)?)?, raw: nested(envelope, RAW)? })
    }
}

/// The kind in a `TypeMeta`.
pub(crate) fn kind_of(type_meta: &[u8]) -> Result<&[u8], Fault> {
    nested(type_meta, 2)
}

/// The bytes of the last field `number`; none if there is no such field.
pub(crate) fn nested(message: &[u8], number: u64) -> Result<&[u8], Fault> {
    Ok(last(message, number)?.map(|field| field.bytes(number)).transpose()?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
