//! Tests of the recorder against a scripted server, under paused time.

use futures::FutureExt as _;
use http::Method;
use kube::core::Status;
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::{
    kube::{
        BadName,
        error::DeadlineExceeded,
        events::pending,
        layers::{
            Next as _,
            in_flight::limited,
            whole_answers::{Budget, whole_answers},
        },
        testing::{Answer, End, RecordedRequest, Server, event_lane, random, request},
    },
    logging::testing::logged,
    runtime::TokioSpawner,
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

/// A write of an event: the method, the object, the message, the count, and the second it came at.
type Write = (String, String, String, u64, u64);

fn write(request: &RecordedRequest) -> Write {
    let body = request.json();
    let text = |field: &str| body.pointer(field).and_then(|it| it.as_str()).map(str::to_owned);
    // A patch names only its event: `/api/v1/namespaces/ns/events/<object>.<stamp>`.
    let patched = || request.url.rsplit('/').next()?.split('.').next().map(str::to_owned);
    let object = text("/involvedObject/name").or_else(patched).unwrap();
    let count = body["count"].as_u64().unwrap();
    (request.method.clone(), object, text("/message").unwrap(), count, request.at.as_secs())
}

fn writes(server: &Server) -> Vec<Write> {
    server.requests().iter().map(write).collect()
}

/// The messages of all writes about an object.
fn messages(server: &Server, object: &str) -> Vec<String> {
    let of_object = writes(server).into_iter().filter(|write| write.1 == object);
    of_object.map(|write| write.2).collect()
}

/// A server that takes so many seconds for each event.
fn slow(seconds: u64) -> Server {
    Server::new(move |_, _| written().after(seconds))
}

/// A server that takes no events about such objects.
fn failing(fails: fn(&str) -> bool) -> Server {
    Server::new(move |_, request| if fails(&write(request).1) { away() } else { written() })
}

fn written() -> Answer {
    Answer::json(200, &json!({}))
}

fn away() -> Answer {
    Answer::refusal(503, "ServiceUnavailable", "away")
}

fn start(server: &Server) -> (Recorder, Metrics) {
    start_on(event_lane(server))
}

fn start_on(lane: EventLane) -> (Recorder, Metrics) {
    let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
    let metrics = Metrics::new();
    let clock = Arc::new(Wall(Instant::now()));
    (Recorder::start(lane, &tasks, clock, random(), &metrics), metrics)
}

/// A write of an object that `lane` gives way to, as long as it is kept.
fn object_write(lane: &EventLane) -> impl Sized + use<> {
    let server = Server::new(|_, _| Answer::status(200).end(End::Open));
    let whole = whole_answers(Budget::default(), server.service);
    let objects = limited(lane.object_writes.clone(), whole);
    let mut write = objects.send(request(Method::PUT, "/api/v1/persistentvolumes/pv")).boxed();
    assert!((&mut write).now_or_never().is_none());
    write
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
    recorder.for_component("driver").event(claim(object), Severity::Normal, "Reason", message);
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

#[tokio::test(start_paused = true)]
async fn an_event_is_logged_once_and_a_warning_as_an_error() {
    let (log, _guard) = logged();
    let (recorder, _) = start(&slow(0));
    for severity in [Severity::Normal, Severity::Warning] {
        recorder.for_component("driver").event(claim("c"), severity, "Reason", "it failed");
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
    let server = slow(0);
    let (recorder, _) = start(&server);
    for _ in 0..3 {
        record(&recorder, "c", "m");
    }
    drained(&recorder).await;
    let writes = writes(&server);
    let seen: Vec<_> = writes.iter().map(|write| (&*write.0, write.3)).collect();
    assert_eq!(seen, [("POST", 1), ("PATCH", 2), ("PATCH", 3)]);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_attempted_12_times_10_seconds_apart() {
    let server = failing(|_| true);
    let (recorder, metrics) = start(&server);
    record(&recorder, "c", "m");
    drained(&recorder).await;
    let times: Vec<Duration> = server.requests().iter().map(|request| request.at).collect();
    assert_eq!(times.len(), 12);
    let gaps: Vec<u64> =
        times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).as_secs()).collect();
    assert!(gaps[0] < 10, "the first wait is shortened at random: {gaps:?}");
    assert!(gaps[1..].iter().all(|gap| *gap == 10), "{gaps:?}");
    assert!(dropped(&metrics, "unreachable"));
}

#[tokio::test(start_paused = true)]
async fn a_failing_event_delays_only_events_of_its_object() {
    let server = failing(|object| object == "c");
    let (recorder, _) = start(&server);
    record(&recorder, "c", "first");
    record(&recorder, "c", "second");
    record(&recorder, "d", "m");
    drained(&recorder).await;
    assert_eq!(writes(&server).iter().find(|write| write.1 == "d").map(|write| write.4), Some(0));
    let of_c = messages(&server, "c");
    assert_eq!(of_c, [["first"; 12], ["second"; 12]].concat(), "in order");
}

#[tokio::test(start_paused = true)]
async fn events_are_written_concurrently_but_those_of_one_object_in_turn() {
    let server = slow(1);
    let (recorder, _) = start(&server);
    for message in ["first", "second"] {
        for object in 0..=MAX_CONCURRENT_WRITES {
            record(&recorder, &format!("c{object}"), message);
        }
    }
    drained(&recorder).await;
    let times = server.times();
    let at = |second| times.iter().filter(|time| **time == second).count();
    assert_eq!([at(0), at(1), at(2)], [MAX_CONCURRENT_WRITES, MAX_CONCURRENT_WRITES, 2]);
    for object in 0..=MAX_CONCURRENT_WRITES {
        assert_eq!(messages(&server, &format!("c{object}")), ["first", "second"]);
    }
}

#[tokio::test(start_paused = true)]
async fn while_all_writes_fail_only_few_events_are_attempted() {
    let server = failing(|_| true);
    let (recorder, _) = start(&server);
    for object in 0..100 {
        record(&recorder, &format!("c{object}"), "m");
    }
    tokio::time::sleep(Duration::from_secs(90)).await;
    let attempted: std::collections::BTreeSet<_> =
        writes(&server).into_iter().map(|write| write.1).collect();
    assert_eq!(attempted.len(), pending::MAX_BUSY);
    drained(&recorder).await;
    assert_eq!(server.requests().len(), 1200);
}

#[tokio::test(start_paused = true)]
async fn refused_events_are_not_retried() {
    let server = Server::new(|number, _| match number {
        0 => Answer::refusal(403, "Forbidden", "no"),
        _ => Answer::refusal(409, "AlreadyExists", "no"),
    });
    let (recorder, metrics) = start(&server);
    record(&recorder, "c", "m");
    record(&recorder, "d", "m");
    drained(&recorder).await;
    assert_eq!(server.requests().len(), 2);
    assert!(dropped(&metrics, "refused") && dropped(&metrics, "pointless"));
}

#[tokio::test(start_paused = true)]
async fn under_load_the_final_event_of_each_object_is_written_as_the_last() {
    let server = slow(1);
    let (recorder, metrics) = start(&server);
    for object in 0..2000 {
        let name = format!("c{object}");
        record(&recorder, &name, "first");
        record(&recorder, &name, "again");
        recorder.for_component("driver").final_event(
            claim(&name),
            Severity::Normal,
            "Succeeded",
            "last",
        );
    }
    drained(&recorder).await;
    let last: std::collections::BTreeMap<String, String> =
        writes(&server).into_iter().map(|write| (write.1, write.2)).collect();
    for object in 0..2000 {
        assert_eq!(last.get(&format!("c{object}")).map(String::as_str), Some("last"), "c{object}");
    }
    assert!(dropped(&metrics, "queue_full"));
}

#[tokio::test(start_paused = true)]
async fn draining_ends_in_time_and_returns_the_number_of_unwritten_events() {
    let (recorder, _) = start(&slow(3));
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
    let server = Server::new(|number, _| if number < 3 { away() } else { written() });
    let (recorder, _) = start(&server);
    record(&recorder, "c", "m");
    // The first wait has begun already, and is shortened too.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(messages(&server, "c").len(), 1);
    assert_eq!(recorder.drain(Duration::from_secs(2)).await, 0);
    assert_eq!(messages(&server, "c").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn events_are_posted_and_patched_as_by_client_go() {
    let server = Server::new(|number, _| match number {
        0 | 3 => Answer::json(201, &json!({"metadata": {"name": "c.17979cfe362a0000"}})),
        1 => Answer::json(200, &json!({"metadata": {"name": "c.17979cfe362a0000"}})),
        _ => Answer::refusal(404, "NotFound", "events \"c.17979cfe362a0000\" not found"),
    });
    let (recorder, _) = start(&server);
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
    let (recorder, _) = start(&slow(0));
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    let name = |object: &str| recorder.0.event_name(object, now);
    assert_eq!(name("c"), "c.17979cfe362a0000");
    assert_eq!(name("c"), "c.17979cfe362a0001");
    for object in ["Not-A-Name", "", &"a".repeat(237)] {
        let uuid = name(object);
        assert!(uuid.len() == 36 && !uuid.contains('.'), "{object}: {uuid}");
    }
    assert_eq!(name(&"a".repeat(236)), format!("{}.17979cfe362a0002", "a".repeat(236)));
}

#[test]
fn events_give_way_to_objects_until_many_wait() {
    for (waiting, writes) in [(1, 1), (3000, 1), (3500, 20), (4000, 40), (9000, 40)] {
        assert_eq!(max_writes_beside_objects(waiting), writes, "{waiting} events");
    }
}

#[tokio::test(start_paused = true)]
async fn while_objects_are_written_one_event_is_written_at_a_time() {
    let server = slow(1);
    let lane = event_lane(&server);
    let object = object_write(&lane);
    let (recorder, _) = start_on(lane);
    for n in 0..40 {
        record(&recorder, &format!("c{n}"), "m");
    }
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert_eq!(server.times(), [0, 1, 2, 3]);
    drop(object);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.requests().len(), 40, "the others are written at once");
}

#[tokio::test(start_paused = true)]
async fn between_two_objects_of_a_burst_events_give_way() {
    let (server, objects) = (slow(1), slow(1));
    let lane = event_lane(&server);
    let objects = limited(lane.object_writes.clone(), objects.service);
    let (recorder, _) = start_on(lane);
    for n in 0..60 {
        record(&recorder, &format!("c{n}"), "m");
    }
    for _ in 0..10 {
        objects.send(request(Method::PUT, "/api/v1/persistentvolumes/pv")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.requests().len(), 11, "one a second");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_objects() {
    let lane = event_lane(&slow(1));
    let _object = object_write(&lane);
    let (recorder, _) = start_on(lane);
    for n in 0..30 {
        record(&recorder, &format!("c{n}"), "m");
    }
    assert_eq!(recorder.drain(Duration::from_millis(2500)).await, 0);
}

#[test]
fn an_error_decides_whether_its_event_is_dropped_and_why() {
    let refused = |code, reason: &str, text: &str| -> ApiError {
        Status::failure(text, reason).with_code(code).into()
    };
    let terminating = "unable to create new content in namespace ns because it is being terminated";
    let bad: Result<_, BadName> = Name::namespaced("ns", "a/b");
    for (error, why) in [
        (refused(403, "Forbidden", "because"), Some(REFUSED)),
        (refused(403, "Forbidden", terminating), Some(POINTLESS)),
        (refused(422, "Invalid", "because"), Some(REFUSED)),
        (refused(404, "NotFound", "because"), Some(REFUSED)),
        (refused(409, "AlreadyExists", "because"), Some(POINTLESS)),
        (refused(429, "TooManyRequests", "because"), Some(UNREACHABLE)),
        (refused(500, "InternalError", "because"), Some(UNREACHABLE)),
        (refused(503, "", "because"), Some(UNREACHABLE)),
        (ApiError::NoAnswer("x".into()), Some(UNREACHABLE)),
        (DeadlineExceeded(Duration::from_secs(1)).into(), Some(UNREACHABLE)),
        (ApiError::Unreadable { about: String::new(), fault: String::new() }, None),
        (bad.unwrap_err().into(), Some(REFUSED)),
    ] {
        assert_eq!(why_dropped(&error), why, "{error}");
    }
}
