//! The revision of a kind's latest change, for which watches wait. They are woken in the order in which they began
//! to, so that simulations repeat themselves: `tokio::sync::watch` wakes them in a random one.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

/// The latest revision of one kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latest(Arc<Published>);

#[derive(Debug, Default)]
struct Published {
    revision: AtomicU64,
    changed: Notify,
}

/// Waits for revisions that it has not seen.
#[derive(Debug)]
pub(crate) struct Follower {
    latest: Latest,
    seen: u64,
}

impl Latest {
    /// There is a change.
    pub(crate) fn publish(&self, revision: u64) {
        self.0.revision.store(revision, Ordering::Release);
        self.0.changed.notify_waiters();
    }

    /// A follower that has seen everything so far.
    pub(crate) fn follow(&self) -> Follower {
        Follower { latest: self.clone(), seen: self.revision() }
    }

    fn revision(&self) -> u64 {
        self.0.revision.load(Ordering::Acquire)
    }
}

impl Follower {
    /// It sees everything up to now.
    pub(crate) fn see(&mut self) {
        self.seen = self.latest.revision();
    }

    /// Returns once there is a change that it has not seen.
    pub(crate) async fn changed(&self) {
        let changed = self.latest.0.changed.notified();
        if self.latest.revision() == self.seen {
            changed.await;
        }
    }
}
