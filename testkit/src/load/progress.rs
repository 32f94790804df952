//! How far each claim has come, as watches of claims and volumes show it. Only the first time counts, and only
//! claims that were asked for are followed.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Debug,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{Config, Event, watcher},
    },
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc::Sender, time::Instant};

use super::{NAMESPACE, residents::OTHERS};

/// Something that happens once to a claim or its volume, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Milestone {
    /// The request to create the claim was sent.
    Asked,
    /// Its PersistentVolume was observed.
    Saved,
    /// It was observed `Bound`.
    Bound,
    /// The request to delete it was sent.
    Dropped,
    /// Its PersistentVolume was observed to be deleted.
    Gone,
}

/// All claims of a run, and when each reached what.
#[derive(Debug, Default)]
pub(super) struct Progress {
    claims: BTreeMap<String, BTreeMap<Milestone, Instant>>,
    reached: BTreeMap<Milestone, usize>,
}

/// Shared with those who make and delete claims.
pub(super) type Shared = Arc<Mutex<Progress>>;

impl Progress {
    /// Follows the claim `name` from now on.
    pub(super) fn asked(&mut self, name: &str) {
        self.claims.entry(name.to_owned()).or_default();
        self.reached(name, Milestone::Asked);
    }

    /// The claim has come so far now.
    pub(super) fn reached(&mut self, name: &str, milestone: Milestone) {
        let Some(times) = self.claims.get_mut(name) else { return };
        if let Entry::Vacant(first) = times.entry(milestone) {
            first.insert(Instant::now());
            *self.reached.entry(milestone).or_default() += 1;
        }
    }

    /// How many claims have come so far.
    pub(super) fn count(&self, milestone: Milestone) -> usize {
        self.reached.get(&milestone).copied().unwrap_or_default()
    }

    /// When the claim `name` came so far.
    pub(super) fn when(&self, name: &str, milestone: Milestone) -> Option<Instant> {
        self.claims.get(name)?.get(&milestone).copied()
    }

    /// How long each claim took from one to another, of those that have come so far.
    pub(super) fn took(&self, from: Milestone, to: Milestone) -> Vec<Duration> {
        let times = self.claims.values();
        times.filter_map(|it| Some(it.get(&to)?.duration_since(*it.get(&from)?))).collect()
    }

    /// The time from the first claim's `from` to the last one's `to`.
    pub(super) fn span(&self, from: Milestone, to: Milestone) -> Option<Duration> {
        let all = |milestone| self.claims.values().filter_map(move |times| times.get(&milestone));
        Some(all(to).max()?.duration_since(*all(from).min()?))
    }
}

/// The watches of claims and volumes but residents, to be polled for as long as anything counts. Each reports
/// when it has listed what there was. Errors mend themselves, or show as a run that gets nowhere.
pub(super) fn follow(
    client: &Client,
    progress: &Shared,
    listed: &Sender<()>,
) -> [BoxFuture<'static, ()>; 2] {
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), NAMESPACE);
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let (of_claims, of_volumes) = (Arc::clone(progress), Arc::clone(progress));
    let claim_seen = move |event: Event<PersistentVolumeClaim>| {
        let (Event::Apply(claim) | Event::InitApply(claim)) = event else { return };
        if claim.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Bound")) {
            of_claims.lock().reached(&claim.name_any(), Milestone::Bound);
        }
    };
    let volume_seen = move |event: Event<PersistentVolume>| {
        let (volume, milestone) = match event {
            Event::Apply(volume) | Event::InitApply(volume) => (volume, Milestone::Saved),
            Event::Delete(volume) => (volume, Milestone::Gone),
            Event::Init | Event::InitDone => return,
        };
        let claim = volume.spec.and_then(|spec| spec.claim_ref?.name);
        of_volumes.lock().reached(&claim.unwrap_or_default(), milestone);
    };
    [
        Box::pin(watch(claims, listed.clone(), claim_seen)),
        Box::pin(watch(volumes, listed.clone(), volume_seen)),
    ]
}

async fn watch<K>(api: Api<K>, listed: Sender<()>, seen: impl Fn(Event<K>))
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    // Who would list the residents too takes the server's time from the program.
    let config = Config::default().labels(OTHERS);
    let mut events = pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        if matches!(event, Event::InitDone) {
            // Nobody hears of later lists.
            let _ = listed.try_send(());
        }
        seen(event);
    }
}
