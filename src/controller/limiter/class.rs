//! The calls of one class: who waits, and how many may run.
//!
//! Calls wait in two lines, first attempts and repeats, so that a class's failing claims do not hold up its
//! others:
//!
//! - All calls together have one limit, which failures of first attempts lower and successes of all raise.
//! - Repeats have a second limit, which their own failures lower.
//! - While first attempts wait, repeats have no more than a quarter of the permits, and never two in a row. A
//!   repeat waits for the first attempts that came before it, unless the limit is lowered: the driver may have
//!   finished its volume meanwhile. So no key of either line waits for ever.
//! - A repeat that finds its volume locked may have met its own earlier call. That counts only while a limit
//!   probes its ceiling.
//!
//! Pure: callers pass the time.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{
    adaptive::{AdaptiveLimit, FailedCall},
    calls::{Call, Line, RunningCalls, Signal},
};
use crate::controller::{item::Item, provisioner::Congestion};

/// Repeats have at most one of so many permits while first attempts wait.
const REPEATS_SHARE: usize = 4;

/// The calls of one class.
#[derive(Debug)]
pub(super) struct Class {
    /// The limit of all calls.
    limit: AdaptiveLimit,
    /// The limit of repeats.
    repeats_limit: AdaptiveLimit,
    calls: RunningCalls,
    /// The waiting keys of each line, by arrival.
    first: BTreeMap<u64, Item>,
    repeats: BTreeMap<u64, Item>,
    last_line: Line,
    /// When the class last got a permit.
    last_granted: u64,
}

impl Class {
    /// Creates a class of which up to `max` calls may run at once.
    pub(super) fn new(max: usize) -> Self {
        Self {
            limit: AdaptiveLimit::new(max),
            repeats_limit: AdaptiveLimit::new(max),
            calls: RunningCalls::default(),
            first: BTreeMap::new(),
            repeats: BTreeMap::new(),
            last_line: Line::First,
            last_granted: 0,
        }
    }

    /// The limit of concurrent calls.
    pub(super) fn limit(&self) -> usize {
        self.limit.limit()
    }

    /// The number of running calls.
    pub(super) fn running(&self) -> usize {
        self.calls.running()
    }

    /// The number of running repeats.
    pub(super) fn repeats(&self) -> usize {
        self.calls.repeats()
    }

    /// The number of waiting keys.
    pub(super) fn waiting(&self) -> usize {
        self.first.len() + self.repeats.len()
    }

    /// When it last got a permit.
    pub(super) fn last_granted(&self) -> u64 {
        self.last_granted
    }

    /// The oldest key of the line.
    pub(super) fn front(&self, line: Line) -> Option<&Item> {
        let waiting = match line {
            Line::First => &self.first,
            Line::Repeat => &self.repeats,
        };
        waiting.values().next()
    }

    /// Whether it behaves as a new one, so that it need not be kept.
    pub(super) fn is_idle(&self) -> bool {
        let is_lowered = self.limit.is_lowered() || self.repeats_limit.is_lowered();
        self.running() == 0 && self.waiting() == 0 && !is_lowered
    }

    /// Adds a key that waits since `arrival`.
    pub(super) fn enqueue(&mut self, line: Line, arrival: u64, key: Item, now: Instant) {
        if self.running() == 0 {
            self.limit.expire_signals(now);
            self.repeats_limit.expire_signals(now);
        }
        self.line(line).insert(arrival, key);
    }

    /// Removes the key that waits since `arrival`.
    pub(super) fn remove(&mut self, line: Line, arrival: u64) {
        self.line(line).remove(&arrival);
    }

    /// The line whose oldest key may call next. `allows_repeats` says that a permit is free for repeats.
    pub(super) fn next_line(&self, allows_repeats: bool, now: Instant) -> Option<Line> {
        if !self.limit.admits(self.running(), now) {
            return None;
        }
        let first = self.first.keys().next();
        let may_repeat = allows_repeats && self.repeats_limit.admits(self.calls.repeats(), now);
        let repeat = self.repeats.keys().next().filter(|_| may_repeat);
        let Some(first) = first else { return repeat.map(|_| Line::Repeat) };
        let is_repeats_turn = repeat.is_some_and(|repeat| self.is_repeats_turn(repeat < first));
        Some(if is_repeats_turn { Line::Repeat } else { Line::First })
    }

    /// Whether a repeat is next while first attempts wait.
    fn is_repeats_turn(&self, is_older: bool) -> bool {
        let share = (self.limit() / REPEATS_SHARE).max(1);
        let has_share = self.calls.repeats() < share && self.last_line == Line::First;
        has_share && (is_older || self.limit.is_lowered())
    }

    /// Begins a call for the oldest key of the line.
    pub(super) fn begin(&mut self, line: Line, granted: u64, now: Instant) -> Option<(Item, Call)> {
        let (_, key) = self.line(line).pop_first()?;
        (self.last_line, self.last_granted) = (line, granted);
        Some((key, self.calls.begin(line, now)))
    }

    /// Records that a call ended. Returns whether a limit falls.
    pub(super) fn end(&mut self, call: Call, congestion: Congestion, now: Instant) -> bool {
        let falls = match self.calls.end(call, congestion, now) {
            Signal::Unknown | Signal::OwnTrouble => false,
            Signal::AlreadyDone => {
                self.limit.on_answer();
                self.repeats_limit.on_answer();
                false
            }
            Signal::Success { accepted } => self.on_success(call.line, accepted, now),
            Signal::Failure { served } => {
                // A repeat may have met its own earlier call.
                let may_be_own = call.line == Line::Repeat && congestion == Congestion::Locked;
                self.on_failure(call, served, may_be_own, now)
            }
        };
        self.repeats_limit.set_max(self.limit.limit());
        falls
    }

    fn on_success(&mut self, line: Line, accepted: Option<usize>, now: Instant) -> bool {
        let is_repeat = line == Line::Repeat;
        self.limit.on_success(is_repeat);
        if is_repeat {
            self.repeats_limit.on_success(is_repeat);
        }
        let begun = self.calls.begun();
        accepted.is_some_and(|accepted| self.limit.lower_to(accepted, begun, now))
    }

    fn on_failure(&mut self, call: Call, served: usize, may_be_own: bool, now: Instant) -> bool {
        let (number, begun) = (call.number, self.calls.begun());
        let failed = |rank| FailedCall { number, rank, served, begun };
        let is_repeat = call.line == Line::Repeat;
        let counts = !is_repeat || (may_be_own && self.limit.is_probing());
        let falls = counts && self.limit.on_failure(failed(call.rank.max(self.running() + 1)), now);
        let counts = is_repeat && (!may_be_own || self.repeats_limit.is_probing());
        let repeats_fall = counts
            && self
                .repeats_limit
                .on_failure(failed(call.rank_of_repeats.max(self.calls.repeats() + 1)), now);
        falls || repeats_fall
    }

    /// The time after `now` at which a waiting key may call if nothing else happens.
    pub(super) fn next_time(&self, now: Instant) -> Option<Instant> {
        let rest = self.limit.rests_until();
        let first = rest.filter(|_| !self.first.is_empty());
        let repeats = rest.max(self.repeats_limit.rests_until());
        let repeats = repeats.filter(|_| !self.repeats.is_empty());
        [first, repeats].into_iter().flatten().filter(|time| *time > now).min()
    }

    fn line(&mut self, line: Line) -> &mut BTreeMap<u64, Item> {
        match line {
            Line::First => &mut self.first,
            Line::Repeat => &mut self.repeats,
        }
    }
}

#[cfg(test)]
mod tests;
