//! How objects are written to a client: whole, or their metadata alone; always in JSON.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use super::{object::Object, resources::Kind, status::Status, tree};

/// What a client wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    /// The objects.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
}

impl Representation {
    /// Reads an Accept header: the first media type that can be served; 406 when none can.
    pub(crate) fn negotiate(accept: Option<&str>) -> Result<Self, Status> {
        let accept = accept.map(str::trim).filter(|accept| !accept.is_empty()).unwrap_or("*/*");
        accept.split(',').find_map(Self::of).ok_or_else(Status::not_acceptable)
    }

    fn of(range: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        if !matches!(parts.next(), Some("application/json" | "application/*" | "*/*")) {
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
    pub(crate) kind: Arc<Kind>,
    pub(crate) representation: Representation,
}

impl Writer {
    /// One object.
    pub(crate) fn object(&self, object: &Arc<Object>) -> Bytes {
        match self.representation {
            Representation::Metadata => Bytes::from(partial(object).to_string()),
            Representation::Whole => object.typed_json(&self.kind),
        }
    }

    /// A list with its metadata. Items of built-in kinds stand without `TypeMeta`, as on a real server.
    pub(crate) async fn list(&self, objects: &[Arc<Object>], metadata: &Value) -> Bytes {
        let whole = self.representation == Representation::Whole;
        let (kind, version) = if whole {
            (self.kind.list_kind.as_str(), self.kind.api_version())
        } else {
            ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned())
        };
        let mut out = BytesMut::new();
        out.put_slice(format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[").as_bytes());
        for (i, object) in objects.iter().enumerate() {
            if i > 0 {
                out.put_u8(b',');
                // A long list keeps nobody waiting who asks beside it.
                if i.is_multiple_of(AT_ONCE) {
                    tokio::task::yield_now().await;
                }
            }
            match self.representation {
                Representation::Metadata => out.put_slice(partial(object).to_string().as_bytes()),
                Representation::Whole if self.kind.custom => {
                    object.write_typed(&self.kind, &mut out);
                }
                Representation::Whole => out.put_slice(object.json()),
            }
        }
        out.put_slice(b"]}");
        out.freeze()
    }

    /// A watch event about an object.
    pub(crate) fn event(&self, name: &str, object: &Arc<Object>) -> Bytes {
        event(name, &self.object(object))
    }

    /// A watch event that reports an error.
    pub(crate) fn error(status: &Status) -> Bytes {
        event("ERROR", status.body.to_string().as_bytes())
    }

    /// A bookmark.
    pub(crate) fn bookmark(&self, revision: u64) -> Bytes {
        let metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        let (kind, version) = match self.representation {
            Representation::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            Representation::Whole => (self.kind.kind.as_str(), self.kind.api_version()),
        };
        let object = json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        event("BOOKMARK", object.to_string().as_bytes())
    }
}

/// After every so many objects of a list others have their turn.
const AT_ONCE: usize = 256;

/// A line of a watch: the type comes first, as clients expect.
fn event(name: &str, object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.put_slice(format!("{{\"type\":\"{name}\",\"object\":").as_bytes());
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}

fn partial(object: &Object) -> Value {
    let metadata = tree::at(object.value(), &["metadata"]);
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}
