//! Runs the workers of the three queues. Deletions start only when everything is listed.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Controller, item::Key, provisioner::Provisioner};
use crate::{metrics::Panicked, workqueue};

/// The number of PersistentVolumes that are saved concurrently, as in external-provisioner.
const SAVE_WORKERS: usize = 4;

impl<P: Provisioner> Controller<P> {
    pub(super) async fn work_claims(&self) {
        let worker = Arc::clone(&self.claims);
        let panic_worker = Arc::clone(&worker);
        let handler = move |uid: Key| {
            let worker = Arc::clone(&worker);
            async move { worker.sync(&uid).await }
        };
        let on_panic = move |uid: &Key, panic: &str| panic_worker.panicked(uid, panic);
        let queue = self.queues.claims.clone();
        let tasks = self.tasks.clone();
        let workers = self.settings.workers;
        workqueue::work(queue, workers, tasks, "claim", handler, on_panic).await;
    }

    pub(super) async fn work_volumes(&self, stop: &CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.ready_to_delete() => {}
        }
        let worker = Arc::clone(&self.volumes);
        let panic_worker = Arc::clone(&worker);
        let handler = move |name: Key| {
            let worker = Arc::clone(&worker);
            async move { worker.sync(&name).await }
        };
        let on_panic = move |name: &Key, panic: &str| panic_worker.on_panic(name, panic);
        let queue = self.queues.volumes.clone();
        let tasks = self.tasks.clone();
        let workers = self.settings.workers;
        workqueue::work(queue, workers, tasks, "volume", handler, on_panic).await;
    }

    pub(super) async fn work_unsaved(&self) {
        let worker = Arc::clone(&self.claims);
        let metrics = self.metrics.controller.clone();
        let handler = move |uid: Key| {
            let worker = Arc::clone(&worker);
            async move { worker.sync_unsaved(&uid).await }
        };
        let on_panic = move |uid: &Key, panic: &str| {
            tracing::error!(
                uid = &**uid,
                panic,
                "saving a PersistentVolume panicked; this is a bug. It is tried again at the next resync"
            );
            metrics.panicked(Panicked::UnsavedVolumes);
        };
        let queue = self.queues.unsaved.clone();
        let tasks = self.tasks.clone();
        workqueue::work(queue, SAVE_WORKERS, tasks, "unsaved volume", handler, on_panic).await;
    }
}
