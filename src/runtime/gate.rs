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
    opening: watch::Sender<Opening>,
    in_flight: AtomicUsize,
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
        Self(Arc::new(SharedGate {
            clock,
            opening,
            in_flight: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
        }))
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
        let counts = [&self.0.in_flight, &self.0.cancelled];
        let unknown = counts.map(|count| count.load(Ordering::Relaxed));
        self.0.opening.send_replace(Opening::Retired);
        unknown.iter().sum()
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
        let _in_flight = InFlight::new(&self.0);
        tokio::select! {
            biased;
            () = self.wait_until_shut() => {
                self.0.cancelled.fetch_add(1, Ordering::Relaxed);
                Err(GateShut::Cut)
            }
            done = work => Ok(done),
        }
    }

    /// Waits until the gate is shut, by a call or because its time is over.
    pub async fn wait_until_shut(&self) {
        let mut opening = self.0.opening.subscribe();
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

/// Counts one work in flight until this is dropped.
struct InFlight<'a>(&'a SharedGate);

impl<'a> InFlight<'a> {
    fn new(gate: &'a SharedGate) -> Self {
        gate.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(gate)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
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
        gate.wait_until_shut().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_counts_the_work_in_flight() {
        let gate = Gate::open(paused());
        {
            let (one, two) = (gate.through(pending::<()>()), gate.through(sleep(secs(1))));
            tokio::pin!(one, two);
            assert!(timeout(secs(0), futures::future::join(&mut one, &mut two)).await.is_err());
            assert_eq!(gate.0.in_flight.load(Ordering::Relaxed), 2);
            assert_eq!(two.await, Ok(()));
            assert_eq!(gate.retire(), 1);
            assert_eq!(one.await, Err(GateShut::Cut));
        }
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
