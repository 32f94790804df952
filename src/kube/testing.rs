//! A scripted API server for tests: a function from a request to its answer.
//!
//! It knows nothing of objects; each test provides the answers. Requests are recorded with the
//! (paused) time of their arrival.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tower::{BoxError, service_fn};

use super::{
    client::{Client, EventLane},
    connection::Connections,
    layers::{
        ApiService, Next, Outcome, Request, Response,
        in_flight::InFlight,
        refusals::refusals,
        whole_answers::{Budget, whole_answers},
    },
};
use crate::runtime::{Generator, Random};

/// A recorded request.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) url: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
    /// Time since the server was created.
    pub(crate) at: Duration,
}

impl RecordedRequest {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// How an answer's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Complete.
    Closed,
    /// The connection breaks.
    Broken,
    /// Never.
    Open,
}

/// A scripted answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    after: Duration,
    /// `None`: no answer, the connection breaks.
    status: Option<u16>,
    headers: Vec<(&'static str, String)>,
    chunks: Vec<(Duration, Bytes)>,
    end: End,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            after: Duration::ZERO,
            status: Some(status),
            headers: vec![],
            chunks: vec![],
            end: End::Closed,
        }
    }

    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::status(status).header("content-type", "application/json").chunk(0, body.to_string())
    }

    /// A refusal in the API server's format.
    pub(crate) fn refusal(code: u16, reason: &str, message: &str) -> Self {
        let body = serde_json::json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message});
        Self::json(code, &body)
    }

    /// No answer: the connection breaks.
    pub(crate) fn none() -> Self {
        Self { status: None, ..Self::status(200) }
    }

    /// A watch that stays open.
    pub(crate) fn watch() -> Self {
        Self::status(200).end(End::Open)
    }

    pub(crate) fn after(self, seconds: u64) -> Self {
        self.after_time(Duration::from_secs(seconds))
    }

    pub(crate) fn after_time(self, after: Duration) -> Self {
        Self { after, ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Adds a part of the body, so many seconds after the last one.
    pub(crate) fn chunk(mut self, seconds: u64, text: impl Into<Bytes>) -> Self {
        self.chunks.push((Duration::from_secs(seconds), text.into()));
        self
    }

    /// Adds an event of a watch, so many seconds after the last part of the body.
    pub(crate) fn event(self, seconds: u64, kind: &str, object: &Value) -> Self {
        // As Go serializes it: the type first.
        self.chunk(seconds, format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
    }

    pub(crate) fn end(self, end: End) -> Self {
        Self { end, ..self }
    }

    async fn into_response(
        self,
    ) -> Result<http::Response<impl http_body::Body<Data = Bytes, Error = BoxError>>, BoxError>
    {
        sleep(self.after).await;
        let status = self.status.ok_or("connection reset by peer")?;
        let frames = stream::iter(self.chunks).then(|(after, text)| async move {
            sleep(after).await;
            Ok(Frame::data(text))
        });
        let end = stream::once(async move {
            match self.end {
                End::Closed => None,
                End::Broken => Some(Err("connection reset by peer".into())),
                End::Open => std::future::pending().await,
            }
        });
        let mut response = http::Response::builder().status(status);
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        Ok(response
            .body(StreamBody::new(frames.chain(end.filter_map(std::future::ready)).boxed()))?)
    }
}

/// The scripted server.
#[derive(Clone)]
pub(crate) struct Server {
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    /// The service that answers for it.
    pub(crate) service: ApiService,
}

impl Server {
    /// A server that answers with `script`, called with the number of the request, from 0, and the
    /// request.
    pub(crate) fn new(
        script: impl Fn(usize, &RecordedRequest) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (recorded, script, start) = (Arc::clone(&requests), Arc::new(script), Instant::now());
        let connections = Connections::to(service_fn(move |request: Request| {
            let (recorded, script) = (Arc::clone(&recorded), Arc::clone(&script));
            async move {
                let request = RecordedRequest::record(request, start).await;
                let number = {
                    let mut recorded = recorded.lock();
                    recorded.push(request.clone());
                    recorded.len() - 1
                };
                script(number, &request).into_response().await
            }
        }));
        Self { requests, service: connections.kept }
    }

    /// The connections to it.
    pub(crate) fn connections(&self) -> Connections {
        Connections::to(self.service.clone())
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().clone()
    }

    /// The times at which the requests came, in seconds since the server was created.
    pub(crate) fn times(&self) -> Vec<u64> {
        self.requests().iter().map(|request| request.at.as_secs()).collect()
    }
}

impl RecordedRequest {
    async fn record(request: Request, start: Instant) -> Self {
        let at = start.elapsed();
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self {
            method: parts.method.to_string(),
            url: parts.uri.to_string(),
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
            at,
        }
    }
}

/// A generator with a fixed seed.
pub(crate) fn random() -> Arc<dyn Random> {
    Arc::new(Generator::from_seed(1))
}

/// A request without a body.
pub(crate) fn request(method: http::Method, url: &str) -> Request {
    http::Request::builder().method(method).uri(url).body(Body::empty()).unwrap()
}

/// Sends a request through `service`.
pub(crate) async fn send(service: &impl Next, request: Request) -> Outcome {
    service.send(request).await
}

/// Reads the body of a response to its end.
pub(crate) async fn read(response: Response) -> Result<Bytes, BoxError> {
    Ok(response.into_body().collect().await?.to_bytes())
}

/// A client of `server` without layers.
pub(crate) fn client(server: &Server) -> Client {
    let whole = whole_answers(Budget::default(), server.service.clone());
    let service = refusals(Arc::default(), whole);
    Client::new(ApiService::new(service), random())
}

/// A lane of events to `server`, beside which no objects are written.
pub(crate) fn event_lane(server: &Server) -> EventLane {
    EventLane { client: client(server), object_writes: InFlight::new(1) }
}
