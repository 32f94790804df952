//! Watches API server, driver and disk.
//!
//! Owns the watches, and what was observed before. Promises to return only what is new, and to read
//! driver and disk before it returns anything that a watch shows: a watch may lag behind them,
//! they never lag behind a watch. Leaves the texts to `observations`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    io,
    time::Duration,
};

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::{
    core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Secret},
    storage::v1::StorageClass,
};
use kube::{
    Api, Resource,
    api::DynamicObject,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event as Change, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::{
    cluster::{self, Cluster},
    observations::{self, Fate, Listing, Observation, Source},
};

/// How often driver and disk are read while no watch shows anything.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What comes from a watch.
enum Update {
    /// It has shown all that was there: from now on nothing is missed.
    Listed,
    /// It shows something.
    Observed(Observation),
}

/// Everything that the demo observes.
pub struct Observer {
    watches: stream::SelectAll<stream::BoxStream<'static, Update>>,
    /// The last line about each thing.
    lines: BTreeMap<(Source, String), String>,
    /// How many of the driver's calls were returned.
    calls: usize,
    listing: Listing,
}

impl Observer {
    /// Watches a cluster, once every watch is open.
    pub async fn start(cluster: &Cluster) -> Self {
        let client = || cluster.client().clone();
        let snapshots = Api::<DynamicObject>::all_with(client(), &cluster::snapshots());
        let secrets = Api::<PartialObjectMeta<Secret>>::all(client());
        let mut watches = stream::select_all([
            watched(Api::<StorageClass>::all(client()), Source::Class, observations::class),
            // By their metadata alone: the content of secrets never gets here.
            watched(secrets, Source::Secret, observations::secret),
            watched(snapshots, Source::Snapshot, observations::snapshot),
            watched(
                Api::<PersistentVolumeClaim>::all(client()),
                Source::Claim,
                observations::claim,
            ),
            watched(Api::<PersistentVolume>::all(client()), Source::Volume, observations::volume),
            watched(Api::<Event>::all(client()), Source::Event, observations::event),
        ]);
        let mut opening = watches.len();
        while opening > 0 {
            // A watcher never ends, and what is there before the demo's own objects is not new.
            if let Some(Update::Listed) = watches.next().await {
                opening -= 1;
            }
        }
        Self { watches, lines: BTreeMap::new(), calls: 0, listing: Listing::new() }
    }

    /// What is new; after a moment without anything, nothing.
    ///
    /// # Errors
    /// What the file system says of the driver's directory.
    pub async fn next(&mut self, cluster: &Cluster) -> io::Result<Vec<Observation>> {
        let shown = timeout(POLL_INTERVAL, self.watches.next()).await;
        let mut observations = self.poll(cluster)?;
        if let Ok(Some(Update::Observed(observation))) = shown {
            observations.extend(self.is_new(&observation).then_some(observation));
        }
        Ok(observations)
    }

    /// Reads disk and driver. A call is in the log before it makes a directory: the disk is
    /// read first, and returned last.
    fn poll(&mut self, cluster: &Cluster) -> io::Result<Vec<Observation>> {
        let listing = listing(cluster)?;
        let calls = cluster.journal().calls().into_iter().skip(self.calls);
        let mut observations: Vec<_> = calls.map(|call| observations::call(&call)).collect();
        self.calls += observations.len();
        observations.extend(observations::disk(&self.listing, &listing));
        self.listing = listing;
        Ok(observations)
    }

    /// Whether the line about a thing differs from the last one.
    fn is_new(&mut self, observation: &Observation) -> bool {
        let Observation { source, subject, text, .. } = observation;
        // Of one object there are many events.
        let thing = if *source == Source::Event { text } else { subject };
        let before = self.lines.insert((*source, thing.clone()), text.clone());
        before.as_ref() != Some(text)
    }
}

/// The volumes in the driver's directory. What begins with a dot is half made, or half gone.
fn listing(cluster: &Cluster) -> io::Result<Listing> {
    let root = cluster.volumes_directory();
    let mut listing = Listing::new();
    for name in cluster::names(&root)?.into_iter().filter(|name| !name.starts_with('.')) {
        match cluster::names(&root.join(&name)) {
            // It was deleted between the two reads.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            files => {
                listing.insert(name, BTreeSet::from_iter(files?));
            }
        }
    }
    Ok(listing)
}

// === Watches ===

fn watched<K>(
    objects: Api<K>,
    source: Source,
    describe: fn(&K, Fate) -> Observation,
) -> stream::BoxStream<'static, Update>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let changes = watcher(objects, watcher::Config::default());
    updates(changes.default_backoff(), source, describe)
}

fn updates<K: Send + 'static>(
    changes: impl Stream<Item = watcher::Result<Change<K>>> + Send + 'static,
    source: Source,
    describe: fn(&K, Fate) -> Observation,
) -> stream::BoxStream<'static, Update> {
    let update = move |change| match change {
        Ok(Change::Init) => None,
        Ok(Change::InitDone) => Some(Update::Listed),
        Ok(Change::InitApply(object) | Change::Apply(object)) => {
            Some(Update::Observed(describe(&object, Fate::Present)))
        }
        Ok(Change::Delete(object)) => Some(Update::Observed(describe(&object, Fate::Gone))),
        Err(error) => Some(Update::Observed(Observation::broken(source, &error))),
    };
    changes.filter_map(move |change| std::future::ready(update(change))).boxed()
}
