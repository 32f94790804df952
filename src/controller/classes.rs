//! The cache of the cluster's StorageClasses.
//!
//! Keeps every class: there are few, and a claim may name any. Reports each change of a class to its
//! listeners.

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::RwLock;

use crate::kube::{
    Extent, FirstList,
    informer::{
        EventHandler, InformerEvent,
        cache::{Cache, Change},
    },
    objects::{StorageClass, View as _},
};

/// The classes, as their watch last reported them. Clones share one cache.
#[derive(Clone, Default)]
pub struct Classes(Arc<SharedClasses>);

#[derive(Default)]
struct SharedClasses {
    by_name: RwLock<BTreeMap<String, Arc<StorageClass>>>,
    listeners: RwLock<Vec<Listener>>,
}

/// Called with a class's name, and the class unless it was deleted.
type Listener = Box<dyn Fn(&str, Option<Arc<StorageClass>>) + Send + Sync>;

impl fmt::Debug for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Classes").field(&*self.0.by_name.read()).finish()
    }
}

impl Classes {
    /// Returns the class of this name.
    pub fn get(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.0.by_name.read().get(name).cloned()
    }

    /// Whether `predicate` holds for any class.
    pub fn any(&self, predicate: impl Fn(&StorageClass) -> bool) -> bool {
        self.0.by_name.read().values().any(|class| predicate(class))
    }

    /// Calls `listener` from now on for each class that is added, changed (with the class) or deleted
    /// (without).
    pub fn on_change(
        &self,
        listener: impl Fn(&str, Option<Arc<StorageClass>>) + Send + Sync + 'static,
    ) {
        self.0.listeners.write().push(Box::new(listener));
    }

    /// Returns the event handler that fills this cache. It calls `on_change` with the name of each class
    /// that is added, changed or deleted, and records the progress of the first list in `first_list`.
    pub fn event_handler(
        &self,
        first_list: FirstList,
        on_change: Box<dyn Fn(&str) + Send>,
    ) -> impl EventHandler<StorageClass> + use<> {
        ClassEventHandler { classes: self.clone(), known: Cache::default(), first_list, on_change }
    }
}

struct ClassEventHandler {
    classes: Classes,
    /// The known names, to find classes that were deleted between two lists.
    known: Cache<String>,
    first_list: FirstList,
    on_change: Box<dyn Fn(&str) + Send>,
}

impl ClassEventHandler {
    fn on_apply(&mut self, class: StorageClass) {
        let name = class.name().to_owned();
        let change = self.known.apply(&name, Some(name.clone()));
        debug_assert!(!matches!(change, Change::Left(_) | Change::Gone(_)), "every class is kept");
        let version = class.metadata.resource_version.clone();
        let old = self.classes.0.by_name.write().insert(name.clone(), Arc::new(class));
        // A new list repeats unchanged classes: claims that back off are not woken for that.
        let is_unchanged = old.is_some_and(|old| old.metadata.resource_version == version);
        if !is_unchanged {
            self.report_change(&name);
        }
    }

    fn on_delete(&self, name: &str) {
        self.classes.0.by_name.write().remove(name);
        self.report_change(name);
    }

    fn report_change(&self, name: &str) {
        (self.on_change)(name);
        let class = self.classes.get(name);
        self.classes.0.listeners.read().iter().for_each(|listener| listener(name, class.clone()));
    }
}

impl EventHandler<StorageClass> for ClassEventHandler {
    fn on_event(&mut self, event: InformerEvent<StorageClass>) {
        let extent = Extent::of(&event);
        match event {
            InformerEvent::Init => self.known.begin_list(),
            InformerEvent::InitApply(class) | InformerEvent::Apply(class) => self.on_apply(class),
            InformerEvent::Delete(class) => {
                self.known.remove(class.name());
                self.on_delete(class.name());
            }
            InformerEvent::Unreadable { name, .. } => self.known.keep_unreadable(&name),
            InformerEvent::InitDone => {
                for name in self.known.finish_list() {
                    self.on_delete(&name);
                }
            }
        }
        self.first_list.reached(extent);
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
    fn listeners_are_called_only_when_a_class_is_added_changed_or_deleted() {
        let classes = Classes::default();
        let calls: Arc<Mutex<u32>> = Arc::default();
        let count = Arc::clone(&calls);
        let reported: Arc<Mutex<Vec<bool>>> = Arc::default();
        let listener = Arc::clone(&reported);
        classes.on_change(move |_, class| listener.lock().push(class.is_some()));
        let mut handler =
            classes.event_handler(FirstList::default(), Box::new(move |_| *count.lock() += 1));
        let relist = |class: Option<StorageClass>| {
            let listed = class.map(InformerEvent::InitApply);
            [Some(InformerEvent::Init), listed, Some(InformerEvent::InitDone)].into_iter().flatten()
        };
        let mut calls_for = |events: Vec<InformerEvent<StorageClass>>| {
            for event in events {
                handler.on_event(event);
            }
            std::mem::take(&mut *calls.lock())
        };
        assert_eq!(calls_for(vec![InformerEvent::Apply(class("1"))]), 1, "added");
        assert_eq!(calls_for(relist(Some(class("1"))).collect()), 0, "unchanged");
        assert_eq!(calls_for(relist(Some(class("2"))).collect()), 1, "changed");
        assert_eq!(calls_for(relist(None).collect()), 1, "deleted");
        assert!(classes.get("fast").is_none());
        assert_eq!(*reported.lock(), [true, true, false]);
    }
}
