//! The informer against a scripted API server, under paused time.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::{
    kube::{
        LaneSettings, Lanes,
        objects::Claim,
        testing::{Answer, End, RecordedRequest, Server, random},
    },
    logging::testing::logged,
    runtime::{Gate, SystemClock},
};

/// What an informer did against a script.
struct Run {
    server: Server,
    metrics: Metrics,
    /// The events, one word each.
    words: Vec<String>,
}

impl Run {
    /// The requests, each in a word.
    fn requests(&self) -> Vec<String> {
        self.server.requests().iter().map(|seen| request(&seen.url)).collect()
    }
}

/// Runs an informer against `script` for so many seconds.
async fn run(
    seconds: u64,
    script: impl Fn(usize, &RecordedRequest) -> Answer + Send + Sync + 'static,
) -> Run {
    let server = Server::new(script);
    let metrics = Metrics::new();
    let informer = informer(&server, &metrics);
    let mut words = Vec::new();
    let handler = |event| words.push(word(&event));
    let ended = tokio::time::timeout(Duration::from_secs(seconds), informer.run(handler)).await;
    assert!(ended.is_err(), "an informer never returns");
    Run { server, metrics, words }
}

fn client(server: &Server, metrics: &Metrics) -> Client {
    let gate = Gate::open(Arc::new(SystemClock));
    Lanes::new(server.connections(), LaneSettings::default(), gate, random(), metrics).objects
}

/// An informer with pages of two objects.
fn informer(server: &Server, metrics: &Metrics) -> Informer<Claim> {
    Informer::with_pages(2, &client(server, metrics), Scope::all(), random(), metrics)
}

fn word(event: &InformerEvent<Claim>) -> String {
    match event {
        InformerEvent::InitApply(claim) => format!("init-apply {}", claim.name()),
        InformerEvent::InitDone(_) => "init-done".to_owned(),
        InformerEvent::Apply(claim) => format!("apply {}", claim.name()),
        InformerEvent::Delete(claim) => format!("delete {}", claim.name()),
        InformerEvent::Unreadable { namespace, name, uid } => {
            format!("unreadable {namespace}/{name} {uid}")
        }
    }
}

fn query<'a>(url: &'a str, key: &str) -> &'a str {
    let pairs = url.split_once('?').map_or("", |(_, query)| query).split('&');
    pairs
        .filter_map(|pair| pair.split_once('='))
        .find(|(name, _)| *name == key)
        .map_or("", |(_, value)| value)
}

/// A request in a word: `page`, `page TOKEN` or `watch VERSION`.
fn request(url: &str) -> String {
    if query(url, "watch") == "true" {
        format!("watch {}", query(url, "resourceVersion"))
    } else {
        format!("page {}", query(url, "continue")).trim_end().to_owned()
    }
}

fn claim(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "sc", "uid": format!("uid-{name}"), "resourceVersion": version.to_string()}})
}

/// A claim that cannot be read, of which `text` is the wrong part.
fn unreadable_claim(name: &str, version: u64, text: &str) -> Value {
    let mut claim = claim(name, version);
    claim["spec"] = json!({"accessModes": text});
    claim
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason})
}

/// A page of a list at version 20.
fn page(names: &[&str], next: &str) -> Answer {
    let items: Vec<Value> = names.iter().map(|name| claim(name, 5)).collect();
    page_of(&items, next)
}

fn page_of(items: &[Value], next: &str) -> Answer {
    let metadata = json!({"resourceVersion": "20", "continue": next});
    Answer::json(
        200,
        &json!({"kind": "PersistentVolumeClaimList", "apiVersion": "v1",
                "metadata": metadata, "items": items}),
    )
}

const LISTED_A: [&str; 2] = ["init-apply a", "init-done"];

#[tokio::test(start_paused = true)]
async fn a_forgotten_version_costs_a_list() {
    let at_start = Answer::refusal(410, "Expired", "too old resource version");
    let in_band = Answer::watch().event(0, "ERROR", &status(410, "Expired"));
    let without_version = Answer::watch().event(0, "MODIFIED", &json!({"metadata": {"name": "a"}}));
    // Events that are lost: kube-rs goes on with the next one.
    let [garbled, no_event] =
        ["{\"type\":\"ADDED\",\"object\":}\n", "{\"object\":{},\"type\":\"ADDED\"}\n"]
            .map(|line| Answer::watch().chunk(0, line));
    for forgotten in [at_start, in_band, without_version, garbled, no_event] {
        let run = run(20, move |number, seen| match (number, request(&seen.url).as_str()) {
            (0, _) => page(&["a"], ""),
            (1, _) => Answer::watch().event(1, "MODIFIED", &claim("a", 21)).end(End::Closed),
            (2, _) => forgotten.clone(),
            (_, "page") => page(&["b"], ""),
            _ => Answer::watch(),
        })
        .await;
        let again = ["apply a", "init-apply b", "init-done"];
        assert_eq!(run.words, [&LISTED_A[..], &again].concat());
        assert_eq!(run.requests()[..4], ["page", "watch 20", "watch 21", "page"]);
    }
}

