//! The recorder against a scripted sink, under paused time.

use std::collections::VecDeque;

use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::{
    kube::{
        events::held,
        testing,
        testing::{Answer, Server},
    },
    runtime::{Generator, TokioSpawner},
};

/// Wall time follows tokio's paused clock.
struct Wall(Instant);

impl Clock for Wall {
    fn wall(&self) -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap() + self.0.elapsed()
    }
    fn boot(&self) -> Duration {
        self.0.elapsed()
    }
}

/// What came to the sink: the verb, the object, the message, the count, and when.
type Call = (&'static str, String, String, u32, u64);

/// Answers as scripted, then with success; notes all calls.
#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<Result<(), Failure>>>>,
    calls: Arc<Mutex<Vec<Call>>>,
    took: Duration,
    /// Objects whose events the server never takes.
    stuck: fn(&str) -> bool,
    start: Instant,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Result<(), Failure>>) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            calls: Arc::default(),
            took: Duration::ZERO,
            stuck: |_| false,
            start: Instant::now(),
        }
    }

    async fn call(&self, verb: &'static str, event: &Event) -> Result<(), Failure> {
        tokio::time::sleep(self.took).await;
        let at = self.start.elapsed().as_secs();
        let call =
            (verb, event.about.name.clone(), event.message.as_str().to_owned(), event.count, at);
        self.calls.lock().push(call);
        if (self.stuck)(&event.about.name) {
            return spawn();
        }
        self.answers.lock().pop_front().unwrap_or(Ok(()))
    }

    fn verbs(&self) -> Vec<(&'static str, u32)> {
        self.calls.lock().iter().map(|call| (call.0, call.3)).collect()
    }

    fn messages(&self, object: &str) -> Vec<String> {
        let calls = self.calls.lock();
        calls.iter().filter(|call| call.1 == object).map(|call| call.2.clone()).collect()
    }
}

impl Sink for Script {
    async fn create(&self, event: &Event) -> Result<(), Failure> {
        self.call("create", event).await
    }
    async fn patch(&self, event: &Event) -> Result<(), Failure> {
        self.call("patch", event).await
    }
}

fn start(script: &Script) -> (Recorder, Metrics) {
    let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
    let metrics = Metrics::new().unwrap();
    let clock = Arc::new(Wall(Instant::now()));
    let random = Arc::new(Generator::from_seed(1));
    (Recorder::start_with(script.clone(), &tasks, clock, random, &metrics), metrics)
}

fn claim(name: &str) -> Subject {
    Subject {
        kind: "PersistentVolumeClaim".into(),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        ..Subject::default()
    }
}

fn tell(recorder: &Recorder, object: &str, message: &str) {
    recorder.from("driver").event(claim(object), Severity::Normal, "Reason", message);
}

