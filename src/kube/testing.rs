//! A scripted API server for this room's tests: a function from a request to its answer.
//!
//! It knows nothing of objects; each test says what is answered when. Requests are noted with the
//! (paused) time they came at.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tower::{BoxError, service_fn};

use super::{
    client::Client,
    connection::transport::{KubeRequest, Outcome, Request, Service, Transport, boxed},
};
use crate::runtime::{Clock, Generator, Random};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) url: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
    /// Time since the server was made.
    pub(crate) at: Duration,
}

impl Seen {
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
    /// As it should.
    Closed,
    /// The connection breaks.
    Broken,
    /// Never.
    Open,
}

/// What the server answers.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    after: Duration,
    /// None: no answer at all, the connection breaks.
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

    /// A refusal as the API server words it.
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
        Self { after: Duration::from_secs(seconds), ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// More of the body, so many seconds after what was before.
    pub(crate) fn chunk(mut self, seconds: u64, text: impl Into<Bytes>) -> Self {
        self.chunks.push((Duration::from_secs(seconds), text.into()));
        self
    }

    /// An event of a watch, so many seconds after what was before.
    pub(crate) fn event(self, seconds: u64, kind: &str, object: &Value) -> Self {
        // As Go writes it: the type first.
        self.chunk(seconds, format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
    }

    pub(crate) fn end(self, end: End) -> Self {
        Self { end, ..self }
    }

    async fn give(
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

/// The server: what it was asked, and the way to it.
#[derive(Clone)]
pub(crate) struct Server {
    seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) transport: Transport,
}

impl Server {
    /// A server that answers with `script`, given the number of the request, from 0, and itself.
    pub(crate) fn new(script: impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static) -> Self {
        let (seen, script, start) =
            (Arc::new(Mutex::new(Vec::new())), Arc::new(script), Instant::now());
        let note = Arc::clone(&seen);
        let transport = boxed(service_fn(move |request: KubeRequest| {
            let (note, script) = (Arc::clone(&note), Arc::clone(&script));
            async move {
                let request = Seen::note(request, start).await;
                let number = {
                    let mut note = note.lock();
                    note.push(request.clone());
                    note.len() - 1
                };
                script(number, &request).give().await
            }
        }));
        Self { seen, transport }
    }

    /// What came so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// When what came came, in seconds.
    pub(crate) fn times(&self) -> Vec<u64> {
        self.seen().iter().map(|seen| seen.at.as_secs()).collect()
    }
}

impl Seen {
    async fn note(request: KubeRequest, start: Instant) -> Self {
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

/// Chance that is always the same.
pub(crate) fn random() -> Arc<dyn Random> {
    Arc::new(Generator::from_seed(1))
}

/// A request without a body.
pub(crate) fn request(method: http::Method, url: &str) -> Request {
    http::Request::builder().method(method).uri(url).body(Bytes::new()).unwrap()
}

/// What becomes of a request.
pub(crate) async fn send(way: &impl Service, mut request: Request) -> Outcome {
    way.send(&mut request).await
}

/// A clock whose boot time follows tokio's paused one, from 100 s on.
struct PausedClock(Instant);

/// The clock, begun now.
pub(crate) fn paused_clock() -> Arc<dyn Clock> {
    Arc::new(PausedClock(Instant::now()))
}

impl Clock for PausedClock {
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn boot(&self) -> Duration {
        Duration::from_secs(100) + self.0.elapsed()
    }
}

/// A client on a server, with no rule before it.
pub(crate) fn client(server: &Server) -> Client {
    Client::new(server.transport.clone(), random())
}

/// What this thread logs, down to INFO.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Collects what this thread logs while the guard lives.
pub(crate) fn logged() -> (Log, tracing::subscriber::DefaultGuard) {
    logged_down_to(tracing::Level::INFO)
}

/// The same with more detail.
pub(crate) fn logged_down_to(level: tracing::Level) -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(level)
        .with_writer(move || writer.clone())
        .finish();
    crate::logging::listen_for_ever();
    (log, tracing::subscriber::set_default(subscriber))
}
