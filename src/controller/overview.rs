//! Reads what the controller works on, for the status: from the indexes and the queues. Changes nothing.

use std::sync::Arc;

use crate::{
    controller::{
        Controller, Key,
        attempts::FailedAttempt,
        claims::worker::ClaimWorker,
        model::overview::{Claims, ListedVolume, Overview, Query, Volumes},
        provisioner::{Deleter, Provisioner},
        queues::Queues,
        volumes::{
            index::{Deletion, VolumeEntry},
            sync::VolumeWorker,
        },
    },
    kube::objects::{Claim, View as _},
    workqueue::Place,
};

/// The most claims, volumes and classes that are listed.
const MAX_LISTED: usize = 200;

impl<P: Provisioner> Controller<P> {
    /// Returns a function that reads what the controller works on.
    pub fn overview(&self) -> impl Fn(&Query) -> Overview + Send + Sync + use<P> {
        let (claims, volumes) = (Arc::clone(&self.claims), Arc::clone(&self.volumes));
        let queues = self.queues.clone();
        move |query| Overview {
            claims: claims_in_work(&claims, &queues, query),
            volumes: volumes_to_delete(&volumes, &queues, query),
        }
    }
}

fn claims_in_work<P: Provisioner>(
    worker: &ClaimWorker<P>,
    queues: &Queues,
    query: &Query,
) -> Claims {
    let is_asked_for = |claim: &Claim| {
        let named = query.claim.as_deref().map(|key| key.split_once('/').unwrap_or_default());
        named.is_none_or(|named| named == (claim.namespace(), claim.name()))
    };
    let mut claims = worker.index.in_work(MAX_LISTED, is_asked_for);
    for claim in &mut claims.listed {
        let uid = Key::from(claim.uid.as_str());
        claim.next = match queues.claims.place(&uid) {
            // Its volume may be created, and only its PersistentVolume be missing.
            Place::Absent => queues.unsaved.place(&uid),
            place => place,
        };
    }
    claims
}

fn volumes_to_delete<P: Deleter>(
    worker: &VolumeWorker<P>,
    queues: &Queues,
    query: &Query,
) -> Volumes {
    let is_asked_for = |name: &str| query.volume.as_deref().is_none_or(|asked| asked == name);
    let (listed, more) = worker.index.to_delete(MAX_LISTED, is_asked_for);
    let state = |(name, entry): (Key, VolumeEntry)| ListedVolume {
        is_deleted_at_driver: entry.deletion != Deletion::Pending,
        attempt: queues.volumes.failures(&name).saturating_add(1),
        last_failure: entry.failure.as_deref().map(FailedAttempt::listed),
        next: queues.volumes.place(&name),
        name: name.to_string(),
    };
    Volumes { listed: listed.into_iter().map(state).collect(), more }
}
