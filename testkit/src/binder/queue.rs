//! Who must be looked at.
//!
//! Owns the line of objects about which something has changed. Promises that an object stands in it
//! once at most and is in one pair of hands at a time, and that after a change of ours it is not looked
//! at before a watch has shown that change: a decision on what was before would be refused by the
//! server, and made again and again. Leaves what to do to the decisions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::book::Item;

/// How an object stands about which there is something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its turn will come.
    InLine,
    /// It is being looked at or changed; `again` where something has changed meanwhile.
    InHand { again: bool },
    /// It was changed, and that is not shown yet.
    Unseen { version: u64 },
}

/// The line.
#[derive(Debug, Default)]
pub(super) struct Queue {
    states: BTreeMap<Item, State>,
    line: VecDeque<Item>,
    /// Those whose change was refused, until all of them are tried again.
    refused: BTreeSet<Item>,
}

impl Queue {
    /// Something has changed about an object, which stands in the book at the version `shown`.
    pub(super) fn add(&mut self, item: Item, shown: Option<u64>) {
        match self.states.get_mut(&item) {
            None => self.line_up(item),
            Some(State::InHand { again }) => *again = true,
            Some(State::Unseen { version }) if shown.is_none_or(|shown| shown >= *version) => {
                self.line_up(item);
            }
            Some(State::InLine | State::Unseen { .. }) => {}
        }
    }

    fn line_up(&mut self, item: Item) {
        self.states.insert(item.clone(), State::InLine);
        self.line.push_back(item);
    }

    /// Whose turn it is. He is in hand until one of the calls below.
    pub(super) fn take(&mut self) -> Option<Item> {
        let item = self.line.pop_front()?;
        self.states.insert(item.clone(), State::InHand { again: false });
        self.refused.remove(&item);
        Some(item)
    }

    /// Nothing was to be done about him.
    pub(super) fn idle(&mut self, item: Item) {
        if self.states.remove(&item) == Some(State::InHand { again: true }) {
            self.line_up(item);
        }
    }

    /// His change made this version of him; the book has the version `shown`.
    pub(super) fn changed(&mut self, item: Item, version: u64, shown: Option<u64>) {
        if shown.is_some_and(|shown| shown < version) {
            self.states.insert(item, State::Unseen { version });
        } else {
            self.idle(item);
        }
    }

    /// His change could not be made: he is looked at when something changes, or with the next retry.
    pub(super) fn refused(&mut self, item: Item) {
        self.refused.insert(item.clone());
        self.idle(item);
    }

    /// Those who were refused get in line again.
    pub(super) fn retry(&mut self) {
        for item in std::mem::take(&mut self.refused) {
            self.add(item, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Item {
        Item::volume("one")
    }

    fn in_hand() -> Queue {
        let mut queue = Queue::default();
        queue.add(one(), Some(1));
        assert_eq!(queue.take(), Some(one()));
        queue
    }

    #[test]
    fn who_changes_twice_stands_in_line_once_and_in_order() {
        let mut queue = Queue::default();
        for name in ["b", "a", "b"] {
            queue.add(Item::volume(name), None);
        }
        let order = [Some("b"), Some("a"), None].map(|name| name.map(Item::volume));
        assert_eq!([queue.take(), queue.take(), queue.take()], order);
    }

    #[test]
    fn who_changes_in_hand_is_looked_at_again_and_not_before() {
        let mut queue = in_hand();
        queue.add(one(), Some(2));
        assert_eq!(queue.take(), None);
        queue.idle(one());
        assert_eq!(queue.take(), Some(one()));
        queue.idle(one());
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn a_change_of_ours_must_be_shown_before_the_next_look() {
        for (shown_at_answer, then, looked_at) in [
            (Some(6), Some(6), false),
            (Some(6), Some(7), true),
            (Some(6), Some(8), true),
            (Some(6), None, true),
        ] {
            let mut queue = in_hand();
            queue.changed(one(), 7, shown_at_answer);
            queue.add(one(), then);
            assert_eq!(queue.take().is_some(), looked_at, "{then:?}");
        }
    }

    #[test]
    fn a_change_that_was_shown_before_its_answer_is_not_waited_for() {
        for (version, shown) in [(7, Some(7)), (7, Some(8)), (7, None)] {
            let mut queue = in_hand();
            queue.add(one(), shown);
            queue.changed(one(), version, shown);
            assert_eq!(queue.take(), Some(one()), "{shown:?}");
        }
        // One that changes nothing leads nowhere.
        let mut queue = in_hand();
        queue.changed(one(), 1, Some(1));
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn who_was_refused_waits_for_a_change_or_the_retry() {
        let mut queue = in_hand();
        queue.refused(one());
        assert_eq!(queue.take(), None);
        queue.retry();
        assert_eq!(queue.take(), Some(one()));
        queue.refused(one());
        queue.add(one(), Some(2));
        assert_eq!(queue.take(), Some(one()));
        queue.idle(one());
        queue.retry();
        assert_eq!(queue.take(), None);
    }
}
