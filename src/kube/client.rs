//! Single requests on one lane.
//!
//! Owns the verbs on one object. Promises that names are checked before they are part of a URL,
//! that an answer is read up to a bound only and never logged, and that every failure says whether
//! the request may have been carried out. Leaves edits of whole objects to `edits`, lists
//! and watches to [`super::informer`].

pub mod access;
mod coalesced_reads;
mod discovery;
mod edits;
pub mod finalizers;
mod lanes;
mod list;
pub(crate) mod name;
#[cfg(test)]
mod odd_names;

pub use coalesced_reads::CoalescedReads;
pub use discovery::Served;
pub use edits::{Edit, Edited, WriteBy};
pub use lanes::{LaneSettings, Lanes, RateLimit};
pub use name::{BadName, Name};

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use self::name::check_namespace;
use super::{
    connection::transport::{Request, Service, Transport, Unread, read},
    error::{ApiError, Refusal, fault},
    objects::{AnyObject, View, kind::Kind},
    stack::{gate::SentAt, layer, rate::Rate, target::Target},
};
use crate::runtime::Random;

/// The most that is read of one answer, in bytes: ten times what the server takes in a request.
/// A page of 500 volumes is about one MiB.
pub(super) const MAX_ANSWER: usize = 32 << 20;

/// One lane to the API server. Clones share it.
#[derive(Clone)]
pub struct Client {
    service: Transport,
    pub(super) random: Arc<dyn Random>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// A change to an object, in one of the forms the server understands.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// RFC 7396.
    Merge(Value),
    /// Kubernetes' own: lists merge by their keys, `$deleteFromPrimitiveList` and the like.
    StrategicMerge(Value),
}

impl Patch {
    fn parts(&self) -> (&'static str, &Value) {
        match self {
            Self::Merge(body) => ("application/merge-patch+json", body),
            Self::StrategicMerge(body) => ("application/strategic-merge-patch+json", body),
        }
    }
}

impl Client {
    /// A lane on `service`, which obeys the lane's rules already.
    pub(crate) fn new(service: Transport, random: Arc<dyn Random>) -> Self {
        Self { service, random }
    }

    /// Reads one object.
    pub async fn get<V: View>(&self, name: Name<'_>) -> Result<V, ApiError> {
        self.read(path::<V>(name)?).await
    }

    /// Reads one object, and tells when it was asked for, on [`Clock::boot`](crate::runtime::Clock::boot):
    /// when the request left, whatever it had waited for before.
    pub async fn get_dated<V: View>(&self, name: Name<'_>) -> Result<(V, Duration), ApiError> {
        let (object, answer) =
            self.send(request(Method::GET, path::<V>(name)?)?, MAX_ANSWER).await?;
        Ok((object, answer.sent))
    }

    /// Reads one object with all its fields.
    pub async fn get_raw(&self, kind: &Kind, name: Name<'_>) -> Result<Value, ApiError> {
        self.read(kind.object(name)).await
    }

    /// Reads what all objects have, of one of whatever kind.
    pub async fn get_metadata(&self, kind: &Kind, name: Name<'_>) -> Result<ObjectMeta, ApiError> {
        self.read(kind.object(name)).await.map(|object: AnyObject| object.metadata)
    }

    /// Creates an object, in `namespace` for kinds that have one.
    pub async fn create<V: View>(
        &self,
        namespace: Option<&str>,
        body: &(impl Serialize + Sync),
    ) -> Result<V, ApiError> {
        if V::NAMESPACED || namespace.is_some() {
            check_namespace(namespace.unwrap_or_default())?;
        }
        let path = Kind::of::<V>().collection(namespace);
        self.ask_for(request_with(Method::POST, path, JSON, body)?).await
    }

    /// Puts `body` in an object's place; it must hold the `resourceVersion` it was read with.
    pub async fn replace_raw<V: View>(&self, name: Name<'_>, body: &Value) -> Result<V, ApiError> {
        self.ask_for(request_with(Method::PUT, path::<V>(name)?, JSON, body)?).await
    }

    /// Changes an object.
    pub async fn patch<V: View>(&self, name: Name<'_>, patch: &Patch) -> Result<V, ApiError> {
        let (media_type, body) = patch.parts();
        self.ask_for(request_with(Method::PATCH, path::<V>(name)?, media_type, body)?).await
    }

