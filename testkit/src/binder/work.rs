//! The loop: what the watches show goes into the book, what is decided goes to the API server.

use std::{collections::BTreeSet, time::Duration};

use futures::{Stream, StreamExt as _, stream, stream::FuturesUnordered};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{Config, Event, watcher},
    },
};
use serde_json::Value;
use tokio::time::interval;

use super::{
    Action, Settings, about,
    book::{Book, Item, Kept},
};

/// How often changes that were refused are tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How many changes are carried out at once: each is of another object.
const AT_ONCE: usize = 16;

/// What a watch shows, or a change made.
enum News {
    Claim(Box<Event<PersistentVolumeClaim>>),
    Volume(Box<Event<PersistentVolume>>),
    Class(Box<Event<StorageClass>>),
}

/// Binds for as long as it is polled. The watches are read while changes are under way, and what a change made is
/// known before the next look at its object.
pub async fn run(client: Client, settings: Settings) {
    let mut watches = watches(&client, settings.selector.as_deref());
    let (mut book, mut refused) = (Book::default(), BTreeSet::new());
    let (mut under_way, mut hands) = (FuturesUnordered::new(), BTreeSet::new());
    let mut again = interval(AGAIN);
    loop {
        while under_way.len() < AT_ONCE {
            let Some(item) = book.next(&hands) else { break };
            if let Some(action) = about(&item, &book, &settings) {
                hands.insert(item.clone());
                let client = client.clone();
                under_way.push(async move { (item, carry_out(&client, action).await) });
            }
        }
        let news = tokio::select! {
                    biased; // what is known comes before what is decided on it
                    Some(news) = watches.next() => Some(news),
                    Some((item, made)) = under_way.next() => {
                        hands.remove(&item);
                        if let Ok(Some(news)) = made {
                    // Of one that has gone meanwhile the watch had the last word.
                    Some(news).filter(|_| book.knows(&item))
                } else {
                    // The live object says that it is not due, or somebody else was faster.
                    refused.insert(item);
                    None
                }
            }
            _ = again.tick() => {
                        for item in std::mem::take(&mut refused) {
         book.line_up(item);
        }
                        None
                    }
                };
        match news {
            Some(News::Claim(event)) => book.shown(*event),
            Some(News::Volume(event)) => book.shown(*event),
            Some(News::Class(event)) => book.shown(*event),
            None => {}
        }
    }
}

/// Everything that the decisions depend on, as it changes. Watches recover from errors.
fn watches(client: &Client, selector: Option<&str>) -> impl Stream<Item = News> + Unpin + use<> {
    stream::select_all([
        watched(client, selector).map(|event| News::Claim(Box::new(event))).boxed(),
        watched(client, selector).map(|event| News::Volume(Box::new(event))).boxed(),
        watched(client, None).map(|event| News::Class(Box::new(event))).boxed(),
    ])
}

fn watched<K>(client: &Client, selector: Option<&str>) -> impl Stream<Item = Event<K>> + use<K>
where
    K: Kept + Clone + std::fmt::Debug + Send + Sync + serde::de::DeserializeOwned + 'static,
{
    let config = Config { label_selector: selector.map(str::to_owned), ..Config::default() };
    let events = watcher(Api::<K>::all(client.clone()), config).default_backoff();
    events.filter_map(async |event| event.ok())
}

/// Carries an action out; gives what it made, or nothing where the live object says that it is not due.
async fn carry_out(client: &Client, action: Action) -> kube::Result<Option<News>> {
    let claims =
        |namespace: &str| Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let Action { item, patch, unless } = action;
    let is_there = match &unless {
        None => false,
        Some((Item::Claim(namespace, name), uid)) => {
            let found = claims(namespace).get_opt(name).await?;
            found.is_some_and(|found| found.metadata.uid == *uid)
        }
        Some((Item::Volume(name), _)) => volumes.get_opt(name).await?.is_some(),
        Some((Item::Class(_), _)) => true,
    };
    if is_there {
        return Ok(None);
    }
    Ok(match &item {
        Item::Claim(namespace, name) => {
            let claim = patched(&claims(namespace), name, &patch).await?;
            Some(News::Claim(Box::new(Event::Apply(claim))))
        }
        Item::Volume(name) => {
            let volume = patched(&volumes, name, &patch).await?;
            Some(News::Volume(Box::new(Event::Apply(volume))))
        }
        Item::Class(_) => None,
    })
}

/// Merges a patch into an object, or into its status where it holds one.
async fn patched<K>(api: &Api<K>, name: &str, patch: &Value) -> kube::Result<K>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let (params, merge) = (PatchParams::default(), Patch::Merge(patch));
    if patch.get("status").is_some() {
        api.patch_status(name, &params, &merge).await
    } else {
        api.patch(name, &params, &merge).await
    }
}
