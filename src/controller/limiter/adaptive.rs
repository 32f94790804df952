//! The adaptive limit of concurrent calls of one kind for one class.
//!
//! The limit is at its maximum until calls signal that the driver is overloaded. It then falls, to no less
//! than half per round of calls, and rises again by probing. It is always between 1 and the maximum, and
//! reaches the maximum again after a bounded number of successful calls. Pure: callers pass the time.
//!
//! - A *signal* is a call that ended with [`Congestion::Overload`] while more than half of the limit was in
//!   use: one hanging call of a single claim says nothing about concurrency. [`Congestion::Locked`] is
//!   also a signal if that many concurrent calls have not succeeded before. Calls that began before the
//!   last fall ended are no signals.
//! - After a fall the limit has a *ceiling*, the value at which the signals began. It rises to one below,
//!   stays there for [`PLATEAU`] rounds, and then tries the ceiling. Without a ceiling it doubles per round.
//! - A signal at a limit of 1 is an outage: the class *rests*, that is, makes no call for some time, and
//!   then makes one call at a time until one succeeds.
//! - A repeated call that ends with [`Congestion::Locked`] has met its own earlier call. That is a signal
//!   only if the limit has fallen and that many concurrent calls have not succeeded since.

use tokio::time::{Duration, Instant};

use crate::controller::provisioner::Congestion;

/// The shortest and the longest rest between two calls during an outage.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// The number of rounds for which a limit stays below its ceiling.
const PLATEAU: usize = 8;

/// A class without calls for this long after its last signal starts over.
const SIGNAL_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// The limit of one class.
#[derive(Debug, Clone)]
pub(super) struct AdaptiveLimit {
    max: usize,
    /// The limit.
    limit: usize,
    /// The number of running calls.
    running: usize,
    /// The number of calls begun so far.
    begun: u64,
    /// Calls up to this number are no signals any more.
    ignored_up_to: u64,
    /// While the limit falls: the value to which this round's signals may lower it.
    floor: Option<usize>,
    /// The limit at which the last signals began.
    ceiling: Option<usize>,
    /// The highest number of concurrent calls that succeeded since the last fall; at least 1.
    proven: usize,
    /// The number of calls that succeeded since the limit last changed.
    successes: usize,
    /// By how much the limit rises next.
    step: usize,
    rest: Option<Rest>,
    last_signal: Option<Instant>,
}

/// A period without calls.
#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Instant,
    length: Duration,
}

/// A running call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    number: u64,
    /// The number of running calls when it began, including itself.
    rank: usize,
}

impl AdaptiveLimit {
    /// Creates a limit at its maximum `max`, which is at least 1.
    pub(super) fn new(max: usize) -> Self {
        let max = max.max(1);
        Self {
            max,
            limit: max,
            running: 0,
            begun: 0,
            ignored_up_to: 0,
            floor: None,
            ceiling: None,
            proven: 1,
            successes: 0,
            step: 1,
            rest: None,
            last_signal: None,
        }
    }

    /// The limit of concurrent calls.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// The number of running calls.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Whether it behaves as a new one, so that it need not be kept.
    pub(super) fn is_reset(&self) -> bool {
        self.running == 0 && self.limit == self.max && self.rest.is_none()
    }

    /// Whether another call may begin.
    pub(super) fn admits(&self, now: Instant) -> bool {
        match self.rest {
            None => self.running < self.limit,
            Some(rest) => self.running == 0 && rest.until <= now,
        }
    }

