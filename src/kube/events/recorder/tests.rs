//! Tests of the recorder with a scripted sink, under paused time.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::{
    kube::{
        events::busy_objects,
        testing,
        testing::{Answer, Server},
    },
    logging::testing::logged,
    runtime::{Generator, TokioSpawner},
};

/// A clock that follows tokio's paused time.
struct Wall(Instant);

impl Clock for Wall {
    fn wall(&self) -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap() + self.0.elapsed()
    }
    fn boot(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A call of the sink: the verb, the object, the message, the count, and the time.
type Call = (&'static str, String, String, u32, u64);

/// Answers as scripted, then with success; records all calls.
#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<Result<(), Failure>>>>,
    calls: Arc<Mutex<Vec<Call>>>,
    took: Duration,
    /// Objects whose events always fail.
    fails: fn(&str) -> bool,
    start: Instant,
    /// Whether objects are being written.
    gives_way: Arc<AtomicBool>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Result<(), Failure>>) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            calls: Arc::default(),
            took: Duration::ZERO,
            fails: |_| false,
            start: Instant::now(),
            gives_way: Arc::default(),
        }
    }

    async fn call(&self, verb: &'static str, event: &Event) -> Result<(), Failure> {
        tokio::time::sleep(self.took).await;
        let at = self.start.elapsed().as_secs();
        let call =
            (verb, event.about.name.clone(), event.message.as_str().to_owned(), event.count, at);
        self.calls.lock().push(call);
        if (self.fails)(&event.about.name) {
            return transient();
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
    fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Relaxed)
    }
}

