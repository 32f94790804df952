//! Reads and writes objects of the API server on one lane.
//!
//! [`Client`] gets, creates, replaces, patches, deletes, lists and edits objects through kube-rs's client,
//! which sends each request through the lane's [`layers`](super::layers). Names are checked before they
//! become part of a URL. Answers are read up to a limit. Every error says whether the request may have
//! been carried out ([`ApiError::is_unclear`]). Watches are in [`super::informer`].

pub mod access;
pub mod annotations;
mod coalesced_reads;
mod discovery;
mod edits;
pub mod finalizers;
mod lanes;
mod list;

pub use super::name::{BadName, Name};
pub use coalesced_reads::{CoalescedReads, ReadBy};
pub use discovery::Served;
pub use edits::{Edit, Edited, WriteBy};
pub use kube::api::Patch;
pub(in crate::kube) use lanes::MAX_CONCURRENT_WRITES;
pub use lanes::{EventLane, LaneSettings, Lanes, RateLimit};

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use http_body_util::BodyExt as _;
use kube::{
    api::{DeleteParams, PatchParams, Preconditions},
    client::Body,
    core::request,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    error::{ApiError, fault},
    layers::{
        ApiService, Request,
        gate::SentAt,
        pages::{MAX_PAGE, PageSize, paged},
        throttle::{Throttle, is_watch, throttled},
        version::in_version,
        whole_answers::{BodyPermits, MaxAnswer, SMALL_ANSWER},
    },
    objects::{AnyObject, Metadata, View, kind::Kind},
};
use super::{name::check_namespace, target::Target, url::segment};
use crate::runtime::Random;

/// kube-rs's client wants a default namespace. Nobody uses it: each request names its own.
const NO_NAMESPACE: &str = "default";

/// A server, or a proxy before it, may end every watch at once, and kube-rs opens the next one without a
/// pause.
const PACE_OF_WATCHES: RateLimit = RateLimit { qps: 1.0, burst: 1 };

/// The media type of objects.
const JSON: &str = "application/json";

/// A client of the API server on one lane. Clones share the lane.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
    /// What `kube` sends requests through.
    service: ApiService,
    pub(super) random: Arc<dyn Random>,
}

impl Client {
    /// A client on `service`: the lane's layers over the connections. Must be called within a runtime:
    /// kube-rs starts a task, which ends with the client.
    pub(crate) fn new(service: ApiService, random: Arc<dyn Random>) -> Self {
        let kube = kube::Client::new(service.clone(), NO_NAMESPACE);
        Self { kube, service, random }
    }

    /// This client for a server that serves the kind of `V` only in this version, with the same fields.
    pub(crate) fn in_version<V: View>(&self, version: &'static str) -> Self {
        let service = in_version::<V>(version, self.service.clone());
        Self::new(ApiService::new(service), Arc::clone(&self.random))
    }

    /// kube-rs's client on this lane. [`ApiError::of_kube`] reads its errors.
    pub fn kube(&self) -> kube::Client {
        self.kube.clone()
    }

    /// A client of kube-rs for one watcher, on this lane. It lists in pages of so many objects, or fewer that
    /// fit, and opens a watch no more than once a second.
    pub(crate) fn for_watcher(&self, page_size: u32) -> kube::Client {
        let pages = PageSize::new(page_size, MAX_PAGE);
        let pace = Arc::new(Throttle::new(PACE_OF_WATCHES, None));
        let service = throttled(pace, is_watch, self.service.clone());
        kube::Client::new(paged(pages, service), NO_NAMESPACE)
    }

    /// Reads one object.
    pub async fn get<V: View>(&self, name: Name<'_>) -> Result<V, ApiError> {
        self.read(path::<V>(name)?).await
    }

