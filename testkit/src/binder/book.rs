//! What is known of claims, volumes and classes, and whom a change concerns: who changed, whom he names and named,
//! and who names him. A look-up and a change cost the same however many objects there are.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Resource, ResourceExt as _, runtime::watcher::Event};

use super::fit::{class_name, is_for, reference, suits, volume_name};

/// An object by its kind, namespace (empty for kinds without) and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    Claim(String, String),
    Volume(String),
    Class(String),
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
        Item::Claim(self.namespace().unwrap_or_default(), self.name_any())
    }

    fn names(&self) -> Vec<Item> {
        let class = Some(class_name(self)).filter(|name| !name.is_empty());
        let volume = volume_name(self).map(|name| Item::Volume(name.to_owned()));
        volume.into_iter().chain(class.map(|name| Item::Class(name.to_owned()))).collect()
    }

    fn shelf(book: &mut Book) -> &mut Shelf<Self> {
        &mut book.claims
    }
}

impl Kept for PersistentVolume {
    fn item(&self) -> Item {
        Item::Volume(self.name_any())
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
        Item::Class(self.name_any())
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
    let reference = reference(volume)?.clone();
    Some(Item::Claim(reference.namespace.unwrap_or_default(), reference.name.unwrap_or_default()))
}

/// The objects of a kind, and those that the list which is just being read has shown.
#[derive(Debug)]
pub(super) struct Shelf<K> {
    objects: BTreeMap<Item, Arc<K>>,
    listed: BTreeSet<Item>,
}

impl<K> Default for Shelf<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeSet::new() }
    }
}

/// All objects, and the line of those about which something has changed.
#[derive(Debug, Default)]
pub(super) struct Book {
    claims: Shelf<PersistentVolumeClaim>,
    volumes: Shelf<PersistentVolume>,
    classes: Shelf<StorageClass>,
    named_by: BTreeMap<Item, BTreeSet<Item>>,
    line: VecDeque<Item>,
    in_line: BTreeSet<Item>,
}

impl Book {
    // === What changes ===

    /// Takes in what a watch shows.
    pub(super) fn shown<K: Kept>(&mut self, event: Event<K>) {
        match event {
            Event::Init => K::shelf(self).listed.clear(),
            Event::InitApply(object) => {
                K::shelf(self).listed.insert(object.item());
                self.put(object);
            }
            Event::Apply(object) => self.put(object),
            Event::Delete(object) => self.remove::<K>(&object.item()),
            Event::InitDone => {
                let Shelf { objects, listed } = K::shelf(self);
                let gone = objects.keys().filter(|item| !listed.contains(item)).cloned();
                gone.collect::<Vec<_>>().iter().for_each(|item| self.remove::<K>(item));
            }
        }
    }

    /// Takes in an object, unless a newer version of it is known.
    pub(super) fn put<K: Kept>(&mut self, news: K) {
        let (item, named) = (news.item(), news.names());
        let version = version(&news);
        let kept = K::shelf(self);
        if kept.objects.get(&item).is_some_and(|known| self::version(&**known) >= version) {
            return;
        }
        let before = kept.objects.insert(item.clone(), Arc::new(news));
        self.changed(item, before.map(|object| object.names()).unwrap_or_default(), named);
    }

    fn remove<K: Kept>(&mut self, item: &Item) {
        if let Some(gone) = K::shelf(self).objects.remove(item) {
            self.changed(item.clone(), gone.names(), Vec::new());
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
        let named_by: Vec<_> = self.named_by.get(&item).into_iter().flatten().cloned().collect();
        for concerned in named_by.into_iter().chain(before).chain(now).chain([item]) {
            self.line_up(concerned);
        }
    }

    /// Looks at an object again.
    pub(super) fn line_up(&mut self, item: Item) {
        // Nothing is ever done about classes.
        if !matches!(item, Item::Class(_)) && self.in_line.insert(item.clone()) {
            self.line.push_back(item);
        }
    }

    /// The next in line but those in `hands`, who are looked at once they are out of them.
    pub(super) fn next(&mut self, hands: &BTreeSet<Item>) -> Option<Item> {
        let place = self.line.iter().position(|item| !hands.contains(item))?;
        let item = self.line.remove(place)?;
        self.in_line.remove(&item);
        Some(item)
    }

    // === What is known ===

    pub(super) fn claim(&self, item: &Item) -> Option<&PersistentVolumeClaim> {
        self.claims.objects.get(item).map(|claim| &**claim)
    }

    pub(super) fn volume(&self, item: &Item) -> Option<&PersistentVolume> {
        self.volumes.objects.get(item).map(|volume| &**volume)
    }

    /// Whether a claim or a volume is there.
    pub(super) fn knows(&self, item: &Item) -> bool {
        self.claim(item).is_some() || self.volume(item).is_some()
    }

    /// The class that the claim wants.
    pub(super) fn class_of(&self, claim: &PersistentVolumeClaim) -> Option<&StorageClass> {
        let item = Item::Class(class_name(claim).to_owned());
        self.classes.objects.get(&item).map(|class| &**class)
    }

    /// The claim that the volume is for, by its UID or by its name alone.
    pub(super) fn claim_of(&self, volume: &PersistentVolume) -> Option<&PersistentVolumeClaim> {
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
}

/// A resource version as the number that it is (comparable since Kubernetes 1.35, and on every server with etcd
/// before).
fn version<K: Resource>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}
