//! How far the first list of a kind is.
//!
//! Owns what work waits for before it begins: that the server has begun to answer, which says that we
//! may list at all, or that it has told everything. Promises to go on only, a later list changing
//! nothing, unless it is told that only a new list counts ([`FirstList::anew`]). Whoever observes a kind says what it was shown, after having taken that in.

use std::sync::Arc;

use tokio::sync::watch;

use super::InformerEvent;

/// The first list of one kind. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct FirstList(Arc<watch::Sender<Reached>>);

/// How far a list is.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    extent: Extent,
    /// Whether nothing counts before another list begins.
    awaits_new: bool,
}

/// How much of a kind was shown.
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
    /// What this sighting adds up to.
    pub fn of<V>(event: &InformerEvent<V>) -> Self {
        match event {
            // A list may begin and then be refused.
            InformerEvent::Init => Self::Nothing,
            InformerEvent::InitDone => Self::Everything,
            InformerEvent::InitApply(_)
            | InformerEvent::Apply(_)
            | InformerEvent::Delete(_)
            | InformerEvent::Unreadable { .. } => Self::Something,
        }
    }
}

impl FirstList {
    /// So much was shown and taken in.
    pub fn reached(&self, extent: Extent) {
        self.0.send_if_modified(|reached| {
            // Only a list that begins shows nothing.
            reached.awaits_new &= extent != Extent::Nothing;
            let more = !reached.awaits_new && reached.extent < extent;
            if more {
                reached.extent = extent;
            }
            more
        });
    }

    /// From now on only a list counts that begins after this.
    pub fn anew(&self) {
        self.0.send_replace(Reached { extent: Extent::Nothing, awaits_new: true });
    }

    /// DependencyIndex until the server lists the kind for us.
    pub async fn begun(&self) {
        self.until(Extent::Something).await;
    }

    /// DependencyIndex until everything was listed.
    pub async fn whole(&self) {
        self.until(Extent::Everything).await;
    }

    /// Whether everything was listed.
    pub fn is_whole(&self) -> bool {
        self.0.borrow().extent == Extent::Everything
    }

    async fn until(&self, extent: Extent) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|reached| reached.extent >= extent).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::kube::objects::Volume;

    #[test]
    fn a_list_that_is_only_asked_for_has_not_begun_and_one_that_was_whole_stays_so() {
        let list = FirstList::default();
        let volume = Volume::default;
        let mut reached = Vec::new();
        for event in [
            InformerEvent::Init,
            InformerEvent::InitApply(volume()),
            InformerEvent::InitDone,
            InformerEvent::Init,
            InformerEvent::InitApply(volume()),
        ] {
            list.reached(Extent::of(&event));
            let [begun, whole] = [list.begun().boxed(), list.whole().boxed()]
                .map(|waits| waits.now_or_never().is_some());
            assert_eq!(whole, list.is_whole());
            reached.push((begun, whole));
        }
        assert_eq!(reached[..3], [(false, false), (true, false), (true, true)]);
        assert_eq!(reached[3..], [(true, true); 2]);
    }

    #[test]
    fn only_a_list_that_begins_afterwards_counts_anew() {
        let list = FirstList::default();
        list.reached(Extent::Everything);
        list.anew();
        for (extent, whole) in [
            (Extent::Everything, false),
            (Extent::Nothing, false),
            (Extent::Something, false),
            (Extent::Everything, true),
        ] {
            list.reached(extent);
            assert_eq!(list.is_whole(), whole, "{extent:?}");
        }
    }
}
