//! How far the first list of a kind is.
//!
//! Work waits for it before it begins: until the server has begun to answer, which shows that the kind may
//! be listed, or until the list is complete. Later lists change nothing. The handler of a kind's events
//! reports each event's [`Extent`], once it has handled it.
//!
//! Those that wait go on in the order in which they came. With tokio's `watch` the order would be random, and
//! a simulation would not repeat itself.

use std::{pin::pin, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::InformerEvent;

/// The first list of one kind. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct FirstList(Arc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    reached: Mutex<Extent>,
    more: Notify,
}

/// How much of a kind was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Extent {
    /// Nothing.
    #[default]
    Nothing,
    /// Something: the server lists it for us.
    Something,
    /// All objects there were.
    Everything,
}

impl Extent {
    /// How much is listed with this event.
    pub fn of<V>(event: &InformerEvent<V>) -> Self {
        match event {
            InformerEvent::InitDone(_) => Self::Everything,
            InformerEvent::InitApply(_)
            | InformerEvent::Apply(_)
            | InformerEvent::Delete(_)
            | InformerEvent::Unreadable { .. } => Self::Something,
        }
    }
}

impl FirstList {
    /// Reports that so much was listed and handled.
    pub fn reached(&self, extent: Extent) {
        let mut reached = self.0.reached.lock();
        if *reached < extent {
            *reached = extent;
            self.0.more.notify_waiters();
        }
    }

    /// Waits until the server has begun to list the kind.
    pub async fn begun(&self) {
        self.until(Extent::Something).await;
    }

    /// Waits until everything was listed.
    pub async fn whole(&self) {
        self.until(Extent::Everything).await;
    }

    /// Whether everything was listed.
    pub fn is_whole(&self) -> bool {
        *self.0.reached.lock() == Extent::Everything
    }

    async fn until(&self, extent: Extent) {
        loop {
            let mut more = pin!(self.0.more.notified());
            // From here on nothing is missed.
            more.as_mut().enable();
            if *self.0.reached.lock() >= extent {
                return;
            }
            more.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::kube::{Listed, objects::Volume};

    #[test]
    fn a_requested_list_has_not_begun_and_a_complete_one_stays_complete() {
        let list = FirstList::default();
        let volume = Volume::default;
        assert!(list.begun().now_or_never().is_none(), "nothing is listed yet");
        let mut reached = Vec::new();
        for event in [
            InformerEvent::InitApply(volume()),
            InformerEvent::InitDone(Listed::default()),
            InformerEvent::InitApply(volume()),
        ] {
            list.reached(Extent::of(&event));
            let [begun, whole] = [list.begun().boxed(), list.whole().boxed()]
                .map(|waits| waits.now_or_never().is_some());
            assert_eq!(whole, list.is_whole());
            reached.push((begun, whole));
        }
        assert_eq!(reached, [(true, false), (true, true), (true, true)]);
    }
}
