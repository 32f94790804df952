//! The loop: what the watches show goes into the book, what is decided goes to the API server.
//!
//! Owns the requests. Promises that the watches are read while changes are under way, so that nothing
//! is decided on a view that only the loop itself has let grow old.

use std::{collections::BTreeSet, time::Duration};

use futures::{Stream, StreamExt as _, stream, stream::FuturesUnordered};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt as _, watcher,
        watcher::{Config, Event},
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::interval;

use super::{
    Action, Settings, about, at_version,
    book::{Book, Item, Kept, number},
    queue::Queue,
    volumes::is_of_status,
};

/// How often changes that were refused are tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How many changes are carried out at once: each is of another object.
const AT_ONCE: usize = 16;

/// What a watch shows.
#[derive(Debug)]
pub(super) enum Shown {
    Claim(Box<Event<PersistentVolumeClaim>>),
    Volume(Box<Event<PersistentVolume>>),
    Class(Box<Event<StorageClass>>),
}

/// Who was looked at, and what is to be done about him.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) item: Item,
    pub(super) action: Option<Action>,
}

/// All that is known and all that is due.
#[derive(Debug, Default)]
pub(super) struct Desk {
    settings: Settings,
    book: Book,
    queue: Queue,
}

impl Desk {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub(super) fn shown(&mut self, shown: Shown) {
        let concerned = match shown {
            Shown::Claim(event) => self.book.shown(*event),
            Shown::Volume(event) => self.book.shown(*event),
            Shown::Class(event) => self.book.shown(*event),
        };
        self.line_up(concerned);
    }

    fn line_up(&mut self, items: BTreeSet<Item>) {
        for item in items {
            let version = self.book.version(&item);
            self.queue.add(item, version);
        }
    }

    /// Looks at the next in line. Who has something to be done is in hand until it is [`Self::done`].
    pub(super) fn look(&mut self) -> Option<Look> {
        let item = self.queue.take()?;
        let action = about(&item, &self.book, &self.settings);
        if action.is_none() {
            self.queue.idle(item.clone());
        }
        Some(Look { item, action })
    }

    /// A change made this version of the object, or could not be made.
    pub(super) fn done(&mut self, item: Item, version: Option<u64>) {
        match version {
            Some(version) => {
                let shown = self.book.version(&item);
                self.queue.changed(item, version, shown);
            }
            None => self.queue.refused(item),
        }
    }

    /// Whatever was refused is looked at again.
    fn retry(&mut self) {
        self.queue.retry();
    }
}

/// Binds for as long as it is polled.
pub async fn run(client: Client, settings: Settings) {
    let mut shown = watches(&client, settings.selector.as_deref());
    let mut desk = Desk::new(settings);
    let mut under_way = FuturesUnordered::new();
    let mut again = interval(AGAIN);
    loop {
        while under_way.len() < AT_ONCE {
            let Some(Look { item, action }) = desk.look() else { break };
            under_way.extend(action.map(|action| carried_out(&client, item, action)));
        }
        tokio::select! {
            biased; // what is known comes before what is decided on it
            Some(shown) = shown.next() => desk.shown(shown),
            Some((item, version)) = under_way.next() => desk.done(item, version),
            _ = again.tick() => desk.retry(),
        }
    }
}

// === Watching ===

/// Everything that the decisions depend on, as it changes. Watches recover from errors.
fn watches(client: &Client, selector: Option<&str>) -> impl Stream<Item = Shown> + Unpin + use<> {
    stream::select_all([
        watched::<PersistentVolumeClaim>(client, selector)
            .map(|event| Shown::Claim(Box::new(event)))
            .boxed(),
        watched::<PersistentVolume>(client, selector)
            .map(|event| Shown::Volume(Box::new(event)))
            .boxed(),
        watched::<StorageClass>(client, None).map(|event| Shown::Class(Box::new(event))).boxed(),
    ])
}

fn watched<K>(client: &Client, selector: Option<&str>) -> impl Stream<Item = Event<K>> + use<K>
where
    K: Kept + Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
    K: DeserializeOwned,
{
    let config = Config { label_selector: selector.map(str::to_owned), ..Config::default() };
    let events = watcher(Api::<K>::all(client.clone()), config).default_backoff();
    events.filter_map(async |event| event.ok())
}

// === Changing ===

/// Carries an action out; gives the version it made, if it made one.
async fn carried_out(client: &Client, item: Item, action: Action) -> (Item, Option<u64>) {
    let version = carry_out(client, &action).await.unwrap_or_else(|error| {
        tracing::debug!(?action, %error, "not done");
        None
    });
    (item, version)
}

/// The version that the action made; `None` where the live object says that it is not due.
async fn carry_out(client: &Client, action: &Action) -> kube::Result<Option<u64>> {
    match action {
        Action::Claim { namespace, name, status, patch } => {
            patch_claim(client, namespace, name, *status, patch).await
        }
        Action::Volume { name, patch } => patch_volume(client, name, patch).await,
        Action::Release { name, version, claim } => {
            let claims = Api::<PersistentVolumeClaim>::namespaced(
                client.clone(),
                claim.namespace.as_deref().unwrap_or_default(),
            );
            let found = claims.get_opt(claim.name.as_deref().unwrap_or_default()).await?;
            if found.is_some_and(|found| found.metadata.uid == claim.uid) {
                return Ok(None);
            }
            let patch = json!({"status": {"phase": "Released"}});
            patch_volume(client, name, &at_version(patch, version.clone())).await
        }
        Action::Lose { namespace, name, version, volume } => {
            let volumes = Api::<PersistentVolume>::all(client.clone());
            if volumes.get_opt(volume).await?.is_some() {
                return Ok(None);
            }
            let lost = json!({"status": {"phase": "Lost", "accessModes": null, "capacity": null}});
            let patch = at_version(lost, version.clone());
            patch_claim(client, namespace, name, true, &patch).await
        }
    }
}

async fn patch_claim(
    client: &Client,
    namespace: &str,
    name: &str,
    status: bool,
    patch: &Value,
) -> kube::Result<Option<u64>> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = if status {
        claims.patch_status(name, &params, &patch).await?
    } else {
        claims.patch(name, &params, &patch).await?
    };
    Ok(Some(number(patched.resource_version().as_deref())))
}

async fn patch_volume(client: &Client, name: &str, patch: &Value) -> kube::Result<Option<u64>> {
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let (params, merge) = (PatchParams::default(), Patch::Merge(patch));
    let patched = if is_of_status(patch) {
        volumes.patch_status(name, &params, &merge).await?
    } else {
        volumes.patch(name, &params, &merge).await?
    };
    Ok(Some(number(patched.resource_version().as_deref())))
}
