//! The running calls of one class, and what the end of each says about the driver.
//!
//! A call that fails may have met an overloaded driver, or be the trouble of its claim alone. It is its own
//! trouble if the driver serves others meanwhile:
//!
//! - It was *overtaken*: of the calls that began after it, a good part has succeeded before it ended. An
//!   overloaded driver serves the calls that wait for it first, or few of all.
//! - It was refused, and a call that began beside as many others has succeeded a short time ago.
//!
//! A repeat that is answered far faster than other calls finds the volume made already: the driver worked for
//! the earlier call. It shows neither that the driver has time nor that it overtakes others.
//!
//! Pure.

use std::collections::BTreeMap;

use tokio::time::{Duration, Instant};

use crate::controller::provisioner::Congestion;

/// So many times as many calls must have been refused as were accepted to show an overload, and so many times
/// as many must still wait as have succeeded.
const MANY: usize = 4;

/// A repeat that takes less than one of so many parts of the usual time did no work.
const QUICK: u32 = 8;

/// The weight of the calls before the last one in the usual time of a call, which has the weight 1.
const BEFORE: u32 = 7;

/// Whether a call is the first for its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// No call for the volume was made, or the last one ended.
    First,
    /// An earlier call for the same volume may still run.
    Repeat,
}

/// A running call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) line: Line,
    /// Its place in the order of all calls of the class.
    pub(super) number: u64,
    /// The number of running calls when it began, including itself.
    pub(super) rank: usize,
    /// The number of running repeats when it began, including itself.
    pub(super) rank_of_repeats: usize,
    /// The number of calls that had succeeded when it began.
    succeeded: usize,
    /// The number of first attempts that were refused when it began.
    refused: usize,
    began: Instant,
}

/// What the end of a call says about the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Nothing.
    Unknown,
    /// The driver answers. It had done the work before.
    AlreadyDone,
    /// The driver had time for the call. While it worked, it refused many others: it accepted only so many.
    Success { accepted: Option<usize> },
    /// The call failed although the driver had time for others.
    OwnTrouble,
    /// The driver may be overloaded. While the call waited for an answer, so many others succeeded.
    Failure { served: usize },
}

#[derive(Debug)]
struct Running {
    began: Instant,
    /// How many calls that began later have succeeded.
    overtaken: usize,
}

/// The running calls of one class.
#[derive(Debug, Default)]
pub(super) struct RunningCalls {
    /// The number of calls begun so far.
    begun: u64,
    /// The number of calls that have succeeded so far.
    succeeded: usize,
    /// The number of first attempts that were refused so far.
    refused: usize,
    running: BTreeMap<u64, Running>,
    /// The number of running repeats.
    repeats: usize,
    /// The average time of the calls that succeed, the last ones above all.
    usual: Option<Duration>,
    proven: Proven,
}

impl RunningCalls {
    /// The number of running calls.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// The number of running repeats.
    pub(super) fn repeats(&self) -> usize {
        self.repeats
    }

    /// The number of calls begun so far.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Records that a call begins.
    pub(super) fn begin(&mut self, line: Line, now: Instant) -> Call {
        self.begun += 1;
        self.running.insert(self.begun, Running { began: now, overtaken: 0 });
        self.repeats += usize::from(line == Line::Repeat);
        Call {
            line,
            number: self.begun,
            rank: self.running.len(),
            rank_of_repeats: self.repeats,
            succeeded: self.succeeded,
            refused: self.refused,
            began: now,
        }
    }

    /// Records that a call ended.
    pub(super) fn end(&mut self, call: Call, congestion: Congestion, now: Instant) -> Signal {
        let overtaken = self.running.remove(&call.number).map_or(0, |running| running.overtaken);
        self.repeats -= usize::from(call.line == Line::Repeat).min(self.repeats);
        let is_refusal = matches!(congestion, Congestion::Locked | Congestion::Refused);
        let signal = match congestion {
            Congestion::Unknown => return Signal::Unknown,
            Congestion::Bearable if self.is_quick_repeat(call, now) => return Signal::AlreadyDone,
            Congestion::Bearable => self.on_success(call, now),
            _ if self.is_overtaken(call, overtaken, now) => Signal::OwnTrouble,
            _ if is_refusal && call.rank <= self.proven.rank() => Signal::OwnTrouble,
            _ if is_refusal => self.on_refusal(call),
            _ => Signal::Failure { served: self.succeeded - call.succeeded },
        };
        self.proven.count(call, signal);
        signal
    }

    /// Whether the call is a repeat that took far less than the usual time. Takes its time into that.
    fn is_quick_repeat(&mut self, call: Call, now: Instant) -> bool {
        let took = now.duration_since(call.began);
        let usual = self.usual.unwrap_or(took);
        self.usual = Some((usual * BEFORE + took) / (BEFORE + 1));
        call.line == Line::Repeat && took * QUICK < usual
    }

    /// Whether a good part of the calls that began after this one has succeeded.
    fn is_overtaken(&self, call: Call, overtaken: usize, now: Instant) -> bool {
        overtaken > 0 && overtaken * MANY >= self.waiting(call, call.number, now)
    }

    fn on_success(&mut self, call: Call, now: Instant) -> Signal {
        self.succeeded += 1;
        for (_, running) in self.running.range_mut(..call.number) {
            running.overtaken += 1;
        }
        let accepted = self.waiting(call, 0, now) + self.succeeded - call.succeeded;
        let refused = self.refused - call.refused;
        Signal::Success { accepted: Some(accepted).filter(|accepted| refused >= accepted * MANY) }
    }

    /// The number of running calls from this number on. Those that began in the second half of the time of
    /// `call` are too young to count.
    fn waiting(&self, call: Call, from: u64, now: Instant) -> usize {
        let half_time = call.began + now.duration_since(call.began) / 2;
        self.running.range(from..).filter(|(_, running)| running.began < half_time).count()
    }

    fn on_refusal(&mut self, call: Call) -> Signal {
        self.refused += usize::from(call.line == Line::First);
        Signal::Failure { served: 0 }
    }
}

/// The number of concurrent calls that the driver has served a short time ago: in this round of calls or in
/// the one before.
#[derive(Debug, Default)]
struct Proven {
    this_round: usize,
    last_round: usize,
    /// The number of calls that have ended in this round.
    ended: usize,
}

impl Proven {
    fn rank(&self) -> usize {
        self.this_round.max(self.last_round)
    }

    /// A round has as many calls as run at once.
    fn count(&mut self, call: Call, signal: Signal) {
        self.ended += 1;
        if matches!(signal, Signal::Success { .. }) {
            self.this_round = self.this_round.max(call.rank);
        }
        if self.ended >= call.rank.max(self.this_round) {
            (self.last_round, self.this_round, self.ended) = (self.this_round, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests;
