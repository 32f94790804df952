//! The cache of the cluster's StorageClasses.
//!
//! Keeps every class: there are few, and a claim may name any. Reports each change of a class to its
//! listeners.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;

use crate::kube::{
    InformerEvent,
    objects::{StorageClass, View as _},
    take_vanished,
};

/// The classes, as their watch last reported them. Clones share one cache.
#[derive(Clone, Default)]
pub struct Classes(Arc<SharedClasses>);

#[derive(Default)]
struct SharedClasses {
    /// By name. Not locked while listeners are called, as they may read it.
    by_name: RwLock<BTreeMap<Box<str>, Arc<StorageClass>>>,
    listeners: RwLock<Vec<Listener>>,
}

/// Called with a class's name, and the class unless it was deleted.
type Listener = Box<dyn Fn(&str, Option<Arc<StorageClass>>) + Send + Sync>;

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

    /// Returns the event handler that fills this cache.
    pub fn event_handler(&self) -> impl FnMut(InformerEvent<StorageClass>) + Send + use<> {
        let classes = self.clone();
        move |event| classes.on_event(event)
    }

    fn on_event(&self, event: InformerEvent<StorageClass>) {
        let by_name = &self.0.by_name;
        match event {
            InformerEvent::InitApply(class) | InformerEvent::Apply(class) => self.on_apply(class),
            InformerEvent::Delete(class) => {
                by_name.write().remove(class.name());
                self.report(class.name(), None);
            }
            InformerEvent::Unreadable { .. } => {}
            InformerEvent::InitDone(listed) => {
                let is_listed = |_: &_, class: &Arc<StorageClass>| listed.contains(class.uid());
                let deleted = take_vanished(&mut by_name.write(), is_listed);
                for name in deleted.keys() {
                    self.report(name, None);
                }
            }
        }
    }

    fn on_apply(&self, class: StorageClass) {
        let class = Arc::new(class);
        let before = self.0.by_name.write().insert(class.name().into(), Arc::clone(&class));
        // A new list repeats unchanged classes: claims that back off are not woken for that.
        if before.is_none_or(|before| !class.is_same_version_as(&before)) {
            self.report(class.name(), Some(&class));
        }
    }

    /// Reports to the listeners that the class of this name is now `class`.
    fn report(&self, name: &str, class: Option<&Arc<StorageClass>>) {
        self.0.listeners.read().iter().for_each(|listener| listener(name, class.cloned()));
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    fn class(version: &str) -> StorageClass {
        let class = json!({"metadata": {"name": "fast", "uid": "u", "resourceVersion": version}, "provisioner": "d"});
        serde_json::from_value(class).unwrap()
    }

    #[test]
    fn listeners_are_called_only_when_a_class_is_added_changed_or_deleted() {
        let classes = Classes::default();
        let calls: Arc<Mutex<Vec<bool>>> = Arc::default();
        let listener = Arc::clone(&calls);
        classes.on_change(move |_, class| listener.lock().push(class.is_some()));
        let mut handler = classes.event_handler();
        let relist = |class: Option<StorageClass>| InformerEvent::list(class.into_iter().collect());
        let mut calls_for = |events: Vec<InformerEvent<StorageClass>>| -> Vec<bool> {
            for event in events {
                handler(event);
            }
            std::mem::take(&mut *calls.lock())
        };
        assert_eq!(calls_for(vec![InformerEvent::Apply(class("1"))]), [true], "added");
        assert_eq!(calls_for(relist(Some(class("1"))).collect()), [true; 0], "unchanged");
        assert_eq!(calls_for(relist(Some(class("2"))).collect()), [true], "changed");
        assert_eq!(calls_for(relist(None).collect()), [false], "deleted");
        assert!(classes.get("fast").is_none());
    }
}
