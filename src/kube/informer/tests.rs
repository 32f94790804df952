//! The reflector against a scripted API server, under paused time.

mod listed;
mod protobuf;

use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use crate::{
    kube::{
        LaneSettings, Lanes,
        objects::Claim,
        testing::{Answer, End, Seen, Server, logged, random},
    },
    runtime::{Gate, SystemClock},
};

/// What the observer was shown, one word a sighting, with the second it was shown at.
type Shown = Arc<Mutex<Vec<(u64, String)>>>;

/// How a list is read.
#[derive(Clone, Copy)]
enum Service {
    /// By kube's watcher.
    Plain,
    /// While it comes, in pages.
    Listed,
    /// The same, and what does not fit on the first page comes at once.
    AtOnce,
}

impl Service {
    async fn run<V: View>(self, reflector: Informer<V>, observer: impl EventHandler<V>) {
        match self {
            Self::Plain => reflector.run(observer).await,
            Self::Listed | Self::AtOnce => reflector.run_listed(observer).await,
        }
    }

    fn settings(self) -> Settings {
        let first_page = matches!(self, Self::AtOnce).then_some(2);
        Settings { page_size: 2, first_page, ..Settings::default() }
    }
}

/// Runs a reflector against `script` for so many seconds.
async fn reflect(
    seconds: u64,
    script: impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static,
) -> Run {
    reflect_with(Service::Plain, seconds, script).await
}

async fn reflect_with(
    way: Service,
    seconds: u64,
    script: impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static,
) -> Run {
    let server = Server::new(script);
    let metrics = Metrics::new().unwrap();
    let gate = Gate::open(Arc::new(SystemClock));
    let lanes =
        Lanes::new(server.transport.clone(), LaneSettings::default(), gate, random(), &metrics);
    let shown = Shown::default();
    reflect_as(way, &lanes.objects, seconds, &shown, &metrics).await;
    let shown = shown.lock().clone();
    Run { server, metrics, shown, client: lanes.objects }
}

async fn reflect_on(client: &Client, seconds: u64, shown: &Shown, metrics: &Metrics) {
    reflect_as(Service::Plain, client, seconds, shown, metrics).await;
}

async fn reflect_as(way: Service, client: &Client, seconds: u64, shown: &Shown, metrics: &Metrics) {
    let settings = way.settings();
    let reflector = Informer::<Claim>::new(client, Scope::all(), settings, random(), metrics);
    let (shown, start) = (Arc::clone(shown), Instant::now());
    let observer = move |event| shown.lock().push((start.elapsed().as_secs(), word(&event)));
    let ended =
        tokio::time::timeout(Duration::from_secs(seconds), way.run(reflector, observer)).await;
    assert!(ended.is_err(), "a reflector never returns");
}

struct Run {
    server: Server,
    metrics: Metrics,
    shown: Vec<(u64, String)>,
    client: Client,
}

impl Run {
    fn words(&self) -> Vec<&str> {
        self.shown.iter().map(|(_, word)| word.as_str()).collect()
    }

    /// The requests, each in a word.
    fn asked(&self) -> Vec<String> {
        self.server.seen().iter().map(|seen| asked(&seen.url)).collect()
    }
}

fn word(event: &InformerEvent<Claim>) -> String {
    match event {
        InformerEvent::Init => "restarted".to_owned(),
        InformerEvent::InitDone => "complete".to_owned(),
        InformerEvent::InitApply(claim) => format!("listed {}", claim.name()),
        InformerEvent::Apply(claim) => format!("applied {}", claim.name()),
        InformerEvent::Delete(claim) => format!("deleted {}", claim.name()),
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

fn asked(url: &str) -> String {
    match (query(url, "watch"), query(url, "sendInitialEvents")) {
        ("true", "true") => "stream".to_owned(),
        ("true", _) => format!("watch {}", query(url, "resourceVersion")),
        _ if query(url, "resourceVersionMatch") == "NotOlderThan" => {
            format!("whole {}", query(url, "resourceVersion"))
        }
        _ => format!("page {}", query(url, "continue")).trim_end().to_owned(),
    }
}

fn claim(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "sc", "uid": format!("uid-{name}"), "resourceVersion": version.to_string()}})
}

fn bookmark(version: u64, ends_list: bool) -> Value {
    let annotations =
        if ends_list { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
           "metadata": {"resourceVersion": version.to_string(), "annotations": annotations}})
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason})
}

