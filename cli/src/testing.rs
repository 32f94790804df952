//! A scripted API server: a function from a request to its answer.

use std::sync::Arc;

use bytes::Bytes;
use csi_provisioner::{
    kube::{Client, Connections, LaneSettings, Lanes, layers::Request},
    metrics::Metrics,
    runtime::{Clock, Gate, Generator, SystemClock},
};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

/// A recorded request.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) url: String,
    body: String,
}

impl RecordedRequest {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A scripted answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer(u16, Value);

impl Answer {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self(status, body.clone())
    }

    /// A refusal in the API server's format.
    pub(crate) fn refusal(code: u16, reason: &str, message: &str) -> Self {
        let body = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message});
        Self(code, body)
    }
}

/// The scripted server.
#[derive(Clone)]
pub(crate) struct Server {
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    connections: Connections,
}

impl Server {
    /// A server that answers with `script`.
    pub(crate) fn new(script: impl Fn(&RecordedRequest) -> Answer + Send + Sync + 'static) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (recorded, script) = (Arc::clone(&requests), Arc::new(script));
        let connections = Connections::to(service_fn(move |request: Request| {
            let (recorded, script) = (Arc::clone(&recorded), Arc::clone(&script));
            async move {
                let (parts, body) = request.into_parts();
                let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
                let (method, url) = (parts.method.to_string(), parts.uri.to_string());
                let request = RecordedRequest { method, url, body };
                let Answer(status, body) = script(&request);
                recorded.lock().push(request);
                let response = http::Response::builder()
                    .status(status)
                    .header("content-type", "application/json")
                    .body(Full::<Bytes>::from(body.to_string()));
                Ok::<_, BoxError>(response?)
            }
        }));
        Self { requests, connections }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().clone()
    }
}

/// A client of `server`.
pub(crate) fn client(server: &Server) -> Client {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let random = Arc::new(Generator::from_seed(1));
    let (connections, metrics) = (server.connections.clone(), Metrics::new());
    Lanes::new(connections, LaneSettings::default(), Gate::open(clock), random, &metrics).objects
}

/// The time of all tests.
#[derive(Debug)]
pub(crate) struct Epoch;

impl Clock for Epoch {
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn boot(&self) -> std::time::Duration {
        std::time::Duration::from_secs(100)
    }
}
