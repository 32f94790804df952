//! An adaptive limit of concurrent calls.
//!
//! The limit is at its maximum until the driver shows that it is overloaded. It then falls, and rises again by
//! probing. It is always between 1 and the maximum, and reaches the maximum again after a bounded number of
//! successful calls. Which failures count is decided by `calls` and `class`. Pure: callers pass the time.
//!
//! - A failure counts only if more than half of the limit was in use: one hanging call of a single claim
//!   says nothing about concurrency. Nor does a call that began before the last fall.
//! - The limit falls if calls succeed and an eighth of those that ran beside a failing call fails. It falls to
//!   its value before the last rise; otherwise by a quarter, or further if fewer calls than half of the limit
//!   were served within the deadline.
//! - While no call succeeds, there is nothing to compare with: the claims may be bad, or the driver is not
//!   available. The limit then falls by a quarter for each round of failures, but not for the first round
//!   after a success.
//! - A failure at a limit of 1 after which no call succeeds is an outage: the limit *rests*, that is, admits no
//!   call for some time, and then admits one call at a time until one succeeds.
//! - After a fall the limit has a *ceiling*, at which calls failed. It rises to one below, stays there for
//!   [`PLATEAU`] rounds, and then probes the ceiling, where one failure makes it fall. Without a ceiling it
//!   doubles per round.

use tokio::time::{Duration, Instant};

/// The shortest and the longest rest between two calls during an outage.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// The number of rounds for which a limit stays below its ceiling: at first, and at most. It doubles whenever
/// the ceiling holds.
const PLATEAU: (usize, usize) = (8, 32);

/// A limit falls at most to one of so many.
const FARTHEST: usize = 32;

/// A limit whose last fall was so long ago starts over when no call is running.
const SIGNAL_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// The limit of one kind of calls.
#[derive(Debug, Clone)]
pub(super) struct AdaptiveLimit {
    max: usize,
    limit: usize,
    /// A limit at which calls have failed.
    ceiling: Option<usize>,
    /// The limit before the last rise.
    before_rise: Option<usize>,
    /// By how much the limit rises next.
    step: usize,
    /// The number of rounds for which the limit stays below its ceiling.
    plateau: usize,
    /// The number of calls that have succeeded since the limit last changed.
    successes: usize,
    /// The number of calls that have failed since then or since the first success.
    failures: usize,
    /// The number of failures without a success at which the limit falls.
    patience: usize,
    /// Failures of calls up to this number do not count.
    ignored_up_to: u64,
    rest: Option<Rest>,
    last_signal: Option<Instant>,
}

/// A period without calls.
#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Instant,
    length: Duration,
}

/// A call that has failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct FailedCall {
    /// Its place in the order of calls.
    pub(super) number: u64,
    /// The number of calls that ran when it began or when it ended, including itself.
    pub(super) rank: usize,
    /// The number of calls that succeeded while it waited for its answer.
    pub(super) served: usize,
    /// The number of calls begun so far.
    pub(super) begun: u64,
}

impl AdaptiveLimit {
    /// Creates a limit at its maximum `max`, which is at least 1.
    pub(super) fn new(max: usize) -> Self {
        let max = max.max(1);
        Self {
            max,
            limit: max,
            ceiling: None,
            before_rise: None,
            step: 1,
            plateau: PLATEAU.0,
            successes: 0,
            failures: 0,
            patience: 2 * max,
            ignored_up_to: 0,
            rest: None,
            last_signal: None,
        }
    }

    /// The limit of concurrent calls.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether it is below its maximum.
    pub(super) fn is_lowered(&self) -> bool {
        self.limit < self.max || self.rest.is_some()
    }

    /// Whether it tries a limit at which calls have failed.
    pub(super) fn is_probing(&self) -> bool {
        self.ceiling.is_some_and(|ceiling| self.limit >= ceiling)
    }

    /// Whether another call may begin beside so many.
    pub(super) fn admits(&self, running: usize, now: Instant) -> bool {
        match self.rest {
            None => running < self.limit,
            Some(rest) => running == 0 && rest.until <= now,
        }
    }