    /// Deletes an object; with `uid` only while it is that very object (else a conflict). Tells which
    /// finalizers keep it for now, as far as the server says.
    pub async fn delete<V: View>(
        &self,
        name: Name<'_>,
        uid: Option<&str>,
    ) -> Result<Vec<String>, ApiError> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let (Some(uid), Some(fields)) = (uid, options.as_object_mut()) {
            fields.insert("preconditions".to_owned(), json!({"uid": uid}));
        }
        let mut request = request_with(Method::DELETE, path::<V>(name)?, JSON, &options)?;
        let answer = self.exchange(&mut request, MAX_ANSWER).await?;
        // An object that stands is answered with as it is now, one that is gone with that or a status.
        let kept: Kept = serde_json::from_slice(&answer.body).unwrap_or_default();
        Ok(kept.metadata.finalizers)
    }

    /// Asks the server something about ourselves: nothing is changed by it.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: String,
        question: &Value,
    ) -> Result<T, ApiError> {
        self.ask_for(request_with(Method::POST, path, JSON, question)?).await
    }

    /// A client of kube's on the same lane, for one informer, whose watches keep a rate. Every call
    /// starts a worker of its own on the current tokio runtime, which ends with the last clone of
    /// the client.
    pub fn kube(&self) -> kube::Client {
        let way = layer(Rate::new(), self.service.clone());
        kube::Client::new(Transport::new(way), "default")
    }

    /// Reads what a URL of the API gives.
    pub(super) async fn read<T: DeserializeOwned>(&self, url: String) -> Result<T, ApiError> {
        self.read_within(url, MAX_ANSWER).await
    }

    /// The same, if the answer takes so many bytes at most.
    ///
    /// # Errors
    /// [`ApiError::TooLarge`] where it takes more.
    pub(super) async fn read_within<T: DeserializeOwned>(
        &self,
        url: String,
        most: usize,
    ) -> Result<T, ApiError> {
        Ok(self.send(request(Method::GET, url)?, most).await?.0)
    }

    async fn ask_for<T: DeserializeOwned>(&self, request: Request) -> Result<T, ApiError> {
        Ok(self.send(request, MAX_ANSWER).await?.0)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        mut request: Request,
        most: usize,
    ) -> Result<(T, Answer), ApiError> {
        let answer = self.exchange(&mut request, most).await?;
        let object = serde_json::from_slice(&answer.body).map_err(|error| {
            ApiError::Unreadable { about: Target::of(&request).about(), fault: fault(&error) }
        })?;
        Ok((object, answer))
    }

    /// Sends a request and reads the body of a success, if that takes so many bytes at most.
    async fn exchange(&self, request: &mut Request, most: usize) -> Result<Answer, ApiError> {
        let response = self.service.send(request).await.map_err(ApiError::from_transport)?;
        let (parts, body) = response.into_parts();
        let body = read(body, most).await;
        let target = Target::of(request);
        if parts.status.is_success() {
            let sent = parts.extensions.get().map(|SentAt(at)| *at).unwrap_or_default();
            let body = body.map_err(|unread| broken(unread, &target, most))?;
            return Ok(Answer { body, sent });
        }
        // A refusal is one also where its explanation is lost.
        let body = body.unwrap_or_default();
        let refusal = Refusal::read(request.method(), &target, parts.status, &parts.headers, &body);
        Err(ApiError::Refused(Box::new(refusal)))
    }
}

/// The answer to a request that succeeded.
struct Answer {
    body: Bytes,
    /// When a read was sent, on boot time; long ago where that is not known, as of a write.
    sent: Duration,
}

/// An object that is being deleted, as far as its end is concerned.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Kept {
    metadata: KeptBy,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeptBy {
    finalizers: Vec<String>,
}

/// What a body that could not be read to its end means.
fn broken(unread: Unread, target: &Target<'_>, most: usize) -> ApiError {
    match unread {
        Unread::TooLong => ApiError::TooLarge { about: target.about(), most },
        Unread::Broken(error) => ApiError::from_transport(error),
    }
}

/// The path of a `V`.
fn path<V: View>(name: Name<'_>) -> Result<String, BadName> {
    if V::NAMESPACED && name.namespace().is_none() {
        return Err(BadName::NoNamespace);
    }
    Ok(Kind::of::<V>().object(name))
}

const JSON: &str = "application/json";

/// Room for the body of a request, in bytes: as much as most objects take.
const USUAL_BODY: usize = 1 << 10;

fn request(method: Method, url: String) -> Result<Request, ApiError> {
    let accept = HeaderValue::from_static(JSON);
    let request = http::Request::builder().method(method).uri(url).header(header::ACCEPT, accept);
    Ok(request.body(Bytes::new())?)
}

fn request_with(
    method: Method,
    path: String,
    media_type: &'static str,
    body: &impl Serialize,
) -> Result<Request, ApiError> {
    let mut json = Vec::with_capacity(USUAL_BODY);
    serde_json::to_writer(&mut json, body).map_err(ApiError::Unwritable)?;
    let mut request = request(method, path)?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    *request.body_mut() = json.into();
    Ok(request)
}

#[cfg(test)]
mod tests;
