//! What is observed of API server, driver and disk, and in which words. No secret's content gets into a line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::ready,
    io,
    time::Duration,
};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event as Change, watcher},
    },
};
use serde_json::Value;
use testkit::driver::Record;
use tokio::time::timeout;

use crate::{
    cluster::{Cluster, SELECTED_NODE, names},
    driver::ZONE_KEY,
};

/// How often driver and disk are read while no watch shows anything.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One observation: where, what it is about, and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// `class`, `secret`, `snap`, `claim`, `volume`, `event`, `driver` or `disk`.
    pub source: &'static str,
    /// The same thing has the same subject.
    pub subject: String,
    /// Its state.
    pub text: String,
}

/// The observation as a line says it.
impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ": {}", self.text) }
    }
}

/// The volumes in the driver's directory, and what lies in each.
type Listing = BTreeMap<String, BTreeSet<String>>;

/// Everything that the demo observes.
pub(crate) struct Observer {
    watches: stream::SelectAll<stream::BoxStream<'static, Option<Observation>>>,
    /// The last line about each thing.
    lines: BTreeMap<(&'static str, String), String>,
    /// How many of the driver's calls were returned.
    calls: usize,
    listing: Listing,
}

impl Observer {
    /// Watches a cluster, once every watch is open.
    pub(crate) async fn start(cluster: &Cluster) -> Self {
        let kinds = [
            ("class", "storage.k8s.io", "StorageClass"),
            ("secret", "", "Secret"),
            ("snap", "snapshot.storage.k8s.io", "VolumeSnapshot"),
            ("claim", "", "PersistentVolumeClaim"),
            ("volume", "", "PersistentVolume"),
            ("event", "", "Event"),
        ];
        let mut watches = stream::select_all(kinds.map(|kind| watched(cluster, kind)));
        let mut opening = watches.len();
        while opening > 0 {
            // A watch never ends, and what is there before the demo's own objects is not new.
            if let Some(None) = watches.next().await {
                opening -= 1;
            }
        }
        Self { watches, lines: BTreeMap::new(), calls: 0, listing: Listing::new() }
    }

