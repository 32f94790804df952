//! Which ready key is handed out next, so that nobody's keys hold up another's.
//!
//! Each key belongs to a flow, as a class and namespace are one. The flow with the fewest keys in progress
//! comes first, then the one that was served longest ago; within a flow keys go in order. First attempts
//! come before repeats, but each fourth time, and repeats have at most half of the workers. While there is
//! another flow, a flow has at most three quarters of the workers. Pure; a queue with one flow and without
//! repeats is first in, first out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Whose key it is, and whether it is a repeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flow {
    /// Identifies the flow.
    pub id: u64,
    /// Whether the key was tried before.
    pub is_repeat: bool,
}

/// How many first attempts in a row pass a repeat that waits. Without a limit no open call would end for as long as
/// first attempts come.
const FIRST_ATTEMPTS: u32 = 3;

/// First attempts go before repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    First,
    Repeat,
}

/// The ready keys, by flow.
#[derive(Debug)]
pub(super) struct FairQueue<K> {
    workers: usize,
    /// The flows with keys that are ready or in progress.
    flows: BTreeMap<u64, State<K>>,
    /// The lines with ready keys, the next first.
    order: BTreeSet<Rank>,
    ready: usize,
    repeats_in_progress: usize,
    /// How many first attempts in a row went before a repeat that could have gone.
    ahead: u32,
    turns: u64,
}

/// The place of a flow's line in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    line: Line,
    in_progress: usize,
    /// When the flow was last served, counted in turns.
    served: u64,
    /// When the flow came.
    came: u64,
    id: u64,
}

/// The keys of one flow.
#[derive(Debug)]
struct State<K> {
    first: VecDeque<K>,
    repeats: VecDeque<K>,
    in_progress: usize,
    served: u64,
    came: u64,
}

impl<K> FairQueue<K> {
    /// Creates an empty queue that `workers` take keys from.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(1),
            flows: BTreeMap::new(),
            order: BTreeSet::new(),
            ready: 0,
            repeats_in_progress: 0,
            ahead: 0,
            turns: 0,
        }
    }

    /// The number of ready keys.
    pub(super) fn ready(&self) -> usize {
        self.ready
    }

    /// Adds a key at the end of its line.
    pub(super) fn push(&mut self, key: K, flow: Flow) {
        self.ready += 1;
        self.change(flow.id, |state| state.line(Line::of(flow)).push_back(key));
    }

    /// Hands out the next key that may be handed out now. It is in progress until [`FairQueue::end`].
    pub(super) fn pop(&mut self) -> Option<K> {
        let (line, id) = self.next()?;
        let is_ahead = line == Line::First && self.next_of(Line::Repeat).is_some();
        self.ahead = if is_ahead { self.ahead + 1 } else { 0 };
        self.ready -= 1;
        self.turns += 1;
        self.repeats_in_progress += usize::from(line == Line::Repeat);
        let turn = self.turns;
        self.change(id, |state| {
            state.in_progress += 1;
            state.served = turn;
            state.line(line).pop_front()
        })
    }

    /// A key that was handed out from this flow is in progress no more.
    pub(super) fn end(&mut self, flow: Flow) {
        self.repeats_in_progress -= usize::from(flow.is_repeat);
        self.change(flow.id, |state| state.in_progress -= 1);
    }

    /// Drops all ready keys.
    pub(super) fn clear(&mut self) {
        self.ready = 0;
        self.order.clear();
        self.flows.retain(|_, state| {
            state.first.clear();
            state.repeats.clear();
            state.in_progress > 0
        });
    }

    /// The line whose first key is next, and its flow.
    fn next(&self) -> Option<(Line, u64)> {
        let [first, repeat] = [Line::First, Line::Repeat].map(|line| self.next_of(line));
        if self.ahead < FIRST_ATTEMPTS { first.or(repeat) } else { repeat.or(first) }
    }

    /// This line, and the flow whose first key in it is next.
    fn next_of(&self, line: Line) -> Option<(Line, u64)> {
        // Both round up, so that one worker serves everybody.
        let most_repeats = self.workers - self.workers / 2;
        if line == Line::Repeat && self.repeats_in_progress >= most_repeats {
            return None;
        }
        let most =
            if self.flows.len() > 1 { self.workers - self.workers / 4 } else { self.workers };
        let begin = Rank { line, in_progress: 0, served: 0, came: 0, id: 0 };
        let places = self.order.range(begin..).take_while(|place| place.line == line);
        let mut free = places.filter(|place| place.in_progress < most);
        free.next().map(|place| (line, place.id))
    }

    /// Changes a flow's state, and keeps the order.
    fn change<T>(&mut self, id: u64, change: impl FnOnce(&mut State<K>) -> T) -> T {
        self.turns += 1;
        let state = self.flows.entry(id).or_insert_with(|| State::new(self.turns));
        for place in state.places(id) {
            self.order.remove(&place);
        }
        let changed = change(state);
        self.order.extend(state.places(id));
        if state.in_progress == 0 && state.first.is_empty() && state.repeats.is_empty() {
            self.flows.remove(&id);
        }
        changed
    }
}

impl Line {
    fn of(flow: Flow) -> Self {
        if flow.is_repeat { Self::Repeat } else { Self::First }
    }
}

impl<K> State<K> {
    fn new(came: u64) -> Self {
        let (first, repeats) = (VecDeque::new(), VecDeque::new());
        Self { first, repeats, in_progress: 0, served: 0, came }
    }

    fn line(&mut self, line: Line) -> &mut VecDeque<K> {
        match line {
            Line::First => &mut self.first,
            Line::Repeat => &mut self.repeats,
        }
    }

