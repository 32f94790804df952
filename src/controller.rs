//! The provision controller: which claim gets a volume, which volume is deleted, and when.
//!
//! Knows nothing of any driver: it asks a [`provisioner::Provisioner`]. A claim walks
//! `claim_book` (what is known, fed by the watches) → the queue `claims` → `claims` (what to do
//! now) → the provisioner → `claim_state` (what follows) → `pv_store` (the PersistentVolume). A
//! volume walks `volume_book` → the queue `volumes` → `volumes`, which asks `finalizers` what is
//! due. `ownership` says whose either is, `pace` keeps to as many calls at once as the driver bears.
//!
//! Owns starting and stopping all of that ([`Controller`], put together by `assembly`; `watches`
//! feeds the books, `workers` empties the queues, `upkeep` does what no change asks for). Promises
//! that no work starts before what it needs is listed: claims, then PersistentVolumes, and what the
//! provisioner needs (safety rule 6); for a deletion also what a standby has seen, anew; and that [`Controller::work`] ends only when nothing is in hand any more and
//! all that was made is saved.

mod assembly;
pub mod claims;
pub mod classes;
pub mod dependencies;
pub mod events;
pub mod item;
pub mod limiter;
mod live;
pub mod model;
pub mod ownership;
mod packed_set;
pub mod provisioner;
mod queues;
mod resync;
pub mod volumes;
mod watches;
mod workers;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use self::{
    assembly::Assembly, claims::sync::ClaimWorker, classes::Classes,
    dependencies::index::Dependency, provisioner::Provisioner, queues::Queues,
    volumes::sync::VolumeWorker, watches::Lists,
};
use crate::{
    kube::{
        Client, Kind, View,
        events::Source,
        objects::{Claim, StorageClass, Volume},
    },
    metrics::Metrics,
    runtime::{Clock, Random, Tasks},
};

/// How the controller works.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// `--worker-threads`: claims, and volumes, worked on at once.
    pub workers: usize,
    /// `--retry-interval-start`.
    pub retry_start: Duration,
    /// `--retry-interval-max`.
    pub retry_max: Duration,
    /// How open calls are recorded.
    pub open_calls: claims::call_record::Settings,
}

/// What the controller stands on.
pub struct Deps<P> {
    /// Makes and deletes volumes.
    pub provisioner: Arc<P>,
    /// The lane for objects.
    pub client: Client,
    /// The classes, which the provisioner reads as well.
    pub classes: Classes,
    /// Tells users.
    pub events: Source,
    /// Counts.
    pub metrics: Metrics,
    /// Tells for how long a deleted claim was kept.
    pub clock: Arc<dyn Clock>,
    /// Jitter.
    pub random: Arc<dyn Random>,
    /// Runs the work.
    pub tasks: Tasks,
    /// How to work.
    pub settings: Settings,
}

/// The provision controller.
pub struct Controller<P> {
    claims: Arc<ClaimWorker<P>>,
    volumes: Arc<VolumeWorker<P>>,
    queues: Queues,
    classes: Classes,
    client: Client,
    metrics: Metrics,
    random: Arc<dyn Random>,
    tasks: Tasks,
    settings: Settings,
    lists: Lists,
    /// Kinds whose changes open watches show, so that nobody else need look.
    shown: Vec<Kind>,
}

impl<P: Provisioner> Controller<P> {
    /// A controller that does nothing yet.
    pub fn new(parts: Deps<P>) -> Self {
        let assembly = Assembly::new(parts);
        assembly.count_at_scrapes();
        let store = assembly.store();
        let (volumes, claims) = (assembly.volumes(store.clone()), assembly.claims(store));
        let Assembly { parts, queues, .. } = assembly;
        let Deps { client, classes, metrics, random, tasks, settings, .. } = parts;
        Self {
            claims: Arc::new(claims),
            volumes: Arc::new(volumes),
            queues,
            classes,
            client,
            metrics,
            random,
            tasks,
            settings,
            lists: Lists::default(),
            shown: vec![Kind::of::<StorageClass>(), Kind::of::<Claim>(), Kind::of::<Volume>()],
        }
    }

    /// Whoever calls this watches all objects of the kind that `V` reads, and tells
    /// [`Controller::claim_waker`] of their changes: they are not watched by name.
    pub fn shows<V: View>(&mut self) {
        self.shown.push(Kind::of::<V>());
    }

    /// Wakes a volume by name: what kept it from being deleted may be over.
    pub fn volume_waker(&self) -> impl Fn(String) + Send + use<P> {
        let queues = self.queues.clone();
        move |name| queues.wake_volumes(vec![name])
    }

    /// Brings back what waits for an object, which was just seen to change.
    pub fn claim_waker(&self) -> impl Fn(&Dependency) + Send + Sync + use<P> {
        let (queues, waits) = (self.queues.clone(), self.claims.dependencies.clone());
        move |object| queues.wake_items(waits.of(object))
    }

    /// The process is about to end: names the volumes that are made and have no PersistentVolume.
    pub fn tell_unsaved(&self) {
        self.claims.store.log_unsaved();
    }

    /// The calls that still run are about to be cut: each is recorded on its claim, by whoever
    /// makes it and so holds the volume's key.
    pub fn record_running_calls(&self) {
        self.claims.ending.cancel();
    }

    /// Works until `stop`; then takes nothing new and ends when what is in hand has ended and
    /// every volume made is saved, or refused by the API server and recorded on its claim.
    pub async fn work(&self, stop: CancellationToken) {
        self.begin_term();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.may_create() => {}
            () = self.report_missing_lists() => {}
        }
        self.queues.working.store(true, Ordering::Relaxed);
        self.wake_all();
        let calls = futures::future::join(self.work_claims(), self.work_volumes(&stop));
        let saving = self.work_unsaved();
        tokio::pin!(calls, saving);
        tokio::select! {
            biased;
            _ = futures::future::join(&mut calls, &mut saving) => return,
            () = stop.cancelled() => {}
            () = self.resync() => {}
            () = self.adopt() => {}
            () = self.report_missing_lists() => {}
        }
        self.queues.claims.shut_down();
        self.queues.volumes.shut_down();
        // What the last calls made is still saved, for as long as our caller waits.
        let last_calls = async {
            calls.await;
            self.claims.store.drain().await;
            self.queues.unsaved.shut_down();
        };
        futures::future::join(last_calls, saving).await;
    }
}
