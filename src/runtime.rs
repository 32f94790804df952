//! Clock, random numbers, tasks, back-off, and the gate.
//!
//! [`Clock`], [`Random`] and [`Spawner`] are traits, which a simulation implements. Nothing else in the crate
//! reads a clock, draws random numbers or spawns tasks, so that a run with the same seed and the same answers
//! from outside repeats itself. Sleeps and timeouts use `tokio::time`, which tests pause. [`Tasks`]
//! supervises background tasks. [`Backoff`] computes delays. The [`Gate`] is open while this process may
//! write and call the driver.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::sleep};

mod backoff;
mod gate;

pub use self::{
    backoff::Backoff,
    gate::{Gate, GateShut},
};

// === Clock ===

/// The wall clock, and the time since boot.
pub trait Clock: Send + Sync {
    /// The wall-clock time, for what others read: events, Leases, the driver identity.
    fn wall(&self) -> jiff::Timestamp;

    /// The time since boot, including suspension. Leases expire by this clock, as the monotonic clock
    /// stops while the machine is suspended.
    fn boot(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // the one place that reads the wall clock
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn boot(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Duration::new(seconds, nanos)
    }
}

/// The maximum sleep while waiting for a boot time: a sleep does not include suspension.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Sleeps until the [`Clock::boot`] time `until`, or up to a second longer if the machine was suspended.
pub async fn sleep_until_boot(clock: &dyn Clock, until: Duration) {
    loop {
        let left = until.saturating_sub(clock.boot());
        if left.is_zero() {
            return;
        }
        sleep(left.min(CLOCK_CHECK_INTERVAL)).await;
    }
}

// === Random ===

/// Random numbers for jitter, generated names and identities. Not for secrets.
pub trait Random: Send + Sync {
    /// Returns 64 evenly distributed bits.
    fn bits(&self) -> u64;

    /// Returns a number from `0.0` up to, but not including, `1.0`.
    fn unit(&self) -> f64 {
        // An f64 represents integers of 53 bits exactly.
        #[allow(clippy::cast_precision_loss)]
        let numerator = (self.bits() >> 11) as f64;
        numerator / 9_007_199_254_740_992.0
    }

    /// Returns a number from `0` up to, but not including, `bound`; `0` if `bound` is `0`.
    fn below(&self, bound: u64) -> u64 {
        // The bias of the remainder is negligible for jitter and names.
        self.bits().checked_rem(bound).unwrap_or(0)
    }

    /// Returns a random (version 4) UUID.
    fn uuid(&self) -> String {
        let high = self.bits();
        let low = self.bits();
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0x0fff,
            0x8000 | (low >> 48) & 0x3fff,
            low & 0xffff_ffff_ffff,
        )
    }
}

/// A fast random number generator.
pub struct Generator(Mutex<fastrand::Rng>);

impl Generator {
    /// Creates a generator with a seed from the system.
    pub fn from_entropy() -> Self {
        Self(Mutex::new(fastrand::Rng::new()))
    }

    /// Creates a generator that yields the same numbers for the same seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl Random for Generator {
    fn bits(&self) -> u64 {
        self.0.lock().u64(..)
    }
}

// === Tasks ===

/// Spawns tasks. Dropping all clones of a simulated spawner kills its process: its tasks are dropped.
pub trait Spawner: Send + Sync {
    /// Spawns `task`, which runs until it ends or the spawner is dropped.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// Spawns tasks on tokio's current runtime.
#[derive(Debug, Default, Clone, Copy)]
pub struct TokioSpawner;

impl Spawner for TokioSpawner {
    #[allow(clippy::disallowed_methods)] // the one place that spawns
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// A critical task has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("background task {name:?} ended unexpectedly{}", .panic.as_ref().map(|p| format!(": it panicked: {p}")).unwrap_or_default())]
pub struct TaskEnded {
    /// The task's name.
    pub name: &'static str,
    /// The panic's message, if it panicked.
    pub panic: Option<String>,
}

/// Spawns and supervises background tasks.
#[derive(Clone)]
pub struct Tasks {
    spawner: Arc<dyn Spawner>,
    ended: mpsc::UnboundedSender<TaskEnded>,
}

impl Tasks {
    /// Creates the supervisor of tasks on `spawner`. The receiver yields the critical tasks that end.
    pub fn new(spawner: Arc<dyn Spawner>) -> (Self, mpsc::UnboundedReceiver<TaskEnded>) {
        let (ended, receiver) = mpsc::unbounded_channel();
        (Self { spawner, ended }, receiver)
    }

    /// Spawns a task that must run as long as the process. If it returns or panics, the receiver of
    /// [`Tasks::new`] yields that, which ends the process.
    pub fn spawn_critical(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let ended = self.ended.clone();
        self.spawner.spawn(
            async move {
                let panic = catch_panic(task).await.err();
                // During shutdown the receiver is dropped.
                let _ = ended.send(TaskEnded { name, panic });
            }
            .boxed(),
        );
    }

    /// Spawns a task that ends by itself. A panic in it is logged.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner.spawn(
            async move {
                if let Err(panic) = catch_panic(task).await {
                    tracing::error!(task = name, panic, "a task panicked; this is a bug");
                }
            }
            .boxed(),
        );
    }
}

/// Runs `task` and catches its panic.
///
/// # Errors
/// The panic's message.
pub async fn catch_panic<T>(task: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(task).catch_unwind().await.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned())
    })
}

/// Runs blocking `work` on a thread of its own.
///
/// # Errors
/// The work panicked, or the runtime is shut down.
pub async fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
