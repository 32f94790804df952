//! An API server that holds as many objects as a test asks for, and keeps none of them in memory.
//!
//! It answers what a standby asks: what is served and allowed, lists in pages, made
//! up page by page, and the Lease, which another replica holds. It takes the
//! events of a leader, and shows it single objects; what is not shown does not exist.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use bytes::Bytes;
use csi_provisioner::kube::{
    Transport,
    connection::transport::{KubeRequest, boxed},
};
use futures::{Stream, StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tower::service_fn;

/// The body of an answer.
type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Objects in a page of a list.
const PAGE: usize = 500;

/// An event of a watch by number: its type and its object.
pub(crate) type Maker = Arc<dyn Fn(usize) -> (&'static str, Value) + Send + Sync>;

/// What a watch of one kind shows.
#[derive(Clone)]
pub(crate) struct Show {
    /// Events before the list is whole.
    pub listed: usize,
    /// All events.
    pub total: usize,
    /// What they are.
    pub event: Maker,
}

impl Show {
    fn nothing() -> Self {
        Self { listed: 0, total: 0, event: Arc::new(|_| ("ADDED", Value::Null)) }
    }

    /// The lines of a watch that follows a list.
    fn changes(self) -> impl Stream<Item = Bytes> + Send {
        let Self { listed, total, event } = self;
        let changes = stream::iter((listed..total).map(move |number| line(event(number))));
        changes.chain(stream::pending())
    }

    /// The page of a list that begins with the object of this number.
    fn page(&self, from: usize) -> Value {
        let end = self.listed.min(from + PAGE);
        let items: Vec<Value> = (from..end).map(|number| (self.event)(number).1).collect();
        let next = if end < self.listed { end.to_string() } else { String::new() };
        json!({"metadata": {"resourceVersion": "2000000", "continue": next}, "items": items})
    }
}

/// A line of a watch, as Go writes it: the type first.
fn line((of, object): (&str, Value)) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{of}\",\"object\":{object}}}\n"))
}

/// The way to a server that shows `shows`, by plural.
pub(crate) fn transport(shows: BTreeMap<&'static str, Show>) -> Transport {
    let shows = Arc::new(shows);
    boxed(service_fn(move |request: KubeRequest| {
        let shows = Arc::clone(&shows);
        async move { Ok::<_, Infallible>(answer(&shows, &request)) }
    }))
}

fn answer(shows: &BTreeMap<&'static str, Show>, request: &KubeRequest) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    let plural = path.rsplit('/').next().unwrap_or_default().to_owned();
    let query = request.uri().query().unwrap_or_default();
    let show = || shows.get(plural.as_str()).cloned().unwrap_or_else(Show::nothing);
    let body = if path.contains("/leases") {
        whole(&lease())
    } else if path == "/apis/storage.k8s.io/v1" {
        whole(
            &json!({"kind": "APIResourceList", "groupVersion": "storage.k8s.io/v1", "resources": [
                {"name": "csistoragecapacities", "kind": "CSIStorageCapacity", "namespaced": true},
            ]}),
        )
    } else if plural == "selfsubjectrulesreviews" {
        whole(&all_rights())
    } else if query.contains("watch=true") {
        streamed(show().changes())
    } else if query.contains("limit=") {
        let next = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
        whole(&show().page(next.map_or(0, |next| next.parse().unwrap())))
    } else if path.contains("/events") && request.method() != http::Method::GET {
        whole(&json!({"metadata": {}}))
    } else if request.method() == http::Method::GET && plural_of_object(&path).is_some() {
        return object(shows, &path);
    } else {
        panic!("nobody has business with {path}")
    };
    http::Response::new(body)
}

/// The plural in the path of a single object.
fn plural_of_object(path: &str) -> Option<&str> {
    let plural = path.rsplit('/').nth(1)?;
    ["persistentvolumeclaims", "persistentvolumes", "secrets"].contains(&plural).then_some(plural)
}

/// The object at the path, whose name ends with its number.
fn object(shows: &BTreeMap<&'static str, Show>, path: &str) -> http::Response<Body> {
    let digits = path.rsplit('-').next().and_then(|digits| digits.parse().ok());
    let show = plural_of_object(path).and_then(|plural| shows.get(plural));
    if let (Some(show), Some(number)) = (show, digits) {
        return http::Response::new(whole(&(show.event)(number).1));
    }
    let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": format!("{path} not found")});
    http::Response::builder().status(404).body(whole(&status)).unwrap()
}

fn streamed(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece)))).boxed_unsync()
}

fn whole(object: &Value) -> Body {
    http_body_util::Full::new(Bytes::from(object.to_string())).boxed_unsync()
}

/// The answer to the question for one's rights.
fn all_rights() -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {},
        "status": {
            "resourceRules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
            "nonResourceRules": [], "incomplete": false,
        },
    })
}

/// The Lease of another replica.
fn lease() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "lease", "namespace": "default", "uid": "l", "resourceVersion": "1"},
        "spec": {
            "holderIdentity": "another", "leaseDurationSeconds": 3600, "leaseTransitions": 1,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    })
}
