//! Watches API server, driver and disk.
//!
//! Owns the watches, and what was seen before. Promises that what is told is news, and that driver
//! and disk are looked at before anything that a watch shows is told: a watch may lag behind them,
//! they never lag behind a watch. Leaves the words to `sightings`.

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
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event as Change, watcher},
    },
};
use serde::de::DeserializeOwned;
use testkit::apiserver::serve::manifests::ManifestError;
use tokio::time::timeout;

use crate::{
    cluster::{self, Cluster},
    sightings::{self, Fate, Listing, Sighting, Source},
};

/// How often driver and disk are looked at while no watch shows anything.
const GLANCE: Duration = Duration::from_millis(20);

/// What comes from a watch.
enum News {
    /// It has shown all that was there: from now on nothing is missed.
    Listed,
    /// It shows something.
    Seen(Sighting),
}

/// All eyes of the demo.
pub struct Observer {
    watches: stream::SelectAll<stream::BoxStream<'static, News>>,
    /// What was last told of each thing.
    told: BTreeMap<(Source, String), String>,
    /// How many of the driver's calls were told.
    calls: usize,
    listing: Listing,
    secret: BTreeMap<String, String>,
}

impl Observer {
    /// Watches a cluster, once every watch is open.
    ///
    /// # Errors
    /// [`ManifestError::Malformed`], which a test of `cluster` rules out.
    pub async fn start(cluster: &Cluster) -> Result<Self, ManifestError> {
        let client = cluster.client();
        let mut watches = stream::select_all([
            watched::<StorageClass>(client, Source::Class, sightings::class),
            // By their metadata alone: the content of secrets never gets here.
            watched::<PartialObjectMeta<Secret>>(client, Source::Secret, sightings::secret),
            watched::<PersistentVolumeClaim>(client, Source::Claim, sightings::claim),
            watched::<PersistentVolume>(client, Source::Volume, sightings::volume),
            watched::<Event>(client, Source::Event, sightings::event),
        ]);
        let mut opening = watches.len();
        while opening > 0 {
            // A watcher never ends, and what is there before the demo's own objects is no news.
            if let Some(News::Listed) = watches.next().await {
                opening -= 1;
            }
        }
        let secret = cluster::secret_content()?;
        Ok(Self { watches, told: BTreeMap::new(), calls: 0, listing: Listing::new(), secret })
    }

    /// What is new; after a moment without anything, nothing.
    ///
    /// # Errors
    /// What the file system says of the driver's directory.
    pub async fn next(&mut self, cluster: &Cluster) -> io::Result<Vec<Sighting>> {
        let shown = timeout(GLANCE, self.watches.next()).await;
        let mut seen = self.glance(cluster)?;
        if let Ok(Some(News::Seen(sighting))) = shown {
            seen.extend(self.is_news(&sighting).then_some(sighting));
        }
        Ok(seen)
    }

    /// Looks at disk and driver. A call is in the log before it makes a directory: the disk is
    /// read first, and told last.
    fn glance(&mut self, cluster: &Cluster) -> io::Result<Vec<Sighting>> {
        let listing = listing(cluster)?;
        let calls = cluster.journal().calls().into_iter().skip(self.calls);
        let mut seen: Vec<_> = calls.map(|call| sightings::call(&call, &self.secret)).collect();
        self.calls += seen.len();
        seen.extend(sightings::disk(&self.listing, &listing));
        self.listing = listing;
        Ok(seen)
    }

    /// Whether a thing looks otherwise than when it was last told of.
    fn is_news(&mut self, sighting: &Sighting) -> bool {
        let Sighting { source, subject, text, .. } = sighting;
        // Of one object there are many events.
        let thing = if *source == Source::Event { text } else { subject };
        let before = self.told.insert((*source, thing.clone()), text.clone());
        before.as_ref() != Some(text)
    }
}

/// The volumes in the driver's directory. What begins with a dot is half made, or half gone.
fn listing(cluster: &Cluster) -> io::Result<Listing> {
    let root = cluster.volumes_directory();
    let mut listing = Listing::new();
    for name in cluster::names(&root)?.into_iter().filter(|name| !name.starts_with('.')) {
        match cluster::names(&root.join(&name)) {
            // It went between the two looks.
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
    client: &Client,
    source: Source,
    describe: fn(&K, Fate) -> Sighting,
) -> stream::BoxStream<'static, News>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let changes = watcher(Api::<K>::all(client.clone()), watcher::Config::default());
    news(changes.default_backoff(), source, describe)
}

fn news<K: Send + 'static>(
    changes: impl Stream<Item = watcher::Result<Change<K>>> + Send + 'static,
    source: Source,
    describe: fn(&K, Fate) -> Sighting,
) -> stream::BoxStream<'static, News> {
    let told = move |change| match change {
        Ok(Change::Init) => None,
        Ok(Change::InitDone) => Some(News::Listed),
        Ok(Change::InitApply(object) | Change::Apply(object)) => {
            Some(News::Seen(describe(&object, Fate::Present)))
        }
        Ok(Change::Delete(object)) => Some(News::Seen(describe(&object, Fate::Gone))),
        Err(error) => Some(News::Seen(Sighting::broken(source, &error))),
    };
    changes.filter_map(move |change| std::future::ready(told(change))).boxed()
}
