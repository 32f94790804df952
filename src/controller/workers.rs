//! The workers of the three queues.
//!
//! Owns how many there are, and what becomes of an object on whose work a task has died. Promises that
//! nothing is deleted before everything is listed. Leaves the work to `claims`, `volumes` and
//! `pv_store`.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Controller, provisioner::Provisioner};
use crate::{metrics::Panicked, workqueue};

/// How many unsaved PersistentVolumes are tried at once, as in the original.
const SAVERS: usize = 4;

impl<P: Provisioner> Controller<P> {
    pub(super) async fn work_claims(&self) {
        let worker = Arc::clone(&self.claims);
        let dead = Arc::clone(&worker);
        let handler = move |uid: String| {
            let worker = Arc::clone(&worker);
            async move { worker.sync(&uid).await }
        };
        let on_panic = move |uid: &String, panic: &str| dead.panicked(uid, panic);
        let (queue, tasks) = (self.queues.claims.clone(), self.tasks.clone());
        // As many again find out whose turn it is, and save.
        let hands = self.settings.workers.saturating_mul(2);
        let work = workqueue::work(queue, hands, tasks, "claim", handler, on_panic);
        tokio::select! {
            biased;
            () = work => {}
            () = self.claims.creates.keep_time() => {}
        }
    }

    pub(super) async fn work_volumes(&self, stop: &CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.may_delete() => {}
        }
        let worker = Arc::clone(&self.volumes);
        let dead = Arc::clone(&worker);
        let handler = move |name: String| {
            let worker = Arc::clone(&worker);
            async move { worker.sync(&name).await }
        };
        let on_panic = move |name: &String, panic: &str| dead.panicked(name, panic);
        let (queue, tasks) = (self.queues.volumes.clone(), self.tasks.clone());
        let workers = self.settings.workers;
        let work = workqueue::work(queue, workers, tasks, "volume", handler, on_panic);
        tokio::select! {
            biased;
            () = work => {}
            () = self.volumes.limiter.keep_time() => {}
        }
    }

    pub(super) async fn work_unsaved(&self) {
        let store = self.claims.store.clone();
        let metrics = self.metrics.controller.clone();
        let handler = move |uid: String| {
            let store = store.clone();
            async move { store.sync(&uid).await }
        };
        let on_panic = move |uid: &String, panic: &str| {
            tracing::error!(
                uid,
                panic,
                "saving a PersistentVolume panicked; this is a bug. It is tried again at the next resync"
            );
            metrics.panicked(Panicked::UnsavedVolumes);
        };
        let (queue, tasks) = (self.queues.unsaved.clone(), self.tasks.clone());
        workqueue::work(queue, SAVERS, tasks, "unsaved volume", handler, on_panic).await;
    }
}
