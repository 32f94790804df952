//! How many calls of one kind and class the driver is given at once.
//!
//! Owns the rule: the limit stands at its maximum until calls show that the driver has too much
//! on its hands, falls to half at most for each round of calls, and comes back by probing. Pure:
//! time is passed in. Promises a limit from one to the maximum, and that it reaches the maximum
//! again within a bounded number of calls that go well.
//!
//! - A *sign* is a call that met with overload while more than half the limit was in use: the call
//!   of a lone claim that hangs says nothing about how many may run. One that was refused is a sign
//!   as well when so many at once have not gone well before. Calls begun before the last fall ended
//!   tell nothing new.
//! - A limit that has fallen knows its *ceiling*, where the signs began: it climbs to just below,
//!   stays there for a while, and then tries the ceiling again. Without one it doubles each round.
//! - A sign while a single call runs is an outage: the class *rests*, and then one call at a time
//!   shows whether it is over.
//! - A repeated call that finds its volume locked has met its own earlier call, which says nothing
//!   of load, unless the limit has fallen and so many calls have not gone well since.

use tokio::time::{Duration, Instant};

use crate::controller::provisioner::Congestion;

/// The shortest and the longest rest between two calls while nothing works.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// For so many rounds a limit stays below its ceiling before it tries it again.
const PLATEAU: usize = 8;

/// A class that was not called for this long after its last sign begins anew.
const FORGOTTEN: Duration = Duration::from_secs(10 * 60);

/// The limit of one class.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    max: usize,
    /// How many calls may run at once.
    allowed: usize,
    under_way: usize,
    /// How many calls were begun.
    begun: u64,
    /// Calls begun before this one are no signs any more.
    fresh: u64,
    /// How low calls of this round may bring the limit, while it is falling.
    bottom: Option<usize>,
    /// Where the last signs began.
    ceiling: Option<usize>,
    /// How many calls at once have gone well since: one is always tried.
    good: usize,
    /// Calls that went well since the limit last changed.
    well: usize,
    /// By how much it rises next.
    step: usize,
    rest: Option<Rest>,
    last_sign: Option<Instant>,
}

/// A time without calls.
#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Instant,
    length: Duration,
}

/// A call under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    number: u64,
    /// How many calls were under way with it when it began.
    rank: usize,
}

impl Limit {
    /// The limit `max`, of at least one.
    pub(super) fn new(max: usize) -> Self {
        let max = max.max(1);
        Self {
            max,
            allowed: max,
            under_way: 0,
            begun: 0,
            fresh: 0,
            bottom: None,
            ceiling: None,
            good: 1,
            well: 0,
            step: 1,
            rest: None,
            last_sign: None,
        }
    }

    /// How many calls may run at once.
    pub(super) fn limit(&self) -> usize {
        self.allowed
    }

    /// How many calls run.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether it says nothing that a new one would not say.
    pub(super) fn is_as_new(&self) -> bool {
        self.under_way == 0 && self.allowed == self.max && self.rest.is_none()
    }

    /// Whether one more call may begin.
    pub(super) fn admits(&self, now: Instant) -> bool {
        match self.rest {
            None => self.under_way < self.allowed,
            Some(rest) => self.under_way == 0 && rest.until <= now,
        }
    }

    /// When it admits a call without anything else happening.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        self.rest.filter(|_| self.under_way == 0).map(|rest| rest.until)
    }

    /// Begins anew where the last sign is long past and nothing is under way.
    pub(super) fn forget_old_signs(&mut self, now: Instant) {
        let old = self.last_sign.is_some_and(|sign| now.duration_since(sign) >= FORGOTTEN);
        if old && self.under_way == 0 {
            *self = Self::new(self.max);
        }
    }

    /// A call begins.
    pub(super) fn begin(&mut self) -> Call {
        self.begun += 1;
        self.under_way += 1;
        Call { number: self.begun, rank: self.under_way }
    }

    /// A call ended with this strain; `repeats` one whose end was not known. Whether the limit
    /// took it for a sign.
    pub(super) fn end(
        &mut self,
        call: Call,
        strain: Congestion,
        repeats: bool,
        now: Instant,
    ) -> bool {
        self.under_way = self.under_way.saturating_sub(1);
        let is_sign = self.is_sign(call, strain, repeats);
        match strain {
            Congestion::Unknown => {}
            Congestion::Bearable => self.went_well(call),
            Congestion::Locked | Congestion::Overload if is_sign => self.sign(now),
            Congestion::Locked | Congestion::Overload => {
                self.rest = self.rest.map(|rest| Rest { until: now + rest.length, ..rest });
            }
        }
        is_sign
    }

    /// Whether the end of this call says that the driver has too much on its hands.
    fn is_sign(&self, call: Call, strain: Congestion, repeats: bool) -> bool {
        let in_use = call.rank * 2 > self.allowed;
        let untried = call.rank > self.good;
        let says_so = match strain {
            Congestion::Unknown | Congestion::Bearable => false,
            Congestion::Overload => in_use,
            Congestion::Locked if repeats => untried && self.ceiling.is_some(),
            Congestion::Locked => in_use || untried,
        };
        says_so && call.number > self.fresh
    }

    fn went_well(&mut self, call: Call) {
        self.rest = None;
        if call.number > self.fresh {
            self.good = self.good.max(call.rank);
        }
        self.well += 1;
        if self.well >= self.round() {
            self.rise();
        }
    }

    /// How many calls must go well before the limit rises.
    fn round(&self) -> usize {
        let below_ceiling = self.ceiling == Some(self.allowed + 1);
        if below_ceiling { self.allowed * PLATEAU } else { self.allowed }
    }

    fn rise(&mut self) {
        let ceiling = self.ceiling.filter(|ceiling| self.allowed < *ceiling);
        let risen = (self.allowed + self.step).min(self.max);
        match ceiling {
            Some(ceiling) if self.allowed + 1 == ceiling => {
                self.allowed = ceiling;
                self.step = 1;
            }
            Some(ceiling) => {
                self.allowed = risen.min(ceiling - 1);
                self.step *= 2;
            }
            // A whole round went well at the ceiling: it is none.
            None => {
                self.allowed = risen;
                self.step = self.step.saturating_mul(2).min(self.max);
                self.ceiling = None;
            }
        }
        (self.well, self.bottom) = (0, None);
    }

    fn sign(&mut self, now: Instant) {
        self.last_sign = Some(now);
        (self.well, self.step) = (0, 1);
        if self.allowed == 1 {
            self.rest(now);
        } else {
            self.fall();
        }
    }

    /// One call less, down to half of where the round of calls began.
    fn fall(&mut self) {
        let bottom = self.bottom.unwrap_or_else(|| {
            self.ceiling = Some(self.allowed);
            self.allowed / 2
        });
        self.allowed -= 1;
        self.bottom = Some(bottom).filter(|bottom| self.allowed > *bottom);
        self.good = self.good.min(self.allowed);
        if self.bottom.is_none() {
            (self.fresh, self.good) = (self.begun, 1);
        }
    }

    /// Nothing works: what the driver bears is unknown by now.
    fn rest(&mut self, now: Instant) {
        let length = self.rest.map_or(REST.0, |rest| (rest.length * 2).min(REST.1));
        self.rest = Some(Rest { until: now + length, length });
        (self.ceiling, self.bottom, self.good) = (None, None, 1);
        self.fresh = self.begun;
    }
}

#[cfg(test)]
mod tests;
