//! What the controller works on now: claims, volumes, calls and queues, as data for the status page.
//!
//! The data can be serialized and has a bounded size: of each kind only so many items are listed, and the
//! others are counted. It has nothing that the events of a claim or the metrics do not show. Reading it
//! changes nothing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Controller,
    claims::{
        index::{ClaimInWork, ClaimsInWork},
        state::Stage,
        sync::ClaimWorker,
    },
    item::{Item, Key},
    limiter::{ClassLoad, ConcurrencyLimiter},
    provisioner::Provisioner,
    queues::Queues,
    volumes::{finalizer::Due, index::Deletion, sync::VolumeWorker},
};
use crate::{
    kube::objects::{Claim, View as _},
    workqueue::{Counts, Place, Queue},
};

/// The most claims, volumes and classes that are listed.
const MAX_LISTED: usize = 200;

/// What to list of claims and volumes. By default all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only the claim of this `namespace/name`.
    pub claim: Option<String>,
    /// Only the volume of this name.
    pub volume: Option<String>,
}

/// What the controller works on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overview {
    /// The claims in work.
    pub claims: Claims,
    /// The volumes to delete.
    pub volumes: Volumes,
    /// The calls to the driver.
    pub calls: Vec<Calls>,
    /// The work queues.
    pub queues: Vec<QueueState>,
}

/// The claims in work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Claims {
    /// Their number by stage.
    pub by_stage: BTreeMap<Stage, usize>,
    /// First those that fail or are blocked, then the others, the oldest first.
    pub listed: Vec<ListedClaim>,
    /// The number of claims that are not listed.
    pub more: usize,
}

/// One claim in work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListedClaim {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The storage class.
    pub class: String,
    /// The stage of its volume.
    pub stage: Stage,
    /// Whether the claim is being deleted.
    pub is_deleted: bool,
    /// For how many seconds this process has known the claim.
    pub age_seconds: u64,
    /// How many attempts of this process have ended.
    pub attempts: u32,
    /// How the last attempt failed, if it did.
    pub last_failure: Option<LastFailure>,
    /// What the claim waits for, apart from the driver.
    pub blocked: Option<Blocked>,
    /// When it is worked on next.
    pub next: Next,
}

/// How the last attempt for a claim failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastFailure {
    /// The name of the gRPC code; empty if the driver was not called.
    pub code: String,
    /// The text of the event.
    pub message: String,
    /// How many seconds ago the attempt ended.
    pub seconds_ago: u64,
}

/// What a claim waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Blocked {
    /// The reason.
    pub reason: String,
    /// For how many seconds.
    pub seconds: u64,
}

/// When an item is worked on next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "when", rename_all = "camelCase")]
pub enum Next {
    /// When something changes that it waits for.
    #[default]
    OnChange,
    /// After so many seconds, or earlier if something changes.
    Later {
        /// The seconds.
        seconds: u64,
    },
    /// As soon as a worker is free.
    Queued,
    /// As soon as the limits allow a call.
    AwaitsPermit,
    /// Now, since so many seconds.
    Now {
        /// The seconds.
        seconds: u64,
    },
}

/// The volumes to delete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volumes {
    /// Some of them, by name.
    pub listed: Vec<ListedVolume>,
    /// The number of volumes that are not listed.
    pub more: usize,
}

/// One volume to delete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListedVolume {
    /// The name of the PersistentVolume.
    pub name: String,
    /// How far its deletion is.
    pub progress: Progress,
    /// The number of the next attempt since the last success.
    pub attempt: u32,
    /// When it is worked on next.
    pub next: Next,
}

/// How far a deletion is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Progress {
    /// The driver has not deleted the volume.
    #[default]
    Pending,
    /// It waits until the volume is detached.
    Attached,
    /// The driver has deleted it; the PersistentVolume is next.
    DeletedAtDriver,
}

/// The calls of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Calls {
    /// `CreateVolume` or `DeleteVolume`.
    pub method: String,
    /// How many may run at once, for all classes.
    pub limit: usize,
    /// The classes with calls or with a lowered limit.
    pub classes: Vec<ClassCalls>,
    /// The number of classes that are not listed.
    pub more: usize,
}

/// The calls for one class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassCalls {
    /// The class.
    pub class: String,
    /// How many may run at once.
    pub limit: usize,
    /// How many run.
    pub running: usize,
    /// How many wait.
    pub waiting: usize,
}

/// A work queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueState {
    /// Its name, as in the metrics.
    pub name: String,
    /// The number of items that wait for a worker.
    pub ready: usize,
    /// The number of items in work.
    pub processing: usize,
    /// The number of items that are due later.
    pub delayed: usize,
}

