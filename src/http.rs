//! The HTTP server: metrics, health checks, profiles and pages.
//!
//! This module has the address, the connections and their limits; `routes` has the paths, `places` the
//! limit on connections, `pprof` the profiles, `fetch` the client of subcommands. Slow or many clients can
//! neither exhaust the process nor keep new clients out. On shutdown open requests are answered.

mod address;
mod answer;
mod fetch;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../fuzz/bodies/http.rs"]
pub mod fuzz;
mod places;
mod pprof;
mod routes;

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use http::{Request, StatusCode};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

pub use self::{
    address::AddressError,
    fetch::{BoxError, fetch},
    routes::Routes,
};
use self::{
    answer::{Answer, failure},
    places::{ConnectionPlace, Places},
};
use crate::runtime::Tasks;

/// What a request under another name than that of this host gets.
const FOREIGN_HOST: &str = "only for localhost: ask for it by a loopback name or address";

/// How long to wait after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits on clients.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Concurrent connections; a new one beyond that replaces the one that is idle longest.
    connections: usize,
    /// Concurrent connections of one address. Loopback addresses count too: behind a proxy in the pod all
    /// clients have that address, and a probe is not affected, since new connections are never refused.
    of_address: usize,
    /// How long a client may take to send a request, also on a kept-alive connection.
    header: Duration,
    /// How long a connection may last, so that slow readers are disconnected. Longer than the longest
    /// profile.
    life: Duration,
    /// Bytes of a request's line and headers.
    bytes: usize,
}

impl Limits {
    const USUAL: Self = Self {
        connections: 64,
        of_address: 16,
        header: Duration::from_secs(10),
        life: Duration::from_secs(10 * 60),
        bytes: 16 * 1024,
    };

    /// HTTP within these limits.
    fn protocol(&self) -> http1::Builder {
        let mut protocol = http1::Builder::new();
        protocol.timer(TokioTimer::new()).header_read_timeout(self.header).max_buf_size(self.bytes);
        protocol
    }
}

/// The server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The server of the metrics, with external-provisioner's message.
    #[error(
        "Failed to start HTTP server at specified address ({address:?}) and metrics path ({metrics_path:?}): {cause}"
    )]
    Metrics {
        /// The address.
        address: String,
        /// The path of the metrics.
        metrics_path: String,
        /// The cause.
        cause: ListenCause,
    },
    /// A server of pages only.
    #[error("cannot serve the status page: {cause}; use another --status-endpoint")]
    Pages {
        /// The cause.
        cause: ListenCause,
    },
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenCause {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The address cannot be used.
    #[error("listen tcp {address}: {}", address::reason(.error))]
    Bind {
        /// The address.
        address: String,
        /// The cause.
        error: io::Error,
    },
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    routes: Arc<Routes>,
    limits: Limits,
}

impl Server {
    /// Listens at `address`, `host:port` in Go's format (`:8080` for all interfaces).
    ///
    /// # Errors
    /// [`ListenError`] if it cannot listen.
    pub async fn bind(address: &str, routes: Routes) -> Result<Self, ListenError> {
        let bound = async {
            let target = address::parse(address)?;
            let bind = |error| ListenCause::Bind { address: address.to_owned(), error };
            target.listen().await.map_err(bind)
        };
        match bound.await {
            Ok(listener) => Ok(Self { listener, routes: Arc::new(routes), limits: Limits::USUAL }),
            Err(cause) => Err(match routes.metrics_path() {
                None => ListenError::Pages { cause },
                Some(path) => ListenError::Metrics {
                    address: address.to_owned(),
                    metrics_path: path.to_owned(),
                    cause,
                },
            }),
        }
    }

    /// Serves until `stop` is cancelled and open requests have ended. The caller limits the time.
    pub async fn run(self, tasks: Tasks, stop: CancellationToken) {
        let open = GracefulShutdown::new();
        let places = Places::new(self.limits.connections, self.limits.of_address);
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => {
                    self.serve(stream, places.take(from.ip()).await, &open, &tasks);
                    // Many may arrive at once: each is polled before the next one takes a place.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    tracing::warn!(error = %error, "cannot accept an HTTP connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // New connections are refused from here on; slower requests end with the process.
        drop(self.listener);
        open.shutdown().await;
    }

    fn serve(
        &self,
        stream: TcpStream,
        place: ConnectionPlace,
        open: &GracefulShutdown,
        tasks: &Tasks,
    ) {
        let place = Arc::new(place);
        let service = service(&self.routes, &place);
        let connection = self.limits.protocol().serve_connection(TokioIo::new(stream), service);
        let connection = timeout(self.limits.life, open.watch(connection));
        tasks.spawn("HTTP connection", async move {
            let ended = tokio::select! {
                biased;
                () = place.lost() => return tracing::trace!("an HTTP connection was closed for another"),
                ended = connection => ended,
            };
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::trace!(%error, "HTTP connection ended early"),
                Err(_) => tracing::debug!("an HTTP connection was cut: it lasted too long"),
            }
        });
    }
}

/// Answers the requests of the connection that has this place.
fn service(
    routes: &Arc<Routes>,
    place: &Arc<ConnectionPlace>,
) -> impl Service<Request<Incoming>, Response = Answer, Error = Infallible, Future: Send> + use<> {
    let (routes, place) = (Arc::clone(routes), Arc::clone(place));
    service_fn(move |request: Request<Incoming>| {
        let (routes, place) = (Arc::clone(&routes), Arc::clone(&place));
        async move {
            let _answering = place.answering();
            Ok(if routes.admits(request.headers()) {
                routes.answer(request.uri()).await
            } else {
                failure(StatusCode::FORBIDDEN, FOREIGN_HOST)
            })
        }
    })
}

#[cfg(test)]
mod tests;
