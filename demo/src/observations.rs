//! The text of each observation.
//!
//! Owns the words of the timeline's lines: pure functions of an object, a call to the driver, or a
//! listing of the disk. Promises that no secret's content gets into a line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use k8s_openapi::api::{
    core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Secret},
    storage::v1::StorageClass,
};
use kube::{ResourceExt as _, api::DynamicObject, core::PartialObjectMeta};
use serde_json::Value;
use testkit::driver::Record;

use crate::{cluster::SELECTED_NODE, driver::ZONE_KEY};

/// Where something was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// What the demo itself does.
    Demo,
    /// The watch of StorageClasses.
    Class,
    /// The watch of the secrets' metadata.
    Secret,
    /// The watch of snapshots.
    Snapshot,
    /// The watch of claims.
    Claim,
    /// The watch of PersistentVolumes.
    Volume,
    /// The watch of events.
    Event,
    /// The driver's log of its calls.
    Driver,
    /// The directory that holds the driver's volumes.
    Disk,
}

/// One observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Where.
    pub source: Source,
    /// What it is about; the same thing has the same subject.
    pub subject: String,
    /// Its state.
    pub text: String,
}

/// What a watch says of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is as it is shown.
    Present,
    /// It is gone.
    Gone,
}

impl Observation {
    fn new(source: Source, subject: String, text: impl Into<String>) -> Self {
        Self { source, subject, text: text.into() }
    }

    fn gone(source: Source, subject: String) -> Self {
        Self::new(source, subject, "gone")
    }

    /// A watch that broke; it mends itself.
    pub fn broken(source: Source, error: &dyn std::error::Error) -> Self {
        Self::new(source, "the watch".to_owned(), format!("broke: {error}"))
    }
}

/// The observation as a line says it.
impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ": {}", self.text) }
    }
}

// === Objects ===

/// The annotation that gives a claim to a provisioner (`pkg/controller/volume/persistentvolume`
/// in Kubernetes).
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// A class: what it makes, and the template of its secret's name.
pub fn class(class: &StorageClass, fate: Fate) -> Observation {
    let subject = class.name_any();
    if fate == Fate::Gone {
        return Observation::gone(Source::Class, subject);
    }
    let secret = "csi.storage.k8s.io/provisioner-secret-name";
    let template = class.parameters.as_ref().and_then(|parameters| parameters.get(secret));
    let template = template.map(|name| format!(", secret {name}")).unwrap_or_default();
    let text = format!("volumes of {}{template}", class.provisioner);
    Observation::new(Source::Class, subject, text)
}

/// A secret: that it is there. More is not even asked for.
pub fn secret(secret: &PartialObjectMeta<Secret>, fate: Fate) -> Observation {
    let subject = named(secret);
    match fate {
        Fate::Present => {
            Observation::new(Source::Secret, subject, "stored; its content is not shown")
        }
        Fate::Gone => Observation::gone(Source::Secret, subject),
    }
}

/// A snapshot: what keeps it.
pub fn snapshot(snapshot: &DynamicObject, fate: Fate) -> Observation {
    let subject = named(snapshot);
    if fate == Fate::Gone {
        return Observation::gone(Source::Snapshot, subject);
    }
    let text = format!("ready{}", ending(snapshot));
    Observation::new(Source::Snapshot, subject, text)
}

/// Whether an object is being deleted, and what keeps it.
fn ending(object: &impl kube::ResourceExt) -> String {
    let deleting = object.meta().deletion_timestamp.is_some();
    let finalizers = object.finalizers().join(" ");
    let held = if finalizers.is_empty() { finalizers } else { format!(", held by {finalizers}") };
    format!("{}{held}", if deleting { ", being deleted" } else { "" })
}

/// A claim: its phase, its node, its provisioner and its volume, and what keeps it.
pub fn claim(claim: &PersistentVolumeClaim, fate: Fate) -> Observation {
    let subject = named(claim);
    if fate == Fate::Gone {
        return Observation::gone(Source::Claim, subject);
    }
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("new");
    let provisioner = claim.annotations().get(PROVISIONER);
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    let further = match (volume, provisioner) {
        (Some(volume), _) => format!(", its volume is {volume}"),
        (None, Some(provisioner)) => format!(", given to {provisioner}"),
        (None, None) => String::new(),
    };
    let node = claim.annotations().get(SELECTED_NODE).map(|node| format!(", for {node}"));
    let text = format!("{phase}{}{further}{}", node.unwrap_or_default(), ending(claim));
    Observation::new(Source::Claim, subject, text)
}

