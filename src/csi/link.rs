//! One HTTP/2 connection to the driver, from its opening to its loss.
//!
//! Used instead of tonic's `Channel`, which redials silently and spawns tasks that nobody
//! supervises. A link never redials, and it reports its loss at once, also while idle.

use std::{future::Future, io, path::PathBuf, time::Duration};

use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Connector;
use crate::runtime::{Backoff, Tasks};

/// The timeout of a single attempt to connect (grpc-go's minimum).
const DIAL_TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum size of a response's headers, in bytes. Drivers put whole logs into `grpc-message`,
/// for which hyper's default of 16 KiB is too low; with grpc-go's 16 MiB a few calls would exhaust
/// a pod's memory.
pub(super) const MAX_HEADERS: u32 = 1 << 20;

/// How much of an answer the driver may send ahead, in bytes: HTTP/2's default.
const WINDOW: u32 = (1 << 16) - 1;

/// The pauses between attempts to connect.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The interval of log messages while waiting for the driver.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Rate-limits a log message about a persistent condition.
#[derive(Debug, Default)]
pub(super) struct LogThrottle(Option<Instant>);

impl LogThrottle {
    /// Suppresses the first message for one interval.
    fn later() -> Self {
        Self(Some(Instant::now()))
    }

    /// Returns whether to log now; if so, the interval starts again.
    pub(super) fn is_due(&mut self) -> bool {
        let due = self.0.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL);
        if due {
            self.0 = Some(Instant::now());
        }
        due
    }
}

/// An open connection. Dropping all clones closes it.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) sender: http2::SendRequest<tonic::body::Body>,
    lost: CancellationToken,
}

impl Link {
    /// Waits until the connection takes no more calls: closed, broken, or GOAWAY received.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether the connection takes no more calls.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }
}

/// Opens links to one socket.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) socket: PathBuf,
    pub(super) connector: Connector,
    pub(super) tasks: Tasks,
}

impl Dialer {
    /// Connects; retries until it succeeds, with pauses by [`BACKOFF`].
    pub(super) async fn dial_until_up(&self) -> Link {
        let mut throttle = LogThrottle::later();
        let mut failures = 0_u32;
        loop {
            let error = match timeout(DIAL_TIMEOUT, self.open()).await {
                Ok(Ok(link)) => return link,
                Ok(Err(error)) => error,
                Err(_) => io::ErrorKind::TimedOut.into(),
            };
            if throttle.is_due() {
                tracing::info!(address = %self.socket.display(), %error, "Still connecting");
            }
            sleep(BACKOFF.delay(failures)).await;
            failures = failures.saturating_add(1);
        }
    }

    async fn open(&self) -> io::Result<Link> {
        let io = (self.connector)(&self.socket).await?;
        let executor = Executor(self.tasks.clone());
        let (sender, connection) = http2::Builder::new(executor)
            .max_header_list_size(MAX_HEADERS)
            // Of an answer that waits for memory no more than this is read; and it keeps no other waiting.
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(i32::MAX.unsigned_abs())
            // Many calls may end by their deadline just before their answers come. The limit is against strangers.
            .max_local_error_reset_streams(None)
            .handshake(TokioIo::new(io))
            .await
            .map_err(io::Error::other)?;
        let lost = CancellationToken::new();
        // Cancelled when the task ends, for whatever reason.
        let guard = lost.clone().drop_guard();
        self.tasks.spawn("csi connection", async move {
            let _guard = guard;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "The connection to the CSI driver broke");
            }
        });
        Ok(Link { sender, lost })
    }
}

/// Makes hyper spawn through the process's own tasks.
#[derive(Clone)]
struct Executor(Tasks);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Executor {
    fn execute(&self, task: F) {
        self.0.spawn("csi stream", task);
    }
}