    /// The time at which it admits a call if nothing else happens.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        self.rest.filter(|_| self.running == 0).map(|rest| rest.until)
    }

    /// Starts over if the last signal was long ago and no call is running.
    pub(super) fn expire_signals(&mut self, now: Instant) {
        let is_old = |signal| now.duration_since(signal) >= SIGNAL_LIFETIME;
        if self.last_signal.is_some_and(is_old) && self.running == 0 {
            *self = Self::new(self.max);
        }
    }

    /// Records that a call begins.
    pub(super) fn begin(&mut self) -> Call {
        self.begun += 1;
        self.running += 1;
        Call { number: self.begun, rank: self.running }
    }

    /// Records that a call ended. `repeats` says that it repeated one whose result was unknown. Returns
    /// whether this was a signal.
    pub(super) fn end(
        &mut self,
        call: Call,
        congestion: Congestion,
        repeats: bool,
        now: Instant,
    ) -> bool {
        self.running = self.running.saturating_sub(1);
        let is_signal = self.is_signal(call, congestion, repeats);
        match congestion {
            Congestion::Unknown => {}
            Congestion::Bearable => self.on_success(call),
            Congestion::Locked | Congestion::Overload if is_signal => self.on_signal(now),
            Congestion::Locked | Congestion::Overload => {
                self.rest = self.rest.map(|rest| Rest { until: now + rest.length, ..rest });
            }
        }
        is_signal
    }

    /// Whether the end of this call signals that the driver is overloaded.
    fn is_signal(&self, call: Call, congestion: Congestion, repeats: bool) -> bool {
        let mostly_in_use = call.rank * 2 > self.limit;
        let is_unproven = call.rank > self.proven;
        let is_signal = match congestion {
            Congestion::Unknown | Congestion::Bearable => false,
            Congestion::Overload => mostly_in_use,
            Congestion::Locked if repeats => is_unproven && self.ceiling.is_some(),
            Congestion::Locked => mostly_in_use || is_unproven,
        };
        is_signal && call.number > self.ignored_up_to
    }

    fn on_success(&mut self, call: Call) {
        self.rest = None;
        if call.number > self.ignored_up_to {
            self.proven = self.proven.max(call.rank);
        }
        self.successes += 1;
        if self.successes >= self.round_length() {
            self.rise();
        }
    }

    /// The number of calls that must succeed before the limit rises.
    fn round_length(&self) -> usize {
        let below_ceiling = self.ceiling == Some(self.limit + 1);
        if below_ceiling { self.limit * PLATEAU } else { self.limit }
    }

    fn rise(&mut self) {
        let ceiling = self.ceiling.filter(|ceiling| self.limit < *ceiling);
        let risen = (self.limit + self.step).min(self.max);
        match ceiling {
            Some(ceiling) if self.limit + 1 == ceiling => {
                self.limit = ceiling;
                self.step = 1;
            }
            Some(ceiling) => {
                self.limit = risen.min(ceiling - 1);
                self.step *= 2;
            }
            // A whole round succeeded at the ceiling, so it is none.
            None => {
                self.limit = risen;
                self.step = self.step.saturating_mul(2).min(self.max);
                self.ceiling = None;
            }
        }
        self.successes = 0;
        self.floor = None;
    }

    fn on_signal(&mut self, now: Instant) {
        self.last_signal = Some(now);
        self.successes = 0;
        self.step = 1;
        if self.limit == 1 {
            self.rest(now);
        } else {
            self.fall();
        }
    }

    /// Lowers the limit by one. After it has fallen to half of its value before this round's first
    /// signal, calls that are running already are no signals any more.
    fn fall(&mut self) {
        let floor = self.floor.unwrap_or_else(|| {
            self.ceiling = Some(self.limit);
            self.limit / 2
        });
        self.limit -= 1;
        self.floor = Some(floor).filter(|floor| self.limit > *floor);
        self.proven = self.proven.min(self.limit);
        if self.floor.is_none() {
            self.ignored_up_to = self.begun;
            self.proven = 1;
        }
    }

    /// Rests during an outage. How many calls the driver can take is unknown afterwards.
    fn rest(&mut self, now: Instant) {
        let length = self.rest.map_or(REST.0, |rest| (rest.length * 2).min(REST.1));
        self.rest = Some(Rest { until: now + length, length });
        self.ceiling = None;
        self.floor = None;
        self.proven = 1;
        self.ignored_up_to = self.begun;
    }
}

#[cfg(test)]
mod tests;
