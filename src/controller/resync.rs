//! The periodic resync, which no event triggers: it queues everything again and counts items that no queue
//! held although it should.

use std::time::Duration;

use super::{
    Controller, claims::index::Entry, item::Key, provisioner::Provisioner, queues::Queues,
    volumes::index::Deletion,
};
use crate::metrics::ResyncQueue;

/// The interval of the resync, as in external-provisioner; jittered.
const RESYNC_INTERVAL: Duration = Duration::from_secs(15 * 60);

impl<P: Provisioner> Controller<P> {
    /// Queues everything in the indexes periodically, in case an event was missed. Never returns.
    pub(super) async fn resync(&self) {
        loop {
            tokio::time::sleep(RESYNC_INTERVAL.mul_f64(0.9 + 0.2 * self.deps.random.unit())).await;
            self.resync_once();
        }
    }

    /// Queues everything in the indexes, except claims that are queued already, and
    /// counts what should have been queued and was not.
    fn resync_once(&self) {
        let Queues { claims, volumes, unsaved, .. } = &self.queues;
        let mut unqueued = self.claims.index.uids(|_| true);
        unqueued.retain(|uid| !claims.holds(uid));
        // Whether a claim should have been queued is found out when it is synced.
        for uid in &unqueued {
            self.claims.index.update(uid, Entry::resynced);
        }
        // One that is removed waits for the event about that.
        let is_removed = |name: &Key| self.volumes.index.deletion(name) == Deletion::Removed;
        let forgotten = |name: &Key| !volumes.holds(name) && !is_removed(name);
        for _ in self.volumes.index.all().iter().filter(|name| forgotten(name)) {
            self.deps.metrics.controller.resync_found(ResyncQueue::Volumes);
        }
        for _ in self.unsaved().iter().filter(|uid| !unsaved.holds(uid)) {
            self.deps.metrics.controller.resync_found(ResyncQueue::UnsavedVolumes);
        }
        self.queues.wake_claims(unqueued);
        self.wake_others();
        self.queues.wake_volumes(self.volumes.index.to_protect_elsewhere());
    }

    /// Queues everything in the indexes.
    pub(super) fn wake_all(&self) {
        self.queues.wake_claims(self.claims.index.uids(|_| true));
        self.wake_others();
    }

    /// Queues volumes, and PersistentVolumes to save.
    fn wake_others(&self) {
        self.queues.wake_volumes(self.volumes.index.all());
        self.queues.wake_unsaved(self.unsaved());
    }

    /// The claims whose volume waits to be saved.
    fn unsaved(&self) -> Vec<Key> {
        self.claims.index.uids(|known| known.unsaved().is_some())
    }
}
