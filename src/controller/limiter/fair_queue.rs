//! Shares the permits fairly among classes.
//!
//! The next permit goes to the class with the fewest running calls, and within a class to the key that has
//! waited longest. No permit is lost: each is in use, reserved for a key that was returned to the caller,
//! or free, and none is free while a key may use it. Pure: callers pass the time.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use super::adaptive::{AdaptiveLimit, Call};
use crate::{
    controller::{item::Item, provisioner::Congestion},
    table::Table,
};

/// The calls of one kind, shared among classes.
#[derive(Debug)]
pub(super) struct FairQueue {
    /// The number of permits for all classes.
    total: usize,
    /// The number of permits that are in use or reserved.
    taken: usize,
    classes: BTreeMap<Arc<str>, Class>,
    /// The keys that wait or have a permit reserved.
    positions: Table<Item, Position>,
    /// Orders arrivals and grants.
    sequence: u64,
}

#[derive(Debug)]
struct Class {
    limit: AdaptiveLimit,
    /// The waiting keys, by arrival.
    waiting: BTreeMap<u64, Item>,
    /// When the class last got a permit.
    last_granted: u64,
}

#[derive(Debug)]
enum Position {
    /// Waits in this class, since this arrival.
    Waiting(Arc<str>, u64),
    /// A permit is reserved.
    Reserved(Ticket),
}

/// A permit for one call.
#[derive(Debug)]
pub(super) struct Ticket {
    class: Arc<str>,
    call: Call,
}

impl Ticket {
    /// The class of the call.
    pub(super) fn class(&self) -> &str {
        &self.class
    }
}

/// The limit and queue length of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClassLoad {
    /// The class.
    pub(super) class: Arc<str>,
    /// The limit of concurrent calls.
    pub(super) limit: usize,
    /// The number of waiting keys.
    pub(super) waiting: usize,
}

impl FairQueue {
    /// Creates a queue with `total` permits.
    pub(super) fn new(total: usize) -> Self {
        Self {
            total: total.max(1),
            taken: 0,
            classes: BTreeMap::new(),
            positions: Table::default(),
            sequence: 0,
        }
    }

    /// Requests a permit for `key` and a call of `class`. Returns `None` if the key has to wait.
    pub(super) fn enter(&mut self, key: &Item, class: &str, now: Instant) -> Option<Ticket> {
        match self.positions.remove(key) {
            Some(Position::Reserved(ticket)) if &*ticket.class == class => return Some(ticket),
            Some(position) if position.class() == class => {
                self.positions.insert(key.clone(), position);
                return None;
            }
            Some(in_other_class) => self.release(in_other_class, now),
            None => {}
        }
        let class = self.ensure_class(class, now);
        if self.is_free(&class, now) {
            return self.grant(&class);
        }
        self.enqueue(key, class);
        None
    }

    /// Removes the key: it wants no permit any more.
    pub(super) fn leave(&mut self, key: &Item, now: Instant) {
        if let Some(position) = self.positions.remove(key) {
            self.release(position, now);
        }
    }

    /// Returns a permit after its call ended or was not made. Returns whether the end was a signal of
    /// overload.
    pub(super) fn end(
        &mut self,
        ticket: &Ticket,
        congestion: Congestion,
        repeats: bool,
        now: Instant,
    ) -> bool {
        self.taken = self.taken.saturating_sub(1);
        let Some(class) = self.classes.get_mut(&ticket.class) else { return false };
        let is_signal = class.limit.end(ticket.call, congestion, repeats, now);
        self.remove_if_idle(&ticket.class);
        is_signal
    }

    /// Reserves free permits for waiting keys, and returns those keys.
    pub(super) fn reserve_free(&mut self, now: Instant) -> Vec<Item> {
        let mut reserved = Vec::new();
        while let Some(class) = self.next_class(now) {
            let Some((key, ticket)) = self.reserve(&class) else { break };
            reserved.push(key.clone());
            self.positions.insert(key, Position::Reserved(ticket));
        }
        reserved
    }

