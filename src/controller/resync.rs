//! Work that no change asks for.
//!
//! Owns the audit, which looks at everything again from time to time, and the adoption of volumes that
//! lack the protection finalizer. Promises that adoption comes after all other work, and that what the
//! audit finds forgotten is counted. Leaves what is due for an object to whoever works on it.

use std::time::Duration;

use super::{Controller, item::Item, provisioner::Provisioner, queues::Queues};
use crate::metrics::Audited;

/// How often everything in work is looked at again, as the original's resync does; jittered.
const AUDIT: Duration = Duration::from_secs(15 * 60);

/// The time between two volumes that get the protection finalizer: at most 20 a second.
const ADOPTION: Duration = Duration::from_millis(50);

impl<P: Provisioner> Controller<P> {
    /// Puts the protection finalizer on volumes that lack it: at the first start these may be all
    /// there are, and nobody waits for it. So it comes after all other work, and slowly.
    pub(super) async fn adopt(&self) {
        self.may_delete().await;
        loop {
            for name in self.volumes.book.to_adopt() {
                while !self.queues.are_idle() {
                    tokio::time::sleep(ADOPTION).await;
                }
                // One that has failed comes when its back-off allows.
                if !self.queues.volumes.holds(&name) {
                    self.queues.wake_volumes(vec![name]);
                    tokio::time::sleep(ADOPTION).await;
                }
            }
            self.queues.adoption.notified().await;
        }
    }

    /// Queues everything in work again from time to time: the safety net under the watches.
    pub(super) async fn resync(&self) {
        loop {
            tokio::time::sleep(AUDIT.mul_f64(0.9 + 0.2 * self.random.unit())).await;
            self.resync_once();
        }
    }

    /// Queues everything in work but claims that come by themselves, and counts what no queue held
    /// although it had to.
    fn resync_once(&self) {
        let Queues { claims, volumes, unsaved, .. } = &self.queues;
        let mut unheld = self.claims.index.all();
        unheld.retain(|uid| !claims.holds(uid) && !self.claims.waits_for_a_call(uid));
        // Whether anything is due for a claim shows when it is looked at.
        for uid in &unheld {
            self.claims.index.set_resynced(uid);
        }
        let forgotten = |name: &String| {
            !volumes.holds(name)
                && !self.volumes.limiter.holds(&Item::volume(name))
                && !self.volumes.book.is_removed(name)
        };
        for _ in self.volumes.book.all().iter().filter(|name| forgotten(name)) {
            self.metrics.controller.audit_found(Audited::Volumes);
        }
        for _ in self.claims.store.all().iter().filter(|uid| !unsaved.holds(uid)) {
            self.metrics.controller.audit_found(Audited::UnsavedVolumes);
        }
        self.queues.wake_claims(unheld);
        self.wake_others();
        self.queues.wake_volumes(self.volumes.book.orphans());
    }

    /// Queues everything in work.
    pub(super) fn wake_all(&self) {
        self.queues.wake_claims(self.claims.index.all());
        self.wake_others();
    }

    /// Queues everything in work but claims.
    fn wake_others(&self) {
        self.queues.wake_volumes(self.volumes.book.all());
        self.queues.adoption.notify_one();
        self.queues.wake_unsaved(self.claims.store.all());
    }
}
