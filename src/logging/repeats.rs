//! The same line again and again: said a few times, then once a minute with a count.
//!
//! A decision about (line, now), so that what is dropped is tested without a clock. Memory is
//! bounded: of a line, which may hold whatever a driver answered, a hash is kept; and of more than
//! [`REMEMBERED`] lines a minute the further ones are all said.

use std::{
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher as _},
    time::Duration,
};

use indexmap::IndexMap;

/// A line may be said so often ...
const BURST: u32 = 3;
/// ... within this time.
const WINDOW: Duration = Duration::from_secs(60);
/// So many different lines are remembered.
const REMEMBERED: usize = 1024;
/// While there are so many, those that are no longer repeated make room so often.
const SWEEP: Duration = Duration::from_secs(1);

/// What is to be said of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Say {
    /// The line.
    It,
    /// The line, and that it was left out so often before.
    After {
        /// How often.
        unsaid: u32,
    },
    /// Nothing.
    Nothing,
}

/// The lines of the last minute.
#[derive(Debug)]
pub(super) struct Repeats {
    /// By the line's hash. Two lines that share one would be told as one, for a minute. In one piece,
    /// for they outlive a burst, and each node of a tree would hold a page of its memory.
    lines: IndexMap<u64, Window, BuildHasherDefault<DefaultHasher>>,
    /// When those that rested were last looked for: not at every line of a burst.
    swept: Duration,
}

/// What became of one line since `began`.
#[derive(Debug)]
struct Window {
    began: Duration,
    said: u32,
    unsaid: u32,
}

impl Default for Repeats {
    fn default() -> Self {
        let hasher = BuildHasherDefault::default();
        let lines = IndexMap::with_capacity_and_hasher(REMEMBERED, hasher);
        Self { lines, swept: Duration::ZERO }
    }
}

impl Repeats {
    /// Judges the line `line` at the time `now`, which never goes back.
    pub(super) fn judge(&mut self, line: &(impl Hash + ?Sized), now: Duration) -> Say {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        let line = hasher.finish();
        if let Some(window) = self.lines.get_mut(&line) {
            return window.judge(now);
        }
        if self.lines.len() >= REMEMBERED && now.saturating_sub(self.swept) >= SWEEP {
            self.swept = now;
            self.lines.retain(|_, window| !window.is_over(now));
        }
        if self.lines.len() < REMEMBERED {
            self.lines.insert(line, Window { began: now, said: 1, unsaid: 0 });
        }
        Say::It
    }
}

impl Window {
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) >= WINDOW
    }

    fn judge(&mut self, now: Duration) -> Say {
        if self.is_over(now) {
            let unsaid = std::mem::take(&mut self.unsaid);
            // A line that was too much goes on once a window; one that rested starts afresh.
            *self = Self { began: now, said: if unsaid > 0 { BURST } else { 1 }, unsaid: 0 };
            return if unsaid > 0 { Say::After { unsaid } } else { Say::It };
        }
        if self.said < BURST {
            self.said += 1;
            return Say::It;
        }
        self.unsaid = self.unsaid.saturating_add(1);
        Say::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(1000 + seconds)
    }

    #[test]
    fn a_line_is_said_three_times_then_once_a_minute_with_a_count() {
        let mut repeats = Repeats::default();
        let said: Vec<(u64, Say)> = (0..=130)
            .map(|second| (second, repeats.judge("x", at(second))))
            .filter(|(_, say)| *say != Say::Nothing)
            .collect();
        let expected = [
            (0, Say::It),
            (1, Say::It),
            (2, Say::It),
            (60, Say::After { unsaid: 57 }),
            (120, Say::After { unsaid: 59 }),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_line_that_comes_seldom_is_always_said() {
        let mut repeats = Repeats::default();
        for n in 0..10 {
            assert_eq!(repeats.judge("x", at(n * 30)), Say::It);
        }
    }

    #[test]
    fn other_lines_are_no_repeats() {
        let mut repeats = Repeats::default();
        for n in 0..10 {
            assert_eq!(repeats.judge(&n.to_string(), at(0)), Say::It);
        }
    }

    #[test]
    fn memory_is_bounded_and_what_is_not_remembered_is_said() {
        let mut repeats = Repeats::default();
        let room = repeats.lines.capacity();
        for n in 0..3 * REMEMBERED {
            repeats.judge(&n.to_string(), at(0));
        }
        assert_eq!((repeats.lines.len(), repeats.lines.capacity()), (REMEMBERED, room));
        for _ in 0..10 {
            assert_eq!(repeats.judge("new", at(1)), Say::It);
        }
        // Old ones make room, but are not looked for at every line.
        assert_eq!(repeats.swept, at(1));
        repeats.judge("new", at(61));
        assert_eq!(repeats.lines.len(), 1);
    }
}
