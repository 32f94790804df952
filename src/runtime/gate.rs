//! The gate for driver calls and writes.
//!
//! While the [`Gate`] is shut, no driver call and no write except those of the Lease itself is sent (safety
//! rule 1). Leader election opens it until a certain time; every call and every write runs through it. When
//! the gate shuts, running work is cancelled. The gate counts the work in flight, and once retired it never
//! opens again.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{Clock, sleep_until_boot};

/// Says whether work may start. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(Arc<SharedGate>);

struct SharedGate {
    clock: Arc<dyn Clock>,
    /// Each work in flight holds a receiver.
    opening: watch::Sender<Opening>,
    /// The number of works that were cancelled when the gate shut.
    cancelled: AtomicUsize,
}

/// Until when a gate is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// Until this [`Clock::boot`] time.
    Until(Duration),
    /// Shut for good.
    Retired,
}

/// Work was not started or not finished, because this process does not hold the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GateShut {
    /// The work was not started.
    #[error("not started: this process does not hold the Lease")]
    NotStarted,
    /// The work was cancelled. Whether the request was carried out is unknown.
    #[error("cut: this process no longer holds the Lease")]
    Cut,
}

impl Gate {
    /// Creates a gate that is shut until [`Gate::open_until`] is called.
    pub fn shut(clock: Arc<dyn Clock>) -> Self {
        Self::new(clock, Duration::ZERO)
    }

    /// Creates a gate that is always open, for a process without leader election.
    pub fn open(clock: Arc<dyn Clock>) -> Self {
        Self::new(clock, Duration::MAX)
    }

    fn new(clock: Arc<dyn Clock>, until: Duration) -> Self {
        let opening = watch::Sender::new(Opening::Until(until));
        Self(Arc::new(SharedGate { clock, opening, cancelled: AtomicUsize::new(0) }))
    }

    /// Opens the gate until the [`Clock::boot`] time `boot`. A time in the past shuts it. A retired gate
    /// stays shut.
    pub fn open_until(&self, boot: Duration) {
        self.0.opening.send_if_modified(|opening| {
            let opens = *opening != Opening::Retired;
            if opens {
                *opening = Opening::Until(boot);
            }
            opens
        });
    }

    /// Shuts the gate at once.
    pub fn close(&self) {
        self.open_until(Duration::ZERO);
    }

    /// Shuts the gate for good. Returns the number of works that this cancels or that were cancelled
    /// before: the results of all of them are unknown.
    pub fn retire(&self) -> usize {
        let unknown = self.0.opening.receiver_count() + self.0.cancelled.load(Ordering::Relaxed);
        self.0.opening.send_replace(Opening::Retired);
        unknown
    }

    /// Returns the current [`Clock::boot`] time.
    pub fn boot(&self) -> Duration {
        self.0.clock.boot()
    }

    /// Checks whether work may start now.
    ///
    /// # Errors
    /// [`GateShut::NotStarted`] if it may not.
    pub fn check(&self) -> Result<(), GateShut> {
        if self.time_left().is_zero() { Err(GateShut::NotStarted) } else { Ok(()) }
    }

    /// Whether the gate shut only because its time is over. Whoever opened it should have opened it longer
    /// or closed it.
    pub fn ran_out(&self) -> bool {
        let opening = *self.0.opening.borrow();
        matches!(opening, Opening::Until(until) if !until.is_zero() && until <= self.0.clock.boot())
    }

    /// Runs `work` if the gate is open now, and cancels it when the gate shuts.
    ///
    /// # Errors
    /// The work was not started or was cancelled.
    pub async fn through<T>(&self, work: impl Future<Output = T>) -> Result<T, GateShut> {
        self.check()?;
        // Kept until the end: cancelled work is never missing in both counts.
        let mut opening = self.0.opening.subscribe();
        tokio::select! {
            biased;
            () = self.wait_until_shut(&mut opening) => {
                self.0.cancelled.fetch_add(1, Ordering::Relaxed);
                Err(GateShut::Cut)
            }
            done = work => Ok(done),
        }
    }

