//! The same cases over the informer and over kube-rs's `watcher`, so that the one can replace the
//! other some day.

use std::{collections::BTreeMap, pin::pin};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use proptest::{collection::vec, prelude::*, strategy::Strategy};

use super::*;
use crate::kube::testing::kube_client;

/// What lists and watches.
#[derive(Debug, Clone, Copy)]
enum Engine {
    /// The informer; what follows the first page is listed in pages.
    InPages,
    /// The informer; what follows the first page is listed at once.
    AtOnce,
    /// kube-rs's `watcher`, with pages.
    Kube,
}

impl Engine {
    const ALL: [Self; 3] = [Self::InPages, Self::AtOnce, Self::Kube];

    /// Runs it against `server` for 100 seconds.
    async fn run(self, server: &Server) -> Vec<InformerEvent<Claim>> {
        let metrics = Metrics::new();
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let handler = move |event| sink.lock().push(event);
        let informer = |rest: Rest| informer(server, &metrics).with_settings(rest.settings());
        let run = async {
            match self {
                Self::InPages => informer(Rest::Pages).run(handler).await,
                Self::AtOnce => informer(Rest::AtOnce).run(handler).await,
                Self::Kube => run_watcher(server, handler).await,
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(100), run).await;
        std::mem::take(&mut *events.lock())
    }
}

/// Passes the events of kube-rs's `watcher` to `handler`, with the view of each claim.
async fn run_watcher(server: &Server, handler: impl Fn(InformerEvent<Claim>)) {
    let config = watcher::Config::default().timeout(240).page_size(2);
    let api = Api::<PersistentVolumeClaim>::all(kube_client(server.transport.clone()));
    let mut events = pin!(watcher(api, config).default_backoff());
    let view = |claim| serde_json::from_value(json!(claim)).unwrap();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => handler(InformerEvent::Init),
            Ok(Event::InitApply(claim)) => handler(InformerEvent::InitApply(view(claim))),
            Ok(Event::InitDone) => handler(InformerEvent::InitDone),
            Ok(Event::Apply(claim)) => handler(InformerEvent::Apply(view(claim))),
            Ok(Event::Delete(claim)) => handler(InformerEvent::Delete(view(claim))),
            Err(_) => {}
        }
    }
}

/// A script and the events that it leads to.
type Case = (fn(usize, &RecordedRequest) -> Answer, &'static [&'static str]);

const CASES: [Case; 5] = [
    // Changes follow the list.
    (
        |number, _| match number {
            0 => page(&["a", "b"], ""),
            _ => Answer::watch()
                .event(1, "ADDED", &claim("c", 21))
                .event(1, "MODIFIED", &claim("a", 22))
                .event(1, "DELETED", &claim("b", 23)),
        },
        &["init", "init-apply a", "init-apply b", "init-done", "apply c", "apply a", "delete b"],
    ),
    // The first list fails.
    (
        |number, _| match number {
            0 => Answer::status(500),
            1 => Answer::none(),
            2 => page(&["a"], ""),
            _ => Answer::watch(),
        },
        &["init", "init", "init", "init-apply a", "init-done"],
    ),
    // A watch breaks, and goes on.
    (
        |number, _| match number {
            0 => page(&["a"], ""),
            1 => Answer::watch().event(1, "MODIFIED", &claim("a", 22)).end(End::Broken),
            2 => Answer::refusal(500, "InternalError", "etcd is away"),
            _ => Answer::watch().event(0, "MODIFIED", &claim("a", 24)),
        },
        &["init", "init-apply a", "init-done", "apply a", "apply a"],
    ),
    // A bookmark moves the version on.
    (
        |number, seen| match (number, request(&seen.url).as_str()) {
            (0, _) => page(&["a"], ""),
            (1, _) => Answer::watch().event(1, "BOOKMARK", &bookmark(30)).end(End::Closed),
            (_, "watch 30") => Answer::watch().event(1, "DELETED", &claim("a", 31)),
            _ => Answer::refusal(410, "Expired", "too old resource version"),
        },
        &["init", "init-apply a", "init-done", "delete a"],
    ),
    // The version is forgotten.
    (
        |number, _| match number {
            0 => page(&["a"], ""),
            1 => Answer::watch().event(1, "ERROR", &status(410, "Expired")),
            2 => page(&["b"], ""),
            _ => Answer::watch(),
        },
        &["init", "init-apply a", "init-done", "init", "init-apply b", "init-done"],
    ),
];

#[tokio::test(start_paused = true)]
async fn the_informer_and_kubes_watcher_yield_the_same() {
    for (number, (script, expected)) in CASES.into_iter().enumerate() {
        for engine in Engine::ALL {
            let events = engine.run(&Server::new(script)).await;
            let words: Vec<String> = events.iter().map(word).collect();
            assert_eq!(words, expected, "case {number}, {engine:?}");
        }
    }
}

/// What happens to an object on the server while it is listed.
#[derive(Debug, Clone, Copy)]
struct Change {
    object: u8,
    deletes: bool,
}

fn change() -> impl Strategy<Value = Change> {
    (0..8_u8, any::<bool>()).prop_map(|(object, deletes)| Change { object, deletes })
}

