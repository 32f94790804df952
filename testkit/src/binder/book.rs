//! What is known of claims, volumes and classes.
//!
//! Owns the objects as last shown, by name, and who names whom. Promises that a look-up and a change
//! cost the same however many objects there are, and to say of each change whom it concerns: who
//! changed, whom he names and named, and who names him. Leaves what to do about them to the
//! decisions, and when to the queue.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Resource, ResourceExt as _, runtime::watcher::Event};

use super::{
    Cluster,
    fit::{claim_uid, class_name, is_for, suits, volume_name},
};

/// An object by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    Claim { namespace: String, name: String },
    Volume { name: String },
    Class { name: String },
}

impl Item {
    pub(super) fn volume(name: &str) -> Self {
        Self::Volume { name: name.to_owned() }
    }
}

/// A kind of object that the book knows.
pub(super) trait Kept: Resource<DynamicType = ()> + Sized {
    fn item(&self) -> Item;

    /// The objects that it names.
    fn names(&self) -> Vec<Item>;

    /// Where it stands in the book.
    fn shelf(book: &mut Book) -> &mut Shelf<Self>;
}

impl Kept for PersistentVolumeClaim {
    fn item(&self) -> Item {
        Item::Claim { namespace: self.namespace().unwrap_or_default(), name: self.name_any() }
    }

    fn names(&self) -> Vec<Item> {
        let class = Some(class_name(self)).filter(|name| !name.is_empty());
        let class = class.map(|name| Item::Class { name: name.to_owned() });
        volume_name(self).map(Item::volume).into_iter().chain(class).collect()
    }

    fn shelf(book: &mut Book) -> &mut Shelf<Self> {
        &mut book.claims
    }
}

impl Kept for PersistentVolume {
    fn item(&self) -> Item {
        Item::Volume { name: self.name_any() }
    }

    fn names(&self) -> Vec<Item> {
        claim_named(self).into_iter().collect()
    }

    fn shelf(book: &mut Book) -> &mut Shelf<Self> {
        &mut book.volumes
    }
}

impl Kept for StorageClass {
    fn item(&self) -> Item {
        Item::Class { name: self.name_any() }
    }

    fn names(&self) -> Vec<Item> {
        Vec::new()
    }

    fn shelf(book: &mut Book) -> &mut Shelf<Self> {
        &mut book.classes
    }
}

/// The claim that a volume's `claimRef` names, whatever its UID.
fn claim_named(volume: &PersistentVolume) -> Option<Item> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let namespace = reference.namespace.clone().unwrap_or_default();
    Some(Item::Claim { namespace, name: reference.name.clone().unwrap_or_default() })
}

/// The objects of a kind.
#[derive(Debug)]
pub(super) struct Shelf<K> {
    objects: BTreeMap<Item, Arc<K>>,
    /// Those that the list which is just being read has shown.
    listed: BTreeSet<Item>,
}

impl<K> Default for Shelf<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeSet::new() }
    }
}

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Book {
    claims: Shelf<PersistentVolumeClaim>,
    volumes: Shelf<PersistentVolume>,
    classes: Shelf<StorageClass>,
    /// Who names an object.
    named_by: BTreeMap<Item, BTreeSet<Item>>,
}

impl Book {
    pub(super) fn of(cluster: &Cluster) -> Self {
        let mut book = Self::default();
        let Cluster { claims, volumes, classes } = cluster;
        for claim in claims {
            book.put(Arc::clone(claim));
        }
        for volume in volumes {
            book.put(Arc::clone(volume));
        }
        for class in classes {
            book.put(Arc::clone(class));
        }
        book
    }

    // === What changes ===

    /// Takes in what a watch shows. Gives those whom it concerns.
    pub(super) fn shown<K: Kept>(&mut self, event: Event<K>) -> BTreeSet<Item> {
        match event {
            Event::Init => {
                K::shelf(self).listed.clear();
                BTreeSet::new()
            }
            Event::InitApply(object) => {
                K::shelf(self).listed.insert(object.item());
                self.put(Arc::new(object))
            }
            Event::Apply(object) => self.put(Arc::new(object)),
            Event::Delete(object) => self.remove::<K>(&object.item()),
            Event::InitDone => {
                let Shelf { objects, listed } = K::shelf(self);
                let gone = objects.keys().filter(|item| !listed.contains(item)).cloned();
                let gone: Vec<_> = gone.collect();
                gone.iter().flat_map(|item| self.remove::<K>(item)).collect()
            }
        }
    }

