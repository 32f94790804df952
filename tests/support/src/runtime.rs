//! Tasks and clock of a program that runs in tokio's paused time.

use std::{sync::Arc, time::Duration};

use csi_provisioner::runtime::{Clock, Spawner};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::{task::JoinSet, time::Instant};

/// A program's tasks, which can be aborted all at once.
#[derive(Clone, Default)]
pub struct Tasks(pub Arc<Mutex<JoinSet<()>>>);

impl Spawner for Tasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.lock().spawn(task);
    }
}

/// Boot and wall time follow tokio's paused clock, plus the time suspended.
pub struct SimulatedClock {
    start: Instant,
    /// Wall time at the start.
    wall: jiff::Timestamp,
    suspended: Mutex<Duration>,
}

impl SimulatedClock {
    /// A clock that starts now, when the wall time is `wall`.
    pub fn new(wall: jiff::Timestamp) -> Self {
        Self { start: Instant::now(), wall, suspended: Mutex::default() }
    }

    /// Advances the clock but no timer, as a suspended machine does.
    pub fn suspend(&self, time: Duration) {
        *self.suspended.lock() += time;
    }

    fn passed(&self) -> Duration {
        self.start.elapsed() + *self.suspended.lock()
    }
}

impl Clock for SimulatedClock {
    fn wall(&self) -> jiff::Timestamp {
        self.wall + jiff::SignedDuration::try_from(self.passed()).unwrap()
    }

    fn boot(&self) -> Duration {
        Duration::from_secs(1000) + self.passed()
    }
}
