//! Limits equal log lines: a line is logged a few times, then once a minute with a count.
//!
//! Memory is limited: only hashes of lines are kept, and if there are more than [`MAX_LINES`] different
//! lines a minute, the others are not limited.

use std::{
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher as _},
    time::Duration,
};

use indexmap::IndexMap;

/// How often a line is logged within [`WINDOW`].
const BURST: u32 = 3;
const WINDOW: Duration = Duration::from_secs(60);
/// The most lines that are tracked.
const MAX_LINES: usize = 1024;
/// How often lines that are no longer repeated are removed at the limit.
const SWEEP: Duration = Duration::from_secs(1);

/// Whether a line is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Log the line.
    Log,
    /// Log the line and how often it was suppressed before.
    LogWithCount { suppressed: u32 },
    /// Suppress the line.
    Suppress,
}

/// The lines of the last minute.
#[derive(Debug)]
pub(super) struct Repeats {
    /// By the line's hash; lines with equal hashes are treated as equal. In one block of memory: the
    /// entries outlive a burst, and each node of a tree would keep a page of the burst's memory.
    lines: IndexMap<u64, Window, BuildHasherDefault<DefaultHasher>>,
    /// When lines were last removed, so that a burst does not cause a sweep for each line.
    swept: Duration,
}

/// The counts of one line since `began`.
#[derive(Debug)]
struct Window {
    began: Duration,
    logged: u32,
    suppressed: u32,
}

impl Default for Repeats {
    fn default() -> Self {
        let hasher = BuildHasherDefault::default();
        let lines = IndexMap::with_capacity_and_hasher(MAX_LINES, hasher);
        Self { lines, swept: Duration::ZERO }
    }
}

impl Repeats {
    /// Decides about `line` at the time `now`, which must be monotonic.
    pub(super) fn decide(&mut self, line: &(impl Hash + ?Sized), now: Duration) -> Decision {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        let line = hasher.finish();
        if let Some(window) = self.lines.get_mut(&line) {
            return window.decide(now);
        }
        if self.lines.len() >= MAX_LINES && now.saturating_sub(self.swept) >= SWEEP {
            self.swept = now;
            self.lines.retain(|_, window| !window.is_over(now));
        }
        if self.lines.len() < MAX_LINES {
            self.lines.insert(line, Window { began: now, logged: 1, suppressed: 0 });
        }
        Decision::Log
    }
}

impl Window {
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) >= WINDOW
    }

    fn decide(&mut self, now: Duration) -> Decision {
        if self.is_over(now) {
            let suppressed = std::mem::take(&mut self.suppressed);
            // A line that was suppressed is logged once a window from now on; another one has its burst.
            *self =
                Self { began: now, logged: if suppressed > 0 { BURST } else { 1 }, suppressed: 0 };
            return if suppressed > 0 {
                Decision::LogWithCount { suppressed }
            } else {
                Decision::Log
            };
        }
        if self.logged < BURST {
            self.logged += 1;
            return Decision::Log;
        }
        self.suppressed = self.suppressed.saturating_add(1);
        Decision::Suppress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(1000 + seconds)
    }

    #[test]
    fn a_line_is_logged_three_times_then_once_a_minute_with_a_count() {
        let mut repeats = Repeats::default();
        let logged: Vec<(u64, Decision)> = (0..=130)
            .map(|second| (second, repeats.decide("x", at(second))))
            .filter(|(_, say)| *say != Decision::Suppress)
            .collect();
        let expected = [
            (0, Decision::Log),
            (1, Decision::Log),
            (2, Decision::Log),
            (60, Decision::LogWithCount { suppressed: 57 }),
            (120, Decision::LogWithCount { suppressed: 59 }),
        ];
        assert_eq!(logged, expected);
    }

    #[test]
    fn a_rare_line_is_always_logged() {
        let mut repeats = Repeats::default();
        for n in 0..10 {
            assert_eq!(repeats.decide("x", at(n * 30)), Decision::Log);
        }
    }

    #[test]
    fn different_lines_are_not_repeats() {
        let mut repeats = Repeats::default();
        for n in 0..10 {
            assert_eq!(repeats.decide(&n.to_string(), at(0)), Decision::Log);
        }
    }

    #[test]
    fn memory_is_limited_and_untracked_lines_are_logged() {
        let mut repeats = Repeats::default();
        let room = repeats.lines.capacity();
        for n in 0..3 * MAX_LINES {
            repeats.decide(&n.to_string(), at(0));
        }
        assert_eq!((repeats.lines.len(), repeats.lines.capacity()), (MAX_LINES, room));
        for _ in 0..10 {
            assert_eq!(repeats.decide("new", at(1)), Decision::Log);
        }
        // Old lines are removed, but not at every line.
        assert_eq!(repeats.swept, at(1));
        repeats.decide("new", at(61));
        assert_eq!(repeats.lines.len(), 1);
    }
}
