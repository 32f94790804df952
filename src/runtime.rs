//! What the program takes from its surroundings: time, chance and tasks.
//!
//! Owns the three traits that a simulation replaces ([`Clock`], [`Random`], [`Spawner`]), the
//! supervision of background tasks ([`Tasks`]) and the [`Gate`] that says whether work may start.
//! Promises that nothing else in the crate reads a clock, draws a number or spawns a task: with
//! the same seed and the same answers from outside, a run repeats itself. Sleeping and time-outs
//! are tokio's own (`tokio::time`), which tests pause. Leaves to others what the tasks do.

use std::{
    collections::BTreeMap, fmt, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::sleep};

mod gate;

pub use self::gate::{Gate, GateShut};

// === Clock ===

/// Time that is not for sleeping: what is written down, and what must count a suspended machine.
pub trait Clock: Send + Sync {
    /// Wall-clock time, for what people and other programs read: events, Leases, the identity.
    fn wall(&self) -> jiff::Timestamp;

    /// Time since boot, which goes on while the machine is suspended. A Lease runs out by this
    /// clock; the ordinary monotonic clock would stand still with the machine.
    fn boot(&self) -> Duration;
}

/// The machine's own clocks.
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

/// How often whoever waits for a boot time looks at the clock: the sleep in between stands still
/// while the machine is suspended.
const GLANCE: Duration = Duration::from_secs(1);

/// DependencyIndex until `until` on [`Clock::boot`], or at most a second longer where the machine was
/// suspended meanwhile.
pub async fn until_boot(clock: &dyn Clock, until: Duration) {
    loop {
        let left = until.saturating_sub(clock.boot());
        if left.is_zero() {
            return;
        }
        sleep(left.min(GLANCE)).await;
    }
}

// === Random ===

/// Chance: jitter, generated names, identities. Never used for secrets.
pub trait Random: Send + Sync {
    /// Sixty-four evenly distributed bits.
    fn bits(&self) -> u64;

    /// A number from `0.0` up to, but not including, `1.0`.
    fn unit(&self) -> f64 {
        // 53 bits are what an f64 holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let numerator = (self.bits() >> 11) as f64;
        numerator / 9_007_199_254_740_992.0
    }

    /// A number from `0` up to, but not including, `bound`; `0` when `bound` is `0`.
    fn below(&self, bound: u64) -> u64 {
        // The bias of a remainder is far below what jitter or a name could show.
        self.bits().checked_rem(bound).unwrap_or(0)
    }

    /// A random (version 4) UUID in its usual spelling.
    fn uuid(&self) -> String {
        let (high, low) = (self.bits(), self.bits());
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

/// A small generator: seeded by the machine in production, by the seed's number in a simulation.
pub struct Generator(Mutex<fastrand::Rng>);

impl Generator {
    /// A generator whose numbers nobody can foretell.
    pub fn from_entropy() -> Self {
        Self(Mutex::new(fastrand::Rng::new()))
    }

    /// A generator that always gives the same numbers for the same seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Generator")
    }
}

impl Random for Generator {
    fn bits(&self) -> u64 {
        self.0.lock().u64(..)
    }
}

// === Tasks ===

/// Starts tasks. Dropping all clones of a simulated one kills its process: every task ends at
/// the await it stands at.
pub trait Spawner: Send + Sync {
    /// Starts `task`; it runs until it ends or the spawner's owner goes away.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// Starts tasks on tokio's current runtime.
#[derive(Debug, Default, Clone, Copy)]
pub struct TokioSpawner;

impl Spawner for TokioSpawner {
    #[allow(clippy::disallowed_methods)] // the one place that spawns
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// A task that should have run as long as the process, and did not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("background task {name:?} ended unexpectedly{}", .panic.as_ref().map(|p| format!(": it panicked: {p}")).unwrap_or_default())]
pub struct TaskEnded {
    /// The name it was started with.
    pub name: &'static str,
    /// What it panicked with, where it did.
    pub panic: Option<String>,
}

/// Starts background tasks and watches over them.
#[derive(Clone)]
pub struct Tasks {
    spawner: Arc<dyn Spawner>,
    ended: mpsc::UnboundedSender<TaskEnded>,
    alive: Alive,
}

/// How many tasks of each name there are.
type Alive = Arc<Mutex<BTreeMap<&'static str, u64>>>;

/// Counts a task until it is dropped, at its end or with its spawner.
struct Counted(Alive, &'static str);

impl Counted {
    fn new(alive: &Alive, name: &'static str) -> Self {
        *alive.lock().entry(name).or_default() += 1;
        Self(Arc::clone(alive), name)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut alive = self.0.lock();
        if let Some(count) = alive.get_mut(self.1) {
            *count = count.saturating_sub(1);
        }
        alive.retain(|_, count| *count > 0);
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tasks")
    }
}

impl Tasks {
    /// Tasks that run on `spawner`, and the receiver on which the end of a vital one is told.
    pub fn new(spawner: Arc<dyn Spawner>) -> (Self, mpsc::UnboundedReceiver<TaskEnded>) {
        let (ended, watch) = mpsc::unbounded_channel();
        (Self { spawner, ended, alive: Alive::default() }, watch)
    }

    /// How many tasks of each name are running.
    pub fn alive(&self) -> BTreeMap<&'static str, u64> {
        self.alive.lock().clone()
    }

    /// Starts a task that must run as long as the process; its end, by return or by panic, is
    /// told to the receiver that [`Tasks::new`] gave, which ends the process.
    pub fn spawn_critical(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let (ended, counted) = (self.ended.clone(), Counted::new(&self.alive, name));
        self.spawner.spawn(
            async move {
                let _counted = counted;
                let panic = caught(task).await.err();
                // Nobody listens any more once the process is on its way out.
                let _ = ended.send(TaskEnded { name, panic });
            }
            .boxed(),
        );
    }

    /// Starts a task that ends by itself. A panic in it is logged and costs nothing else.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let counted = Counted::new(&self.alive, name);
        self.spawner.spawn(
            async move {
                let _counted = counted;
                if let Err(panic) = caught(task).await {
                    tracing::error!(task = name, panic, "a task panicked; this is a bug");
                }
            }
            .boxed(),
        );
    }
}

/// Runs `task` to its end; a panic in it becomes an error with the panic's message.
///
/// # Errors
/// The message the task panicked with.
pub async fn caught<T>(task: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(task).catch_unwind().await.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned())
    })
}

/// Runs `work`, which takes long without waiting, on a thread of its own.
///
/// # Errors
/// A sentence, when the work panicked or the runtime ends.
pub async fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
