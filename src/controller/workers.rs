//! Runs the workers of the three queues.

use super::{Controller, provisioner::Provisioner};
use crate::workqueue;

/// The number of PersistentVolumes that are saved concurrently, as in external-provisioner.
const SAVE_WORKERS: usize = 4;

impl<P: Provisioner> Controller<P> {
    pub(super) async fn work_claims(&self) {
        workqueue::work(
            &self.queues.claims,
            self.deps.settings.workers,
            &self.deps.tasks,
            &self.claims,
            |worker, uid| async move { worker.sync(&uid).await },
            |worker, uid| worker.after_panic(uid),
        )
        .await;
    }

    pub(super) async fn work_volumes(&self) {
        workqueue::work(
            &self.queues.volumes,
            self.deps.settings.workers,
            &self.deps.tasks,
            &self.volumes,
            |worker, name| async move { worker.sync(&name).await },
            |worker, name| worker.after_panic(name),
        )
        .await;
    }

    pub(super) async fn work_unsaved(&self) {
        workqueue::work(
            &self.queues.unsaved,
            SAVE_WORKERS,
            &self.deps.tasks,
            &self.claims,
            |worker, uid| async move { worker.sync_unsaved(&uid).await },
            |_, _| (),
        )
        .await;
    }
}
