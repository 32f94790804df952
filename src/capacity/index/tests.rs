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
        assert!(index.objects_by_pair.is_empty(), "nothing is kept of deleted objects");
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
    index.set_segments(zones(&[]));
    assert!(index.new.is_empty());
}