    fn put<K: Kept>(&mut self, object: Arc<K>) -> BTreeSet<Item> {
        let (item, now) = (object.item(), object.names());
        let before = K::shelf(self).objects.insert(item.clone(), object);
        let before = before.map(|object| object.names()).unwrap_or_default();
        self.rename(&item, &before, &now);
        self.concerned(&item, [before, now].concat())
    }

    fn remove<K: Kept>(&mut self, item: &Item) -> BTreeSet<Item> {
        let gone = K::shelf(self).objects.remove(item);
        let before = gone.map(|object| object.names()).unwrap_or_default();
        self.rename(item, &before, &[]);
        self.concerned(item, before)
    }

    /// `item` names others now than before.
    fn rename(&mut self, item: &Item, before: &[Item], now: &[Item]) {
        for named in before.iter().filter(|named| !now.contains(named)) {
            if let Some(by) = self.named_by.get_mut(named) {
                by.remove(item);
                if by.is_empty() {
                    self.named_by.remove(named);
                }
            }
        }
        for named in now.iter().filter(|named| !before.contains(named)) {
            self.named_by.entry(named.clone()).or_default().insert(item.clone());
        }
    }

    /// A changed object, those who name it, and those whom it names; but classes, which nothing is
    /// ever done about.
    fn concerned(&self, item: &Item, names: Vec<Item>) -> BTreeSet<Item> {
        let named_by = self.named_by.get(item).into_iter().flatten().cloned();
        let all = named_by.chain(names).chain([item.clone()]);
        all.filter(|item| !matches!(item, Item::Class { .. })).collect()
    }

    // === What is known ===

    pub(super) fn claims(&self) -> impl Iterator<Item = &PersistentVolumeClaim> {
        self.claims.objects.values().map(|claim| &**claim)
    }

    pub(super) fn volumes(&self) -> impl Iterator<Item = &PersistentVolume> {
        self.volumes.objects.values().map(|volume| &**volume)
    }

    pub(super) fn claim(&self, item: &Item) -> Option<&PersistentVolumeClaim> {
        self.claims.objects.get(item).map(|claim| &**claim)
    }

    pub(super) fn volume(&self, item: &Item) -> Option<&PersistentVolume> {
        self.volumes.objects.get(item).map(|volume| &**volume)
    }

    /// The class that the claim wants.
    pub(super) fn class_of(&self, claim: &PersistentVolumeClaim) -> Option<&StorageClass> {
        let item = Item::Class { name: class_name(claim).to_owned() };
        self.classes.objects.get(&item).map(|class| &**class)
    }

    /// The claim that the volume is for, by its UID.
    pub(super) fn claim_of(&self, volume: &PersistentVolume) -> Option<&PersistentVolumeClaim> {
        self.claim_named(volume).filter(|_| claim_uid(volume).is_some())
    }

    /// The claim that the volume is for, by its UID or by its name alone.
    pub(super) fn claim_named(&self, volume: &PersistentVolume) -> Option<&PersistentVolumeClaim> {
        self.claim(&claim_named(volume)?).filter(|claim| is_for(volume, claim))
    }

    /// The claims that name the volume.
    pub(super) fn claims_naming(
        &self,
        volume: &PersistentVolume,
    ) -> impl Iterator<Item = &PersistentVolumeClaim> {
        let named_by = self.named_by.get(&volume.item()).into_iter().flatten();
        named_by.filter_map(|item| self.claim(item))
    }

    /// The first volume that is for the claim and suits it.
    pub(super) fn volume_for(&self, claim: &PersistentVolumeClaim) -> Option<&PersistentVolume> {
        let volumes = self.named_by.get(&claim.item())?.iter().filter_map(|item| self.volume(item));
        volumes.into_iter().find(|volume| is_for(volume, claim) && suits(volume, claim))
    }

    /// The version in which an object was last shown; `None` of one that is not there.
    pub(super) fn version(&self, item: &Item) -> Option<u64> {
        let version = match item {
            Item::Claim { .. } => self.claim(item)?.resource_version(),
            Item::Volume { .. } => self.volume(item)?.resource_version(),
            Item::Class { .. } => self.classes.objects.get(item)?.resource_version(),
        };
        Some(number(version.as_deref()))
    }
}

/// A resource version as the number that it is (comparable since Kubernetes 1.35, and on every
/// server with etcd before).
pub(super) fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}