/// A server's objects by number, and the events that led to them.
#[derive(Default)]
struct History {
    now: BTreeMap<u8, Value>,
    version: u64,
    /// Events with their versions.
    events: Vec<(u64, &'static str, Value)>,
}

impl History {
    /// The objects that exist when the list begins, and no events since.
    fn of(exist: &[bool]) -> Self {
        let mut history = Self { version: 100, ..Self::default() };
        for (object, _) in (0..).zip(exist).filter(|(_, exists)| **exists) {
            history.apply(Change { object, deletes: false });
        }
        history.events.clear();
        history
    }

    /// Changes, creates or deletes an object.
    fn apply(&mut self, change: Change) {
        let before = self.now.remove(&change.object);
        if change.deletes && before.is_none() {
            return;
        }
        self.version += 1;
        let uid = json!(format!("o{}-{}", change.object, self.version));
        let mut object = before.clone().unwrap_or_else(|| {
            let mut object = claim(&format!("o{}", change.object), self.version);
            object["metadata"]["uid"] = uid;
            object
        });
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let kind = match (change.deletes, before) {
            (true, _) => "DELETED",
            (false, Some(_)) => "MODIFIED",
            (false, None) => "ADDED",
        };
        if !change.deletes {
            self.now.insert(change.object, object.clone());
        }
        self.events.push((self.version, kind, object));
    }

    /// The objects as they are in the end.
    fn versions(&self) -> Versions {
        let claims =
            self.now.values().map(|object| serde_json::from_value(object.clone()).unwrap());
        claims.map(|claim: Claim| (claim.uid().to_owned(), version_of(&claim))).collect()
    }

    /// The pages of a list, two objects each.
    fn pages(&self) -> Vec<Answer> {
        let objects: Vec<&Value> = self.now.values().collect();
        let pages: Vec<_> = objects.chunks(2).collect();
        let answer = |number: usize| {
            let next =
                if number + 1 < pages.len() { (number + 1).to_string() } else { String::new() };
            let metadata = json!({"resourceVersion": self.version.to_string(), "continue": next});
            let items = pages.get(number).copied().unwrap_or_default();
            Answer::json(200, &json!({"metadata": metadata, "items": items}))
        };
        (0..pages.len().max(1)).map(answer).collect()
    }

    /// The whole list.
    fn whole(&self) -> Answer {
        let metadata = json!({"resourceVersion": self.version.to_string()});
        let items: Vec<_> = self.now.values().collect();
        Answer::json(200, &json!({"metadata": metadata, "items": items}))
    }
}

/// The version of each object, by UID.
type Versions = BTreeMap<String, u64>;

fn version_of(claim: &Claim) -> u64 {
    claim.metadata.resource_version.as_deref().unwrap().parse().unwrap()
}

/// A server on which `changes` happen while the objects that `exist` are listed. The first pages are as old
/// as the list; a whole list is as new as the first `seen` changes.
fn server(exist: &[bool], changes: Vec<Change>, seen: usize) -> (Server, Versions) {
    let mut history = History::of(exist);
    let pages = history.pages();
    let mut whole = history.whole();
    for (number, change) in changes.into_iter().enumerate() {
        history.apply(change);
        if number < seen {
            whole = history.whole();
        }
    }
    let events = history.events.clone();
    let watch = move |from: u64| {
        let later = events.iter().filter(|(version, ..)| *version > from);
        later.fold(Answer::watch(), |watch, (_, kind, object)| watch.event(0, kind, object))
    };
    let server = Server::new(move |_, seen| match query(&seen.url, "watch") {
        "true" => watch(query(&seen.url, "resourceVersion").parse().unwrap()),
        _ if query(&seen.url, "resourceVersionMatch") == "NotOlderThan" => whole.clone(),
        _ => pages[query(&seen.url, "continue").parse().unwrap_or(0)].clone(),
    });
    (server, history.versions())
}

/// What a handler knows of the objects after these events.
fn known(events: Vec<InformerEvent<Claim>>) -> Versions {
    let (mut known, mut is_complete) = (Versions::new(), false);
    for event in events {
        match event {
            InformerEvent::Init => assert!(known.is_empty(), "there is one list"),
            InformerEvent::InitApply(claim) | InformerEvent::Apply(claim) => {
                let older = known.insert(claim.uid().to_owned(), version_of(&claim));
                assert!(older.is_none_or(|older| older < version_of(&claim)), "it goes back");
            }
            InformerEvent::Delete(claim) => drop(known.remove(claim.uid())),
            InformerEvent::InitDone => is_complete = true,
            InformerEvent::Unreadable { name, .. } => panic!("{name} can be read"),
        }
    }
    assert!(is_complete);
    known
}

fn engine() -> impl Strategy<Value = Engine> {
    prop::sample::select(&Engine::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever happens during the list, the events lead to the objects as they are.
    #[test]
    fn lists_and_changes_lead_to_the_truth(
        exist in vec(any::<bool>(), 8),
        changes in vec(change(), 0..24),
        seen in 0..25_usize,
        engine in engine(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all().start_paused(true).build().unwrap();
        let (events, truth) = runtime.block_on(async {
            let (server, truth) = server(&exist, changes, seen);
            (engine.run(&server).await, truth)
        });
        prop_assert_eq!(known(events), truth);
    }
}
