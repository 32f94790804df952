//! How objects are written to a client: whole and in JSON, whatever it accepts. kubectl, which asks for tables first,
//! takes that too.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use super::{object::Object, resources::Kind, status::Status};

/// Writes objects of one kind.
#[derive(Clone)]
pub(crate) struct Writer(pub(crate) Arc<Kind>);

impl Writer {
    /// One object.
    pub(crate) fn object(&self, object: &Arc<Object>) -> Bytes {
        object.typed_json(&self.0)
    }

    /// A list with its metadata. Items of built-in kinds stand without `TypeMeta`, as on a real server.
    pub(crate) async fn list(&self, objects: &[Arc<Object>], metadata: &Value) -> Bytes {
        let (kind, version) = (&self.0.list_kind, self.0.api_version());
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
            if self.0.custom {
                object.write_typed(&self.0, &mut out);
            } else {
                out.put_slice(object.json());
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
        let (kind, version) = (&self.0.kind, self.0.api_version());
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
