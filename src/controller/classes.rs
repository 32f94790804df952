//! The cluster's StorageClasses, by name.
//!
//! Owns the cache and telling who waits for a class that it has come or changed. Keeps every
//! class: there are few, and a claim may name any.

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

/// The classes as last seen. Clones share them.
#[derive(Clone, Default)]
pub struct Classes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    by_name: RwLock<BTreeMap<String, Arc<StorageClass>>>,
    /// Who else is told of changes.
    followers: RwLock<Vec<Follower>>,
}

type Follower = Box<dyn Fn(&str, Option<Arc<StorageClass>>) + Send + Sync>;

impl fmt::Debug for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Classes").field(&*self.0.by_name.read()).finish()
    }
}

impl Classes {
    /// The class called `name`.
    pub fn get(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.0.by_name.read().get(name).cloned()
    }

    /// Whether any class is such.
    pub fn any(&self, such: impl Fn(&StorageClass) -> bool) -> bool {
        self.0.by_name.read().values().any(|class| such(class))
    }

    /// Has `told` told each class that comes or changes from now on, and the name of each that
    /// goes.
    pub fn follow(&self, told: impl Fn(&str, Option<Arc<StorageClass>>) + Send + Sync + 'static) {
        self.0.followers.write().push(Box::new(told));
    }

    /// What keeps these classes fresh: `on_change` is told the name of each class that came,
    /// changed or went; `first_list` how far listing them is.
    pub fn observer(
        &self,
        first_list: FirstList,
        on_change: Box<dyn Fn(&str) + Send>,
    ) -> impl EventHandler<StorageClass> + use<> {
        ClassObserver { classes: self.clone(), known: Cache::default(), first_list, on_change }
    }
}

struct ClassObserver {
    classes: Classes,
    /// Which names are known, to find those that vanished between two lists.
    known: Cache<String>,
    first_list: FirstList,
    on_change: Box<dyn Fn(&str) + Send>,
}

impl ClassObserver {
    fn seen(&mut self, class: StorageClass) {
        let name = class.name().to_owned();
        let change = self.known.seen(&name, Some(name.clone()));
        debug_assert!(!matches!(change, Change::Left(_) | Change::Gone(_)), "every class is kept");
        let version = class.metadata.resource_version.clone();
        let old = self.classes.0.by_name.write().insert(name.clone(), Arc::new(class));
        // Shown again by a new list: those who wait and back off are not woken for that.
        let known = old.is_some_and(|old| old.metadata.resource_version == version);
        if !known {
            self.changed(&name);
        }
    }

    fn gone(&self, name: &str) {
        self.classes.0.by_name.write().remove(name);
        self.changed(name);
    }

    fn changed(&self, name: &str) {
        (self.on_change)(name);
        let class = self.classes.get(name);
        self.classes.0.followers.read().iter().for_each(|told| told(name, class.clone()));
    }
}

impl EventHandler<StorageClass> for ClassObserver {
    fn observe(&mut self, event: InformerEvent<StorageClass>) {
        let extent = Extent::of(&event);
        match event {
            InformerEvent::Init => self.known.restarted(),
            InformerEvent::InitApply(class) | InformerEvent::Apply(class) => self.seen(class),
            InformerEvent::Delete(class) => {
                self.known.deleted(class.name());
                self.gone(class.name());
            }
            InformerEvent::Unreadable { name, .. } => self.known.unreadable(&name),
            InformerEvent::InitDone => {
                for name in self.known.complete() {
                    self.gone(&name);
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
    fn those_who_wait_are_woken_when_a_class_comes_changes_or_goes_and_only_then() {
        let classes = Classes::default();
        let woken: Arc<Mutex<u32>> = Arc::default();
        let count = Arc::clone(&woken);
        let told: Arc<Mutex<Vec<bool>>> = Arc::default();
        let follower = Arc::clone(&told);
        classes.follow(move |_, class| follower.lock().push(class.is_some()));
        let mut observer =
            classes.observer(FirstList::default(), Box::new(move |_| *count.lock() += 1));
        let relist = |class: Option<StorageClass>| {
            let listed = class.map(InformerEvent::InitApply);
            [Some(InformerEvent::Init), listed, Some(InformerEvent::InitDone)].into_iter().flatten()
        };
        let mut shown = |events: Vec<InformerEvent<StorageClass>>| {
            for event in events {
                observer.observe(event);
            }
            std::mem::take(&mut *woken.lock())
        };
        assert_eq!(shown(vec![InformerEvent::Apply(class("1"))]), 1, "came");
        assert_eq!(shown(relist(Some(class("1"))).collect()), 0, "only listed again");
        assert_eq!(shown(relist(Some(class("2"))).collect()), 1, "changed");
        assert_eq!(shown(relist(None).collect()), 1, "went");
        assert!(classes.get("fast").is_none());
        assert_eq!(*told.lock(), [true, true, false], "and so are others");
    }
}