/// A streamed list of `names` that is whole at version 10.
fn stream(names: &[&str]) -> Answer {
    let listed = names
        .iter()
        .fold(Answer::watch(), |answer, name| answer.event(0, "ADDED", &claim(name, 5)));
    listed.event(0, "BOOKMARK", &bookmark(10, true))
}

/// A page of a list at version 20.
fn page(names: &[&str], next: &str) -> Answer {
    let items: Vec<Value> = names.iter().map(|name| claim(name, 5)).collect();
    Answer::json(
        200,
        &json!({"kind": "PersistentVolumeClaimList", "apiVersion": "v1",
                "metadata": {"resourceVersion": "20", "continue": next}, "items": items}),
    )
}

/// A server that cannot stream: says `refusal` to it, lists `a` and `b`, then watches.
fn paged_only(refusal: Answer) -> impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static {
    move |_, seen| match asked(&seen.url).as_str() {
        "stream" => refusal.clone(),
        "page" => page(&["a"], "next"),
        "page next" => page(&["b"], ""),
        _ => Answer::watch(),
    }
}

const PAGED: [&str; 4] = ["restarted", "listed a", "listed b", "complete"];

#[tokio::test(start_paused = true)]
async fn a_streamed_list_is_followed_by_changes_on_the_same_watch() {
    let run = reflect(100, |_, _| {
        stream(&["a", "b"])
            .event(3, "MODIFIED", &claim("a", 11))
            .event(1, "ADDED", &claim("c", 12))
            .event(1, "DELETED", &claim("b", 13))
    })
    .await;
    assert_eq!(
        run.words(),
        ["restarted", "listed a", "listed b", "complete", "applied a", "applied c", "deleted b"]
    );
    assert_eq!(run.shown.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 0, 0, 0, 3, 4, 5]);
    let seen = run.server.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(query(&seen[0].url, "timeoutSeconds"), "240");
    assert_eq!(query(&seen[0].url, "allowWatchBookmarks"), "true");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_to_stream_is_asked_for_pages_at_once() {
    let run =
        reflect(100, paged_only(Answer::refusal(422, "Invalid", "sendInitialEvents is forbidden")))
            .await;
    assert_eq!(run.words(), PAGED);
    assert_eq!(run.asked(), ["stream", "page", "page next", "watch 20"]);
    assert_eq!(run.server.times(), [0, 0, 0, 0]);
    assert_eq!(query(&run.server.seen()[1].url, "limit"), "2");
    assert!(
        run.server
            .seen()
            .iter()
            .skip(1)
            .take(2)
            .all(|seen| query(&seen.url, "resourceVersion").is_empty())
    );
}

