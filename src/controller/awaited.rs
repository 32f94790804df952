//! What claims wait for beside the driver: objects whose change may be what was missing.
//!
//! Owns who waits for which object. Promises that whoever sees an object change finds every claim
//! that waits for it, and that a claim that is gone waits for nothing. Leaves seeing the change to
//! those who watch, and what the change means to the next attempt: a wake is no more than a try
//! before its time, which the back-off would have made anyhow.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::kube_api::{Kind, View, reflector::Sighting};

/// An object, or any of a kind, that an attempt was missing or found not ready.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Awaited {
    /// The object's kind.
    pub kind: Kind,
    /// Its namespace, for kinds that have one.
    pub namespace: Option<String>,
    /// Its name; any object of the kind will do where there is none.
    pub name: Option<String>,
}

/// Which claims, by UID, wait for which objects. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Waits(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    by_claim: BTreeMap<String, Vec<Awaited>>,
    by_object: BTreeMap<Awaited, BTreeSet<String>>,
}

impl Awaited {
    /// The object `name` of the kind that `V` reads, in `namespace` where the kind has them.
    pub fn object<V: View>(namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.map(str::to_owned);
        Self { kind: Kind::of::<V>(), namespace, name: Some(name.to_owned()) }
    }

    /// Any object of the kind that `V` reads.
    pub fn any<V: View>() -> Self {
        Self { kind: Kind::of::<V>(), namespace: None, name: None }
    }
}

impl Waits {
    /// The claim waits for these and for nothing else.
    pub fn wait(&self, uid: &str, awaited: Vec<Awaited>) {
        let mut waiting = self.0.lock();
        waiting.forget(uid);
        for object in &awaited {
            waiting.by_object.entry(object.clone()).or_default().insert(uid.to_owned());
        }
        if !awaited.is_empty() {
            waiting.by_claim.insert(uid.to_owned(), awaited);
        }
    }

    /// The claim waits for nothing any more.
    pub fn forget(&self, uid: &str) {
        self.0.lock().forget(uid);
    }

    /// The claims that wait for this very object, or for any of its kind.
    pub fn of(&self, object: &Awaited) -> Vec<String> {
        let waiting = self.0.lock();
        let any = Awaited { kind: object.kind.clone(), namespace: None, name: None };
        let both = [object, &any].into_iter().filter_map(|key| waiting.by_object.get(key));
        both.flatten().cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The claims that wait for what a watch has just shown to be there, new or changed.
    pub fn of_shown<V: View>(&self, sighting: &Sighting<V>) -> Vec<String> {
        let (Sighting::Listed(object) | Sighting::Applied(object)) = sighting else {
            return Vec::new();
        };
        let namespace = V::NAMESPACED.then(|| object.namespace());
        self.of(&Awaited::object::<V>(namespace, object.name()))
    }
}

impl Waiting {
    fn forget(&mut self, uid: &str) {
        for object in self.by_claim.remove(uid).unwrap_or_default() {
            if let Some(claims) = self.by_object.get_mut(&object) {
                claims.remove(uid);
                if claims.is_empty() {
                    self.by_object.remove(&object);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube_api::views::{Claim, StorageClass};

    fn class(name: &str) -> Awaited {
        Awaited::object::<StorageClass>(None, name)
    }

    #[test]
    fn a_change_finds_all_that_wait_for_it_and_nobody_else() {
        let waits = Waits::default();
        waits.wait("1", vec![class("a"), class("b")]);
        waits.wait("2", vec![class("b")]);
        waits.wait("3", vec![Awaited::any::<StorageClass>()]);
        assert_eq!(waits.of(&class("a")), ["1", "3"]);
        assert_eq!(waits.of(&class("b")), ["1", "2", "3"]);
        assert_eq!(waits.of(&class("c")), ["3"]);
        assert!(waits.of(&Awaited::object::<Claim>(Some("ns"), "a")).is_empty());
    }

    #[test]
    fn what_a_watch_shows_to_be_there_wakes_those_who_wait_for_it() {
        let source = || -> Claim {
            serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": "a"}})).unwrap()
        };
        let waits = Waits::default();
        waits.wait("1", vec![Awaited::object::<Claim>(Some("ns"), "a")]);
        waits.wait("2", vec![Awaited::object::<Claim>(Some("other"), "a")]);
        for (sighting, woken) in [
            (Sighting::Listed(source()), 1),
            (Sighting::Applied(source()), 1),
            (Sighting::Deleted(source()), 0),
            (Sighting::Complete, 0),
            (Sighting::Restarted, 0),
        ] {
            assert_eq!(waits.of_shown(&sighting).len(), woken, "{sighting:?}");
        }
        assert_eq!(waits.of_shown(&Sighting::Applied(StorageClass::default())), [""; 0]);
    }

    #[test]
    fn the_last_word_of_a_claim_counts_and_nothing_is_kept_of_one_that_is_gone() {
        let waits = Waits::default();
        waits.wait("1", vec![class("a")]);
        waits.wait("1", vec![class("b")]);
        assert!(waits.of(&class("a")).is_empty());
        assert_eq!(waits.of(&class("b")), ["1"]);
        waits.wait("1", vec![]);
        waits.wait("2", vec![class("b")]);
        waits.forget("2");
        let waiting = waits.0.lock();
        assert!(waiting.by_claim.is_empty() && waiting.by_object.is_empty());
    }
}
