//! The encodings of answers: JSON, and Kubernetes' protobuf for kinds that have a table of their message.
//!
//! An object costs the server a third in protobuf of what it costs in JSON, and this program a fraction of it.
//! Where this program accepts protobuf, it accepts JSON too: a server may not have protobuf, and a proxy in front
//! of one does not. Single objects are read in JSON: if the answer to a write cannot be read, that read shows what
//! became of it.

use http::{HeaderMap, HeaderValue, header};
use serde::de::DeserializeOwned;

use super::{
    error::fault,
    objects::{
        View, protobuf,
        protobuf::{Envelope, Fault, MEDIA_TYPE, STATUS},
    },
};

/// JSON.
pub(super) const JSON: &str = "application/json";

/// Protobuf, if the server has it.
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf, application/json";

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    /// The encoding that the headers of an answer name; JSON if they name none.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = value.and_then(|value| value.split(';').next()).unwrap_or_default();
        if media.trim().eq_ignore_ascii_case(MEDIA_TYPE) { Self::Protobuf } else { Self::Json }
    }

    /// Reads an object. The error says what is wrong with it, without any of its content.
    pub(super) fn read<V: View>(self, body: &[u8]) -> Result<V, String> {
        match self {
            Self::Json => serde_json::from_slice(body).map_err(|error| fault(&error)),
            Self::Protobuf => read_protobuf(body).map_err(|fault| fault.to_string()),
        }
    }

    /// Reads the `Status` of a refusal; `None` if the body has none.
    pub(super) fn read_status<S: DeserializeOwned>(self, body: &[u8]) -> Option<S> {
        match self {
            Self::Json => serde_json::from_slice(body).ok(),
            Self::Protobuf => {
                Envelope::of(body).and_then(|status| protobuf::read(status.raw, STATUS)).ok()
            }
        }
    }
}

/// Says which encodings the answer to `request` may have: JSON, and protobuf if `or_protobuf`.
pub(super) fn accept<B>(request: &mut http::Request<B>, or_protobuf: bool) {
    let accepted = HeaderValue::from_static(if or_protobuf { PROTOBUF_OR_JSON } else { JSON });
    request.headers_mut().insert(header::ACCEPT, accepted);
}

/// Reads an object of this kind, and of no other: the fields of another would be taken for its own.
fn read_protobuf<V: View>(body: &[u8]) -> Result<V, Fault> {
    let read = V::from_protobuf().ok_or(Fault::Unexpected)?;
    let object = Envelope::of(body)?;
    if object.kind == V::KIND.as_bytes() { read(object.raw) } else { Err(Fault::Unexpected) }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use serde_json::json;
    use testkit::apiserver::protobuf as written;

    use super::*;
    use crate::kube::objects::{Claim, StorageClass, Volume};

    #[test]
    fn the_media_type_names_the_encoding() {
        for (media, encoding) in [
            (Some("application/vnd.kubernetes.protobuf"), Encoding::Protobuf),
            (Some("Application/vnd.Kubernetes.Protobuf ;stream=watch"), Encoding::Protobuf),
            (Some("application/json"), Encoding::Json),
            (Some("application/vnd.kubernetes.protobufs"), Encoding::Json),
            (None, Encoding::Json),
        ] {
            let answer = media
                .into_iter()
                .fold(Response::builder(), |it, media| it.header("content-type", media));
            assert_eq!(Encoding::of(answer.body(()).unwrap().headers()), encoding, "{media:?}");
        }
    }

    #[test]
    fn an_object_reads_the_same_in_both_encodings() {
        let volume =
            json!({"metadata": {"name": "pv", "uid": "u", "finalizers": ["a"]}, "spec": {}});
        let body = written::answer("v1", "PersistentVolume", &volume).unwrap();
        let from_protobuf: Volume = Encoding::Protobuf.read(&body).unwrap();
        let from_json: Volume = Encoding::Json.read(volume.to_string().as_bytes()).unwrap();
        assert_eq!(from_protobuf.metadata, from_json.metadata);
        assert_eq!(from_protobuf.name(), "pv");
    }

    #[test]
    fn what_is_no_such_object_is_not_read() {
        let claim = json!({"metadata": {"name": "c"}});
        let body = written::answer("v1", "PersistentVolumeClaim", &claim).unwrap();
        assert_eq!(Encoding::Protobuf.read::<Claim>(&body).unwrap().name(), "c");
        let unexpected = Some("not the expected fields".to_owned());
        assert_eq!(Encoding::Protobuf.read::<Volume>(&body).err(), unexpected);
        assert_eq!(Encoding::Protobuf.read::<StorageClass>(&body).err(), unexpected);
        let status = written::status(&json!({"code": 200, "status": "Success"})).unwrap();
        assert_eq!(Encoding::Protobuf.read::<Volume>(&status).err(), unexpected);
        for body in [&b""[..], b"k8s", b"k8s\0\x12\x09a", b"{}"] {
            assert!(Encoding::Protobuf.read::<Volume>(body).is_err());
        }
    }
}