/// It may know how all the same: it was away, just started, overloaded, or did not know our token.
#[tokio::test(start_paused = true)]
async fn a_server_that_could_not_answer_is_asked_to_stream_again() {
    for trouble in [
        Answer::none(),
        Answer::refusal(401, "Unauthorized", "Unauthorized"),
        Answer::refusal(429, "TooManyRequests", "later"),
        Answer::refusal(503, "ServiceUnavailable", "starting"),
    ] {
        let run = reflect(100, move |number, _| match number {
            0..3 => trouble.clone(),
            _ => stream(&["a"]),
        })
        .await;
        assert_eq!(run.asked(), ["stream"; 4]);
        assert_eq!(run.words(), ["restarted", "listed a", "complete"]);
        assert!(run.server.times().is_sorted_by(|one, next| one < next), "after waits");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_fails_in_band_is_replaced_by_pages() {
    let refusal = Answer::watch().event(0, "ADDED", &claim("a", 5)).event(
        0,
        "ERROR",
        &status(500, "InternalError"),
    );
    let run = reflect(100, paged_only(refusal)).await;
    assert_eq!(run.words(), [&["restarted", "listed a"][..], &PAGED].concat());
    assert_eq!(run.asked(), ["stream", "page", "page next", "watch 20"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_before_the_list_is_whole_is_replaced_by_pages() {
    for end in [End::Closed, End::Broken] {
        let run =
            reflect(100, paged_only(Answer::watch().event(0, "ADDED", &claim("a", 5)).end(end)))
                .await;
        assert_eq!(run.words()[2..], PAGED);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_the_wish_to_stream_is_found_out_by_its_silence() {
    let run = reflect(100, paged_only(Answer::watch().event(0, "ADDED", &claim("a", 5)))).await;
    assert_eq!(run.words(), [&["restarted", "listed a"][..], &PAGED].concat());
    assert_eq!(run.server.times(), [0, 5, 5, 5]);

    let shown = Shown::default();
    reflect_on(&run.client, 1, &shown, &run.metrics).await;
    assert_eq!(
        run.asked()[4..],
        ["page", "page next", "watch 20"],
        "the next reflector does not try"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_the_wish_to_stream_is_found_out_however_much_goes_on() {
    let busy = (0..200).fold(Answer::watch(), |answer, number| {
        answer.event(1, "MODIFIED", &claim("a", 100 + number))
    });
    let run = reflect(100, paged_only(busy)).await;
    assert_eq!(run.server.times(), [0, 60, 60, 60]);
    assert_eq!(run.words().iter().rev().take(4).rev().copied().collect::<Vec<_>>(), PAGED);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_to_begin_is_waited_for() {
    let run = reflect(100, |_, _| stream(&["a"]).after(20)).await;
    assert_eq!(run.words(), ["restarted", "listed a", "complete"]);
    assert_eq!(run.asked(), ["stream"]);
}

#[tokio::test(start_paused = true)]
async fn once_in_pages_always_in_pages() {
    let run = reflect(100, |_, seen| match asked(&seen.url).as_str() {
        "stream" => Answer::status(400),
        "page" => page(&["a"], ""),
        _ => Answer::watch().event(10, "ERROR", &status(410, "Expired")),
    })
    .await;
    assert_eq!(run.asked()[..6], ["stream", "page", "watch 20", "page", "watch 20", "page"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_forgotten_in_the_middle_of_a_watch_costs_a_list() {
    let run = reflect(20, |number, _| match number {
        0 => stream(&["a"]).event(10, "ERROR", &status(410, "Expired")),
        _ => stream(&["a", "b"]),
    })
    .await;
    assert_eq!(
        run.words(),
        ["restarted", "listed a", "complete", "restarted", "listed a", "listed b", "complete"]
    );
    assert_eq!(run.asked(), ["stream", "stream"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_forgotten_at_the_start_of_a_watch_costs_a_list() {
    let run = reflect(30, |number, _| match number {
        0 => stream(&["a"]).end(End::Closed),
        1 => Answer::refusal(410, "Expired", "too old resource version"),
        _ => stream(&["b"]),
    })
    .await;
    assert_eq!(run.asked(), ["stream", "watch 10", "stream"]);
    assert_eq!(
        run.words(),
        ["restarted", "listed a", "complete", "restarted", "listed b", "complete"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_cut_connection_is_resumed_without_a_list() {
    let run = reflect(60, |number, _| match number {
        0 => stream(&["a"]).event(1, "MODIFIED", &claim("a", 12)).end(End::Broken),
        1 => Answer::none(),
        2 => Answer::refusal(500, "InternalError", "etcd is away"),
        _ => Answer::watch().event(0, "MODIFIED", &claim("a", 14)),
    })
    .await;
    assert_eq!(run.words(), ["restarted", "listed a", "complete", "applied a", "applied a"]);
    assert_eq!(run.asked(), ["stream", "watch 12", "watch 12", "watch 12"]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_hour_costs_watches_but_no_list() {
    let run = reflect(3600, |number, _| match number {
        0 => stream(&["a"])
            .event(200, "BOOKMARK", &bookmark(30, false))
            .chunk(40, "")
            .end(End::Closed),
        _ => Answer::watch().chunk(240, "").end(End::Closed),
    })
    .await;
    assert_eq!(run.words(), ["restarted", "listed a", "complete"]);
    let asked = run.asked();
    assert_eq!(asked.len(), 15);
    assert!(asked.iter().skip(1).all(|asked| asked == "watch 30"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_begun_once_a_second() {
    let run = reflect(60, |number, _| {
        let answer = if number == 0 { stream(&["a"]) } else { Answer::watch() };
        answer.end(End::Closed)
    })
    .await;
    assert_eq!(run.words(), ["restarted", "listed a", "complete"]);
    assert!((60..=66).contains(&run.asked().len()), "{}", run.asked().len());
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_noticed() {
    let run =
        reflect(300, |number, _| if number == 0 { stream(&["a"]) } else { Answer::watch() }).await;
    assert_eq!(run.asked(), ["stream", "watch 10"]);
    assert_eq!(run.server.times(), [0, 245]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_costs_only_itself() {
    let bad = |version: u64| {
        let mut claim = claim("bad", version);
        claim["spec"] = json!({"accessModes": "none"});
        claim
    };
    let run = reflect(60, move |_, _| {
        Answer::watch()
            .event(0, "ADDED", &bad(4))
            .event(0, "ADDED", &claim("a", 5))
            .event(0, "BOOKMARK", &bookmark(10, true))
            .event(1, "MODIFIED", &bad(11))
            .event(1, "DELETED", &bad(12))
            .event(1, "MODIFIED", &claim("a", 13))
    })
    .await;
    assert_eq!(
        run.words(),
        [
            "restarted",
            "unreadable sc/bad uid-bad",
            "listed a",
            "complete",
            "unreadable sc/bad uid-bad",
            "deleted bad",
            "applied a"
        ]
    );
    assert_eq!(run.server.seen().len(), 1);
    let text = run.metrics.text();
    assert!(
        text.contains(
            "provisioner_unreadable_objects_total{resource=\"persistentvolumeclaims\"} 3"
        ),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_does_not_break_a_page() {
    let run = reflect(60, |_, seen| match asked(&seen.url).as_str() {
        "stream" => Answer::status(400),
        "page" => {
            let items = [json!({"metadata": {"name": 7}}), json!("no object"), claim("a", 5)];
            Answer::json(200, &json!({"metadata": {"resourceVersion": "20"}, "items": items}))
        }
        _ => Answer::watch(),
    })
    .await;
    assert_eq!(
        run.words(),
        ["restarted", "unreadable / ", "unreadable / ", "listed a", "complete"]
    );
}

#[tokio::test(start_paused = true)]
async fn errors_are_waited_out_ever_longer() {
    let run = reflect(300, |_, _| Answer::refusal(403, "Forbidden", "no")).await;
    let times = run.server.times();
    assert_eq!(run.asked()[..3], ["stream", "page", "page"]);
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(times.len() < 16, "{times:?}");
    assert!(gaps.iter().rev().take(3).all(|gap| (29..=61).contains(gap)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_lists_are_repeated_and_the_lack_is_told_once() {
    let (log, _guard) = logged();
    let run = reflect(600, |_, seen| match asked(&seen.url).as_str() {
        "page" => page(&["a"], ""),
        _ => Answer::refusal(403, "Forbidden", "cannot watch"),
    })
    .await;
    let asked = run.asked();
    assert_eq!(asked[..8], [&["stream", "page"][..], &["watch 20"; 5], &["page"]].concat());
    assert!(asked.iter().filter(|asked| *asked == "page").count() > 3);
    let log = log.text();
    // kube's own complaints are the log's filter's business.
    assert_eq!(log.matches("WARN csi_provisioner").count(), 1, "{log}");
    assert!(log.contains("not allowed to list or watch"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn nothing_logged_holds_an_objects_content() {
    let (log, _guard) = logged();
    let mut bad = claim("bad", 5);
    bad["spec"] = json!({"accessModes": "hunter2"});
    let run = reflect(60, move |_, seen| match asked(&seen.url).as_str() {
        "stream" => Answer::watch().chunk(0, "{\"type\":\"ADDED\",\"object\":hunter2}\n"),
        "page" => {
            Answer::json(200, &json!({"metadata": {"resourceVersion": "20"}, "items": [bad]}))
        }
        _ => Answer::watch().event(0, "MODIFIED", &bad).event(0, "MODIFIED", &bad),
    })
    .await;
    assert_eq!(run.words().iter().filter(|word| word.starts_with("unreadable sc/bad")).count(), 3);
    let log = log.text();
    assert_eq!(log.matches("cannot read an object").count(), 1, "{log}");
    assert!(log.contains("not JSON") && !log.contains("hunter2"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_scope_becomes_part_of_the_request() {
    let server = Server::new(|_, _| stream(&[]));
    let metrics = Metrics::new().unwrap();
    let gate = Gate::open(Arc::new(SystemClock));
    let lanes =
        Lanes::new(server.transport.clone(), LaneSettings::default(), gate, random(), &metrics);
    let scope = Scope::namespace("a b").unwrap().labelled("x=y,z").named("snap&?");
    let reflector =
        Informer::<Claim>::new(&lanes.objects, scope, Settings::default(), random(), &metrics);
    let _ = tokio::time::timeout(Duration::from_secs(1), reflector.run(|_| {})).await;
    let url = &server.seen()[0].url;
    assert!(url.starts_with("/api/v1/namespaces/a%20b/persistentvolumeclaims?"), "{url}");
    assert_eq!(query(url, "labelSelector"), "x%3Dy%2Cz");
    assert_eq!(query(url, "fieldSelector"), "metadata.name%3Dsnap%26%3F");
    assert!(Scope::namespace("..").is_err());
}
