use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::*;
use crate::kube::objects::{Metadata, StorageCapacity};

/// An object of ours, created at that second, for a class in a zone.
fn object(name: &str, second: u8, class: &str, zone: &str) -> Object {
    let object = json!({
        "metadata": {"name": name, "uid": format!("{name}-{second}"), "resourceVersion": "1",
                     "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
        "storageClassName": class, "nodeTopology": {"matchLabels": {"zone": zone}}, "capacity": "1Gi",
    });
    serde_json::from_value::<StorageCapacity>(object).unwrap().into()
}

/// A list of the objects with these UIDs.
fn listed<'a>(uids: impl IntoIterator<Item = &'a str>) -> Listed {
    let object = |uid: &str| StorageCapacity {
        metadata: Metadata { uid: Some(uid.into()), ..Metadata::default() },
        ..StorageCapacity::default()
    };
    Listed::of(&uids.into_iter().map(object).collect::<Vec<_>>())
}

fn segment(zone: &str) -> Segment {
    [("zone", zone)].into_iter().collect()
}

fn pair(class: &str, zone: &str) -> Pair {
    Pair { class: class.into(), segment: segment(zone) }
}

fn ask(class: &str, zone: &str) -> Key {
    Key::Query(pair(class, zone))
}

fn sweep(name: &str) -> Key {
    Key::Sweep(name.to_owned())
}

fn zones(zones: &[&str]) -> BTreeSet<Segment> {
    zones.iter().map(|zone| segment(zone)).collect()
}

fn upsert_class(index: &mut CapacityIndex, name: &str) -> Vec<Key> {
    index.upsert_class(Arc::default(), name)
}

/// The classes `fast` and `slow` in the zones `a` and `b`.
fn index() -> CapacityIndex {
    let mut index = CapacityIndex::default();
    index.set_segments(zones(&["a", "b"]));
    upsert_class(&mut index, "fast");
    upsert_class(&mut index, "slow");
    index
}

fn object_counts(wanted: usize, published: usize, obsolete: usize) -> ObjectCounts {
    ObjectCounts { wanted, published, obsolete }
}

/// The name of the object that is published for the pair.
fn published(index: &CapacityIndex, class: &str, zone: &str) -> Option<String> {
    index.wanted(&pair(class, zone))?.1.map(|object| object.name)
}

#[test]
fn of_several_objects_the_oldest_is_kept_in_any_order() {
    for order in [["old", "new"], ["new", "old"]] {
        let mut index = index();
        let mut keys = Vec::new();
        for name in order {
            keys.extend(index.upsert_object(object(name, u8::from(name == "new"), "fast", "a")));
        }
        assert_eq!(keys, [sweep("new")], "{order:?}");
        assert_eq!(published(&index, "fast", "a").as_deref(), Some("old"));
        assert_eq!(index.object_counts(), object_counts(4, 1, 1));
        assert_eq!(index.remove_object("new"), [], "the other one stands");
        assert_eq!(index.remove_object("old"), [ask("fast", "a")]);
    }
    // With equal timestamps, the name decides, as in every process.
    let mut index = index();
    index.upsert_object(object("y", 0, "fast", "a"));
    assert_eq!(index.upsert_object(object("x", 0, "fast", "a")), [sweep("y")]);
}

#[test]
fn a_correction_counts_before_the_watch_delivers_it() {
    let mut index = index();
    let of_version = |version: &str| Object {
        resource_version: version.to_owned(),
        ..object("1", 0, "fast", "a")
    };
    let version = |index: &CapacityIndex| {
        index.wanted(&pair("fast", "a"))?.1.map(|object| object.resource_version)
    };
    index.upsert_object(of_version("1"));
    index.upsert_corrected(&of_version("1"), of_version("2"));
    assert_eq!(version(&index).as_deref(), Some("2"));
    // The watch is faster.
    index.upsert_object(of_version("4"));
    index.upsert_corrected(&of_version("2"), of_version("3"));
    assert_eq!(version(&index).as_deref(), Some("4"), "somebody's change is not hidden by ours");
    assert_eq!(index.remove_object("1"), [ask("fast", "a")]);
    index.upsert_corrected(&of_version("4"), of_version("5"));
    assert_eq!(version(&index), None, "nor a deletion");
}

#[test]
fn a_new_pair_is_queried_twice() {
    let mut index = index();
    index.upsert_object(object("1", 0, "fast", "a"));
    index.on_listed(&listed(["1-0"]));
    assert!(!index.mark_queried(&pair("fast", "a")), "it was published before");
    assert!(index.mark_queried(&pair("fast", "b")) && !index.mark_queried(&pair("fast", "b")));
    index.set_segments(zones(&["a", "b", "c"]));
    assert!(index.mark_queried(&pair("slow", "c")));
    index.set_segments(zones(&["a"]));
    assert!(!index.mark_queried(&pair("fast", "c")), "gone again");
}

// === random histories ===

