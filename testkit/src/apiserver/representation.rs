//! How objects are written to a client: whole, in JSON or protobuf, or their metadata alone.
//!
//! Owns reading the Accept header and writing single objects, lists and watch events that way. Promises
//! that a long list keeps nobody waiting who asks beside it.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use super::{object::Object, protobuf, resources::Kind, status::Status};

/// What a client wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    /// The objects.
    Whole,
    /// The objects in protobuf, where they can be written so; else as [`Self::Whole`].
    Protobuf,
    /// `PartialObjectMetadata`.
    Metadata,
}

impl Representation {
    /// Reads an Accept header: the first media type that can be served.
    ///
    /// # Errors
    /// 406 when none can.
    pub(crate) fn negotiate(accept: Option<&str>, protobuf: bool) -> Result<Self, Status> {
        let accept = accept.map(str::trim).filter(|accept| !accept.is_empty()).unwrap_or("*/*");
        accept
            .split(',')
            .find_map(|range| Self::of(range, protobuf))
            .ok_or_else(Status::not_acceptable)
    }

    fn of(range: &str, protobuf: bool) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if media == protobuf::MEDIA_TYPE {
            let plain = parts.all(|part| !part.starts_with("as="));
            return Some(Self::Protobuf).filter(|_| protobuf && plain);
        }
        if !matches!(media, "application/json" | "application/*" | "*/*") {
            return None;
        }
        match parts.find_map(|part| part.strip_prefix("as=")) {
            None => Some(Self::Whole),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Self::Metadata),
            Some(_) => None,
        }
    }
}

/// Writes objects of one kind for one client.
#[derive(Clone)]
pub(crate) struct Writer {
    /// The kind in the version asked for.
    pub(crate) kind: Arc<Kind>,
    /// What the client wants.
    pub(crate) representation: Representation,
}

impl Writer {
    /// One object.
    pub(crate) fn object(&self, object: &Arc<Object>) -> Bytes {
        match self.representation {
            Representation::Metadata => Bytes::from(partial(object).to_string()),
            _ => object.typed_json(&self.kind),
        }
    }

    /// An object of the kind, or the Status that stands for it, in protobuf, where that is wanted and
    /// can be done.
    pub(crate) fn protobuf_object(&self, object: &Value) -> Option<Bytes> {
        if self.representation != Representation::Protobuf {
            return None;
        }
        if object.get("kind").is_some_and(|kind| kind == "Status") {
            return protobuf::status(object);
        }
        if !protobuf::is_written(&self.kind) {
            return None;
        }
        protobuf::answer(&self.kind.api_version(), &self.kind.kind, object)
    }

    /// A list with its metadata in protobuf, where that is wanted and can be done.
    pub(crate) async fn protobuf_list(
        &self,
        objects: &[Arc<Object>],
        metadata: &Value,
    ) -> Option<Bytes> {
        if self.representation != Representation::Protobuf {
            return None;
        }
        protobuf::list(&self.kind, objects, metadata).await
    }

    /// A list with its metadata.
    pub(crate) async fn list(&self, objects: &[Arc<Object>], metadata: Value) -> Bytes {
        match self.representation {
            Representation::Metadata => {
                let mut items = Vec::with_capacity(objects.len());
                for object in objects {
                    breathe(items.len()).await;
                    items.push(partial(object));
                }
                let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items});
                Bytes::from(list.to_string())
            }
            _ => self.plain_list(objects, &metadata).await,
        }
    }

    /// Items of built-in kinds stand without `TypeMeta`, those of custom kinds with, as real.
    async fn plain_list(&self, objects: &[Arc<Object>], metadata: &Value) -> Bytes {
        let (kind, version) = (&self.kind.list_kind, self.kind.api_version());
        let mut out = BytesMut::new();
        out.put_slice(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[").as_bytes());
        for (i, object) in objects.iter().enumerate() {
            breathe(i).await;
            if i > 0 {
                out.put_u8(b',');
            }
            if self.kind.custom {
                object.write_typed(&self.kind, &mut out);
            } else {
                out.put_slice(object.json());
            }
        }
        out.put_slice(b"]}");
        out.freeze()
    }

    /// The writer for a watch, which is in one encoding from its beginning to its end.
    pub(crate) fn for_watch(mut self) -> Self {
        if self.representation == Representation::Protobuf && !protobuf::is_written(&self.kind) {
            self.representation = Representation::Whole;
        }
        self
    }

    /// The content type of a watch.
    pub(crate) fn watch_media_type(&self) -> &'static str {
        match self.representation {
            Representation::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            _ => "application/json",
        }
    }

    /// A watch event about an object.
    pub(crate) fn event(&self, name: &str, object: &Arc<Object>) -> Bytes {
        match self.representation {
            Representation::Protobuf => protobuf::event(name, &self.kind.kind, object.value())
                .unwrap_or_else(|| self.error(&not_written())),
            _ => event(name, &self.object(object)),
        }
    }

    /// A watch event that reports an error.
    pub(crate) fn error(&self, status: &Status) -> Bytes {
        let in_json = || event("ERROR", status.body.to_string().as_bytes());
        match self.representation {
            Representation::Protobuf => {
                protobuf::event("ERROR", "Status", &status.body).unwrap_or_else(in_json)
            }
            _ => in_json(),
        }
    }

    /// A bookmark; the one that ends a streaming list's initial events says so.
    pub(crate) fn bookmark(&self, revision: u64, initial_events_end: bool) -> Bytes {
        let mut metadata =
            json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_events_end {
            super::tree::set(
                &mut metadata,
                &["annotations"],
                json!({"k8s.io/initial-events-end": "true"}),
            );
        }
        let object = match self.representation {
            Representation::Protobuf => {
                let bookmark =
                    protobuf::event("BOOKMARK", &self.kind.kind, &json!({"metadata": metadata}));
                return bookmark.unwrap_or_else(|| self.error(&not_written()));
            }
            Representation::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Representation::Whole => {
                json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata})
            }
        };
        event("BOOKMARK", object.to_string().as_bytes())
    }
}

/// After every so many objects of a list others have their turn.
const AT_ONCE: usize = 256;

/// Lets others have their turn where `written` objects of a list call for it.
pub(crate) async fn breathe(written: usize) {
    if written > 0 && written.is_multiple_of(AT_ONCE) {
        tokio::task::yield_now().await;
    }
}

/// What a watch in protobuf reports about an object that no real server has.
fn not_written() -> Status {
    Status::internal("the object cannot be written in protobuf")
}

/// A line of a watch: the type comes first, as clients expect.
fn event(name: &str, object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.put_slice(format!("{{\"type\":\"{name}\",\"object\":").as_bytes());
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}

fn partial(object: &Object) -> Value {
    let metadata = super::tree::at(object.value(), &["metadata"]);
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_acceptable_type_wins() {
        let of = |accept| Representation::negotiate(Some(accept), false);
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(of(kubectl), Ok(Representation::Whole));
        assert_eq!(
            of("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Ok(Representation::Metadata)
        );
        assert_eq!(of("application/vnd.kubernetes.protobuf, */*"), Ok(Representation::Whole));
        assert_eq!(of("application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
        for (accept, wanted) in [
            (None, Representation::Whole),
            (
                Some("application/vnd.kubernetes.protobuf, application/json"),
                Representation::Protobuf,
            ),
            (Some("application/json, application/vnd.kubernetes.protobuf"), Representation::Whole),
            (
                Some("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io, */*"),
                Representation::Whole,
            ),
        ] {
            assert_eq!(Representation::negotiate(accept, true), Ok(wanted), "{accept:?}");
        }
    }
}
