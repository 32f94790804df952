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
        self.classes.0.write().insert(name.clone(), Arc::new(class));
        (self.on_change)(&name);
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
