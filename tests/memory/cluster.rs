//! An API server that holds as many objects as a test asks for, and keeps none of them in memory.
//!
//! It answers what a standby asks: what is served and allowed, streamed lists, made up object by
//! object while they are sent, and the Lease, which another replica holds.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use bytes::Bytes;
use csi_provisioner::kube_api::{
    Transport,
    transport::{Request, boxed},
};
use futures::{Stream, StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tower::service_fn;

/// The body of an answer.
type Body = UnsyncBoxBody<Bytes, Infallible>;

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

    /// The lines of the watch, which then stays open.
    fn lines(self, kind: String) -> impl Stream<Item = Bytes> + Send {
        let Self { listed, total, event } = self;
        let later = Arc::clone(&event);
        // As Go writes it: the type first.
        let line = |(of, object): (&str, Value)| {
            Bytes::from(format!("{{\"type\":\"{of}\",\"object\":{object}}}\n"))
        };
        let list = stream::iter((0..listed).map(move |number| line(event(number))));
        let whole = stream::once(async move { line(("BOOKMARK", end_of_list(&kind))) });
        let changes = stream::iter((listed..total).map(move |number| line(later(number))));
        list.chain(whole).chain(changes).chain(stream::pending())
    }
}

/// The bookmark that ends a streamed list.
fn end_of_list(kind: &str) -> Value {
    json!({
        "kind": kind, "apiVersion": "v1",
        "metadata": {
            "resourceVersion": "2000000", "creationTimestamp": null,
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    })
}

/// The way to a server that shows `shows`, by plural.
pub(crate) fn transport(shows: BTreeMap<&'static str, Show>) -> Transport {
    let shows = Arc::new(shows);
    boxed(service_fn(move |request: Request| {
        let shows = Arc::clone(&shows);
        async move { Ok::<_, Infallible>(answer(&shows, &request)) }
    }))
}

fn answer(shows: &BTreeMap<&'static str, Show>, request: &Request) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    let plural = path.rsplit('/').next().unwrap_or_default().to_owned();
    let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let body = if path.contains("/leases") {
        whole(&lease())
    } else if path == "/apis/storage.k8s.io/v1" {
        whole(
            &json!({"kind": "APIResourceList", "groupVersion": "storage.k8s.io/v1", "resources": []}),
        )
    } else if plural == "selfsubjectrulesreviews" {
        whole(&all_rights())
    } else if watches {
        let show = shows.get(plural.as_str()).cloned().unwrap_or_else(Show::nothing);
        let frames = show.lines(plural).map(|line| Ok(Frame::data(line)));
        StreamBody::new(frames).boxed_unsync()
    } else {
        panic!("a standby has no business with {path}")
    };
    http::Response::new(body)
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