    /// The time at which the rest ends.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        self.rest.map(|rest| rest.until)
    }

    /// Starts over if the limit last fell long ago. No call may be running.
    pub(super) fn expire_signals(&mut self, now: Instant) {
        let is_old = |signal| now.duration_since(signal) >= SIGNAL_LIFETIME;
        if self.last_signal.is_some_and(is_old) {
            *self = Self::new(self.max);
        }
    }

    /// Sets the maximum. A limit that is at its maximum stays there.
    pub(super) fn set_max(&mut self, max: usize) {
        if self.limit == self.max || self.limit > max {
            self.limit = max;
        }
        self.max = max;
    }

    /// Records that the driver answers a call for which it had no work to do.
    pub(super) fn on_answer(&mut self) {
        self.rest = None;
    }

    /// Records that a call succeeded.
    pub(super) fn on_success(&mut self, is_repeat: bool) {
        self.rest = None;
        if self.successes == 0 {
            self.failures = 0;
        }
        // The failure of the volume's earlier call was none of the driver's.
        self.failures -= usize::from(is_repeat).min(self.failures);
        self.successes += 1;
        self.patience = 2 * self.limit;
        if self.successes >= self.round_length() {
            self.rise();
        }
    }

    /// Records that a call failed. Returns whether the limit falls, or rests.
    pub(super) fn on_failure(&mut self, call: FailedCall, now: Instant) -> bool {
        if call.number <= self.ignored_up_to || call.rank * 2 <= self.limit {
            self.rest = self.rest.map(|rest| Rest { until: now + rest.length, ..rest });
            return false;
        }
        self.failures += 1;
        let falls = self.are_failures_many(call.rank);
        if falls {
            self.fall_or_rest(call.served, now);
            self.start_round(call.begun, now);
        }
        falls
    }

    /// Whether the failures of this round lower the limit, the last one of a call of this rank.
    fn are_failures_many(&self, rank: usize) -> bool {
        match self.successes {
            _ if self.is_probing() => true,
            0 => self.failures >= self.patience,
            _ => self.failures * 8 >= rank,
        }
    }

    /// The number of calls that must succeed before the limit rises.
    fn round_length(&self) -> usize {
        let below_ceiling = self.ceiling == Some(self.limit + 1);
        if below_ceiling { self.limit * self.plateau } else { self.limit }
    }

    fn rise(&mut self) {
        let ceiling = self.ceiling.filter(|ceiling| self.limit < *ceiling);
        let risen = self.limit.saturating_add(self.step);
        self.before_rise = Some(self.limit);
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
                self.plateau = PLATEAU.0;
            }
        }
        self.limit = self.limit.min(self.max);
        self.successes = 0;
        self.failures = 0;
    }

    /// Records that the driver accepts no more calls than these at once. Returns whether the limit falls.
    pub(super) fn lower_to(&mut self, accepted: usize, begun: u64, now: Instant) -> bool {
        let falls = accepted < self.limit;
        if falls {
            self.limit = accepted;
            self.ceiling = Some(accepted + 1);
            self.start_round(begun, now);
        }
        falls
    }

    fn fall_or_rest(&mut self, served: usize, now: Instant) {
        if self.limit == 1 && self.successes == 0 {
            self.rest(now);
        } else {
            self.fall(served);
        }
    }

    /// Starts to count anew after a fall.
    fn start_round(&mut self, begun: u64, now: Instant) {
        self.last_signal = Some(now);
        self.successes = 0;
        self.failures = 0;
        self.step = 1;
        self.patience = self.limit;
        self.ignored_up_to = begun;
    }

    fn fall(&mut self, served: usize) {
        if self.is_probing() {
            self.plateau = (self.plateau * 2).min(PLATEAU.1);
        }
        let before_rise = self.before_rise.take().filter(|before| *before < self.limit);
        let quarter = (self.limit / 4).max(1);
        let (limit, ceiling) = match before_rise {
            Some(before) => (before, self.limit),
            None if (1..self.limit / 2).contains(&served) => {
                let served = served.max(self.limit / FARTHEST);
                (served, 2 * served)
            }
            None => (self.limit.saturating_sub(quarter).max(1), self.limit.max(2)),
        };
        self.limit = limit;
        self.ceiling = Some(ceiling);
    }

    /// Rests during an outage. How many calls the driver can take is unknown afterwards.
    fn rest(&mut self, now: Instant) {
        let length = self.rest.map_or(REST.0, |rest| (rest.length * 2).min(REST.1));
        self.rest = Some(Rest { until: now + length, length });
        self.ceiling = None;
    }
}

#[cfg(test)]
mod tests;
