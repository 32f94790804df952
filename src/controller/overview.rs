//! Reads what the controller works on, for the status: from the indexes and the queues. Changes nothing.

use std::{sync::Arc, time::Duration};

use crate::{
    controller::{
        Controller,
        attempts::FailedAttempt,
        claims::worker::ClaimWorker,
        item::Key,
        model::overview::{
            Claims, ListedVolume, Next, Overview, Progress, Query, QueueState, Volumes,
        },
        provisioner::{Deleter, Provisioner},
        queues::Queues,
        volumes::{
            index::{Deletion, Kept},
            sync::VolumeWorker,
        },
    },
    kube::objects::{Claim, View as _},
    workqueue::{Counts, Place, Queue},
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
    let mut claims = worker.index.in_work(MAX_LISTED, is_asked_for);
    for claim in &mut claims.listed {
        let uid = Key::from(claim.uid.as_str());
        let place = queues.claims.place(&uid).or_else(|| {
            // Its volume may be created, and only its PersistentVolume be missing.
            queues.unsaved.place(&uid)
        });
        claim.next = Next::of(place);
    }
    claims
}

impl Next {
    /// By the item's place in its queue.
    fn of(place: Option<Place>) -> Self {
        match place {
            Some(Place::Processing(since)) => Self::Now { seconds: since.as_secs() },
            Some(Place::Ready) => Self::Queued,
            Some(Place::Delayed(left)) => Self::Later { seconds: whole_seconds(left) },
            None => Self::OnChange,
        }
    }
}

/// Rounds up, so that nothing is announced earlier than it happens.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

fn volumes_to_delete<P: Deleter>(
    worker: &VolumeWorker<P>,
    queues: &Queues,
    query: &Query,
) -> Volumes {
    let is_asked_for = |name: &str| query.volume.as_deref().is_none_or(|asked| asked == name);
    let (listed, more) = worker.index.to_delete(MAX_LISTED, is_asked_for);
    let state = |(name, kept): (Key, Kept)| ListedVolume {
        progress: Progress::of(kept.deletion),
        attempt: queues.volumes.failures(&name).saturating_add(1),
        last_failure: kept.failure.as_deref().map(FailedAttempt::listed),
        next: Next::of(queues.volumes.place(&name)),
        name: name.to_string(),
    };
    Volumes { listed: listed.into_iter().map(state).collect(), more }
}

impl Progress {
    fn of(deletion: Deletion) -> Self {
        match deletion {
            Deletion::Pending => Self::Pending,
            Deletion::DeletedAtDriver | Deletion::Removed => Self::DeletedAtDriver,
        }
    }
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
        for (place, next) in [
            (Some(Place::Processing(second)), Next::Now { seconds: 1 }),
            (Some(Place::Ready), Next::Queued),
            (Some(Place::Delayed(second / 2)), Next::Later { seconds: 1 }),
            (None, Next::OnChange),
        ] {
            assert_eq!(Next::of(place), next, "{place:?}");
        }
    }
}
