//! One HTTP/2 connection to the driver, from its opening to its loss.
//!
//! Stands where tonic's `Channel` would: that one redials on its own and in silence, and spawns
//! tasks nobody watches. A link never redials; its loss is told at once, also while idle.

use std::{future::Future, io, time::Duration};

use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Address, Connector};
use crate::runtime::Tasks;

/// A single attempt to connect that takes longer is given up (grpc-go's minimum).
const ATTEMPT: Duration = Duration::from_secs(20);

/// The most a response's headers may measure, in bytes. Drivers put whole logs into `grpc-message`, for
/// which hyper's own limit of 16 KiB is too low; with grpc-go's of 16 MiB a few calls would fill the
/// memory of a pod.
const MAX_HEADERS: u32 = 1 << 20;

/// The longest pause between two attempts to connect.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The pause after the first failed attempt; doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// How often waiting for the driver is told.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// When something that goes on and on was last told.
#[derive(Debug, Default)]
pub(super) struct Repeated(Option<Instant>);

impl Repeated {
    /// Something that need not be told at once.
    fn later() -> Self {
        Self(Some(Instant::now()))
    }

    /// Whether it is to be told again; then it counts as told.
    pub(super) fn is_due(&mut self) -> bool {
        let due = self.0.is_none_or(|told| told.elapsed() >= TELL_EVERY);
        if due {
            self.0 = Some(Instant::now());
        }
        due
    }
}

/// An open connection. Dropping all clones closes it.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) sender: http2::SendRequest<tonic::body::Body>,
    lost: CancellationToken,
}

impl Link {
    /// DependencyIndex until the connection takes no more calls: closed, broken, or told to go away.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether the connection takes no more calls.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }
}

/// Opens links to one address.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) address: Address,
    pub(super) connector: Connector,
    pub(super) tasks: Tasks,
}

impl Dialer {
    /// Tries once.
    pub(super) async fn dial(&self) -> io::Result<Link> {
        timeout(ATTEMPT, self.open()).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Tries until it works, with pauses of up to [`MAX_PAUSE`].
    pub(super) async fn dial_until_up(&self) -> Link {
        let mut pause = FIRST_PAUSE;
        let mut told = Repeated::later();
        loop {
            let error = match self.dial().await {
                Ok(link) => return link,
                Err(error) => error,
            };
            if told.is_due() {
                tracing::info!(address = %self.address, %error, "Still connecting");
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn open(&self) -> io::Result<Link> {
        let io = (self.connector)(&self.address).await?;
        let executor = Executor(self.tasks.clone());
        let (sender, connection) = http2::Builder::new(executor)
            .max_header_list_size(MAX_HEADERS)
            .handshake(TokioIo::new(io))
            .await
            .map_err(io::Error::other)?;
        let lost = CancellationToken::new();
        // Cancelled when the task ends, however it ends.
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

/// Lets hyper spawn through the process's own tasks.
#[derive(Clone)]
struct Executor(Tasks);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Executor {
    fn execute(&self, task: F) {
        self.0.spawn("csi stream", task);
    }
}