/// A server may refuse a version that it has forgotten with any code.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_five_times_in_a_row_costs_a_list() {
    let run = run(600, |number, seen| match (number, request(&seen.url).as_str()) {
        (_, "page") => page(&["a"], ""),
        (0..3 | 4..7, _) => Answer::refusal(504, "Timeout", "Too large resource version"),
        (3, _) => Answer::watch().event(0, "MODIFIED", &claim("a", 21)).end(End::Closed),
        (7..10, _) => Answer::none(),
        (10..12, _) => {
            Answer::watch().event(0, "ERROR", &status(500, "InternalError")).end(End::Closed)
        }
        _ => Answer::watch(),
    })
    .await;
    let requests = run.requests();
    let expected =
        [&["page"][..], &["watch 20"; 3], &["watch 21"; 8], &["page", "watch 20"]].concat();
    assert_eq!(requests[..14], expected, "connections that fail do not count");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_ends_neither_a_page_nor_a_watch() {
    let run = run(60, move |number, _| match number {
        0 => page_of(
            &[
                unreadable_claim("bad", 4, "none"),
                json!({"metadata": {"name": 7}}),
                json!("no object"),
                claim("a", 5),
            ],
            "",
        ),
        _ => Answer::watch()
            .event(1, "MODIFIED", &unreadable_claim("bad", 21, "none"))
            .event(1, "DELETED", &unreadable_claim("bad", 22, "none"))
            .event(1, "MODIFIED", &claim("a", 23)),
    })
    .await;
    let (bad, nameless) = ("unreadable sc/bad uid-bad", "unreadable / ");
    let listed = [bad, nameless, nameless, "init-apply a", "init-done"];
    assert_eq!(run.words, [&listed[..], &[bad, "delete bad", "apply a"]].concat());
    assert_eq!(run.requests(), ["page", "watch 20"]);
    let text = run.metrics.text();
    let count = "provisioner_unreadable_objects_total{resource=\"persistentvolumeclaims\"} 5";
    assert!(text.contains(count), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_reported_once_until_it_was_there() {
    let (log, _guard) = logged();
    let run = run(600, |number, seen| match (number, request(&seen.url).as_str()) {
        (3, "page") => page(&["a"], ""),
        (4, _) => {
            Answer::watch().event(1, "ADDED", &claim("b", 21)).event(0, "ERROR", &status(410, ""))
        }
        _ => Answer::status(404),
    })
    .await;
    assert!(run.requests().len() > 8);
    let log = log.text();
    assert_eq!(log.matches("the API server does not serve the kind").count(), 2, "{log}");
    assert_eq!(log.matches("WARN csi_provisioner").count(), 3, "{log}");
}

#[tokio::test(start_paused = true)]
async fn nothing_logged_holds_an_objects_content() {
    let (log, _guard) = logged();
    let bad = unreadable_claim("bad", 5, "hunter2");
    let run = run(60, move |number, _| match number {
        0 => Answer::status(200).chunk(0, "{\"items\":[hunter2]}"),
        1 | 3 => page_of(std::slice::from_ref(&bad), ""),
        2 => Answer::watch().chunk(0, "{\"type\":\"ADDED\",\"object\":hunter2}\n"),
        _ => Answer::watch().event(0, "MODIFIED", &bad).event(0, "MODIFIED", &bad),
    })
    .await;
    assert_eq!(run.words.iter().filter(|word| word.starts_with("unreadable sc/bad")).count(), 4);
    let log = log.text();
    assert_eq!(log.matches("cannot read an object").count(), 1, "{log}");
    assert_eq!(log.matches("not JSON").count(), 2, "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn what_only_a_broken_list_has_shown_has_vanished() {
    let server = Server::new(|number, seen| match (number, request(&seen.url).as_str()) {
        (0, _) => page(&["shown"], "next"),
        (1, _) => Answer::refusal(410, "Expired", "continue"),
        (_, "page") => page_of(&[claim("a", 5), unreadable_claim("bad", 5, "none")], "next"),
        (_, "page next") => page(&["b"], ""),
        _ => Answer::watch(),
    });
    let metrics = Metrics::new();
    let mut lists = Vec::new();
    let handler = |event| {
        if let InformerEvent::InitDone(listed) = event {
            lists.push(listed);
        }
    };
    let informer = informer(&server, &metrics);
    let _ = tokio::time::timeout(Duration::from_secs(60), informer.run(handler)).await;
    assert_eq!(lists.len(), 1);
    for (uid, is_there) in
        [("uid-a", true), ("uid-bad", true), ("uid-b", true), ("uid-shown", false)]
    {
        assert_eq!(lists[0].contains(uid), is_there, "{uid}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_consistent_a_watch_begins_at_its_version_and_a_scope_is_part_of_each_request() {
    let server = Server::new(|_, seen| match request(&seen.url).as_str() {
        "page" => page(&["a"], "next"),
        "page next" => page(&["b"], ""),
        _ => Answer::watch(),
    });
    let metrics = Metrics::new();
    let scope = Scope::namespace("a b").unwrap().labelled("x=y,z").named("snap&?");
    let informer = Informer::<Claim>::new(&client(&server, &metrics), scope, random(), &metrics);
    let _ = tokio::time::timeout(Duration::from_secs(9), informer.run(|_| {})).await;
    let requests: Vec<String> = server.requests().iter().map(|seen| request(&seen.url)).collect();
    assert_eq!(requests, ["page", "page next", "watch 20"]);
    let [first, _, watch] = &server.requests()[..] else { panic!("three requests") };
    assert_eq!(query(&first.url, "limit"), "1000");
    assert_eq!(query(&first.url, "resourceVersion"), "", "a consistent read");
    assert_eq!(query(&watch.url, "allowWatchBookmarks"), "true");
    assert_eq!(query(&watch.url, "timeoutSeconds"), "240");
    for RecordedRequest { url, .. } in server.requests() {
        assert!(url.starts_with("/api/v1/namespaces/a%20b/persistentvolumeclaims?"), "{url}");
        assert_eq!(query(&url, "labelSelector"), "x%3Dy%2Cz");
        assert_eq!(query(&url, "fieldSelector"), "metadata.name%3Dsnap%26%3F");
    }
    assert!(Scope::namespace("..").is_err());
}
