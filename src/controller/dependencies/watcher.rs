//! Watches the objects that items wait for and that no other watch covers.
//!
//! [`DependencyWatcher`] opens one watch for each named object in the [`DependencyIndex`], at most
//! [`MAX_WATCHES`], and closes it when no item waits for the object any more. It reads the other objects
//! repeatedly, at a limited rate: those beyond the maximum, those that may not be watched, and "any
//! object of this kind in this namespace". An object of a kind that another watch covers is read once,
//! when an item begins to wait: it may have changed between the item's read and its registration.
//!
//! It reads nothing but metadata, and wakes an item as soon as an object differs from what the item
//! observed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::index::{Changes, Dependency, DependencyIndex, Observed};
use crate::{
    controller::item::Item,
    kube::{ApiError, Client, Kind, Name, Scope},
    runtime::Backoff,
};

/// The maximum number of open watches.
const MAX_WATCHES: usize = 64;

/// For this long after an item began to wait for it, an object that is not watched is read often.
const EAGER_PERIOD: Duration = Duration::from_secs(60);

/// The interval between checks whether a read is due: another item may have begun to wait meanwhile.
const DUE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum time between any two reads: at most 20 reads a second.
const READ_INTERVAL: Duration = Duration::from_millis(50);

/// A watch that ended sooner is not reopened at once.
const SHORT_WATCH: Duration = Duration::from_secs(10);

/// Wakes an item.
pub(crate) type Waker = Box<dyn Fn(Item) + Send + Sync>;

/// Watches the objects in a [`DependencyIndex`].
pub(crate) struct DependencyWatcher {
    observer: Arc<ObjectObserver>,
    /// The kinds that other watches cover.
    watched_kinds: Vec<Kind>,
    observed: BTreeMap<Dependency, ObservedObject>,
}

/// An object that is being observed. Dropping this ends it.
struct ObservedObject {
    /// The object's [`DependencyIndex::generation`].
    generation: u64,
    /// Whether the object is watched; unset once the API server forbids that.
    watched: Arc<AtomicBool>,
    _end: DropGuard,
}

/// Watches or reads objects, and wakes items.
struct ObjectObserver {
    client: Client,
    dependencies: DependencyIndex,
    wake: Waker,
    /// The earliest time for the next read.
    next_read: Mutex<Instant>,
}

/// The delay before the next read of an object that was read `reads` times and that items have waited
/// for since `waited`: 1, 2, 4 seconds, then 5 for the rest of the first minute, then up to 15.
fn read_delay(reads: u32, waited: Duration) -> Duration {
    let max = Duration::from_secs(if waited < EAGER_PERIOD { 5 } else { 15 });
    Backoff::new(Duration::from_secs(1), max).delay(reads)
}

impl DependencyWatcher {
    /// Observes the objects in `dependencies` and calls `wake` for items whose objects changed. Does not
    /// observe objects of `watched_kinds`, except for one read.
    pub(crate) fn new(
        client: Client,
        dependencies: DependencyIndex,
        wake: Waker,
        watched_kinds: Vec<Kind>,
    ) -> Self {
        let next_read = Mutex::new(Instant::now());
        let observer = Arc::new(ObjectObserver { client, dependencies, wake, next_read });
        Self { observer, watched_kinds, observed: BTreeMap::new() }
    }

    /// Runs until dropped.
    pub(crate) async fn run(mut self) {
        let mut observations = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                // Removes the finished ones.
                Some(()) = observations.next() => {}
                changes = self.next_changes() => self.apply(changes, &mut observations),
            }
        }
    }

    async fn next_changes(&self) -> Changes {
        self.observer.dependencies.next_changes().await
    }

    /// Starts and ends observations, and wakes outdated items.
    fn apply(
        &mut self,
        changes: Changes,
        observations: &mut FuturesUnordered<BoxFuture<'static, ()>>,
    ) {
        let dependencies = self.observer.dependencies.clone();
        for object in changes.objects {
            let generation = dependencies.generation(&object);
            if self.observed.get(&object).map(|observed| observed.generation) == generation {
                continue;
            }
            self.observed.remove(&object);
            match generation {
                Some(generation) if self.is_observable(&object) => {
                    observations.push(self.observe(object, generation));
                }
                Some(_) if dependencies.has_observation(&object) => {
                    observations.push(self.read_once(object));
                }
                _ => {}
            }
        }
        changes.outdated.into_iter().for_each(|item| (self.observer.wake)(item));
    }

    fn is_observable(&self, object: &Dependency) -> bool {
        let is_limited = object.name.is_some() || object.namespace.is_some();
        is_limited && !self.watched_kinds.contains(&object.kind)
    }

    fn read_once(&self, object: Dependency) -> BoxFuture<'static, ()> {
        let observer = Arc::clone(&self.observer);
        Box::pin(async move { observer.read_once(&object).await })
    }

    /// Starts to observe the object, until it is removed from `observed`.
    fn observe(&mut self, object: Dependency, generation: u64) -> BoxFuture<'static, ()> {
        let is_watched = |observed: &&ObservedObject| observed.watched.load(Ordering::Relaxed);
        let open = self.observed.values().filter(is_watched).count();
        let may_watch = object.name.is_some() && open < MAX_WATCHES;
        let watched = Arc::new(AtomicBool::new(may_watch));
        let end = CancellationToken::new();
        let ended = end.clone();
        let entry =
            ObservedObject { generation, watched: Arc::clone(&watched), _end: end.drop_guard() };
        self.observed.insert(object.clone(), entry);
        let observer = Arc::clone(&self.observer);
        Box::pin(async move {
            ended.run_until_cancelled(observer.observe(&object, &watched)).await;
        })
    }
}