impl<P: Provisioner> Controller<P> {
    /// Returns a function that reads what the controller works on.
    pub fn overview(&self) -> impl Fn(&Query) -> Overview + Send + Sync + use<P> {
        let (claims, volumes) = (Arc::clone(&self.claims), Arc::clone(&self.volumes));
        let queues = self.queues.clone();
        move |query| Overview {
            claims: claims_in_work(&claims, &queues, query),
            volumes: volumes_to_delete(&volumes, &queues, query),
            calls: vec![
                calls("CreateVolume", &claims.creates),
                calls("DeleteVolume", &volumes.limiter),
            ],
            queues: vec![
                queue("claims", &queues.claims),
                queue("volumes", &queues.volumes),
                queue("unsavedpvs", &queues.unsaved),
            ],
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
    let ClaimsInWork { by_stage, some, more } = worker.index.in_work(MAX_LISTED, is_asked_for);
    let state = |claim: ClaimInWork| {
        let uid = Key::from(claim.known.claim.uid());
        let place = queues.claims.place(&uid).or_else(|| {
            // Its volume may be created, and only its PersistentVolume be missing.
            queues.unsaved.place(&uid)
        });
        let next = Next::of(place, worker.waits_for_a_call(&uid));
        ListedClaim { next, ..ListedClaim::of(&claim) }
    };
    Claims { by_stage, listed: some.into_iter().map(state).collect(), more }
}

impl ListedClaim {
    /// All but when the claim is worked on next.
    fn of(claim: &ClaimInWork) -> Self {
        let ClaimInWork { known, attempts, blocked } = claim;
        let failure = attempts.last_failure.as_ref().map(|failure| LastFailure {
            code: failure.code.to_owned(),
            message: failure.message.to_string(),
            seconds_ago: failure.at.elapsed().as_secs(),
        });
        let blocked = blocked
            .as_ref()
            .map(|(reason, since)| Blocked { reason: reason.clone(), seconds: since.as_secs() });
        Self {
            namespace: known.claim.namespace().to_owned(),
            name: known.claim.name().to_owned(),
            uid: known.claim.uid().to_owned(),
            class: super::ownership::class_of_claim(&known.claim).to_owned(),
            stage: known.state.stage(),
            is_deleted: known.is_gone_or_terminating(),
            age_seconds: known.age().as_secs(),
            attempts: attempts.count,
            last_failure: failure,
            blocked,
            next: Next::default(),
        }
    }
}

impl Next {
    /// By the item's place in its queue, and whether a limiter holds a place or a permit for it.
    fn of(place: Option<Place>, awaits_permit: bool) -> Self {
        match place {
            Some(Place::Processing(since)) => Self::Now { seconds: since.as_secs() },
            Some(Place::Ready) => Self::Queued,
            _ if awaits_permit => Self::AwaitsPermit,
            Some(Place::Delayed(left)) => Self::Later { seconds: whole_seconds(left) },
            None => Self::OnChange,
        }
    }
}

/// Rounds up, so that nothing is announced earlier than it happens.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

fn volumes_to_delete<P>(worker: &VolumeWorker<P>, queues: &Queues, query: &Query) -> Volumes {
    let is_asked_for = |name: &str| query.volume.as_deref().is_none_or(|asked| asked == name);
    let mut names = worker.index.due(Due::Delete);
    names.retain(|name| is_asked_for(name));
    names.sort_unstable();
    let more = names.len().saturating_sub(MAX_LISTED);
    names.truncate(MAX_LISTED);
    let state = |name: Key| ListedVolume {
        progress: Progress::of(&worker.index.deletion(&name)),
        attempt: queues.volumes.failures(&name).saturating_add(1),
        next: Next::of(
            queues.volumes.place(&name),
            worker.limiter.holds(&Item::Volume(name.clone())),
        ),
        name: name.to_string(),
    };
    Volumes { listed: names.into_iter().map(state).collect(), more }
}

impl Progress {
    fn of(deletion: &Deletion) -> Self {
        match deletion {
            Deletion::Pending => Self::Pending,
            Deletion::Attached(_) => Self::Attached,
            Deletion::DeletedAtDriver | Deletion::Removed => Self::DeletedAtDriver,
        }
    }
}

fn calls(method: &str, limiter: &ConcurrencyLimiter) -> Calls {
    let (limit, loads) = limiter.load();
    let more = loads.len().saturating_sub(MAX_LISTED);
    let class = |load: ClassLoad| ClassCalls {
        class: load.class.to_string(),
        limit: load.limit,
        running: load.running,
        waiting: load.waiting,
    };
    let classes = loads.into_iter().take(MAX_LISTED).map(class).collect();
    Calls { method: method.to_owned(), limit, classes, more }
}

fn queue(name: &str, queue: &Queue<Key>) -> QueueState {
    let Counts { ready, processing, delayed } = queue.counts();
    QueueState { name: name.to_owned(), ready, processing, delayed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_an_item_is_worked_on_next() {
        let second = Duration::from_secs(1);
        for (place, awaits_permit, next) in [
            (Some(Place::Processing(second)), true, Next::Now { seconds: 1 }),
            (Some(Place::Ready), true, Next::Queued),
            (Some(Place::Delayed(second)), true, Next::AwaitsPermit),
            (None, true, Next::AwaitsPermit),
            (Some(Place::Delayed(second / 2)), false, Next::Later { seconds: 1 }),
            (None, false, Next::OnChange),
        ] {
            assert_eq!(Next::of(place, awaits_permit), next, "{place:?}");
        }
    }
}