/// An event in the cluster.
#[derive(Debug, Clone)]
enum Step {
    Class(u8, bool),
    Zones(Vec<u8>),
    /// Somebody creates an object.
    Make {
        name: u8,
        second: u8,
        class: u8,
        zone: u8,
    },
    Delete(u8),
    /// The watch is interrupted meanwhile.
    Gap(Vec<Step>),
    /// This many keys are processed.
    Work(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let make = (0..6_u8, 0..3_u8, 0..3_u8, 0..3_u8)
        .prop_map(|(name, second, class, zone)| Step::Make { name, second, class, zone });
    let simple = prop_oneof![
        (0..3_u8, any::<bool>()).prop_map(|(class, there)| Step::Class(class, there)),
        vec(0..3_u8, 0..3).prop_map(Step::Zones),
        make,
        (0..6_u8).prop_map(Step::Delete),
    ];
    let gap = vec(simple.clone(), 0..5).prop_map(Step::Gap);
    prop_oneof![6 => simple, 1 => gap, 3 => (0..4_usize).prop_map(Step::Work)]
}

/// A server, a publisher's index and queue, and a driver that always answers.
struct Cluster {
    server: BTreeMap<String, Object>,
    index: CapacityIndex,
    queue: BTreeSet<Key>,
    watching: bool,
    made: u32,
}

impl Cluster {
    fn show(&mut self, update_index: impl FnOnce(&mut CapacityIndex) -> Vec<Key>) {
        if self.watching {
            self.queue.extend(update_index(&mut self.index));
        }
    }

    fn put(&mut self, object: Object) {
        self.server.insert(object.name.clone(), object.clone());
        self.show(|index| index.upsert_object(object));
    }

    fn remove(&mut self, name: &str) {
        if self.server.remove(name).is_some() {
            self.show(|index| index.remove_object(name));
        }
    }

    fn happen(&mut self, step: Step) {
        match step {
            Step::Class(class, true) => {
                let keys = upsert_class(&mut self.index, &class.to_string());
                self.queue.extend(keys);
            }
            Step::Class(class, false) => {
                self.queue.extend(self.index.remove_class(&class.to_string()));
            }
            Step::Zones(all) => {
                let all = all.iter().map(|zone| segment(&zone.to_string())).collect();
                self.queue.extend(self.index.set_segments(all));
            }
            Step::Make { name, second, class, zone } => {
                let name = format!("stray-{name}");
                if !self.server.contains_key(&name) {
                    self.put(object(&name, second, &class.to_string(), &zone.to_string()));
                }
            }
            Step::Delete(name) => self.remove(&format!("stray-{name}")),
            Step::Gap(unseen) => {
                self.watching = false;
                for step in unseen {
                    self.happen(step);
                }
                self.relist();
            }
            Step::Work(turns) => std::iter::repeat_n((), turns).for_each(|()| self.work()),
        }
    }

    fn relist(&mut self) {
        self.watching = true;
        for object in self.server.values().cloned().collect::<Vec<_>>() {
            self.show(|index| index.upsert_object(object));
        }
        let listed = listed(self.server.values().map(|object| &*object.uid));
        self.show(|index| index.on_listed(&listed));
    }

    /// Processes one key as the publisher does.
    fn work(&mut self) {
        match self.queue.pop_first() {
            None => {}
            Some(Key::Sweep(name)) => {
                if let Some(object) = self.index.obsolete(&name).cloned()
                    && self.server.get(&name).is_some_and(|there| there.uid == object.uid)
                {
                    self.remove(&name);
                }
            }
            Some(Key::Query(pair)) => {
                if let Some((_, None)) = self.index.wanted(&pair) {
                    self.made += 1;
                    let zone = pair.segment.labels()["zone"].clone();
                    let object = object(&format!("made-{}", self.made), 30, &pair.class, &zone);
                    self.put(object.clone());
                    self.queue.extend(self.index.upsert_object(object));
                }
            }
        }
    }

    fn settle(&mut self) {
        while !self.queue.is_empty() {
            self.work();
        }
    }
}

proptest! {
    /// Whatever happens, delivered or not: once the queue is empty there is one object for each
    /// pair, no other object, and nothing left to do.
    #[test]
    fn every_pair_ends_with_one_object(steps in vec(step(), 0..60)) {
        let mut cluster = Cluster {
            server: BTreeMap::new(), index: CapacityIndex::default(), queue: BTreeSet::new(), watching: true, made: 0,
        };
        for step in steps {
            cluster.happen(step);
        }
        cluster.settle();
        let index = &cluster.index;
        let wanted = index.classes.keys().flat_map(|class| index.pairs_of_class(class));
        let wanted: Vec<Option<Pair>> = wanted.map(Some).collect();
        let mut there: Vec<Option<Pair>> = cluster.server.values().map(|object| object.pair.clone()).collect();
        there.sort();
        prop_assert_eq!(&there, &wanted);
        prop_assert_eq!(index.object_counts(), object_counts(wanted.len(), wanted.len(), 0));
        let made = cluster.made;
        cluster.queue = cluster.index.poll().into_iter().collect();
        cluster.settle();
        prop_assert_eq!(cluster.made, made, "a poll finds nothing to make");
        // Nothing is kept of deleted objects.
        prop_assert!(cluster.index.objects_by_pair.len() == wanted.len() && cluster.index.new.len() <= wanted.len());
    }
}
