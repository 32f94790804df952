//! The HTTP server: metrics, health checks, the CPU profile and the status as JSON.
//!
//! This module has the connections and their limits; `routes` has the paths and their answers, `profile`
//! the CPU profile, `address` Go's form of addresses. Slow or many
//! clients can neither take the program's time nor keep new clients out: there are few connections, whoever
//! comes gets the place of the oldest one of the address that has most, and each has a pace. On shutdown open
//! requests are answered.

mod address;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../fuzz/bodies/http.rs"]
pub mod fuzz;
#[cfg(feature = "cpu-profiles")]
mod profile;
mod routes;

use std::{collections::VecDeque, convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use http::Request;
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
    sync::Mutex,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use self::routes::Answer;
pub use self::routes::Routes;
use crate::runtime::Tasks;

/// How long to wait after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a new connection keeps its place in any case, so that its request can arrive and be answered, and
/// how much time there is between two requests of a connection: at most 1,280 requests a second are
/// answered, over kept connections or new ones. More wait in the kernel.
const PACE: Duration = Duration::from_millis(50);

/// Limits on clients.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Concurrent connections; a new one beyond that replaces another one.
    connections: usize,
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

/// The first tick comes at once, each further one a [`PACE`] after the one before.
fn pace() -> Interval {
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

/// The open connections, the oldest one first.
#[derive(Default)]
struct Connections(VecDeque<Connection>);

struct Connection {
    from: IpAddr,
    came: Instant,
    /// Cancelled when the connection has ended, or has to end because another one takes its place.
    place: CancellationToken,
}

impl Connections {
    /// Takes a place for a new connection from this address.
    async fn admit(&mut self, from: IpAddr, most: usize) -> CancellationToken {
        self.0.retain(|it| !it.place.is_cancelled());
        if self.0.len() >= most
            && let Some(other) = self.oldest_of_greediest()
        {
            sleep_until(other.came + PACE).await;
            other.place.cancel();
        }
        let place = CancellationToken::new();
        self.0.push_back(Connection { from, came: Instant::now(), place: place.clone() });
        place
    }

    /// The oldest connection of the address that has the most.
    fn oldest_of_greediest(&mut self) -> Option<Connection> {
        let of = |from| self.0.iter().filter(|it| it.from == from).count();
        let most = self.0.iter().map(|it| of(it.from)).max()?;
        let oldest = self.0.iter().position(|it| of(it.from) == most)?;
        self.0.remove(oldest)
    }
}

/// The server cannot listen. For common causes the text has the message of Go's `net`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ListenError(String);

/// A listening server.
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
        let failed = |error| {
            let cause = format!("listen tcp {address}: {}", address::reason(&error));
            ListenError(match routes.metrics_path() {
                // As in external-provisioner.
                Some(path) => format!(
                    "Failed to start HTTP server at specified address ({address:?}) and metrics path ({path:?}): {cause}"
                ),
                None => format!("cannot serve the status: {cause}; use another --status-endpoint"),
            })
        };
        let listener = address::listen(address).await.map_err(failed)?;
        Ok(Self { listener, routes: Arc::new(routes), limits: Limits::USUAL })
    }

    /// Serves until `stop` is cancelled and open requests have ended. The caller limits the time.
    pub async fn run(self, tasks: Tasks, stop: CancellationToken) {
        let open = GracefulShutdown::new();
        let mut connections = Connections::default();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => {
                    let place = connections.admit(from.ip(), self.limits.connections).await;
                    self.serve(stream, place, &open, &tasks);
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
        place: CancellationToken,
        open: &GracefulShutdown,
        tasks: &Tasks,
    ) {
        let service = service(&self.routes);
        let connection = self.limits.protocol().serve_connection(TokioIo::new(stream), service);
        let connection = timeout(self.limits.life, open.watch(connection));
        tasks.spawn("HTTP connection", async move {
            let _ended = place.clone().drop_guard();
            let ended = tokio::select! {
                biased;
                () = place.cancelled() => return tracing::trace!("an HTTP connection was closed for another"),
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

/// Answers the requests of one connection, one after the other.
fn service(
    routes: &Arc<Routes>,
) -> impl Service<Request<Incoming>, Response = Answer, Error = Infallible, Future: Send> + use<> {
    let (routes, pace) = (Arc::clone(routes), Arc::new(Mutex::new(pace())));
    service_fn(move |request: Request<Incoming>| {
        let (routes, pace) = (Arc::clone(&routes), Arc::clone(&pace));
        async move {
            pace.lock().await.tick().await;
            Ok(routes.answer(request.uri(), request.headers()).await)
        }
    })
}

#[cfg(test)]
mod tests;