    /// Waits until the gate is shut, by a call or because its time is over.
    async fn wait_until_shut(&self, opening: &mut watch::Receiver<Opening>) {
        loop {
            let Opening::Until(until) = *opening.borrow_and_update() else { return };
            tokio::select! {
                biased;
                () = sleep_until_boot(&*self.0.clock, until) => return,
                // The sender lives as long as `self`.
                _ = opening.changed() => {}
            }
        }
    }

    fn time_left(&self) -> Duration {
        match *self.0.opening.borrow() {
            Opening::Until(until) => until.saturating_sub(self.0.clock.boot()),
            Opening::Retired => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::runtime::testing::paused;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn time_spent_suspended_counts() {
        let clock = paused();
        let gate = Gate::shut(clock.clone());
        gate.open_until(secs(110));
        let work = gate.through(pending::<()>());
        tokio::pin!(work);
        assert!(timeout(secs(2), &mut work).await.is_err());
        *clock.suspended.lock() = secs(3600);
        assert_eq!(gate.check(), Err(GateShut::NotStarted));
        let woken = Instant::now();
        assert_eq!(work.await, Err(GateShut::Cut));
        assert!(woken.elapsed() <= secs(1), "{:?}", woken.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn running_work_is_cancelled_when_the_gate_shuts_unless_it_is_opened_longer() {
        let gate = Gate::open(paused());
        gate.open_until(secs(110));
        let work = gate.through(sleep(secs(60)));
        tokio::pin!(work);
        assert!(timeout(secs(9), &mut work).await.is_err());
        gate.open_until(secs(120));
        assert!(timeout(secs(9), &mut work).await.is_err());
        gate.close();
        assert_eq!(work.await, Err(GateShut::Cut));
    }

    #[tokio::test(start_paused = true)]
    async fn a_retired_gate_never_opens_again() {
        let gate = Gate::open(paused());
        assert_eq!(gate.retire(), 0);
        gate.open_until(Duration::MAX);
        gate.close();
        gate.open_until(Duration::MAX);
        assert_eq!(gate.check(), Err(GateShut::NotStarted));
        gate.wait_until_shut(&mut gate.0.opening.subscribe()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_counts_the_work_in_flight() {
        let gate = Gate::open(paused());
        let in_flight = || gate.0.opening.receiver_count();
        let mut one = Box::pin(gate.through(pending::<()>()));
        assert_eq!(in_flight(), 0, "not polled yet");
        assert!(timeout(secs(0), &mut one).await.is_err());
        assert_eq!(in_flight(), 1);
        let mut two = Box::pin(gate.through(pending::<()>()));
        let mut three = Box::pin(gate.through(sleep(secs(1))));
        assert!(timeout(secs(0), futures::future::join(&mut two, &mut three)).await.is_err());
        assert_eq!(in_flight(), 3);
        assert_eq!(three.await, Ok(()));
        drop(two);
        assert_eq!(in_flight(), 1, "one is done and one dropped");
        assert_eq!(gate.retire(), 1);
        assert_eq!(one.await, Err(GateShut::Cut));
        assert_eq!(in_flight(), 0);
        assert_eq!(gate.retire(), 1, "its result is unknown");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_runs_out_if_it_was_neither_opened_longer_nor_shut() {
        let gate = Gate::shut(paused());
        assert!(!gate.ran_out());
        gate.open_until(secs(110));
        assert!(!gate.ran_out());
        sleep(secs(11)).await;
        assert!(gate.ran_out());
        gate.open_until(secs(120));
        assert!(!gate.ran_out());
        gate.close();
        assert!(!gate.ran_out());
        gate.open_until(secs(110));
        gate.retire();
        assert!(!gate.ran_out());
        assert!(!Gate::open(paused()).ran_out());
    }

    /// Work that was cancelled when the Lease expired may still be carried out by the receiver.
    #[tokio::test(start_paused = true)]
    async fn work_cancelled_before_counts_as_in_flight() {
        let gate = Gate::open(paused());
        gate.open_until(secs(110));
        assert_eq!(gate.through(pending::<()>()).await, Err(GateShut::Cut));
        assert_eq!(gate.retire(), 1);
    }
}
