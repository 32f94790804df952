//! Keeps an eye on objects that somebody waits for and no open watch shows.
//!
//! Owns a watch on each awaited name, open for as long as anybody waits for it. At most [`WATCHES`]
//! of them; what is awaited beyond that, what we may not watch, and any object of a kind in some
//! namespace, is read again and again, gently. What an open watch shows is read once, when the wait
//! begins: it may have changed after the attempt read it, and been shown before anybody waited.
//! Promises that whoever waits is brought back as soon as the object is seen to differ from what
//! they saw, that nothing of an object is read but its metadata, and that all of it ends with the
//! last who waits. Leaves who waits for what to `awaited`.

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

use super::index::{Dependency, DependencyIndex, Seen, Turn};
use crate::{
    controller::item::Item,
    kube::{ApiError, Client, Kind, Name, Scope},
};

/// So many watches are open at most.
const WATCHES: usize = 64;

/// For so long after somebody came to wait for it, an object that is not watched is read often.
const EAGER: Duration = Duration::from_secs(60);

/// How often it is looked whether a read is due: somebody may have come to wait meanwhile.
const STEP: Duration = Duration::from_secs(1);

/// The time between two reads of whatever objects: at most 20 a second.
const APART: Duration = Duration::from_millis(50);

/// A watch that ended sooner is not begun anew at once.
const SHORT: Duration = Duration::from_secs(10);

/// Brings back whoever waits.
pub(crate) type Waker = Box<dyn Fn(Item) + Send + Sync>;

/// Keeps an eye on what is awaited.
pub(crate) struct DependencyWatcher {
    eyes: Arc<Eyes>,
    /// The kinds that others watch.
    shown: Vec<Kind>,
    open: BTreeMap<Dependency, Open>,
}

/// One object that is kept an eye on; dropping it ends that.
struct Open {
    /// Which time of being awaited it is for: what was known in an earlier one is forgotten.
    number: u64,
    /// Whether it is watched, until that is refused.
    watched: Arc<AtomicBool>,
    _end: DropGuard,
}

/// What looks.
struct Eyes {
    client: Client,
    waits: DependencyIndex,
    wake: Waker,
    /// When the next read of an object that is not watched may be.
    next_read: Mutex<Instant>,
}

/// How long to wait before the next read of an object, the `reads`th that somebody waited `waited`
/// for so far: 1, 2, 4 seconds, five for the rest of the first minute, then up to fifteen.
fn read_after(reads: u32, waited: Duration) -> Duration {
    let grown = 2_u64.saturating_pow(reads.min(10));
    let most = if waited < EAGER { 5 } else { 15 };
    Duration::from_secs(grown.min(most))
}

impl DependencyWatcher {
    /// Looks at what `waits` names, but not at objects of the kinds `shown` by others.
    pub(crate) fn new(
        client: Client,
        waits: DependencyIndex,
        wake: Waker,
        shown: Vec<Kind>,
    ) -> Self {
        let next_read = Mutex::new(Instant::now());
        let eyes = Arc::new(Eyes { client, waits, wake, next_read });
        Self { eyes, shown, open: BTreeMap::new() }
    }

    /// Looks, for ever.
    pub(crate) async fn run(mut self) {
        let mut looking = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                // One that has ended: nobody waits for it any more.
                Some(()) = looking.next() => {}
                turn = self.eyes_turned() => self.turn(turn, &mut looking),
            }
        }
    }

    async fn eyes_turned(&self) -> Turn {
        self.eyes.waits.turned().await
    }

    fn turn(&mut self, turn: Turn, looking: &mut FuturesUnordered<BoxFuture<'static, ()>>) {
        for object in turn.objects {
            let number = self.eyes.waits.number(&object);
            if self.open.get(&object).map(|open| open.number) == number {
                continue;
            }
            self.open.remove(&object);
            match number {
                Some(number) if self.is_ours(&object) => looking.push(self.begin(object, number)),
                Some(_) if self.eyes.waits.has_seen(&object) => looking.push(self.recheck(object)),
                _ => {}
            }
        }
        turn.late.into_iter().for_each(|item| (self.eyes.wake)(item));
    }

    fn is_ours(&self, object: &Dependency) -> bool {
        (object.name.is_some() || object.namespace.is_some()) && !self.shown.contains(&object.kind)
    }

    fn recheck(&self, object: Dependency) -> BoxFuture<'static, ()> {
        let eyes = Arc::clone(&self.eyes);
        Box::pin(async move { eyes.recheck(&object).await })
    }

    fn begin(&mut self, object: Dependency, number: u64) -> BoxFuture<'static, ()> {
        let is_watched = |open: &&Open| open.watched.load(Ordering::Relaxed);
        let taken = self.open.values().filter(is_watched).count();
        let watched = Arc::new(AtomicBool::new(object.name.is_some() && taken < WATCHES));
        let end = CancellationToken::new();
        let (eyes, ended) = (Arc::clone(&self.eyes), end.clone());
        let open = Open { number, watched: Arc::clone(&watched), _end: end.drop_guard() };
        self.open.insert(object.clone(), open);
        Box::pin(async move {
            ended.run_until_cancelled(eyes.look(&object, &watched)).await;
        })
    }
}

