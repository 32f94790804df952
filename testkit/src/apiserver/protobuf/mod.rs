//! Kubernetes' protobuf: bodies of requests, and answers.
//!
//! Owns the envelope (`k8s\0` and a `runtime.Unknown`) and what a real server writes for clients that
//! ask for protobuf, as far as clients of the storage APIs do: lists and watches of claims and of
//! PersistentVolumes, and refusals. Promises to give nothing for what it cannot write, which is then
//! answered in JSON: clients that ask for protobuf take JSON as well.

pub(crate) mod bodies;
mod messages;

use std::{fmt::Debug, sync::Arc};

use bytes::Bytes;
use prost::Message;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::messages::{ListHead, ListItem, PersistentVolume, PersistentVolumeClaim, Status};
use super::{object::Object, representation::breathe, resources::Kind};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What stands before the envelope.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// The envelope, `runtime.Unknown`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub(crate) type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", required, tag = "2")]
    pub(crate) raw: Vec<u8>,
    #[prost(string, required, tag = "3")]
    pub(crate) content_encoding: String,
    #[prost(string, required, tag = "4")]
    pub(crate) content_type: String,
}

/// A `WatchEvent`.
#[derive(Clone, PartialEq, Message)]
struct WatchEvent {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, required, tag = "2")]
    object: RawExtension,
}

/// An object of any kind, with its envelope.
#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

/// What the envelope holds.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TypeMeta {
    #[prost(string, tag = "1")]
    pub(crate) api_version: String,
    #[prost(string, tag = "2")]
    pub(crate) kind: String,
}

/// A list, where its kind is known here and all objects are what they should be.
pub(crate) async fn list(kind: &Kind, objects: &[Arc<Object>], metadata: &Value) -> Option<Bytes> {
    let raw = match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "PersistentVolume") => raw_list::<PersistentVolume>(objects, metadata).await,
        ("", "PersistentVolumeClaim") => raw_list::<PersistentVolumeClaim>(objects, metadata).await,
        _ => None,
    }?;
    Some(wrapped(&kind.api_version(), &kind.list_kind, raw))
}

/// A `Status`.
pub fn status(body: &Value) -> Option<Bytes> {
    answer("v1", "Status", body)
}

/// An object of the core group, or a `Status`, as the body of an answer.
pub fn answer(api_version: &str, kind: &str, body: &Value) -> Option<Bytes> {
    Some(wrapped(api_version, kind, object(kind, body)?))
}

/// Whether objects of the kind can be written.
pub(crate) fn is_written(kind: &Kind) -> bool {
    kind.group.is_empty()
        && matches!(kind.kind.as_str(), "PersistentVolume" | "PersistentVolumeClaim")
}

/// An event of a watch about an object of the core group, as a frame.
pub fn event(name: &str, kind: &str, object: &Value) -> Option<Bytes> {
    Some(event_of_message(name, kind, &self::object(kind, object)?))
}

/// An event of a watch about an object of the core group with this message: for tests of clients.
pub fn event_of_message(name: &str, kind: &str, message: &[u8]) -> Bytes {
    let object = RawExtension { raw: wrapped("v1", kind, message.to_owned()).into() };
    let event = WatchEvent { name: name.to_owned(), object }.encode_to_vec();
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), &*event].concat().into()
}

/// The message that an object of the kind is, without an envelope: for tests of clients.
pub fn object(kind: &str, object: &Value) -> Option<Vec<u8>> {
    match kind {
        "Status" => Some(read::<Status>(object)?.encode_to_vec()),
        "PersistentVolume" => Some(read::<PersistentVolume>(object)?.encode_to_vec()),
        "PersistentVolumeClaim" => Some(read::<PersistentVolumeClaim>(object)?.encode_to_vec()),
        _ => None,
    }
}

async fn raw_list<M: Message + Default + Debug + DeserializeOwned>(
    objects: &[Arc<Object>],
    metadata: &Value,
) -> Option<Vec<u8>> {
    let mut raw = ListHead { metadata: read(metadata)? }.encode_to_vec();
    for (number, object) in objects.iter().enumerate() {
        breathe(number).await;
        ListItem::<M> { item: read(object.value())? }.encode(&mut raw).ok()?;
    }
    Some(raw)
}

fn read<M: DeserializeOwned>(json: &Value) -> Option<M> {
    serde::Deserialize::deserialize(json).ok()
}

fn wrapped(api_version: &str, kind: &str, raw: Vec<u8>) -> Bytes {
    let type_meta = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
    let envelope = Unknown { type_meta: Some(type_meta), raw, ..Unknown::default() };
    [MAGIC, &envelope.encode_to_vec()].concat().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What the envelope of an answer says it holds, and that.
    fn unwrapped(answer: &[u8]) -> (TypeMeta, Vec<u8>) {
        let envelope = Unknown::decode(answer.strip_prefix(MAGIC).unwrap()).unwrap();
        (envelope.type_meta.unwrap(), envelope.raw)
    }

    #[test]
    fn what_is_no_pointer_in_go_is_written_though_it_is_empty() {
        let bytes = object("PersistentVolumeClaim", &json!({"metadata": {"name": "a"}})).unwrap();
        let metadata = b"\x0a\x01a\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0";
        let spec = b"\x12\0\x1a\0";
        let status = b"\x0a\0";
        let mut expected = vec![0x0a, u8::try_from(metadata.len()).unwrap()];
        expected.extend_from_slice(metadata);
        expected.extend([0x12, u8::try_from(spec.len()).unwrap()]);
        expected.extend_from_slice(spec);
        expected.extend([0x1a, u8::try_from(status.len()).unwrap()]);
        expected.extend_from_slice(status);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn times_are_seconds_and_quantities_messages() {
        let volume = json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:01:00Z"},
            "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "d", "volumeHandle": "h"}},
        });
        let volume: PersistentVolume = read(&volume).unwrap();
        let bytes = volume.encode_to_vec();
        assert_eq!(PersistentVolume::decode(&*bytes).unwrap(), volume);
        let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(holds(b"\x42\x04\x08\x3c\x10\0"), "60 seconds");
        assert!(holds(b"\x0a\x07storage\x12\x05\x0a\x031Gi"), "a message in an entry");
        assert!(holds(b"\xb2\x01"), "the source in a message of its own, as its field 22");
    }

    #[test]
    fn a_refusal_keeps_its_words() {
        let body = json!({"kind": "Status", "status": "Failure", "message": "m", "reason": "Expired", "code": 410});
        let (held, raw) = unwrapped(&status(&body).unwrap());
        assert_eq!((&*held.api_version, &*held.kind), ("v1", "Status"));
        assert_eq!(Status::decode(&*raw).unwrap(), read(&body).unwrap());
    }

    #[test]
    fn what_is_not_as_it_should_be_is_not_written() {
        assert_eq!(object("PersistentVolume", &json!({"metadata": {"name": 7}})), None);
        assert_eq!(object("Secret", &json!({})), None);
    }
}
