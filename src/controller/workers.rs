//! Runs the workers of the three queues.

use std::sync::Arc;

use super::{Controller, claims::worker::ClaimWorker, item::Key, provisioner::Provisioner};
use crate::{
    workqueue,
    workqueue::{Action, Queue},
};

/// The number of PersistentVolumes that are saved concurrently, as in external-provisioner.
const SAVE_WORKERS: usize = 4;

impl<P: Provisioner> Controller<P> {
    pub(super) async fn work_claims(&self) {
        self.work_off(
            (&self.queues.claims, self.deps.settings.workers),
            &self.claims,
            |worker, uid| async move { worker.sync(&uid).await },
            ClaimWorker::after_panic,
        )
        .await;
    }

    pub(super) async fn work_volumes(&self) {
        self.work_off(
            (&self.queues.volumes, self.deps.settings.workers),
            &self.volumes,
            |worker, name| async move { worker.sync(&name).await },
            |worker, name| worker.after_panic(name),
        )
        .await;
    }

    pub(super) async fn work_unsaved(&self) {
        self.work_off(
            (&self.queues.unsaved, SAVE_WORKERS),
            &self.claims,
            |worker, uid| async move { worker.sync_unsaved(&uid).await },
            |_, _| (),
        )
        .await;
    }

    /// Works off a queue by so many workers.
    async fn work_off<W: Send + Sync + 'static, F: Future<Output = Action> + Send + 'static>(
        &self,
        (queue, workers): (&Queue<Key>, usize),
        worker: &Arc<W>,
        sync: fn(Arc<W>, Key) -> F,
        on_panic: fn(&W, &Key),
    ) {
        let (worker, panicking) = (Arc::clone(worker), Arc::clone(worker));
        let handler = move |key| sync(Arc::clone(&worker), key);
        let on_panic = move |key: &Key| on_panic(&panicking, key);
        workqueue::work(queue.clone(), workers, self.deps.tasks.clone(), handler, on_panic).await;
    }
}
