//! What is known of claims, volumes and classes, and whom a change concerns: who changed, whom he names and named,
//! and who names him; a volume that is free concerns all claims without one. But for such volumes a look-up and a
//! change cost the same however many objects there are.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use kube::{api::DynamicObject, runtime::watcher::Event};
use serde_json::Value;

use super::fit::{class_of, is_for, satisfies, suits, volume_name};
use crate::apiserver::{
    object::Object,
    tree::{at, text},
};

/// The kinds of objects that are known, in their order.
pub const VOLUME: &str = "PersistentVolume";
/// Claims.
pub const CLAIM: &str = "PersistentVolumeClaim";
/// Classes.
pub const CLASS: &str = "StorageClass";

/// An object by its kind, namespace (empty for kinds without) and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// One of the three kinds.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name. What names no object names the one without a name.
    pub name: String,
}

impl Item {
    pub(super) fn new(kind: &'static str, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(super) fn of(kind: &'static str, object: &Value) -> Self {
        let member = |member| text(object, &["metadata", member]);
        Self::new(kind, member("namespace"), member("name"))
    }
}

/// The claim that a volume's `claimRef` names, whatever its UID.
pub(super) fn claim_named(volume: &Value) -> Item {
    let member = |member| text(volume, &["spec", "claimRef", member]);
    Item::new(CLAIM, member("namespace"), member("name"))
}

/// The objects that one of a kind names.
fn names(kind: &str, object: &Value) -> Vec<Item> {
    match kind {
        VOLUME => vec![claim_named(object)],
        CLAIM => {
            vec![Item::new(VOLUME, "", volume_name(object)), Item::new(CLASS, "", class_of(object))]
        }
        _ => Vec::new(),
    }
}

/// All objects, and the line of those about which something has changed.
#[derive(Debug, Default)]
pub struct Book {
    objects: BTreeMap<Item, Arc<Object>>,
    /// Those that the lists which are just being read have shown.
    listed: BTreeSet<Item>,
    named_by: BTreeMap<Item, BTreeSet<Item>>,
    line: VecDeque<Item>,
    in_line: BTreeSet<Item>,
}

impl Book {
    // === What changes ===

    /// Takes in what a watch shows.
    pub(super) fn shown(&mut self, kind: &'static str, event: Event<DynamicObject>) {
        match event {
            Event::Init => self.listed.retain(|item| item.kind != kind),
            Event::InitApply(object) => {
                let object = stored(&object);
                self.listed.insert(Item::of(kind, object.value()));
                self.put(kind, object);
            }
            Event::Apply(object) => self.put(kind, stored(&object)),
            Event::Delete(object) => self.remove(&Item::of(kind, stored(&object).value())),
            Event::InitDone => {
                let unlisted = |item: &&Item| item.kind == kind && !self.listed.contains(item);
                let gone: Vec<Item> = self.items().filter(unlisted).cloned().collect();
                for item in gone {
                    self.remove(&item);
                }
            }
        }
    }

    /// Takes in an object, unless a newer version of it is known.
    pub fn put(&mut self, kind: &'static str, news: Arc<Object>) {
        let item = Item::of(kind, news.value());
        if self.objects.get(&item).is_some_and(|known| known.revision() >= news.revision()) {
            return;
        }
        let now = names(kind, news.value());
        let before = self.objects.insert(item.clone(), news);
        let before = before.map(|object| names(kind, object.value())).unwrap_or_default();
        self.changed(item, before, now);
    }

    fn remove(&mut self, item: &Item) {
        if let Some(gone) = self.objects.remove(item) {
            self.changed(item.clone(), names(item.kind, gone.value()), Vec::new());
        }
    }

    /// An object names others now than before: it gets into the line, and those whom that concerns.
    fn changed(&mut self, item: Item, before: Vec<Item>, now: Vec<Item>) {
        for named in &before {
            self.named_by.entry(named.clone()).or_default().remove(&item);
        }
        for named in &now {
            self.named_by.entry(named.clone()).or_default().insert(item.clone());
        }
        let is_free = now.contains(&Item::new(CLAIM, "", ""));
        let without = is_free.then(|| Item::new(VOLUME, "", ""));
        let naming = [&item].into_iter().chain(&without).flat_map(|item| self.naming(item));
        let naming: Vec<Item> = naming.cloned().collect();
        for concerned in naming.into_iter().chain(before).chain(now).chain([item]) {
            self.line_up(concerned);
        }
    }

    /// Looks at an object again.
    pub(super) fn line_up(&mut self, item: Item) {
        if self.in_line.insert(item.clone()) {
            self.line.push_back(item);
        }
    }

    /// The next in line.
    pub(super) fn next(&mut self) -> Option<Item> {
        let item = self.line.pop_front()?;
        self.in_line.remove(&item);
        Some(item)
    }

    // === What is known ===

    /// All objects, volumes first.
    pub(super) fn items(&self) -> impl Iterator<Item = &Item> {
        self.objects.keys()
    }

    pub(super) fn get(&self, item: &Item) -> Option<&Value> {
        self.objects.get(item).map(|object| object.value())
    }

    /// Those that name an object.
    fn naming<'a>(&'a self, item: &Item) -> impl Iterator<Item = &'a Item> + use<'a> {
        self.named_by.get(item).into_iter().flatten()
    }

    /// The volume that the claim names.
    pub(super) fn volume_of(&self, claim: &Value) -> Option<&Value> {
        self.get(&Item::new(VOLUME, "", volume_name(claim)))
    }

    /// The class that the claim wants.
    pub(super) fn class_of(&self, claim: &Value) -> Option<&Value> {
        self.get(&Item::new(CLASS, "", class_of(claim)))
    }

    /// The claim that the volume is for, by its UID or by its name alone.
    pub(super) fn claim_of(&self, volume: &Value) -> Option<&Value> {
        self.get(&claim_named(volume)).filter(|claim| is_for(volume, claim))
    }

    /// The first volume that is for the claim and suits it.
    pub(super) fn volume_for(&self, claim: &Value) -> Option<&Value> {
        let mut volumes = self.naming(&Item::of(CLAIM, claim)).filter_map(|item| self.get(item));
        volumes.find(|volume| is_for(volume, claim) && suits(volume, claim))
    }

    /// The first volume that stands free and is as the claim wants it.
    pub(super) fn free_volume(&self, claim: &Value) -> Option<&Value> {
        let mut free = self.naming(&Item::new(CLAIM, "", "")).filter_map(|item| self.get(item));
        let is_available = |volume| text(volume, &["status", "phase"]) == "Available";
        free.find(|volume| is_available(volume) && satisfies(volume, claim))
            .filter(|_| at(claim, &["spec", "selector"]).is_null())
    }
}

/// An object as it is kept. Its version is taken as the number that it is (comparable since Kubernetes 1.35, and on
/// every server with etcd before).
pub(super) fn stored(object: &DynamicObject) -> Arc<Object> {
    let version = object.metadata.resource_version.as_deref();
    let revision = version.and_then(|version| version.parse().ok()).unwrap_or_default();
    Arc::new(Object::new(serde_json::to_value(object).unwrap_or_default(), revision))
}