    /// The places of its lines that have keys.
    fn places(&self, id: u64) -> impl Iterator<Item = Rank> + use<K> {
        let Self { in_progress, served, came, .. } = *self;
        let first = (!self.first.is_empty()).then_some(Line::First);
        let repeats = (!self.repeats.is_empty()).then_some(Line::Repeat);
        [first, repeats].into_iter().flatten().map(move |line| Rank {
            line,
            in_progress,
            served,
            came,
            id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn first(id: u64) -> Flow {
        Flow { id, is_repeat: false }
    }

    const fn repeat(id: u64) -> Flow {
        Flow { id, is_repeat: true }
    }

    /// A queue for so many workers, with so many keys of each flow. A key is its flow.
    fn queue(workers: usize, keys: &[(Flow, usize)]) -> FairQueue<Flow> {
        let mut queue = FairQueue::new(workers);
        for (flow, count) in keys {
            (0..*count).for_each(|_| queue.push(*flow, *flow));
        }
        queue
    }

    /// Hands out as many keys as may be in progress at once, and counts them by flow.
    fn handed_out(queue: &mut FairQueue<Flow>, workers: usize) -> Vec<(u64, bool, usize)> {
        let mut counts = BTreeMap::<(u64, bool), usize>::new();
        for flow in (0..workers).map_while(|_| queue.pop()) {
            *counts.entry((flow.id, flow.is_repeat)).or_default() += 1;
        }
        counts.into_iter().map(|((id, is_repeat), count)| (id, is_repeat, count)).collect()
    }

    #[test]
    fn workers_are_shared() {
        for (workers, keys, expected) in [
            // One flow has all workers, but for repeats half of them.
            (8, vec![(first(1), 20)], vec![(1, false, 8)]),
            (8, vec![(repeat(1), 20)], vec![(1, true, 4)]),
            (8, vec![(repeat(1), 20), (first(1), 2)], vec![(1, false, 2), (1, true, 4)]),
            // Beside another, three quarters.
            (8, vec![(first(1), 20), (first(2), 1)], vec![(1, false, 6), (2, false, 1)]),
            // Whoever has the fewest goes first.
            (8, vec![(first(1), 20), (first(2), 20)], vec![(1, false, 4), (2, false, 4)]),
            (
                9,
                vec![(first(1), 20), (first(2), 20), (first(3), 20)],
                vec![(1, false, 3), (2, false, 3), (3, false, 3)],
            ),
            // Repeats of all flows together have half of the workers.
            (8, vec![(repeat(1), 20), (repeat(2), 20)], vec![(1, true, 2), (2, true, 2)]),
            // Shares round up: one worker serves everybody, two serve repeats as well.
            (1, vec![(repeat(1), 1)], vec![(1, true, 1)]),
            (1, vec![(first(1), 5), (first(2), 5)], vec![(1, false, 1)]),
            (2, vec![(first(1), 5), (repeat(2), 5)], vec![(1, false, 2)]),
            (3, vec![(first(1), 5), (repeat(2), 5)], vec![(1, false, 3)]),
        ] {
            let mut queue = queue(workers, &keys);
            assert_eq!(handed_out(&mut queue, workers), expected, "{workers} {keys:?}");
        }
    }

    #[test]
    fn flows_take_turns_with_one_worker() {
        let mut queue = queue(1, &[(first(1), 2), (first(2), 2), (first(3), 1)]);
        let mut order = Vec::new();
        while let Some(flow) = queue.pop() {
            order.push(flow.id);
            queue.end(flow);
        }
        assert_eq!(order, [1, 2, 3, 1, 2]);
        assert!(queue.flows.is_empty() && queue.order.is_empty(), "nothing is kept of idle flows");
    }

    #[test]
    fn a_repeat_goes_although_first_attempts_never_run_out() {
        for workers in [1, 2, 4, 100] {
            let mut queue = queue(workers, &[(first(1), 200), (first(2), 200), (repeat(3), 1)]);
            let mut running = VecDeque::new();
            let mut next = || {
                if running.len() == workers {
                    running.pop_front().into_iter().for_each(|ended| queue.end(ended));
                }
                running.extend(queue.pop());
                running.back().copied()
            };
            let went = (0..100).find(|_| next() == Some(repeat(3)));
            assert_eq!(went, Some(3), "{workers}");
        }
    }

    /// Whatever comes and ends: no worker is idle while a key may go, and no key is lost.
    #[test]
    fn random_schedules_keep_the_rules_and_lose_no_key() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let workers = random.usize(1..10);
            let (mut queue, mut running, mut pushed) = (FairQueue::new(workers), Vec::new(), 0);
            for _ in 0..200 {
                let flow = Flow { id: random.u64(0..4), is_repeat: random.bool() };
                if random.bool() {
                    queue.push(flow, flow);
                    pushed += 1;
                }
                if running.len() < workers {
                    running.extend(queue.pop());
                }
                if !running.is_empty() && random.u8(0..3) == 0 {
                    let ended: Flow = running.swap_remove(random.usize(0..running.len()));
                    queue.end(ended);
                    pushed -= 1;
                }
                let repeats = running.iter().filter(|flow| flow.is_repeat).count();
                assert!(repeats <= workers.div_ceil(2), "seed {seed}");
                assert_eq!(queue.ready() + running.len(), pushed, "seed {seed}");
            }
            loop {
                running.extend(queue.pop());
                let Some(ended) = running.pop() else { break };
                queue.end(ended);
            }
            assert_eq!(queue.ready(), 0, "seed {seed}");
        }
    }
}