    /// What is new; after a moment without anything, nothing. Driver and disk are read before anything is returned
    /// that a watch shows: a watch may lag behind them, they never lag behind a watch.
    pub(crate) async fn next(&mut self, cluster: &Cluster) -> io::Result<Vec<Observation>> {
        let shown = timeout(POLL_INTERVAL, self.watches.next()).await;
        // A call is in the log before it makes a directory: the disk is read first, and returned last.
        let listing = listing(cluster)?;
        let calls = cluster.driver.journal().calls().into_iter().skip(self.calls);
        let mut observations: Vec<_> = calls.map(|call| call_of(&call)).collect();
        self.calls += observations.len();
        observations.extend(disk(&self.listing, &listing));
        self.listing = listing;
        if let Ok(Some(Some(observation))) = shown {
            let Observation { source, subject, text } = &observation;
            // Of one object there are many events.
            let thing = if *source == "event" { text } else { subject };
            let before = self.lines.insert((*source, thing.clone()), text.clone());
            if before.as_ref() != Some(text) {
                observations.push(observation);
            }
        }
        Ok(observations)
    }
}

/// What a watch shows; nothing once it has listed what was there. It mends itself.
fn watched(
    cluster: &Cluster,
    (source, group, kind): (&'static str, &str, &str),
) -> stream::BoxStream<'static, Option<Observation>> {
    let client = cluster.client.clone();
    let config = watcher::Config::default();
    if source == "secret" {
        // By their metadata alone: the content of secrets never gets here.
        let secrets = Api::<PartialObjectMeta<Secret>>::all(client);
        let changes = watcher(secrets, config).default_backoff();
        let changes = changes.filter_map(async |change| change.ok());
        let seen = |it: &_| seen("secret", it, &Value::Null);
        return changes.filter_map(move |change| ready(update(change, seen))).boxed();
    }
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    let objects = Api::<DynamicObject>::all_with(client, &resource);
    let changes = watcher(objects, config).default_backoff();
    let changes = changes.filter_map(async |change| change.ok());
    let seen = move |it: &DynamicObject| seen(source, it, &it.data);
    changes.filter_map(move |change| ready(update(change, seen))).boxed()
}

#[allow(clippy::option_option)] // no news; the end of a list; something new
fn update<K>(change: Change<K>, seen: impl Fn(&K) -> Observation) -> Option<Option<Observation>> {
    match change {
        Change::Init => None,
        Change::InitDone => Some(None),
        Change::InitApply(object) | Change::Apply(object) => Some(Some(seen(&object))),
        Change::Delete(object) => {
            Some(Some(Observation { text: "gone".to_owned(), ..seen(&object) }))
        }
    }
}

// === Objects ===

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// An object by its metadata and the rest of it.
fn seen(source: &'static str, object: &impl kube::ResourceExt, data: &Value) -> Observation {
    let annotation = |key: &str| object.annotations().get(key).map(String::as_str);
    let deleting = object.meta().deletion_timestamp.is_some();
    let held = object.finalizers().join(" ");
    let held = if held.is_empty() { held } else { format!(", held by {held}") };
    let ending = format!("{}{held}", if deleting { ", being deleted" } else { "" });
    let phase = text(data, "/status/phase").unwrap_or("new");
    let with = |before: &str, value: Option<&str>| {
        value.map(|it| format!("{before}{it}")).unwrap_or_default()
    };
    let shown = match source {
        "class" => {
            let secret = text(data, "/parameters/csi.storage.k8s.io~1provisioner-secret-name");
            let provisioner = text(data, "/provisioner").unwrap_or_default();
            format!("volumes of {provisioner}{}", with(", secret ", secret))
        }
        "secret" => "stored; its content is not shown".to_owned(),
        "snap" => format!("ready{ending}"),
        "claim" => {
            let further = match text(data, "/spec/volumeName") {
                Some(volume) => format!(", its volume is {volume}"),
                None => with(", given to ", annotation("volume.kubernetes.io/storage-provisioner")),
            };
            format!("{phase}{}{further}{ending}", with(", for ", annotation(SELECTED_NODE)))
        }
        "volume" if deleting => format!("{phase}{ending}"),
        "volume" if ["Bound", "Released"].contains(&phase) => phase.to_owned(),
        "volume" => {
            let size = text(data, "/spec/capacity/storage").unwrap_or("?");
            let handle = text(data, "/spec/csi/volumeHandle").unwrap_or("?");
            let zone =
                "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0";
            format!("{phase}, {size} at {handle}{}", with(", in ", text(data, zone)))
        }
        _ => {
            let part = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
            let times = data.get("count").and_then(Value::as_u64).filter(|count| *count > 1);
            let times = times.map(|count| format!(", {count} times")).unwrap_or_default();
            format!("{} ({}{times}): {}", part("reason"), part("type"), part("message"))
        }
    };
    let (namespace, name) = match source {
        "event" => (text(data, "/involvedObject/namespace"), text(data, "/involvedObject/name")),
        _ => (object.meta().namespace.as_deref(), object.meta().name.as_deref()),
    };
    let namespace = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    Observation { source, subject: namespace + name.unwrap_or_default(), text: shown }
}

// === Driver and disk ===

/// A call to the driver: what it is about, and which secrets came with it, by their keys alone.
fn call_of(record: &Record) -> Observation {
    let request = &record.request;
    let volume = text(request, "/name").or_else(|| text(request, "/volume_id")).map(str::to_owned);
    let size = text(request, "/capacity_range/required_bytes").map(|size| format!("{size} bytes"));
    let parameters = request.get("parameters").map(|given| format!("parameters {given}"));
    let snapshot = text(request, "/volume_content_source/snapshot/snapshot_id");
    let snapshot = snapshot.map(|handle| format!("from snapshot {handle}"));
    let zone = request.pointer("/accessibility_requirements/preferred/0/segments");
    let zone = zone.and_then(|segments| Some(format!("in {}", segments.get(ZONE_KEY)?.as_str()?)));
    let secrets = request.get("secrets").and_then(Value::as_object);
    let keys: Option<Vec<_>> = secrets.map(|secrets| secrets.keys().map(String::as_str).collect());
    let secrets = keys.map(|keys| format!("with secret {}", keys.join(" + ")));
    let words = [volume, size, parameters, snapshot, zone, secrets].into_iter().flatten();
    let text = words.collect::<Vec<_>>().join(", ");
    Observation { source: "driver", subject: record.method.to_owned(), text }
}

/// The volumes in the driver's directory. What begins with a dot is half made, or half gone.
fn listing(cluster: &Cluster) -> io::Result<Listing> {
    let root = cluster.volumes_directory();
    let mut listing = Listing::new();
    for name in names(&root)?.into_iter().filter(|name| !name.starts_with('.')) {
        match names(&root.join(&name)) {
            // It was deleted between the two reads.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            files => {
                listing.insert(name, files?);
            }
        }
    }
    Ok(listing)
}

/// What became of each directory.
fn disk(before: &Listing, now: &Listing) -> Vec<Observation> {
    let changed = now.iter().filter(|(name, files)| before.get(*name) != Some(files));
    let made = changed.map(|(name, files)| {
        (name, format!("holds {}", files.iter().map(String::as_str).collect::<Vec<_>>().join(", ")))
    });
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    let all = made.chain(gone.map(|name| (name, "gone".to_owned())));
    all.map(|(name, text)| Observation { source: "disk", subject: name.clone(), text }).collect()
}
