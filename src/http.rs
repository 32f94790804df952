//! The HTTP server: metrics and health checks.
//!
//! Owns the address, the paths and their answers. Promises the original's content types, bodies
//! and texts of failure (`ok` and `internal server error: ...` for checks, Go's 404 elsewhere), and
//! an orderly end: open requests are answered. Knows nothing of what is measured or checked:
//! closures tell.

mod address;

use std::{collections::BTreeMap, convert::Infallible, fmt, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub use self::address::AddressError;
use crate::runtime::Tasks;

/// Where the original serves the health check of leader election.
pub const LEADER_ELECTION_CHECK: &str = "/healthz/leader-election";

/// The Prometheus client's content type; `escaping` tells scrapers that names are plain.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// How long a client may take to say what it wants.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long open requests may take to end once the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait after a connection could not be accepted (no file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A health check: `Err` with what is wrong.
type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;
/// Gives the metrics in the Prometheus text format, or says why it can't.
type Scrape = Box<dyn Fn() -> Result<Vec<u8>, String> + Send + Sync>;

/// What is served where.
pub struct Routes {
    metrics_path: String,
    scrape: Scrape,
    checks: BTreeMap<&'static str, Check>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks: Vec<_> = self.checks.keys().collect();
        f.debug_struct("Routes")
            .field("metrics", &self.metrics_path)
            .field("checks", &checks)
            .finish_non_exhaustive()
    }
}

impl Routes {
    /// Metrics at `path`, and nothing else.
    pub fn new(
        path: &str,
        scrape: impl Fn() -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> Self {
        Self { metrics_path: path.to_owned(), scrape: Box::new(scrape), checks: BTreeMap::new() }
    }

    /// A health check at `path` as well.
    #[must_use]
    pub fn check(
        mut self,
        path: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.checks.insert(path, Box::new(check));
        self
    }

    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        if is_at(&self.metrics_path, path) {
            return match (self.scrape)() {
                Ok(text) => respond(StatusCode::OK, METRICS_TYPE, text),
                Err(why) => failure(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    &format!("An error has occurred while serving metrics:\n\n{why}"),
                ),
            };
        }
        match self.checks.get(path).map(|check| check()) {
            Some(Ok(())) => respond(StatusCode::OK, TEXT_TYPE, "ok"),
            Some(Err(why)) => {
                failure(StatusCode::INTERNAL_SERVER_ERROR, &format!("internal server error: {why}"))
            }
            None => failure(StatusCode::NOT_FOUND, "404 page not found"),
        }
    }
}

/// Go's rule: a pattern that ends in a slash stands for all that is below.
fn is_at(pattern: &str, path: &str) -> bool {
    path == pattern || pattern.ends_with('/') && path.starts_with(pattern)
}

fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// As Go's `http.Error` answers.
fn failure(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = respond(status, TEXT_TYPE, format!("{text}\n"));
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The server cannot listen; in the original's words.
#[derive(Debug, thiserror::Error)]
#[error(
    "Failed to start HTTP server at specified address ({address:?}) and metrics path ({metrics_path:?}): {cause}"
)]
pub struct ListenError {
    address: String,
    metrics_path: String,
    cause: Cause,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("listen tcp {address}: {}", address::reason(.error))]
    Bind { address: String, error: io::Error },
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    routes: Arc<Routes>,
}

impl Server {
    /// Listens at `address`, `host:port` as Go writes it (`:8080`: on all interfaces).
    ///
    /// # Errors
    /// [`ListenError`] when that cannot be.
    pub async fn bind(address: &str, routes: Routes) -> Result<Self, ListenError> {
        let bound = async {
            let target = address::parse(address)?;
            let bind = |error| Cause::Bind { address: address.to_owned(), error };
            target.listen().await.map_err(bind)
        };
        match bound.await {
            Ok(listener) => Ok(Self { listener, routes: Arc::new(routes) }),
            Err(cause) => Err(ListenError {
                address: address.to_owned(),
                metrics_path: routes.metrics_path,
                cause,
            }),
        }
    }

    /// Serves until `stop` is cancelled and open requests have ended, or had time to.
    pub async fn run(self, tasks: Tasks, stop: CancellationToken) {
        let open = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.serve(stream, &open, &tasks),
                Err(error) => {
                    tracing::warn!(error = %error, "cannot accept an HTTP connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // From here on new connections are refused; whoever takes longer is cut with the process.
        drop(self.listener);
        let _ = tokio::time::timeout(STOP_TIMEOUT, open.shutdown()).await;
    }

    fn serve(&self, stream: TcpStream, open: &GracefulShutdown, tasks: &Tasks) {
        let routes = Arc::clone(&self.routes);
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let response = routes.answer(request.uri().path());
            async move { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        let connection = open.watch(connection);
        tasks.passing("http connection", async move {
            if let Err(error) = connection.await {
                tracing::trace!(error = %error, "HTTP connection ended early");
            }
        });
    }
}

#[cfg(test)]
mod tests;