/// DependencyIndex until all is written or given up, without the hurry of the process's end.
async fn drained(recorder: &Recorder) {
    while recorder.0.left() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn dropped(metrics: &Metrics, reason: &str) -> bool {
    let text = metrics.text();
    text.contains(&format!("provisioner_events_dropped_total{{reason=\"{reason}\"}}"))
}

fn spawn() -> Result<(), Failure> {
    Err(Failure::Passing("away".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn an_event_is_created_and_its_repeats_are_counted() {
    let script = Script::new([]);
    let (recorder, _) = start(&script);
    for _ in 0..3 {
        tell(&recorder, "c", "m");
    }
    drained(&recorder).await;
    assert_eq!(script.verbs(), [("create", 1), ("patch", 2), ("patch", 3)]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_gone_is_made_anew_with_its_count() {
    let script = Script::new([Ok(()), Err(Failure::Gone("gone".to_owned()))]);
    let (recorder, _) = start(&script);
    tell(&recorder, "c", "m");
    tell(&recorder, "c", "m");
    drained(&recorder).await;
    assert_eq!(script.verbs(), [("create", 1), ("patch", 2), ("create", 2)]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_not_taken_is_tried_12_times_10_seconds_apart() {
    let script = Script { stuck: |_| true, ..Script::new([]) };
    let (recorder, metrics) = start(&script);
    tell(&recorder, "c", "m");
    drained(&recorder).await;
    let calls = script.calls.lock().clone();
    assert_eq!(calls.len(), 12);
    let gaps: Vec<u64> = calls.windows(2).map(|pair| pair[1].4 - pair[0].4).collect();
    assert!(gaps[0] < 10, "the first wait is cut by chance: {gaps:?}");
    assert!(gaps[1..].iter().all(|gap| *gap == 10), "{gaps:?}");
    assert!(dropped(&metrics, "unreachable"));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_not_taken_holds_up_those_of_its_object_only() {
    let script = Script { stuck: |object| object == "c", ..Script::new([]) };
    let (recorder, _) = start(&script);
    tell(&recorder, "c", "first");
    tell(&recorder, "c", "second");
    tell(&recorder, "d", "m");
    drained(&recorder).await;
    let calls = script.calls.lock().clone();
    assert_eq!(calls.iter().find(|call| call.1 == "d").map(|call| call.4), Some(0));
    let of_c = script.messages("c");
    assert_eq!(of_c, [["first"; 12], ["second"; 12]].concat(), "in order");
}

#[tokio::test(start_paused = true)]
async fn a_few_events_are_written_at_once_but_those_of_one_object_in_turn() {
    let script = Script { took: Duration::from_secs(1), ..Script::new([]) };
    let (recorder, _) = start(&script);
    for message in ["first", "second"] {
        for object in 0..=AT_ONCE {
            tell(&recorder, &format!("c{object}"), message);
        }
    }
    drained(&recorder).await;
    let calls = script.calls.lock().clone();
    let at = |second| calls.iter().filter(|call| call.4 == second).count();
    assert_eq!([at(1), at(2), at(3)], [AT_ONCE, AT_ONCE, 2]);
    for object in 0..=AT_ONCE {
        assert_eq!(script.messages(&format!("c{object}")), ["first", "second"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_nothing_is_asked_about_few_events_only() {
    let script = Script { stuck: |_| true, ..Script::new([]) };
    let (recorder, _) = start(&script);
    for object in 0..100 {
        tell(&recorder, &format!("c{object}"), "m");
    }
    tokio::time::sleep(Duration::from_secs(90)).await;
    let asked: std::collections::BTreeSet<_> =
        script.calls.lock().iter().map(|call| call.1.clone()).collect();
    assert_eq!(asked.len(), held::MOST);
    drained(&recorder).await;
    assert_eq!(script.calls.lock().len(), 1200);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_is_not_tried_again() {
    let script = Script::new([
        Err(Failure::Refused("no".to_owned())),
        Err(Failure::Pointless("no".to_owned())),
    ]);
    let (recorder, metrics) = start(&script);
    tell(&recorder, "c", "m");
    tell(&recorder, "d", "m");
    drained(&recorder).await;
    assert_eq!(script.calls.lock().len(), 2);
    assert!(dropped(&metrics, "refused") && dropped(&metrics, "pointless"));
}

#[tokio::test(start_paused = true)]
async fn the_last_word_follows_any_number_of_failures() {
    let script = Script::new([]);
    let (recorder, metrics) = start(&script);
    for _ in 0..100 {
        tell(&recorder, "c", "failed");
    }
    recorder.from("driver").last_word(claim("c"), Severity::Normal, "Succeeded", "done");
    drained(&recorder).await;
    assert_eq!(script.calls.lock().len(), 26);
    assert_eq!(script.messages("c").last().map(String::as_str), Some("done"));
    assert!(dropped(&metrics, "rate_limited"));
}

#[tokio::test(start_paused = true)]
async fn in_a_flood_each_object_keeps_its_first_event_and_its_last_word_in_order() {
    let script = Script { took: Duration::from_secs(1), ..Script::new([]) };
    let (recorder, metrics) = start(&script);
    for object in 0..800 {
        let name = format!("c{object}");
        tell(&recorder, &name, "first");
        tell(&recorder, &name, "again");
        recorder.from("driver").last_word(claim(&name), Severity::Normal, "Succeeded", "last");
    }
    drained(&recorder).await;
    for object in 0..800 {
        let messages = script.messages(&format!("c{object}"));
        assert_eq!(messages.first().map(String::as_str), Some("first"), "c{object}");
        assert_eq!(messages.last().map(String::as_str), Some("last"), "c{object}");
    }
    assert!(dropped(&metrics, "queue_full"));
}

#[tokio::test(start_paused = true)]
async fn draining_ends_in_time_and_tells_what_is_left() {
    let script = Script { took: Duration::from_secs(3), ..Script::new([]) };
    let (recorder, _) = start(&script);
    for object in 0..=2 * AT_ONCE {
        tell(&recorder, &format!("c{object}"), "m");
    }
    let start = Instant::now();
    assert_eq!(recorder.drain(Duration::from_secs(4)).await, AT_ONCE + 1);
    assert_eq!(start.elapsed().as_secs(), 4);
    assert_eq!(recorder.drain(Duration::from_secs(60)).await, 0);
    assert_eq!(start.elapsed().as_secs(), 9);
}

#[tokio::test(start_paused = true)]
async fn draining_cuts_the_pauses_between_tries() {
    let script = Script::new([spawn(), spawn(), spawn()]);
    let (recorder, _) = start(&script);
    tell(&recorder, "c", "m");
    // The first pause has begun already, and is cut as well.
    tokio::task::yield_now().await;
    assert_eq!(script.messages("c").len(), 1);
    assert_eq!(recorder.drain(Duration::from_secs(2)).await, 0);
    assert_eq!(script.messages("c").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn on_the_wire_events_are_posted_and_patched_as_client_go_does() {
    let server = Server::new(|number, _| match number {
        0 | 3 => Answer::json(201, &json!({"metadata": {"name": "c.17979cfe362a0000"}})),
        1 => Answer::json(200, &json!({"metadata": {"name": "c.17979cfe362a0000"}})),
        _ => Answer::refusal(404, "NotFound", "events \"c.17979cfe362a0000\" not found"),
    });
    let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
    let client = Client::new(server.transport.clone(), testing::random());
    let clock = Arc::new(Wall(Instant::now()));
    let recorder =
        Recorder::start(client, &tasks, clock, testing::random(), &Metrics::new().unwrap());
    for _ in 0..3 {
        tell(&recorder, "c", "m");
    }
    drained(&recorder).await;
    let seen = server.seen();
    let calls: Vec<_> = seen.iter().map(|seen| (seen.method.as_str(), seen.url.as_str())).collect();
    let (events, event) =
        ("/api/v1/namespaces/ns/events", "/api/v1/namespaces/ns/events/c.17979cfe362a0000");
    assert_eq!(calls, [("POST", events), ("PATCH", event), ("PATCH", event), ("POST", events)]);
    assert_eq!(seen[1].header("content-type"), "application/strategic-merge-patch+json");
    let patch = json!({"count": 2, "lastTimestamp": "2023-11-14T22:13:20Z", "message": "m"});
    assert_eq!(seen[1].json(), patch);
    let anew = seen[3].json();
    assert_eq!(
        (&anew["count"], &anew["metadata"]["name"]),
        (&json!(3), &json!("c.17979cfe362a0000"))
    );
}

#[tokio::test(start_paused = true)]
async fn names_differ_where_the_clock_stands_and_are_names() {
    let (recorder, _) = start(&Script::new([]));
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    assert_eq!(recorder.0.name("c", now), "c.17979cfe362a0000");
    assert_eq!(recorder.0.name("c", now), "c.17979cfe362a0001");
    let uuid = recorder.0.name("Not-A-Name", now);
    assert_eq!((uuid.len(), uuid.contains("Not")), (36, false));
}

#[test]
fn dns_subdomains() {
    for (name, is) in [
        ("a", true),
        ("a-b.c1", true),
        ("", false),
        ("A", false),
        ("-a", false),
        ("a-", false),
        ("a..b", false),
        ("a_b", false),
    ] {
        assert_eq!(is_dns_subdomain(name), is, "{name}");
    }
    assert!(is_dns_subdomain(&"a".repeat(253)) && !is_dns_subdomain(&"a".repeat(254)));
}
