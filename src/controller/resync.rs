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

    /// Queues everything in the indexes that no queue holds, and counts what should have been queued.
    fn resync_once(&self) {
        let Queues { claims, volumes, unsaved } = &self.queues;
        let Self { claims: claim_worker, volumes: volume_worker, .. } = self;
        let mut unqueued = claim_worker.index.uids(|_| true);
        unqueued.retain(|uid| !claims.holds(uid));
        // Whether a claim should have been queued is found out when it is synced.
        for uid in &unqueued {
            claim_worker.index.update(uid, Entry::resynced);
        }
        let counters = &self.deps.metrics.controller;
        let mut idle = volume_worker.index.all();
        idle.retain(|name| !volumes.holds(name));
        // One that is removed waits for the event about that.
        let is_removed = |name: &Key| volume_worker.index.deletion(name) == Deletion::Removed;
        for _ in idle.iter().filter(|name| !is_removed(name)) {
            counters.resync_found(ResyncQueue::Volumes);
        }
        let mut not_saved = claim_worker.index.uids(|known| known.unsaved().is_some());
        not_saved.retain(|uid| !unsaved.holds(uid));
        for _ in &not_saved {
            counters.resync_found(ResyncQueue::UnsavedVolumes);
        }
        claims.add_all(unqueued);
        unsaved.add_all(not_saved);
        volumes.add_all(idle);
        volumes.add_all(volume_worker.index.to_protect_elsewhere());
    }
}
