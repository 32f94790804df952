//! The informer against a scripted API server, under paused time.

mod lists;

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::{
    kube::{
        LaneSettings, Lanes,
        connection::Connections,
        objects::Claim,
        testing::{Answer, End, RecordedRequest, Server, random},
    },
    logging::testing::logged,
    runtime::{Gate, SystemClock},
};

/// The events of an informer, one word each, with the second they came at.
type Events = Arc<Mutex<Vec<(u64, String)>>>;

/// What an informer did against a script.
struct Run {
    server: Server,
    metrics: Metrics,
    events: Vec<(u64, String)>,
}

impl Run {
    fn words(&self) -> Vec<&str> {
        self.events.iter().map(|(_, word)| word.as_str()).collect()
    }

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
    let events = Events::default();
    let (sink, start) = (Arc::clone(&events), Instant::now());
    let handler = move |event| sink.lock().push((start.elapsed().as_secs(), word(&event)));
    let ended = tokio::time::timeout(Duration::from_secs(seconds), informer.run(handler)).await;
    assert!(ended.is_err(), "an informer never returns");
    let events = events.lock().clone();
    Run { server, metrics, events }
}

fn client(server: &Server, metrics: &Metrics) -> Client {
    client_on(server.connections(), metrics)
}

fn client_on(connections: Connections, metrics: &Metrics) -> Client {
    let gate = Gate::open(Arc::new(SystemClock));
    Lanes::new(connections, LaneSettings::default(), gate, random(), metrics).objects
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

fn bookmark(version: u64) -> Value {
    json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
           "metadata": {"resourceVersion": version.to_string()}})
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
const LISTED_AB: [&str; 3] = ["init-apply a", "init-apply b", "init-done"];

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_resumed_without_a_list() {
    let run = run(60, |number, _| match number {
        0 => page(&["a"], ""),
        1 => Answer::watch().event(1, "MODIFIED", &claim("a", 22)).end(End::Broken),
        2 => Answer::none(),
        3 => Answer::refusal(500, "InternalError", "etcd is away"),
        _ => Answer::watch().event(0, "MODIFIED", &claim("a", 24)),
    })
    .await;
    assert_eq!(run.words(), [&LISTED_A[..], &["apply a", "apply a"]].concat());
    assert_eq!(run.requests(), ["page", "watch 20", "watch 22", "watch 22", "watch 22"]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_hour_costs_watches_but_no_list() {
    // Up to the second before the next watch.
    let run = run(3599, |number, _| match number {
        0 => page(&["a"], ""),
        1 => Answer::watch().event(200, "BOOKMARK", &bookmark(30)).chunk(40, "").end(End::Closed),
        _ => Answer::watch().chunk(240, "").end(End::Closed),
    })
    .await;
    assert_eq!(run.words(), LISTED_A);
    let requests = run.requests();
    assert_eq!(requests.len(), 16);
    assert!(requests.iter().skip(2).all(|request| request == "watch 30"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_opened_once_a_second() {
    let run = run(60, |number, _| match number {
        0 => page(&["a"], ""),
        _ => Answer::watch().end(End::Closed),
    })
    .await;
    assert_eq!(run.words(), LISTED_A);
    assert!((60..=67).contains(&run.requests().len()), "{}", run.requests().len());
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_again_and_costs_no_list() {
    let run = run(300, |_, seen| match request(&seen.url).as_str() {
        "page" => page(&["a"], ""),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.requests(), ["page", "watch 20", "watch 20"]);
    assert_eq!(run.server.times(), [0, 0, 245]);
}

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
        assert_eq!(run.words(), [&LISTED_A[..], &again].concat());
        assert_eq!(run.requests()[..4], ["page", "watch 20", "watch 21", "page"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_does_not_end_costs_a_list_before_it_fills_the_memory() {
    let endless = (0..64).fold(Answer::watch(), |watch, _| watch.chunk(1, vec![b'x'; 1 << 20]));
    let run = run(60, move |number, _| match number {
        0 | 2 => page(&["a"], ""),
        1 => endless.clone(),
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(run.words(), [LISTED_A, LISTED_A].concat());
    assert_eq!(run.requests(), ["page", "watch 20", "page", "watch 20"]);
    assert!((33..36).contains(&run.server.times()[2]), "of a MiB a second 32 are read");
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
async fn an_unreadable_object_does_not_end_a_watch() {
    let run = run(60, move |number, _| match number {
        0 => page_of(&[unreadable_claim("bad", 4, "none"), claim("a", 5)], ""),
        _ => Answer::watch()
            .event(1, "MODIFIED", &unreadable_claim("bad", 21, "none"))
            .event(1, "DELETED", &unreadable_claim("bad", 22, "none"))
            .event(1, "MODIFIED", &claim("a", 23)),
    })
    .await;
    let unreadable = "unreadable sc/bad uid-bad";
    assert_eq!(
        run.words(),
        [unreadable, "init-apply a", "init-done", unreadable, "delete bad", "apply a"]
    );
    assert_eq!(run.requests(), ["page", "watch 20"]);
    let text = run.metrics.text();
    let count = "provisioner_unreadable_objects_total{resource=\"persistentvolumeclaims\"} 3";
    assert!(text.contains(count), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_does_not_end_a_page() {
    let run = run(60, |number, _| match number {
        0 => page_of(&[json!({"metadata": {"name": 7}}), json!("no object"), claim("a", 5)], ""),
        _ => Answer::watch(),
    })
    .await;
    let words = ["unreadable / ", "unreadable / ", "init-apply a", "init-done"];
    assert_eq!(run.words(), words);
}

#[tokio::test(start_paused = true)]
async fn failures_are_waited_out_ever_longer() {
    let run = run(300, |_, _| Answer::refusal(403, "Forbidden", "no")).await;
    let times = run.server.times();
    assert_eq!(run.requests()[..3], ["page"; 3]);
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(times.len() < 16, "{times:?}");
    assert!(gaps.iter().rev().take(3).all(|gap| (29..=61).contains(gap)), "{gaps:?}");
}

/// How often the log holds a warning.
fn warnings(log: &str) -> usize {
    log.matches("WARN csi_provisioner").count()
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_to_watch_is_reported_once_and_lists_are_repeated() {
    let (log, _guard) = logged();
    let run = run(600, |_, seen| match request(&seen.url).as_str() {
        "page" => page(&["a"], ""),
        _ => Answer::refusal(403, "Forbidden", "cannot watch"),
    })
    .await;
    let requests = run.requests();
    assert_eq!(requests[..7], [&["page"][..], &["watch 20"; 5], &["page"]].concat());
    assert!(requests.iter().filter(|request| *request == "page").count() > 3);
    let log = log.text();
    assert_eq!(warnings(&log), 1, "{log}");
    assert!(log.contains("not allowed to list or watch"), "{log}");
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
    assert_eq!(warnings(&log), 3, "{log}");
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
    assert_eq!(run.words().iter().filter(|word| word.starts_with("unreadable sc/bad")).count(), 4);
    let log = log.text();
    assert_eq!(log.matches("cannot read an object").count(), 1, "{log}");
    assert_eq!(log.matches("not JSON").count(), 2, "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_scope_becomes_part_of_each_request() {
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
    for RecordedRequest { url, .. } in server.requests() {
        assert!(url.starts_with("/api/v1/namespaces/a%20b/persistentvolumeclaims?"), "{url}");
        assert_eq!(query(&url, "labelSelector"), "x%3Dy%2Cz");
        assert_eq!(query(&url, "fieldSelector"), "metadata.name%3Dsnap%26%3F");
    }
    assert!(Scope::namespace("..").is_err());
}
