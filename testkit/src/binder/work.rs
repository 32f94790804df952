//! The loop: what the watches show goes into the book, what is decided goes to the API server.

use std::{collections::BTreeSet, future::ready, time::Duration};

use futures::{Stream, StreamExt as _, stream, stream::FuturesUnordered};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{Config, Event, watcher},
    },
};
use serde_json::json;
use tokio::time::interval;

use super::{
    Action, Settings, about,
    book::{Book, CLAIM, CLASS, Item, VOLUME, stored},
};
use crate::apiserver::serve::manifests;

/// How often changes that were refused are tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How many changes are carried out at once: each is of another object.
const AT_ONCE: usize = 16;

/// Binds for as long as it is polled. The watches are read while changes are under way, and what a change made is
/// known before the next change of its object.
pub async fn run(client: Client, settings: Settings) {
    let mut watches = stream::select_all([
        watched(&client, VOLUME, settings.selector.clone()).boxed(),
        watched(&client, CLAIM, settings.selector.clone()).boxed(),
        watched(&client, CLASS, None).boxed(),
    ]);
    let (mut book, mut put_off) = (Book::default(), BTreeSet::new());
    let (mut under_way, mut hands) = (FuturesUnordered::new(), BTreeSet::new());
    let mut again = interval(AGAIN);
    loop {
        while under_way.len() < AT_ONCE {
            let Some(item) = book.next() else { break };
            let Some(action) = about(&item, &book, &settings) else { continue };
            if hands.insert(action.item.clone()) {
                let (client, changed) = (&client, action.item.clone());
                under_way.push(async move { (item, changed, carry_out(client, action).await) });
            } else {
                put_off.insert(item);
            }
        }
        tokio::select! {
            biased; // what is known comes before what is decided on it
            Some((kind, event)) = watches.next() => book.shown(kind, event),
            Some((item, changed, made)) = under_way.next() => {
                hands.remove(&changed);
                match made {
                    // Of one that has gone meanwhile the watch had the last word.
                    Ok(Some(object)) if book.get(&changed).is_some() => {
                        book.put(changed.kind, stored(&object));
                    }
                    Ok(Some(_)) => {}
                    // The live object says that it is not due, or somebody else was faster.
                    Ok(None) | Err(_) => drop(put_off.insert(item)),
                }
            }
            _ = again.tick() => {
                for item in std::mem::take(&mut put_off) {
                    book.line_up(item);
                }
            }
        }
    }
}

/// The objects of a kind as they change. The watch recovers from errors.
fn watched(
    client: &Client,
    kind: &'static str,
    label_selector: Option<String>,
) -> impl Stream<Item = (&'static str, Event<DynamicObject>)> + use<> {
    let config = Config { label_selector, ..Config::default() };
    let events = watcher(api(client, &Item::new(kind, "", "")), config).default_backoff();
    events.filter_map(move |event| ready(event.ok().map(|event| (kind, event))))
}

/// Where an item lives.
fn api(client: &Client, item: &Item) -> Api<DynamicObject> {
    let version = if item.kind == CLASS { "storage.k8s.io/v1" } else { "v1" };
    let metadata = json!({"namespace": item.namespace});
    let object = json!({"apiVersion": version, "kind": item.kind, "metadata": metadata});
    manifests::api_of(client, &object)
}

/// Carries an action out; gives what it made, or nothing where the live object says that it is not due.
async fn carry_out(client: &Client, action: Action) -> kube::Result<Option<DynamicObject>> {
    let Action { item, patch, unless } = action;
    if let Some((other, uid)) = unless {
        let found = api(client, &other).get_opt(&other.name).await?;
        if found.is_some_and(|found| uid.is_none() || found.metadata.uid == uid) {
            return Ok(None);
        }
    }
    let (api, params, merge) = (api(client, &item), PatchParams::default(), Patch::Merge(&patch));
    let made = match patch.get("status") {
        Some(_) => api.patch_status(&item.name, &params, &merge).await,
        None => api.patch(&item.name, &params, &merge).await,
    };
    made.map(Some)
}