/// A PersistentVolume: its phase, its size and the driver's name for it.
pub fn volume(volume: &PersistentVolume, fate: Fate) -> Observation {
    let subject = volume.name_any();
    if fate == Fate::Gone {
        return Observation::gone(Source::Volume, subject);
    }
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("new");
    let deleting = volume.metadata.deletion_timestamp.is_some();
    let text = match (phase, deleting) {
        (_, true) => format!("{phase}, being deleted, held by {}", volume.finalizers().join(" ")),
        ("Bound" | "Released", false) => phase.to_owned(),
        _ => format!("{phase}, {}", made_of(volume)),
    };
    Observation::new(Source::Volume, subject, text)
}

fn made_of(volume: &PersistentVolume) -> String {
    let spec = volume.spec.as_ref();
    let size = spec.and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    let handle = spec.and_then(|spec| Some(spec.csi.as_ref()?.volume_handle.as_str()));
    let zone = zone_of(volume).map(|zone| format!(", in {zone}")).unwrap_or_default();
    format!("{} at {}{zone}", size.map_or("?", |size| &size.0), handle.unwrap_or("?"))
}

/// The zone that a PersistentVolume can be used in.
fn zone_of(volume: &PersistentVolume) -> Option<&String> {
    let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let terms = affinity.node_selector_terms.iter().flat_map(|term| &term.match_expressions);
    let zone = terms.flatten().find(|expression| expression.key == ZONE_KEY)?;
    zone.values.as_ref()?.first()
}

/// An event: its message and its count.
pub fn event(event: &Event, fate: Fate) -> Observation {
    let or_empty = |field: &Option<String>| field.clone().unwrap_or_default();
    let about = &event.involved_object;
    let namespace = about.namespace.as_ref().map(|namespace| format!("{namespace}/"));
    let subject = namespace.unwrap_or_default() + &or_empty(&about.name);
    if fate == Fate::Gone {
        return Observation::gone(Source::Event, subject);
    }
    let reason = or_empty(&event.reason);
    let times = event.count.filter(|count| *count > 1);
    let times = times.map(|count| format!(", {count} times")).unwrap_or_default();
    let text =
        format!("{reason} ({}{times}): {}", or_empty(&event.type_), or_empty(&event.message));
    Observation::new(Source::Event, subject, text)
}

fn named(object: &impl kube::ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

// === Driver ===

/// A call to the driver: what it is about, and which secrets came with it, by their keys alone.
pub fn call(record: &Record) -> Observation {
    let words: Vec<String> = [about(&record.request), secrets(&record.request)].concat();
    Observation::new(Source::Driver, record.method.to_owned(), words.join(", "))
}

fn text<'a>(request: &'a Value, pointer: &str) -> Option<&'a str> {
    request.pointer(pointer).and_then(Value::as_str)
}

fn about(request: &Value) -> Vec<String> {
    let volume = text(request, "/name").or_else(|| text(request, "/volume_id"));
    let size = text(request, "/capacity_range/required_bytes");
    let size = size.map(|bytes| format!("{bytes} bytes"));
    let parameters = request.get("parameters").map(|given| format!("parameters {given}"));
    let snapshot = text(request, "/volume_content_source/snapshot/snapshot_id");
    let snapshot = snapshot.map(|handle| format!("from snapshot {handle}"));
    let zone = request.pointer("/accessibility_requirements/preferred/0/segments");
    let zone = zone.and_then(|segments| Some(format!("in {}", segments.get(ZONE_KEY)?.as_str()?)));
    let further = [size, parameters, snapshot, zone].into_iter().flatten();
    volume.map(str::to_owned).into_iter().chain(further).collect()
}

fn secrets(request: &Value) -> Vec<String> {
    let sent = request.get("secrets").and_then(Value::as_object).into_iter().flatten();
    let keys: BTreeSet<&str> = sent.map(|(key, _)| key.as_str()).collect();
    let keys = Vec::from_iter(keys).join(" + ");
    if keys.is_empty() { Vec::new() } else { vec![format!("with secret {keys}")] }
}

// === Disk ===

/// What the driver keeps: each volume's directory, and what lies in it.
pub type Listing = BTreeMap<String, BTreeSet<String>>;

/// What became of each directory.
pub fn disk(before: &Listing, now: &Listing) -> Vec<Observation> {
    let changed = now.iter().filter(|(name, files)| before.get(*name) != Some(files));
    let made = changed.map(|(name, files)| {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        Observation::new(Source::Disk, name.clone(), format!("holds {}", files.join(", ")))
    });
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    made.chain(gone.map(|name| Observation::gone(Source::Disk, name.clone()))).collect()
}

#[cfg(test)]
mod tests;