impl Eyes {
    /// Watches the object, where it may be watched, and reads it, where not; for ever.
    async fn look(&self, object: &Dependency, watched: &AtomicBool) {
        let mut reads = 0;
        loop {
            if watched.load(Ordering::Relaxed) {
                let began = Instant::now();
                match self.follow(object).await {
                    Ok(()) if began.elapsed() >= SHORT => continue,
                    Err(error) if error.is_forbidden() => watched.store(false, Ordering::Relaxed),
                    _ => {}
                }
            }
            self.until_read(object, &mut reads).await;
            self.read(object).await;
        }
    }

    async fn follow(&self, object: &Dependency) -> Result<(), ApiError> {
        let tell = |version| self.tell(object, version);
        let followed = self.client.follow(&object.kind, name(object)?, tell).await;
        if let Err(error) = &followed {
            tracing::debug!(resource = object.kind.resource(), %error, "an awaited object can't be watched");
        }
        followed
    }

    async fn read(&self, object: &Dependency) {
        if let Some(now) = self.now(object).await {
            self.wake(object, self.waits.shown(object, now));
        }
    }

    async fn recheck(&self, object: &Dependency) {
        self.keep_apart().await;
        if let Some(now) = self.now(object).await {
            self.wake(object, self.waits.behind(object, &now));
        }
    }

    /// What is there now; none where that can't be told.
    async fn now(&self, object: &Dependency) -> Option<Seen> {
        match self.version(object).await {
            Ok(version) => Some(version.map_or(Seen::Missing, Seen::Version)),
            Err(error) if error.is_not_found() => Some(Seen::Missing),
            Err(error) => {
                tracing::debug!(resource = object.kind.resource(), %error, "an awaited object can't be read");
                None
            }
        }
    }

    async fn version(&self, object: &Dependency) -> Result<Option<String>, ApiError> {
        if let (Some(namespace), None) = (&object.namespace, &object.name) {
            return self.client.versions(&object.kind, &Scope::namespace(namespace)?).await;
        }
        let metadata = self.client.get_metadata(&object.kind, name(object)?).await?;
        Ok(metadata.resource_version)
    }

    /// DependencyIndex until the object is to be read again.
    async fn until_read(&self, object: &Dependency, reads: &mut u32) {
        let last = Instant::now();
        let mut newest = self.eagerness(object);
        loop {
            if self.eagerness(object) != newest {
                newest = self.eagerness(object);
                *reads = 0;
            }
            let left = read_after(*reads, newest.elapsed()).saturating_sub(last.elapsed());
            if left.is_zero() {
                break;
            }
            sleep(left.min(STEP)).await;
        }
        *reads = reads.saturating_add(1);
        self.keep_apart().await;
    }

    /// When the last who waits for the object came.
    fn eagerness(&self, object: &Dependency) -> Instant {
        self.waits.newest(object).unwrap_or_else(Instant::now)
    }

    /// Keeps reads from coming all at once.
    async fn keep_apart(&self) {
        let at = {
            let mut next = self.next_read.lock();
            let at = (*next).max(Instant::now());
            *next = at + APART;
            at
        };
        tokio::time::sleep_until(at).await;
    }

    fn tell(&self, object: &Dependency, version: Option<String>) {
        let now = version.map_or(Seen::Missing, Seen::Version);
        self.wake(object, self.waits.shown(object, now));
    }

    fn wake(&self, object: &Dependency, items: Vec<Item>) {
        for item in items {
            tracing::debug!(
                resource = object.kind.resource(),
                namespace = object.namespace,
                name = object.name,
                ?item,
                "an awaited object has changed"
            );
            (self.wake)(item);
        }
    }
}

/// The object's name as URLs bear it.
fn name(object: &Dependency) -> Result<Name<'_>, ApiError> {
    let name = object.name.as_deref().unwrap_or_default();
    Ok(match &object.namespace {
        Some(namespace) => Name::namespaced(namespace, name)?,
        None => Name::cluster(name)?,
    })
}

#[cfg(test)]
mod tests;
