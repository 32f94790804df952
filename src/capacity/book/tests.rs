use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::*;
use crate::{
    capacity::{names::Names, object::Shown},
    kube::objects::StorageCapacity,
};

/// An object of ours, made at that second, about a class in a zone.
fn object(name: &str, second: u8, class: &str, zone: &str) -> Object {
    let seen = json!({
        "metadata": {"name": name, "uid": format!("{name}-{second}"), "resourceVersion": "1",
                     "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
        "storageClassName": class, "nodeTopology": {"matchLabels": {"zone": zone}}, "capacity": "1Gi",
    });
    Shown::from(serde_json::from_value::<StorageCapacity>(seen).unwrap()).keep()
}

fn segment(zone: &str) -> Segment {
    [("zone", zone)].into_iter().collect()
}

fn pair(class: &str, zone: &str) -> Pair {
    Pair { class: class.into(), segment: segment(zone) }
}

fn ask(class: &str, zone: &str) -> Key {
    Key::Ask(pair(class, zone))
}

fn sweep(name: &str) -> Key {
    Key::Sweep(name.to_owned())
}

fn zones(zones: &[&str]) -> BTreeSet<Segment> {
    zones.iter().map(|zone| segment(zone)).collect()
}

fn class_seen(book: &mut Book, name: &str) -> Vec<Key> {
    book.class_seen(Arc::default(), name)
}

/// The classes `fast` and `slow` in the zones `a` and `b`.
fn book() -> Book {
    let mut book = Book::default();
    book.segments_are(zones(&["a", "b"]));
    class_seen(&mut book, "fast");
    class_seen(&mut book, "slow");
    book
}

fn census(wanted: usize, published: usize, superfluous: usize) -> Census {
    Census { wanted, published, superfluous }
}

/// The name of the object that stands for the pair.
fn stands(book: &Book, class: &str, zone: &str) -> Option<String> {
    match book.standing(&pair(class, zone)) {
        Standing::Published(_, object) => Some(object.name),
        Standing::Absent(_) | Standing::Unwanted => None,
    }
}

#[test]
fn what_comes_is_asked_about_and_what_goes_is_swept() {
    let mut book = Book::default();
    assert_eq!(book.segments_are(zones(&["a"])), []);
    assert_eq!(class_seen(&mut book, "fast"), [ask("fast", "a")]);
    assert_eq!(book.segments_are(zones(&["a", "b"])), [ask("fast", "b")]);
    assert_eq!(class_seen(&mut book, "fast"), [ask("fast", "a"), ask("fast", "b")], "changed");
    assert_eq!(book.seen(object("1", 0, "fast", "a")), []);
    assert_eq!(book.seen(object("2", 0, "fast", "b")), []);
    assert_eq!(book.segments_are(zones(&["a", "b"])), [], "nothing new");
    assert_eq!(book.segments_are(zones(&["b", "c"])), [ask("fast", "c"), sweep("1")]);
    assert_eq!(book.class_gone("fast"), [sweep("1"), sweep("2")]);
    assert_eq!(book.class_gone("fast"), [], "not known");
    assert_eq!(book.census(), census(0, 0, 2));
}

#[test]
fn what_is_wanted_again_before_its_turn_is_not_swept() {
    let mut book = book();
    book.seen(object("1", 0, "fast", "a"));
    assert_eq!(book.class_gone("fast"), [sweep("1")]);
    assert!(book.superfluous("1").is_some());
    class_seen(&mut book, "fast");
    assert_eq!(book.superfluous("1"), None);
    assert_eq!(stands(&book, "fast", "a").as_deref(), Some("1"));
}

#[test]
fn of_several_objects_the_oldest_stays_whichever_is_seen_first() {
    for order in [["old", "new"], ["new", "old"]] {
        let mut book = book();
        let mut keys = Vec::new();
        for name in order {
            keys.extend(book.seen(object(name, u8::from(name == "new"), "fast", "a")));
        }
        assert_eq!(keys, [sweep("new")], "{order:?}");
        assert_eq!(stands(&book, "fast", "a").as_deref(), Some("old"));
        assert_eq!(book.census(), census(4, 1, 1));
        assert_eq!(book.gone("new"), [], "the other one stands");
        assert_eq!(book.gone("old"), [ask("fast", "a")]);
    }
    // Of the same age: by name, as every process sees it.
    let mut book = book();
    book.seen(object("y", 0, "fast", "a"));
    assert_eq!(book.seen(object("x", 0, "fast", "a")), [sweep("y")]);
}

#[test]
fn objects_about_nothing_that_is_wanted_are_swept() {
    let mut book = book();
    assert_eq!(book.seen(object("class", 0, "gone", "a")), [sweep("class")]);
    assert_eq!(book.seen(object("zone", 0, "fast", "z")), [sweep("zone")]);
    let odd = Object { pair: None, ..object("odd", 0, "fast", "a") };
    assert_eq!(book.seen(odd), [sweep("odd")]);
    let ending = Object { terminating: true, ..object("ending", 0, "gone", "b") };
    assert_eq!(book.seen(ending), [], "somebody has deleted it");
    assert_eq!(book.census(), census(4, 0, 4));
    let sweeps: Vec<Key> =
        book.poll().into_iter().filter(|key| matches!(key, Key::Sweep(_))).collect();
    assert_eq!(sweeps, [sweep("class"), sweep("odd"), sweep("zone")]);
}

#[test]
fn an_object_that_vanishes_unseen_is_made_anew() {
    let mut book = book();
    book.seen(object("1", 0, "fast", "a"));
    book.seen(object("2", 0, "fast", "b"));
    book.restarted();
    book.seen(object("2", 0, "fast", "b"));
    book.unreadable("1");
    assert_eq!(book.complete(), []);
    book.restarted();
    book.seen(object("2", 0, "fast", "b"));
    assert_eq!(book.complete(), [ask("fast", "a")]);
}

#[test]
fn an_object_that_comes_again_as_another_one_leaves_its_pair() {
    let mut book = book();
    book.seen(object("1", 0, "fast", "a"));
    assert_eq!(book.seen(object("1", 1, "fast", "b")), [ask("fast", "a")]);
    assert_eq!(stands(&book, "fast", "b").as_deref(), Some("1"));
    assert_eq!(book.gone("1"), [ask("fast", "b")]);
    assert_eq!(book.census(), census(4, 0, 0));
}

#[test]
fn what_was_written_counts_until_it_is_shown_or_gone() {
    let mut book = book();
    let written = object("1", 0, "fast", "a");
    book.wrote(&pair("fast", "a"), written.clone());
    assert_eq!(stands(&book, "fast", "a").as_deref(), Some("1"));
    assert_eq!(book.census(), census(4, 0, 0), "no watch has shown it");
    // Shown and gone, and nothing of it is left.
    book.seen(written.clone());
    assert_eq!(book.gone("1"), [ask("fast", "a")]);
    assert_eq!(stands(&book, "fast", "a"), None);
    // Never shown: gone again before this process knew that it had made it.
    book.wrote(&pair("fast", "a"), written.clone());
    book.poll();
    assert!(stands(&book, "fast", "a").is_some(), "the watch may be late");
    book.poll();
    assert_eq!(stands(&book, "fast", "a"), None);
    // The server says so.
    book.wrote(&pair("fast", "a"), written.clone());
    assert_eq!(book.missing("1"), []);
    assert_eq!(stands(&book, "fast", "a"), None);
    // Nobody wants it any more.
    book.wrote(&pair("gone", "a"), written);
    assert!(matches!(book.standing(&pair("gone", "a")), Standing::Unwanted));
}

#[test]
fn a_correction_counts_before_the_watch_shows_it() {
    let mut book = book();
    let shown = object("1", 0, "fast", "a");
    let corrected = Object { version: "2".to_owned(), ..shown.clone() };
    let version = |book: &Book| match book.standing(&pair("fast", "a")) {
        Standing::Published(_, object) => object.version,
        _ => panic!("it stands"),
    };
    book.seen(shown);
    book.wrote(&pair("fast", "a"), corrected.clone());
    assert_eq!(version(&book), "2");
    book.seen(corrected.clone());
    book.wrote(&pair("fast", "a"), corrected);
    book.seen(Object { version: "3".to_owned(), ..object("1", 0, "fast", "a") });
    assert_eq!(version(&book), "3", "somebody's change is not hidden by ours");
    // What stands for the pair by now is another object.
    book.wrote(
        &pair("fast", "a"),
        Object { version: "4".to_owned(), ..object("0", 9, "fast", "a") },
    );
    assert_eq!(version(&book), "3");
    assert_eq!(book.missing("1"), [ask("fast", "a")], "the watch is late");
}

#[test]
fn what_is_new_is_asked_about_twice() {
    let mut book = book();
    book.seen(object("1", 0, "fast", "a"));
    book.complete();
    assert!(!book.asked(&pair("fast", "a")), "it was published before");
    assert!(book.asked(&pair("fast", "b")) && !book.asked(&pair("fast", "b")));
    book.segments_are(zones(&["a", "b", "c"]));
    assert!(book.asked(&pair("slow", "c")));
    book.segments_are(zones(&["a"]));
    assert!(!book.asked(&pair("fast", "c")), "gone again");
}

#[test]
fn volumes_have_their_class_or_their_segments_asked_about() {
    let book = book();
    assert_eq!(book.refresh_class("fast"), [ask("fast", "a"), ask("fast", "b")]);
    assert_eq!(book.refresh_class("gone"), []);
    assert_eq!(
        book.refresh_segments([segment("b"), segment("z")]),
        [ask("fast", "b"), ask("slow", "b")]
    );
}

// === whatever happens ===

/// What happens in the cluster.
#[derive(Debug, Clone)]
enum Deed {
    Class(u8, bool),
    Zones(Vec<u8>),
    /// Somebody makes an object.
    Make {
        name: u8,
        second: u8,
        class: u8,
        zone: u8,
    },
    Delete(u8),
    /// The watch is lost for a while.
    Gap(Vec<Deed>),
    /// So many keys get their turn.
    Work(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    let make = (0..6_u8, 0..3_u8, 0..3_u8, 0..3_u8)
        .prop_map(|(name, second, class, zone)| Deed::Make { name, second, class, zone });
    let simple = prop_oneof![
        (0..3_u8, any::<bool>()).prop_map(|(class, there)| Deed::Class(class, there)),
        vec(0..3_u8, 0..3).prop_map(Deed::Zones),
        make,
        (0..6_u8).prop_map(Deed::Delete),
    ];
    let gap = vec(simple.clone(), 0..5).prop_map(Deed::Gap);
    prop_oneof![6 => simple, 1 => gap, 3 => (0..4_usize).prop_map(Deed::Work)]
}

/// A server, a publisher's book and its queue, with a driver that always answers.
struct Cluster {
    server: BTreeMap<String, Object>,
    book: Book,
    queue: BTreeSet<Key>,
    watching: bool,
    made: u32,
}

impl Cluster {
    fn show(&mut self, learn: impl FnOnce(&mut Book) -> Vec<Key>) {
        if self.watching {
            self.queue.extend(learn(&mut self.book));
        }
    }

    fn put(&mut self, object: Object) {
        self.server.insert(object.name.clone(), object.clone());
        self.show(|book| book.seen(object));
    }

    fn remove(&mut self, name: &str) {
        if self.server.remove(name).is_some() {
            self.show(|book| book.gone(name));
        }
    }

    fn happen(&mut self, deed: Deed) {
        match deed {
            Deed::Class(class, true) => {
                let keys = class_seen(&mut self.book, &class.to_string());
                self.queue.extend(keys);
            }
            Deed::Class(class, false) => {
                self.queue.extend(self.book.class_gone(&class.to_string()));
            }
            Deed::Zones(all) => {
                let all = all.iter().map(|zone| segment(&zone.to_string())).collect();
                self.queue.extend(self.book.segments_are(all));
            }
            Deed::Make { name, second, class, zone } => {
                let name = format!("stray-{name}");
                if !self.server.contains_key(&name) {
                    self.put(object(&name, second, &class.to_string(), &zone.to_string()));
                }
            }
            Deed::Delete(name) => self.remove(&format!("stray-{name}")),
            Deed::Gap(unseen) => {
                self.watching = false;
                for deed in unseen {
                    self.happen(deed);
                }
                self.relist();
            }
            Deed::Work(turns) => std::iter::repeat_n((), turns).for_each(|()| self.work()),
        }
    }

    fn relist(&mut self) {
        self.watching = true;
        self.book.restarted();
        for object in self.server.values().cloned().collect::<Vec<_>>() {
            self.show(|book| book.seen(object));
        }
        self.show(Book::complete);
    }

    /// One key's turn, as the publisher does it; the name is the pair's, as [`Names`] make it.
    fn work(&mut self) {
        match self.queue.pop_first() {
            None => {}
            Some(Key::Sweep(name)) => {
                if let Some(object) = self.book.superfluous(&name).cloned()
                    && self.server.get(&name).is_some_and(|there| there.uid == object.uid)
                {
                    self.remove(&name);
                }
            }
            Some(Key::Ask(pair)) => {
                if let Standing::Absent(_) = self.book.standing(&pair) {
                    let name = Names::new("d", None).object(&pair, 0);
                    self.made += u32::from(!self.server.contains_key(&name));
                    let zone = pair.segment.labels()["zone"].clone();
                    let object = object(&name, 30, &pair.class, &zone);
                    if !self.server.contains_key(&name) {
                        self.put(object.clone());
                    }
                    self.book.wrote(&pair, object);
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
    /// Whatever happens, seen or not: once the queue is empty there is one object for each pair,
    /// no other, and nothing more to do.
    #[test]
    fn there_is_one_object_a_pair_in_the_end(deeds in vec(deed(), 0..60)) {
        let mut cluster = Cluster {
            server: BTreeMap::new(), book: Book::default(), queue: BTreeSet::new(), watching: true, made: 0,
        };
        for deed in deeds {
            cluster.happen(deed);
        }
        cluster.settle();
        let book = &cluster.book;
        let wanted = book.classes.keys().flat_map(|class| book.of_class(class));
        let wanted: Vec<Option<Pair>> = wanted.map(Some).collect();
        let mut there: Vec<Option<Pair>> = cluster.server.values().map(|object| object.pair.clone()).collect();
        there.sort();
        prop_assert_eq!(&there, &wanted);
        prop_assert_eq!(book.census(), census(wanted.len(), wanted.len(), 0));
        let made = cluster.made;
        cluster.queue = cluster.book.poll().into_iter().collect();
        cluster.settle();
        prop_assert_eq!(cluster.made, made, "a poll finds nothing to make");
        // Nothing is kept of what is gone.
        prop_assert!(cluster.book.holders.len() == wanted.len() && cluster.book.new.len() <= wanted.len());
    }
}