    /// The time at which a waiting key gets a permit if nothing else happens.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let waited_for = self.classes.values().filter(|class| !class.waiting.is_empty());
        waited_for.filter_map(|class| class.limit.rests_until()).min()
    }

    /// Whether the key waits for a permit, or has one reserved.
    pub(super) fn holds(&self, key: &Item) -> bool {
        self.positions.contains_key(key)
    }

    /// Returns the limit and queue length of each class.
    pub(super) fn loads(&self) -> Vec<ClassLoad> {
        let load = |(name, class): (&Arc<str>, &Class)| ClassLoad {
            class: Arc::clone(name),
            limit: class.limit.limit(),
            waiting: class.waiting.len(),
        };
        self.classes.iter().map(load).collect()
    }

    /// Adds the class if it is missing, and returns its shared name.
    fn ensure_class(&mut self, name: &str, now: Instant) -> Arc<str> {
        if let Some((name, _)) = self.classes.get_key_value(name) {
            let name = Arc::clone(name);
            if let Some(class) = self.classes.get_mut(&name) {
                class.limit.expire_signals(now);
            }
            return name;
        }
        let name: Arc<str> = name.into();
        let limit = AdaptiveLimit::new(self.total);
        let class = Class { limit, waiting: BTreeMap::new(), last_granted: 0 };
        self.classes.insert(Arc::clone(&name), class);
        name
    }

    /// Whether a new key of the class gets a permit at once.
    fn is_free(&self, class: &str, now: Instant) -> bool {
        let class = self.classes.get(class);
        self.taken < self.total
            && class.is_some_and(|class| class.waiting.is_empty() && class.limit.admits(now))
    }

    fn grant(&mut self, class: &Arc<str>) -> Option<Ticket> {
        let state = self.classes.get_mut(class)?;
        self.sequence += 1;
        self.taken += 1;
        state.last_granted = self.sequence;
        Some(Ticket { class: Arc::clone(class), call: state.limit.begin() })
    }

    fn enqueue(&mut self, key: &Item, class: Arc<str>) {
        self.sequence += 1;
        if let Some(state) = self.classes.get_mut(&class) {
            state.waiting.insert(self.sequence, key.clone());
            self.positions.insert(key.clone(), Position::Waiting(class, self.sequence));
        }
    }

    /// The class whose waiting key gets the next permit: of those whose limits admit a call, the one with
    /// the fewest running calls.
    fn next_class(&self, now: Instant) -> Option<Arc<str>> {
        if self.taken >= self.total {
            return None;
        }
        let may_call =
            |(_, class): &(_, &Class)| !class.waiting.is_empty() && class.limit.admits(now);
        let next = self
            .classes
            .iter()
            .filter(may_call)
            .min_by_key(|(_, class)| (class.limit.running(), class.last_granted));
        next.map(|(name, _)| Arc::clone(name))
    }

    fn reserve(&mut self, class: &Arc<str>) -> Option<(Item, Ticket)> {
        let (_, key) = self.classes.get_mut(class)?.waiting.pop_first()?;
        Some((key, self.grant(class)?))
    }

    fn release(&mut self, position: Position, now: Instant) {
        match position {
            Position::Reserved(ticket) => {
                self.end(&ticket, Congestion::Unknown, false, now);
            }
            Position::Waiting(class, since) => {
                if let Some(state) = self.classes.get_mut(&class) {
                    state.waiting.remove(&since);
                }
                self.remove_if_idle(&class);
            }
        }
    }

    /// Removes a class without waiting keys whose limit is reset.
    fn remove_if_idle(&mut self, class: &str) {
        let idle = |class: &Class| class.waiting.is_empty() && class.limit.is_reset();
        if self.classes.get(class).is_some_and(idle) {
            self.classes.remove(class);
        }
    }
}

impl Position {
    fn class(&self) -> &str {
        match self {
            Self::Waiting(class, _) => class,
            Self::Reserved(ticket) => &ticket.class,
        }
    }
}

#[cfg(test)]
mod tests;
