//! The periodic resync, which no event triggers: it queues everything again, in case an event was missed.

use std::time::Duration;

use super::{Controller, provisioner::Provisioner, queues::Queues};

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

    /// Queues everything in the indexes that no queue holds: what a queue holds waits for its time.
    fn resync_once(&self) {
        let Queues { claims, volumes, unsaved } = &self.queues;
        let Self { claims: claim_worker, volumes: volume_worker, .. } = self;
        let all_claims = claim_worker.index.uids(|_| true).into_iter();
        let not_saved = claim_worker.index.uids(|known| known.unsaved().is_some()).into_iter();
        let all_volumes = volume_worker.index.all().into_iter();
        claims.add_all(all_claims.filter(|uid| !claims.holds(uid)));
        unsaved.add_all(not_saved.filter(|uid| !unsaved.holds(uid)));
        volumes.add_all(all_volumes.filter(|name| !volumes.holds(name)));
        volumes.add_all(volume_worker.index.to_protect_elsewhere());
    }
}