    /// Reads one object; `None` if it does not exist.
    pub async fn get_opt<V: View>(&self, name: Name<'_>) -> Result<Option<V>, ApiError> {
        match self.get(name).await {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Reads one object. Also returns when the request was sent, after all waits, by
    /// [`Clock::boot`](crate::runtime::Clock::boot).
    pub async fn get_dated<V: View>(&self, name: Name<'_>) -> Result<(V, Duration), ApiError> {
        let (object, answer) = self.send(request(Method::GET, path::<V>(name)?)?).await?;
        Ok((object, answer.sent))
    }

    /// Reads one object with all its fields.
    pub async fn get_raw(&self, kind: &Kind, name: Name<'_>) -> Result<Value, ApiError> {
        self.get_raw_with_permits(kind, name).await.map(|(object, _)| object)
    }

    /// Like [`Self::get_raw`]; also returns the permits of a large object, which are kept as long as that.
    async fn get_raw_with_permits(
        &self,
        kind: &Kind,
        name: Name<'_>,
    ) -> Result<(Value, BodyPermits), ApiError> {
        let (object, answer) = self.send(request(Method::GET, kind.object(name))?).await?;
        Ok((object, answer.permits))
    }

    /// Reads the metadata of one object of any kind.
    pub async fn get_metadata(&self, kind: &Kind, name: Name<'_>) -> Result<Metadata, ApiError> {
        self.read(kind.object(name)).await.map(|object: AnyObject| object.metadata)
    }

    /// Creates an object, in `namespace` for kinds that have one.
    pub async fn create<V: View>(
        &self,
        namespace: Option<&str>,
        body: &(impl Serialize + Sync),
    ) -> Result<V, ApiError> {
        self.write(creation::<V>(namespace, body)?).await
    }

    /// Creates an object like [`Self::create`]. Whether that succeeded is all that is read of the answer.
    pub(super) async fn create_unread<V: View>(
        &self,
        namespace: Option<&str>,
        body: &(impl Serialize + Sync),
    ) -> Result<(), ApiError> {
        self.write_unread(creation::<V>(namespace, body)?).await
    }

    /// Replaces an object by `body`, which must hold the `resourceVersion` it was read with.
    pub async fn replace_raw<V: View>(&self, name: Name<'_>, body: &Value) -> Result<V, ApiError> {
        let path = path::<V>(name)? + NO_FIELD_VALIDATION;
        self.write(request_with_body(Method::PUT, path, body)?).await
    }

    /// Patches an object.
    pub async fn patch<V: View>(
        &self,
        name: Name<'_>,
        patch: &Patch<Value>,
    ) -> Result<V, ApiError> {
        self.write(patching::<V>(name, patch)?).await
    }

    /// Patches an object like [`Self::patch`]. Whether that succeeded is all that is read of the answer.
    pub(super) async fn patch_unread<V: View>(
        &self,
        name: Name<'_>,
        patch: &Patch<Value>,
    ) -> Result<(), ApiError> {
        self.write_unread(patching::<V>(name, patch)?).await
    }

    /// Deletes an object; with `uid` only if it has this UID, otherwise the error is a conflict.
    /// Returns the finalizers that keep the object, as far as the server says.
    pub async fn delete<V: View>(
        &self,
        name: Name<'_>,
        uid: Option<&str>,
    ) -> Result<Vec<String>, ApiError> {
        let preconditions =
            uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let options = DeleteParams { preconditions, ..DeleteParams::default() };
        let request = builder::<V>(name)?.delete(&segment(name.name()), &options)?;
        let answer = self.exchange(request.map(Body::from)).await?;
        Ok(remaining_finalizers::<V>(&answer))
    }

    /// Posts a review, such as a SelfSubjectAccessReview, which changes nothing on the server.
    pub(super) async fn review<T: DeserializeOwned>(
        &self,
        path: String,
        review: &Value,
    ) -> Result<T, ApiError> {
        self.write(request_with_body(Method::POST, path, review)?).await
    }

    /// Sends a GET and parses the answer.
    async fn read<T: DeserializeOwned>(&self, url: String) -> Result<T, ApiError> {
        Ok(self.send(request(Method::GET, url)?).await?.0)
    }

    /// Sends a write and reads the object in the answer.
    async fn write<T: DeserializeOwned>(&self, request: Request) -> Result<T, ApiError> {
        Ok(self.send(request).await?.0)
    }

    /// Sends a write whose answer says nothing. A small one is read, so that its connection can be used again; a
    /// larger one is given up with its connection, since others may have written what is in it.
    async fn write_unread(&self, mut request: Request) -> Result<(), ApiError> {
        request.extensions_mut().insert(MaxAnswer(SMALL_ANSWER));
        match self.exchange(request).await {
            Ok(_) | Err(ApiError::TooLarge { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a request and parses the JSON of the answer; returns both.
    async fn send<T: DeserializeOwned>(&self, request: Request) -> Result<(T, Answer), ApiError> {
        let answer = self.exchange(request).await?;
        let object = serde_json::from_slice(&answer.body).map_err(|error| {
            ApiError::Unreadable { about: answer.about.clone(), fault: fault(&error) }
        })?;
        Ok((object, answer))
    }

    /// Sends a request and reads the body of a successful answer.
    async fn exchange(&self, request: Request) -> Result<Answer, ApiError> {
        let about = Target::of(&request).about();
        let read = async {
            let (head, body) = self.kube.send(request).await?.into_parts();
            Ok((head.extensions, body.collect().await?.to_bytes()))
        };
        let (noted, body) = read.await.map_err(|error| ApiError::of_kube(error, &about))?;
        let sent = noted.get().map(|SentAt(at)| *at).unwrap_or_default();
        Ok(Answer { body, sent, permits: noted.get().cloned().unwrap_or_default(), about })
    }
}

/// The answer to a successful request.
struct Answer {
    body: Bytes,
    /// When a read was sent, by the boot clock; zero if unknown, as for a write.
    sent: Duration,
    /// The permits of a large body.
    permits: BodyPermits,
    /// The resource and, if the request had one, the name.
    about: String,
}

/// The finalizers in the answer to a DELETE. The server answers with the object while finalizers keep it,
/// otherwise with the object or a Status.
fn remaining_finalizers<V: View>(answer: &Answer) -> Vec<String> {
    match serde_json::from_slice::<V>(&answer.body) {
        Ok(object) => object.meta().finalizers.iter().map(ToString::to_string).collect(),
        Err(_) => Vec::new(),
    }
}

/// The path of the object of kind `V`.
fn path<V: View>(name: Name<'_>) -> Result<String, BadName> {
    check_scope::<V>(name)?;
    Ok(Kind::of::<V>().object(name))
}

/// Builds requests for objects of kind `V` beside this one. kube-rs writes names into the path as they are.
fn builder<V: View>(name: Name<'_>) -> Result<kube::core::Request, BadName> {
    check_scope::<V>(name)?;
    Ok(kube::core::Request::new(Kind::of::<V>().collection(name.namespace())))
}

fn check_scope<V: View>(name: Name<'_>) -> Result<(), BadName> {
    if V::NAMESPACED && name.namespace().is_none() {
        return Err(BadName::NoNamespace);
    }
    Ok(())
}

/// The request that creates an object of kind `V`.
fn creation<V: View>(namespace: Option<&str>, body: &impl Serialize) -> Result<Request, ApiError> {
    if V::NAMESPACED || namespace.is_some() {
        check_namespace(namespace.unwrap_or_default())?;
    }
    let path = Kind::of::<V>().collection(namespace) + NO_FIELD_VALIDATION;
    request_with_body(Method::POST, path, body)
}

/// The request that patches an object of kind `V`.
fn patching<V: View>(name: Name<'_>, patch: &Patch<Value>) -> Result<Request, ApiError> {
    let parameters = PatchParams::default().validation_ignore();
    let request = builder::<V>(name)?.patch(&segment(name.name()), &parameters, patch)?;
    Ok(request.map(Body::from))
}

/// The query of a write whose body the server shall not search for unknown and repeated fields, as it does
/// not search protobuf, which client-go sends. By default it decodes JSON a second time for that, which is
/// a tenth of its time in a burst of claims (docs/performance.md).
const NO_FIELD_VALIDATION: &str = "?fieldValidation=Ignore";

/// The initial capacity for the body of a request, in bytes; enough for most objects.
const BODY_CAPACITY: usize = 1 << 10;

/// A request that accepts JSON.
pub(super) fn request(method: Method, url: String) -> Result<Request, ApiError> {
    let accept = HeaderValue::from_static(JSON);
    let request = http::Request::builder().method(method).uri(url).header(header::ACCEPT, accept);
    Ok(request.body(Body::empty()).map_err(request::Error::BuildRequest)?)
}

fn request_with_body(
    method: Method,
    path: String,
    body: &impl Serialize,
) -> Result<Request, ApiError> {
    let mut json = Vec::with_capacity(BODY_CAPACITY);
    serde_json::to_writer(&mut json, body).map_err(request::Error::SerializeBody)?;
    let mut request = request(method, path)?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    *request.body_mut() = json.into();
    Ok(request)
}

#[cfg(test)]
mod tests;