impl ObjectObserver {
    /// Watches the object while `watched` is set, and reads it otherwise. Never returns.
    async fn observe(&self, object: &Dependency, watched: &AtomicBool) {
        let mut reads = 0;
        loop {
            if watched.load(Ordering::Relaxed) {
                let began = Instant::now();
                match self.watch(object).await {
                    Ok(()) if began.elapsed() >= SHORT_WATCH => continue,
                    Err(error) if error.is_forbidden() => watched.store(false, Ordering::Relaxed),
                    _ => {}
                }
            }
            self.wait_for_next_read(object, &mut reads).await;
            self.read(object).await;
        }
    }

    /// Watches the object until the watch ends.
    async fn watch(&self, object: &Dependency) -> Result<(), ApiError> {
        let on_version = |version| self.on_version(object, version);
        let ended = self.client.follow(&object.kind, name(object)?, on_version).await;
        if let Err(error) = &ended {
            tracing::debug!(resource = object.kind.resource(), %error, "cannot watch a dependency");
        }
        ended
    }

    async fn read(&self, object: &Dependency) {
        if let Some(now) = self.read_observed(object).await {
            self.wake(object, self.dependencies.record(object, now));
        }
    }

    async fn read_once(&self, object: &Dependency) {
        self.wait_for_read_slot().await;
        if let Some(now) = self.read_observed(object).await {
            self.wake(object, self.dependencies.outdated_items(object, &now));
        }
    }

    /// Reads the object; `None` if that fails.
    async fn read_observed(&self, object: &Dependency) -> Option<Observed> {
        match self.read_version(object).await {
            Ok(version) => Some(version.map_or(Observed::Missing, Observed::Version)),
            Err(error) if error.is_not_found() => Some(Observed::Missing),
            Err(error) => {
                tracing::debug!(resource = object.kind.resource(), %error, "cannot read a dependency");
                None
            }
        }
    }

    /// Reads the object's `resourceVersion`, or for "any object in a namespace" a summary of all
    /// versions.
    async fn read_version(&self, object: &Dependency) -> Result<Option<Box<str>>, ApiError> {
        if let (Some(namespace), None) = (&object.namespace, &object.name) {
            let versions =
                self.client.versions(&object.kind, &Scope::namespace(namespace)?).await?;
            return Ok(versions.map(Box::from));
        }
        let metadata = self.client.get_metadata(&object.kind, name(object)?).await?;
        Ok(metadata.resource_version)
    }

    /// Waits until the object is due to be read again. The delays start over when another item begins
    /// to wait for it.
    async fn wait_for_next_read(&self, object: &Dependency, reads: &mut u32) {
        let last_read = Instant::now();
        let mut last_joined = self.last_joined(object);
        loop {
            if self.last_joined(object) != last_joined {
                last_joined = self.last_joined(object);
                *reads = 0;
            }
            let delay = read_delay(*reads, last_joined.elapsed());
            let left = delay.saturating_sub(last_read.elapsed());
            if left.is_zero() {
                break;
            }
            sleep(left.min(DUE_CHECK_INTERVAL)).await;
        }
        *reads = reads.saturating_add(1);
        self.wait_for_read_slot().await;
    }

    fn last_joined(&self, object: &Dependency) -> Instant {
        self.dependencies.last_joined(object).unwrap_or_else(Instant::now)
    }

    /// Spaces reads by [`READ_INTERVAL`].
    async fn wait_for_read_slot(&self) {
        let at = {
            let mut next = self.next_read.lock();
            let at = (*next).max(Instant::now());
            *next = at + READ_INTERVAL;
            at
        };
        tokio::time::sleep_until(at).await;
    }

    fn on_version(&self, object: &Dependency, version: Option<String>) {
        let version = version.map(Box::from);
        let now = version.map_or(Observed::Missing, Observed::Version);
        self.wake(object, self.dependencies.record(object, now));
    }

    fn wake(&self, object: &Dependency, items: Vec<Item>) {
        for item in items {
            tracing::debug!(
                resource = object.kind.resource(),
                namespace = object.namespace,
                name = object.name,
                ?item,
                "a dependency has changed"
            );
            (self.wake)(item);
        }
    }
}

/// The object's name for a request.
fn name(object: &Dependency) -> Result<Name<'_>, ApiError> {
    let name = object.name.as_deref().unwrap_or_default();
    Ok(match &object.namespace {
        Some(namespace) => Name::namespaced(namespace, name)?,
        None => Name::cluster(name)?,
    })
}

#[cfg(test)]
mod tests;
