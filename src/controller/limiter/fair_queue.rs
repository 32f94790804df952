//! Who is next.
//!
//! Owns the line of each class and how the calls that may run at once are shared among classes:
//! the next call is of the class with the fewest under way, and within a class of who came first.
//! Pure. Promises that no permit is lost: each is under way, reserved for a key that is named to
//! the caller, or free, and that none is free while somebody may use it.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use super::adaptive::{Call, Limit};
use crate::{
    controller::{item::Item, provisioner::Congestion},
    table::Table,
};

/// The calls of one kind, shared among classes.
#[derive(Debug)]
pub(super) struct FairQueue {
    /// How many calls may run at once, whatever their class.
    total: usize,
    /// How many run or are reserved.
    under_way: usize,
    classes: BTreeMap<Arc<str>, Class>,
    /// The keys that wait or have a permit reserved.
    places: Table<Item, Place>,
    /// Counts who came when, and who was served when.
    count: u64,
}

#[derive(Debug)]
struct Class {
    limit: Limit,
    /// Who waits, by when they came.
    line: BTreeMap<u64, Item>,
    /// When the class was last served.
    served: u64,
}

#[derive(Debug)]
enum Place {
    /// In the line of this class, since then.
    DependencyIndex(Arc<str>, u64),
    /// It may call.
    Reserved(Ticket),
}

/// The right to one call.
#[derive(Debug)]
pub(super) struct Ticket {
    class: Arc<str>,
    call: Call,
}

impl Ticket {
    /// The class it is for.
    pub(super) fn class(&self) -> &str {
        &self.class
    }
}

/// How a class stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClassLoad {
    /// The class.
    pub(super) class: Arc<str>,
    /// How many calls may run at once.
    pub(super) limit: usize,
    /// How many keys wait for theirs.
    pub(super) waiting: usize,
}

impl FairQueue {
    /// `total` calls at once.
    pub(super) fn new(total: usize) -> Self {
        let (classes, places) = Default::default();
        Self { total: total.max(1), under_way: 0, classes, places, count: 0 }
    }

    /// The key wants to call for `class`: a ticket, or a place in the line.
    pub(super) fn enter(&mut self, key: &Item, class: &str, now: Instant) -> Option<Ticket> {
        match self.places.remove(key) {
            Some(Place::Reserved(ticket)) if &*ticket.class == class => return Some(ticket),
            Some(place) if place.class() == class => {
                self.places.insert(key.clone(), place);
                return None;
            }
            Some(elsewhere) => self.give_up(elsewhere, now),
            None => {}
        }
        let class = self.class(class, now);
        if self.is_free(&class, now) {
            return self.begin(&class);
        }
        self.join(key, class);
        None
    }

    /// The key does not want to call any more.
    pub(super) fn leave(&mut self, key: &Item, now: Instant) {
        if let Some(place) = self.places.remove(key) {
            self.give_up(place, now);
        }
    }

    /// A call ended, or was not made. Whether it brought the limit down.
    pub(super) fn end(
        &mut self,
        ticket: &Ticket,
        strain: Congestion,
        repeats: bool,
        now: Instant,
    ) -> bool {
        self.under_way = self.under_way.saturating_sub(1);
        let Some(class) = self.classes.get_mut(&ticket.class) else { return false };
        let sign = class.limit.end(ticket.call, strain, repeats, now);
        self.tidy(&ticket.class);
        sign
    }

    /// Reserves what is free for those who wait, and names them.
    pub(super) fn serve(&mut self, now: Instant) -> Vec<Item> {
        let mut served = Vec::new();
        while let Some(class) = self.next_class(now) {
            let Some((key, ticket)) = self.reserve(&class) else { break };
            served.push(key.clone());
            self.places.insert(key, Place::Reserved(ticket));
        }
        served
    }

    /// When somebody who waits may call without anything else happening.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let waited_for = self.classes.values().filter(|class| !class.line.is_empty());
        waited_for.filter_map(|class| class.limit.rests_until()).min()
    }

    /// Whether the key waits for a call, or has one reserved.
    pub(super) fn holds(&self, key: &Item) -> bool {
        self.places.contains_key(key)
    }

    /// How each class stands.
    pub(super) fn loads(&self) -> Vec<ClassLoad> {
        let standing = |(name, class): (&Arc<str>, &Class)| ClassLoad {
            class: Arc::clone(name),
            limit: class.limit.limit(),
            waiting: class.line.len(),
        };
        self.classes.iter().map(standing).collect()
    }

    /// The class's name as it is kept; the class is there then.
    fn class(&mut self, name: &str, now: Instant) -> Arc<str> {
        if let Some((name, _)) = self.classes.get_key_value(name) {
            let name = Arc::clone(name);
            if let Some(class) = self.classes.get_mut(&name) {
                class.limit.forget_old_signs(now);
            }
            return name;
        }
        let name: Arc<str> = name.into();
        let limit = Limit::new(self.total);
        let class = Class { limit, line: BTreeMap::new(), served: 0 };
        self.classes.insert(Arc::clone(&name), class);
        name
    }

    /// Whether a call for the class may begin past its line.
    fn is_free(&self, class: &str, now: Instant) -> bool {
        let class = self.classes.get(class);
        self.under_way < self.total
            && class.is_some_and(|class| class.line.is_empty() && class.limit.admits(now))
    }

    fn begin(&mut self, class: &Arc<str>) -> Option<Ticket> {
        let state = self.classes.get_mut(class)?;
        self.count += 1;
        self.under_way += 1;
        state.served = self.count;
        Some(Ticket { class: Arc::clone(class), call: state.limit.begin() })
    }

    fn join(&mut self, key: &Item, class: Arc<str>) {
        self.count += 1;
        if let Some(state) = self.classes.get_mut(&class) {
            state.line.insert(self.count, key.clone());
            self.places.insert(key.clone(), Place::DependencyIndex(class, self.count));
        }
    }

    /// Who waits and may call: of all such classes the one with the fewest calls.
    fn next_class(&self, now: Instant) -> Option<Arc<str>> {
        if self.under_way >= self.total {
            return None;
        }
        let may_call = |(_, class): &(_, &Class)| !class.line.is_empty() && class.limit.admits(now);
        let next = self
            .classes
            .iter()
            .filter(may_call)
            .min_by_key(|(_, class)| (class.limit.under_way(), class.served));
        next.map(|(name, _)| Arc::clone(name))
    }

    fn reserve(&mut self, class: &Arc<str>) -> Option<(Item, Ticket)> {
        let (_, key) = self.classes.get_mut(class)?.line.pop_first()?;
        Some((key, self.begin(class)?))
    }

    fn give_up(&mut self, place: Place, now: Instant) {
        match place {
            Place::Reserved(ticket) => {
                self.end(&ticket, Congestion::Unknown, false, now);
            }
            Place::DependencyIndex(class, since) => {
                if let Some(state) = self.classes.get_mut(&class) {
                    state.line.remove(&since);
                }
                self.tidy(&class);
            }
        }
    }

    /// Lets go of a class of which there is nothing to know.
    fn tidy(&mut self, class: &str) {
        let idle = |class: &Class| class.line.is_empty() && class.limit.is_as_new();
        if self.classes.get(class).is_some_and(idle) {
            self.classes.remove(class);
        }
    }
}

impl Place {
    fn class(&self) -> &str {
        match self {
            Self::DependencyIndex(class, _) => class,
            Self::Reserved(ticket) => &ticket.class,
        }
    }
}

#[cfg(test)]
mod tests;
