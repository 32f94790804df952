//! An API server that holds as many objects as a test asks for, and keeps none of them in memory.
//!
//! It answers what is served and allowed, and lists in pages, made up page by page. It takes events, and shows
//! single objects; what is not shown does not exist. Other writes it forbids.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use bytes::Bytes;
use csi_provisioner::kube::{Connections, layers::Request};
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
pub(crate) fn connections(shows: BTreeMap<&'static str, Show>) -> Connections {
    let shows = Arc::new(shows);
    Connections::to(service_fn(move |request: Request| {
        let shows = Arc::clone(&shows);
        async move { Ok::<_, Infallible>(answer(&shows, &request)) }
    }))
}

fn answer(shows: &BTreeMap<&'static str, Show>, request: &Request) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    let plural = path.rsplit('/').next().unwrap_or_default().to_owned();
    let query = request.uri().query().unwrap_or_default();
    let show = || shows.get(plural.as_str()).cloned().unwrap_or_else(Show::nothing);
    let body = if path == "/apis/storage.k8s.io/v1" {
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
        // Whatever is to be written is tried again and again.
        return refusal(403, "Forbidden", &path);
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
    refusal(404, "NotFound", path)
}

fn refusal(code: u16, reason: &str, path: &str) -> http::Response<Body> {
    let status = json!({"kind": "Status", "code": code, "reason": reason, "message": path});
    http::Response::builder().status(code).body(whole(&status)).unwrap()
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
