//! Shares the permits fairly among classes.
//!
//! The next permit goes to the class with the fewest running calls; the class decides which of its keys gets
//! it. An eighth of the permits is kept for first attempts, so that repeats of failing calls never have all.
//! No permit is lost: each is in use, reserved for a key that was returned to the caller, or free, and none is
//! free while a key may use it. Pure: callers pass the time.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    calls::{Call, Line},
    class::Class,
};
use crate::{
    controller::{item::Item, provisioner::Congestion},
    table::Table,
};

/// One of so many permits is kept for first attempts.
const KEPT_FOR_FIRST: usize = 8;

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
enum Position {
    /// Waits in this line of this class, since this arrival.
    Waiting(Arc<str>, Line, u64),
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

/// The limit, calls and queue length of a class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassLoad {
    /// The class.
    pub class: Arc<str>,
    /// The limit of concurrent calls.
    pub limit: usize,
    /// The number of running calls.
    pub running: usize,
    /// The number of waiting keys.
    pub waiting: usize,
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
    pub(super) fn enter(
        &mut self,
        key: &Item,
        class: &str,
        line: Line,
        now: Instant,
    ) -> Option<Ticket> {
        match self.positions.remove(key) {
            Some(Position::Reserved(ticket)) if &*ticket.class == class => return Some(ticket),
            Some(position) if position.is_in(class, line) => {
                self.positions.insert(key.clone(), position);
                return None;
            }
            Some(elsewhere) => self.release(elsewhere, now),
            None => {}
        }
        self.enqueue(key, class, line, now);
        let (class, line) = self.next(now).filter(|(class, line)| {
            self.classes.get(class).is_some_and(|class| class.front(*line) == Some(key))
        })?;
        self.positions.remove(key);
        self.grant(&class, line, now).map(|(_, ticket)| ticket)
    }

    /// Removes the key: it wants no permit any more.
    pub(super) fn leave(&mut self, key: &Item, now: Instant) {
        if let Some(position) = self.positions.remove(key) {
            self.release(position, now);
        }
    }

    /// Returns a permit after its call ended or was not made. Returns whether the end was a signal of
    /// overload.
    pub(super) fn end(&mut self, ticket: &Ticket, congestion: Congestion, now: Instant) -> bool {
        self.taken = self.taken.saturating_sub(1);
        let Some(class) = self.classes.get_mut(&ticket.class) else { return false };
        let is_signal = class.end(ticket.call, congestion, now);
        self.remove_if_idle(&ticket.class);
        is_signal
    }

    /// Reserves free permits for waiting keys, and returns those keys.
    pub(super) fn reserve_free(&mut self, now: Instant) -> Vec<Item> {
        let mut reserved = Vec::new();
        while let Some((class, line)) = self.next(now) {
            let Some((key, ticket)) = self.grant(&class, line, now) else { break };
            reserved.push(key.clone());
            self.positions.insert(key, Position::Reserved(ticket));
        }
        reserved
    }

    /// The time after `now` at which a waiting key gets a permit if nothing else happens.
    pub(super) fn next_time(&self, now: Instant) -> Option<Instant> {
        self.classes.values().filter_map(|class| class.next_time(now)).min()
    }

    /// Whether the key waits for a permit, or has one reserved.
    pub(super) fn holds(&self, key: &Item) -> bool {
        self.positions.contains_key(key)
    }

    /// The number of permits for all classes.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// Returns the limit, calls and queue length of each class.
    pub(super) fn loads(&self) -> Vec<ClassLoad> {
        let load = |(name, class): (&Arc<str>, &Class)| ClassLoad {
            class: Arc::clone(name),
            limit: class.limit(),
            running: class.running(),
            waiting: class.waiting(),
        };
        self.classes.iter().map(load).collect()
    }

    fn enqueue(&mut self, key: &Item, class: &str, line: Line, now: Instant) {
        self.sequence += 1;
        let name = self.classes.get_key_value(class).map(|(name, _)| Arc::clone(name));
        let name = name.unwrap_or_else(|| class.into());
        let class = self.classes.entry(Arc::clone(&name));
        let class = class.or_insert_with(|| Class::new(self.total));
        class.enqueue(line, self.sequence, key.clone(), now);
        self.positions.insert(key.clone(), Position::Waiting(name, line, self.sequence));
    }

    /// The class and line whose oldest key gets the next permit: of the classes that admit a call, the one
    /// with the fewest running calls.
    fn next(&self, now: Instant) -> Option<(Arc<str>, Line)> {
        let free = self.total.saturating_sub(self.taken);
        let repeats: usize = self.classes.values().map(Class::repeats).sum();
        let allows_repeats = repeats < self.total - self.total / KEPT_FOR_FIRST;
        let may_call = |(name, class): (&Arc<str>, &Class)| {
            let line = class.next_line(allows_repeats, now)?;
            Some(((class.running(), class.last_granted()), (Arc::clone(name), line)))
        };
        let next = self.classes.iter().filter(|_| free > 0).filter_map(may_call);
        next.min_by_key(|(load, _)| *load).map(|(_, next)| next)
    }

    /// Takes the oldest key from the line, and a permit for it.
    fn grant(&mut self, name: &Arc<str>, line: Line, now: Instant) -> Option<(Item, Ticket)> {
        self.sequence += 1;
        let (key, call) = self.classes.get_mut(name)?.begin(line, self.sequence, now)?;
        self.taken += 1;
        Some((key, Ticket { class: Arc::clone(name), call }))
    }

    fn release(&mut self, position: Position, now: Instant) {
        match position {
            Position::Reserved(ticket) => {
                self.end(&ticket, Congestion::Unknown, now);
            }
            Position::Waiting(name, line, since) => {
                if let Some(class) = self.classes.get_mut(&name) {
                    class.remove(line, since);
                }
                self.remove_if_idle(&name);
            }
        }
    }

    fn remove_if_idle(&mut self, name: &str) {
        if self.classes.get(name).is_some_and(Class::is_idle) {
            self.classes.remove(name);
        }
    }
}

impl Position {
    /// Whether it is one in the queue of this line and class.
    fn is_in(&self, class: &str, line: Line) -> bool {
        matches!(self, Self::Waiting(name, waits_in, _) if &**name == class && *waits_in == line)
    }
}

#[cfg(test)]
mod tests;
