//! The cluster's StorageClasses, by name.
//!
//! Owns the cache and telling who waits for a class that it has come or changed. Keeps every
//! class: there are few, and a claim may name any.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
use tokio::sync::watch;

use crate::kube_api::{
    cache::{Cache, Change},
    reflector::{Observer, Sighting},
    views::{StorageClass, View as _},
};

/// The classes as last seen. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Classes(Arc<RwLock<BTreeMap<String, Arc<StorageClass>>>>);

impl Classes {
    /// The class called `name`.
    pub fn get(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.0.read().get(name).cloned()
    }

    /// Whether any class is such.
    pub fn any(&self, such: impl Fn(&StorageClass) -> bool) -> bool {
        self.0.read().values().any(|class| such(class))
    }

    /// What keeps these classes fresh: `on_change` is told the name of each class that came,
    /// changed or went; `synced` becomes true once all have been listed.
    pub fn observer(
        &self,
        synced: watch::Sender<bool>,
        on_change: Box<dyn Fn(&str) + Send>,
    ) -> impl Observer<StorageClass> + use<> {
        ClassObserver { classes: self.clone(), known: Cache::default(), synced, on_change }
    }
}

struct ClassObserver {
    classes: Classes,
    /// Which names are known, to find those that vanished between two lists.
    known: Cache<String>,
    synced: watch::Sender<bool>,
    on_change: Box<dyn Fn(&str) + Send>,
}

impl ClassObserver {
    fn seen(&mut self, class: StorageClass) {
        let name = class.name().to_owned();
        let change = self.known.seen(&name, Some(name.clone()));
        debug_assert!(!matches!(change, Change::Left(_) | Change::Gone(_)), "every class is kept");
        let version = class.metadata.resource_version.clone();
        let old = self.classes.0.write().insert(name.clone(), Arc::new(class));
        // Shown again by a new list: those who wait and back off are not woken for that.
        let known = old.is_some_and(|old| old.metadata.resource_version == version);
        if !known {
            (self.on_change)(&name);
        }
    }

    fn gone(&self, name: &str) {
        self.classes.0.write().remove(name);
        (self.on_change)(name);
    }
}

impl Observer<StorageClass> for ClassObserver {
    fn observe(&mut self, sighting: Sighting<StorageClass>) {
        match sighting {
            Sighting::Restarted => self.known.restarted(),
            Sighting::Listed(class) | Sighting::Applied(class) => self.seen(class),
            Sighting::Deleted(class) => {
                self.known.deleted(class.name());
                self.gone(class.name());
            }
            Sighting::Unreadable { name, .. } => self.known.unreadable(&name),
            Sighting::Complete => {
                for name in self.known.complete() {
                    self.gone(&name);
                }
                self.synced.send_replace(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    fn class(version: &str) -> StorageClass {
        let class =
            json!({"metadata": {"name": "fast", "resourceVersion": version}, "provisioner": "d"});
        serde_json::from_value(class).unwrap()
    }

    #[test]
    fn those_who_wait_are_woken_when_a_class_comes_changes_or_goes_and_only_then() {
        let classes = Classes::default();
        let woken: Arc<Mutex<u32>> = Arc::default();
        let count = Arc::clone(&woken);
        let mut observer =
            classes.observer(watch::Sender::new(false), Box::new(move |_| *count.lock() += 1));
        let relist = |class: Option<StorageClass>| {
            let listed = class.map(Sighting::Listed);
            [Some(Sighting::Restarted), listed, Some(Sighting::Complete)].into_iter().flatten()
        };
        let mut shown = |sightings: Vec<Sighting<StorageClass>>| {
            for sighting in sightings {
                observer.observe(sighting);
            }
            std::mem::take(&mut *woken.lock())
        };
        assert_eq!(shown(vec![Sighting::Applied(class("1"))]), 1, "came");
        assert_eq!(shown(relist(Some(class("1"))).collect()), 0, "only listed again");
        assert_eq!(shown(relist(Some(class("2"))).collect()), 1, "changed");
        assert_eq!(shown(relist(None).collect()), 1, "went");
        assert!(classes.get("fast").is_none());
    }
}
