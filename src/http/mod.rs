//! The HTTP server: metrics, health checks and profiles.
//!
//! Owns the address, the connections and their limits; `routes` owns the paths and their answers,
//! `pprof` the profiles. Promises that slow or many clients cannot tie the process up, and an
//! orderly end: open requests are answered. Knows nothing of what is measured or checked:
//! closures tell.

mod address;
mod answer;
mod pprof;
mod routes;

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use http::Request;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

pub use self::{
    address::AddressError,
    routes::{LEADER_ELECTION_CHECK, Routes},
};
use crate::runtime::Tasks;

/// How long open requests may take to end once the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait after a connection could not be accepted (no file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What one client may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Connections at once; more wait until one ends.
    connections: usize,
    /// How long a client may take to say what it wants, also on a connection that it keeps.
    header: Duration,
    /// How long a connection may last, so that one who reads slowly is rid of in the end. Longer
    /// than the longest profile.
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
    limits: Limits,
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
            Ok(listener) => Ok(Self { listener, routes: Arc::new(routes), limits: Limits::USUAL }),
            Err(cause) => Err(ListenError {
                address: address.to_owned(),
                metrics_path: routes.metrics_path().to_owned(),
                cause,
            }),
        }
    }

    /// Serves until `stop` is cancelled and open requests have ended, or had time to.
    pub async fn run(self, tasks: Tasks, stop: CancellationToken) {
        let open = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(self.limits.connections));
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = self.accept(&places) => accepted,
            };
            match accepted {
                Ok((stream, place)) => self.serve(stream, place, &open, &tasks),
                Err(error) => {
                    tracing::warn!(error = %error, "cannot accept an HTTP connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // From here on new connections are refused; whoever takes longer is cut with the process.
        drop(self.listener);
        let _ = timeout(STOP_TIMEOUT, open.shutdown()).await;
    }

    /// Waits for a place first: who comes beyond the limit waits in the kernel's line.
    async fn accept(
        &self,
        places: &Arc<Semaphore>,
    ) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = self.listener.accept().await?;
        Ok((stream, place))
    }

    fn serve(
        &self,
        stream: TcpStream,
        place: OwnedSemaphorePermit,
        open: &GracefulShutdown,
        tasks: &Tasks,
    ) {
        let routes = Arc::clone(&self.routes);
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let routes = Arc::clone(&routes);
            async move { Ok::<_, Infallible>(routes.answer(request.uri()).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header)
            .max_buf_size(self.limits.bytes)
            .serve_connection(TokioIo::new(stream), service);
        let (connection, life) = (open.watch(connection), self.limits.life);
        tasks.passing("HTTP connection", async move {
            match timeout(life, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::trace!(%error, "HTTP connection ended early"),
                Err(_) => tracing::debug!("an HTTP connection was cut: it lasted too long"),
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests;