fn start(script: &Script) -> (Recorder, Metrics) {
    let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
    let metrics = Metrics::new();
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

fn record(recorder: &Recorder, object: &str, message: &str) {
    recorder.from("driver").event(claim(object), Severity::Normal, "Reason", message);
}

/// Waits until all events are written or given up, without shutting down.
async fn drained(recorder: &Recorder) {
    while recorder.0.unwritten() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn dropped(metrics: &Metrics, reason: &str) -> bool {
    let text = metrics.text();
    text.contains(&format!("provisioner_events_dropped_total{{reason=\"{reason}\"}}"))
}

fn transient() -> Result<(), Failure> {
    Err(Failure::Transient("away".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn an_event_is_logged_once_and_a_warning_as_an_error() {
    let (log, _guard) = logged();
    let (recorder, _) = start(&Script::new([]));
    for severity in [Severity::Normal, Severity::Warning] {
        recorder.from("driver").event(claim("c"), severity, "Reason", "it failed");
    }
    drained(&recorder).await;
    let text = log.text();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("it failed")).collect();
    assert!(
        matches!(lines[..], [normal, warning] if normal.contains("INFO") && warning.contains("ERROR")),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_is_created_and_its_repeats_are_counted() {
    let script = Script::new([]);
    let (recorder, _) = start(&script);
    for _ in 0..3 {
        record(&recorder, "c", "m");
    }
    drained(&recorder).await;
    assert_eq!(script.verbs(), [("create", 1), ("patch", 2), ("patch", 3)]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_gone_is_created_again_with_its_count() {
    let script = Script::new([Ok(()), Err(Failure::Gone("gone".to_owned()))]);
    let (recorder, _) = start(&script);
    record(&recorder, "c", "m");
    record(&recorder, "c", "m");
    drained(&recorder).await;
    assert_eq!(script.verbs(), [("create", 1), ("patch", 2), ("create", 2)]);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_attempted_12_times_10_seconds_apart() {
    let script = Script { fails: |_| true, ..Script::new([]) };
    let (recorder, metrics) = start(&script);
    record(&recorder, "c", "m");
    drained(&recorder).await;
    let calls = script.calls.lock().clone();
    assert_eq!(calls.len(), 12);
    let gaps: Vec<u64> = calls.windows(2).map(|pair| pair[1].4 - pair[0].4).collect();
    assert!(gaps[0] < 10, "the first wait is shortened at random: {gaps:?}");
    assert!(gaps[1..].iter().all(|gap| *gap == 10), "{gaps:?}");
    assert!(dropped(&metrics, "unreachable"));
}

#[tokio::test(start_paused = true)]
async fn a_failing_event_delays_only_events_of_its_object() {
    let script = Script { fails: |object| object == "c", ..Script::new([]) };
    let (recorder, _) = start(&script);
    record(&recorder, "c", "first");
    record(&recorder, "c", "second");
    record(&recorder, "d", "m");
    drained(&recorder).await;
    let calls = script.calls.lock().clone();
    assert_eq!(calls.iter().find(|call| call.1 == "d").map(|call| call.4), Some(0));
    let of_c = script.messages("c");
    assert_eq!(of_c, [["first"; 12], ["second"; 12]].concat(), "in order");
}

#[tokio::test(start_paused = true)]
async fn events_are_written_concurrently_but_those_of_one_object_in_turn() {
    let script = Script { took: Duration::from_secs(1), ..Script::new([]) };
    let (recorder, _) = start(&script);
    for message in ["first", "second"] {
        for object in 0..=MAX_CONCURRENT_WRITES {
            record(&recorder, &format!("c{object}"), message);
        }
    }
    drained(&recorder).await;
    let calls = script.calls.lock().clone();
    let at = |second| calls.iter().filter(|call| call.4 == second).count();
    assert_eq!([at(1), at(2), at(3)], [MAX_CONCURRENT_WRITES, MAX_CONCURRENT_WRITES, 2]);
    for object in 0..=MAX_CONCURRENT_WRITES {
        assert_eq!(script.messages(&format!("c{object}")), ["first", "second"]);
    }
}

#[tokio::test(start_paused = true)]
async fn while_all_writes_fail_only_few_events_are_attempted() {
    let script = Script { fails: |_| true, ..Script::new([]) };
    let (recorder, _) = start(&script);
    for object in 0..100 {
        record(&recorder, &format!("c{object}"), "m");
    }
    tokio::time::sleep(Duration::from_secs(90)).await;
    let attempted: std::collections::BTreeSet<_> =
        script.calls.lock().iter().map(|call| call.1.clone()).collect();
    assert_eq!(attempted.len(), busy_objects::MAX_BUSY);
    drained(&recorder).await;
    assert_eq!(script.calls.lock().len(), 1200);
}

#[tokio::test(start_paused = true)]
async fn refused_events_are_not_retried() {
    let script = Script::new([
        Err(Failure::Refused("no".to_owned())),
        Err(Failure::Obsolete("no".to_owned())),
    ]);
    let (recorder, metrics) = start(&script);
    record(&recorder, "c", "m");
    record(&recorder, "d", "m");
    drained(&recorder).await;
    assert_eq!(script.calls.lock().len(), 2);
    assert!(dropped(&metrics, "refused") && dropped(&metrics, "pointless"));
}

#[tokio::test(start_paused = true)]
async fn under_load_the_final_event_of_each_object_is_written_as_the_last() {
    let script = Script { took: Duration::from_secs(1), ..Script::new([]) };
    let (recorder, metrics) = start(&script);
    for object in 0..2000 {
        let name = format!("c{object}");
        record(&recorder, &name, "first");
        record(&recorder, &name, "again");
        recorder.from("driver").final_event(claim(&name), Severity::Normal, "Succeeded", "last");
    }
    drained(&recorder).await;
    for object in 0..2000 {
        let messages = script.messages(&format!("c{object}"));
        assert_eq!(messages.last().map(String::as_str), Some("last"), "c{object}");
    }
    assert!(dropped(&metrics, "queue_full"));
}

#[tokio::test(start_paused = true)]
async fn draining_ends_in_time_and_returns_the_number_of_unwritten_events() {
    let script = Script { took: Duration::from_secs(3), ..Script::new([]) };
    let (recorder, _) = start(&script);
    for object in 0..=2 * MAX_CONCURRENT_WRITES {
        record(&recorder, &format!("c{object}"), "m");
    }
    let start = Instant::now();
    assert_eq!(recorder.drain(Duration::from_secs(4)).await, MAX_CONCURRENT_WRITES + 1);
    assert_eq!(start.elapsed().as_secs(), 4);
    assert_eq!(recorder.drain(Duration::from_secs(60)).await, 0);
    assert_eq!(start.elapsed().as_secs(), 9);
}

#[tokio::test(start_paused = true)]
async fn draining_shortens_the_waits_between_attempts() {
    let script = Script::new([transient(), transient(), transient()]);
    let (recorder, _) = start(&script);
    record(&recorder, "c", "m");
    // The first wait has begun already, and is shortened too.
    tokio::task::yield_now().await;
    assert_eq!(script.messages("c").len(), 1);
    assert_eq!(recorder.drain(Duration::from_secs(2)).await, 0);
    assert_eq!(script.messages("c").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn events_are_posted_and_patched_as_by_client_go() {
    let server = Server::new(|number, _| match number {
        0 | 3 => Answer::json(201, &json!({"metadata": {"name": "c.17979cfe362a0000"}})),
        1 => Answer::json(200, &json!({"metadata": {"name": "c.17979cfe362a0000"}})),
        _ => Answer::refusal(404, "NotFound", "events \"c.17979cfe362a0000\" not found"),
    });
    let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
    let lane = testing::event_lane(&server);
    let clock = Arc::new(Wall(Instant::now()));
    let recorder = Recorder::start(lane, &tasks, clock, testing::random(), &Metrics::new());
    for _ in 0..3 {
        record(&recorder, "c", "m");
    }
    drained(&recorder).await;
    let requests = server.requests();
    let calls: Vec<_> =
        requests.iter().map(|request| (request.method.as_str(), request.url.as_str())).collect();
    let (events, event) = (
        "/api/v1/namespaces/ns/events?fieldValidation=Ignore",
        "/api/v1/namespaces/ns/events/c.17979cfe362a0000?&fieldValidation=Ignore",
    );
    assert_eq!(calls, [("POST", events), ("PATCH", event), ("PATCH", event), ("POST", events)]);
    assert_eq!(requests[1].header("content-type"), "application/strategic-merge-patch+json");
    let patch = json!({"count": 2, "lastTimestamp": "2023-11-14T22:13:20Z", "message": "m"});
    assert_eq!(requests[1].json(), patch);
    let created = requests[3].json();
    assert_eq!(
        (&created["count"], &created["metadata"]["name"]),
        (&json!(3), &json!("c.17979cfe362a0000"))
    );
}

#[tokio::test(start_paused = true)]
async fn event_names_are_unique_and_valid() {
    let (recorder, _) = start(&Script::new([]));
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let name = |object: &str| recorder.0.event_name(object, now);
    assert_eq!(name("c"), EventName::Stamp(0x1797_9cfe_362a_0000));
    assert_eq!(name("c"), EventName::Stamp(0x1797_9cfe_362a_0001));
    for object in ["Not-A-Name", "", &"a".repeat(237)] {
        assert!(matches!(name(object), EventName::Uuid(uuid) if uuid.len() == 36), "{object}");
    }
    assert_eq!(name(&"a".repeat(236)), EventName::Stamp(0x1797_9cfe_362a_0002));
}

#[test]
fn events_give_way_to_objects_until_many_wait() {
    for (waiting, writes) in [(1, 1), (3000, 1), (3500, 20), (4000, 40), (9000, 40)] {
        assert_eq!(max_writes_beside_objects(waiting), writes, "{waiting} events");
    }
}

#[tokio::test(start_paused = true)]
async fn while_objects_are_written_one_event_is_written_at_a_time() {
    let script = Script { took: Duration::from_secs(1), ..Script::new([]) };
    script.gives_way.store(true, Ordering::Relaxed);
    let (recorder, _) = start(&script);
    for n in 0..40 {
        record(&recorder, &format!("c{n}"), "m");
    }
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert_eq!(script.calls.lock().len(), 3);
    script.gives_way.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(script.calls.lock().len(), 40, "the others are written at once");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_objects() {
    let script = Script { took: Duration::from_secs(1), ..Script::new([]) };
    script.gives_way.store(true, Ordering::Relaxed);
    let (recorder, _) = start(&script);
    for n in 0..30 {
        record(&recorder, &format!("c{n}"), "m");
    }
    assert_eq!(recorder.drain(Duration::from_millis(2500)).await, 0);
}
