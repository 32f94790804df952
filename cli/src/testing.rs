//! A scripted API server: a function from a request to its answer.

use std::{future, sync::Arc};

use bytes::Bytes;
use csi_provisioner::{
    kube::{Client, Connections, LaneSettings, Lanes, layers::Request},
    metrics::Metrics,
    runtime::{Clock, Gate, Generator, SystemClock},
};
use http_body_util::Full;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use crate::subcommand::{self, Command, Output};

/// A request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) url: String,
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
pub(crate) struct Server(Connections);

impl Server {
    /// A server that answers with `script`.
    pub(crate) fn new(script: impl Fn(&Asked) -> Answer + Clone + Send + Sync + 'static) -> Self {
        Self(Connections::to(service_fn(move |request: Request| {
            let (method, url) = (request.method().to_string(), request.uri().to_string());
            let Answer(status, body) = script(&Asked { method, url });
            let response = http::Response::builder()
                .status(status)
                .header("content-type", "application/json")
                .body(Full::<Bytes>::from(body.to_string()));
            future::ready(response.map_err(BoxError::from))
        })))
    }
}

/// A client of `server`.
pub(crate) fn client(server: &Server) -> Client {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let random = Arc::new(Generator::from_seed(1));
    let (connections, metrics) = (server.0.clone(), Metrics::new());
    Lanes::new(connections, LaneSettings::default(), Gate::open(clock), random, &metrics).objects
}

/// The command of this name with these arguments, or what is printed instead.
pub(crate) fn parse(command: &str, args: &[&str]) -> Result<Command, Output> {
    subcommand::parse(["kubectl-csi_provisioner", command].iter().chain(args))
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
