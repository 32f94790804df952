//! Tests of the recorder against a scripted server, under paused time.

use std::collections::BTreeMap;

use http::Method;
use kube::core::Status;
use serde_json::{Value, json};

use super::*;
use crate::{
    kube::{
        BadName,
        error::DeadlineExceeded,
        layers::{Next as _, in_flight::limited},
        testing::{Answer, RecordedRequest, Server, event_lane, random, request},
    },
    runtime::{TokioSpawner, testing::paused_clock},
};

/// A server that takes so many seconds for each event.
fn slow(seconds: u64) -> Server {
    Server::new(move |_, _| written().after(seconds))
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
    (Recorder::start(lane, &tasks, paused_clock(), random(), &metrics), metrics)
}

/// Records an event about this claim.
fn record(recorder: &Recorder, name: &str, message: &str) {
    recorder.for_component("driver").event(claim(name), Severity::Normal, "Reason", message);
}

fn claim(name: &str) -> Subject {
    let kind = "PersistentVolumeClaim".into();
    Subject { kind, namespace: "ns".into(), name: name.into(), ..Subject::default() }
}

/// The name of the object that the request's event is about.
fn object(request: &RecordedRequest) -> Value {
    request.json()["involvedObject"]["name"].clone()
}

/// Waits until all events are written or given up, without shutting down.
async fn drained(recorder: &Recorder) {
    while recorder.0.unwritten() > 0 {
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_attempted_12_times_10_seconds_apart_and_delays_only_events_of_its_object() {
    let server = Server::new(|_, request| if object(request) == "c" { away() } else { written() });
    let (recorder, metrics) = start(&server);
    record(&recorder, "c", "first");
    record(&recorder, "c", "second");
    record(&recorder, "d", "m");
    drained(&recorder).await;
    let (of_c, of_d): (Vec<_>, Vec<_>) =
        server.requests().into_iter().partition(|request| object(request) == "c");
    assert_eq!((of_d.len(), of_d[0].at.as_secs()), (1, 0));
    let messages: Vec<_> = of_c.iter().map(|request| request.json()["message"].clone()).collect();
    assert_eq!(messages, [["first"; 12], ["second"; 12]].concat(), "in order");
    let gaps = of_c[..12].windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at).as_secs());
    let gaps: Vec<u64> = gaps.collect();
    assert!(gaps[0] < 10, "the first wait is shortened at random: {gaps:?}");
    assert!(gaps[1..].iter().all(|gap| *gap == 10), "{gaps:?}");
    let dropped = "provisioner_events_dropped_total{reason=\"unreachable\"} 2";
    assert!(metrics.text().contains(dropped));
}

#[tokio::test(start_paused = true)]
async fn while_the_server_accepts_no_event_those_of_few_objects_are_retried() {
    let server = Server::new(|_, request| match request.at.as_secs() {
        ..60 => away(),
        _ => written(),
    });
    let (recorder, _) = start(&server);
    for n in 0..4 * MAX_RETRIED {
        record(&recorder, &format!("c{n}"), "m");
    }
    sleep(Duration::from_secs(59)).await;
    let mut attempts = BTreeMap::new();
    server
        .requests()
        .iter()
        .for_each(|it| *attempts.entry(object(it).to_string()).or_insert(0) += 1);
    let retried = attempts.values().filter(|attempts| **attempts > 1).count();
    assert_eq!((attempts.len(), retried), (4 * MAX_RETRIED, MAX_RETRIED));
    drained(&recorder).await;
    let last = server.requests().last().unwrap().at.as_secs();
    assert!((60..=70).contains(&last), "those that have waited long wait no longer: {last}");
}

/// The server may refuse the events of a namespace because of what its user does.
#[tokio::test(start_paused = true)]
async fn events_of_many_objects_that_are_not_accepted_delay_no_others() {
    let is_bad = |request: &_| object(request).as_str().unwrap().starts_with("bad");
    let server = Server::new(move |_, request| if is_bad(request) { away() } else { written() });
    let (recorder, _) = start(&server);
    for n in 0..3 * MAX_RETRIED {
        record(&recorder, &format!("bad{n}"), "m");
    }
    for minute in 0..5 {
        record(&recorder, &format!("good{minute}"), "m");
        sleep(Duration::from_secs(60)).await;
    }
    let requests = server.requests();
    let good = requests.iter().filter(|request| !is_bad(request));
    let written: Vec<_> = good.map(|request| request.at.as_secs()).collect();
    assert_eq!(written, [0, 60, 120, 180, 240]);
}

/// Who may update events can make one so large that the server cannot store the next count.
#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_updated_is_replaced_at_once() {
    let server = Server::new(|number, _| match number {
        1 => Answer::refusal(500, "InternalError", "etcdserver: request is too large"),
        _ => written(),
    });
    let (recorder, _) = start(&server);
    for _ in 0..3 {
        record(&recorder, "c", "m");
    }
    drained(&recorder).await;
    let requests = server.requests();
    let calls: Vec<_> = requests
        .iter()
        .map(|request| {
            let (body, url) = (request.json(), request.url.split('?').next().unwrap());
            let name =
                body["metadata"]["name"].as_str().or_else(|| url.rsplit('/').next()).unwrap();
            format!("{} {name} {}", request.method, body["count"])
        })
        .collect();
    assert_eq!(calls, ["POST c.1 1", "PATCH c.1 2", "POST c.4 2", "PATCH c.4 3"]);
    assert_eq!(server.times(), [0; 4]);
}

/// Who may update events can make them long, and each answer has the whole event.
#[tokio::test(start_paused = true)]
async fn of_a_long_answer_only_the_beginning_is_read() {
    let server =
        Server::new(|_, _| written().chunk(0, vec![b'<'; 40 << 10]).chunk(3600, "the rest"));
    let (recorder, metrics) = start(&server);
    for _ in 0..3 {
        record(&recorder, "c", "m");
    }
    drained(&recorder).await;
    assert_eq!(server.times(), [0; 3], "POST and PATCH");
    assert!(!metrics.text().contains("provisioner_events_dropped_total{"));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_takes_final_events_up_to_its_hard_limit() {
    let server = slow(0);
    let (recorder, metrics) = start(&server);
    let last = || {
        let driver = recorder.for_component("driver");
        driver.final_event(claim("o"), Severity::Normal, "Reason", "last");
    };
    (0..SOFT_LIMIT).for_each(|n| record(&recorder, &format!("c{n}"), "first"));
    record(&recorder, "c0", "again");
    record(&recorder, "new", "first");
    assert_eq!(recorder.0.unwritten(), SOFT_LIMIT);
    (SOFT_LIMIT..=HARD_LIMIT).for_each(|_| last());
    assert_eq!(recorder.0.unwritten(), HARD_LIMIT);
    drained(&recorder).await;
    assert_eq!(server.requests().len(), HARD_LIMIT);
    let dropped = "provisioner_events_dropped_total{reason=\"queue_full\"} 3\n";
    assert!(metrics.text().contains(dropped));
    assert!(recorder.0.objects.lock().is_empty(), "its memory is freed");
}

#[tokio::test(start_paused = true)]
async fn draining_shortens_the_waits_between_attempts() {
    let server = Server::new(|number, _| if number < 3 { away() } else { written() });
    let (recorder, _) = start(&server);
    record(&recorder, "c", "m");
    // The first wait has begun already, and is shortened too.
    sleep(Duration::from_millis(1)).await;
    assert_eq!(server.requests().len(), 1);
    assert_eq!(recorder.drain(Duration::from_secs(2)).await, 0);
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn events_are_posted_and_patched_as_by_client_go_and_those_that_are_gone_posted_again() {
    let server = Server::new(|number, _| match number {
        0 | 1 | 3 => Answer::json(201, &json!({"metadata": {"name": "c.1"}})),
        _ => Answer::refusal(404, "NotFound", "events \"c.1\" not found"),
    });
    let (recorder, _) = start(&server);
    for _ in 0..3 {
        record(&recorder, "c", "m");
    }
    drained(&recorder).await;
    let requests = server.requests();
    let calls: Vec<_> = requests.iter().map(|it| (it.method.as_str(), it.url.as_str())).collect();
    let (events, event) = (
        "/api/v1/namespaces/ns/events?fieldValidation=Ignore",
        "/api/v1/namespaces/ns/events/c.1?&fieldValidation=Ignore",
    );
    assert_eq!(calls, [("POST", events), ("PATCH", event), ("PATCH", event), ("POST", events)]);
    assert_eq!(requests[1].header("content-type"), "application/strategic-merge-patch+json");
    let patch = json!({"count": 2, "lastTimestamp": "1970-01-01T00:00:00Z", "message": "m"});
    assert_eq!(requests[1].json(), patch);
    let created = requests[3].json();
    assert_eq!((&created["count"], &created["metadata"]["name"]), (&json!(3), &json!("c.1")));
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
async fn between_two_objects_of_a_burst_events_give_way() {
    let (server, objects) = (slow(1), slow(1));
    let lane = event_lane(&server);
    let objects = limited(lane.object_writes.clone(), objects.service);
    let (recorder, _) = start_on(lane);
    for n in 0..50 {
        record(&recorder, &format!("c{n}"), "m");
    }
    for _ in 0..10 {
        objects.send(request(Method::PUT, "/api/v1/persistentvolumes/pv")).await.unwrap();
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.requests().len(), 11, "one a second");
    sleep(Duration::from_millis(200)).await;
    assert_eq!(server.requests().len(), 50, "the others are written at once");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_objects() {
    let lane = event_lane(&slow(1));
    let objects = limited(lane.object_writes.clone(), slow(60).service);
    let (recorder, _) = start_on(lane);
    for n in 0..30 {
        record(&recorder, &format!("c{n}"), "m");
    }
    tokio::select! {
        biased;
        _ = objects.send(request(Method::PUT, "/api/v1/persistentvolumes/pv")) => panic!("too late"),
        left = recorder.drain(Duration::from_millis(2500)) => assert_eq!(left, 0),
    }
}

#[test]
fn an_error_decides_whether_its_event_is_dropped_and_why() {
    let refused = |code, reason: &str, text: &str| -> ApiError {
        Status::failure(text, reason).with_code(code).into()
    };
    let terminating = "unable to create new content in namespace ns because it is being terminated";
    let bad: Result<_, BadName> = Name::namespaced("ns", "a/b");
    for (error, why) in [
        (refused(403, "Forbidden", "because"), REFUSED),
        (refused(403, "Forbidden", terminating), POINTLESS),
        (refused(422, "Invalid", "because"), REFUSED),
        (refused(404, "NotFound", "because"), REFUSED),
        (refused(409, "AlreadyExists", "because"), POINTLESS),
        (refused(429, "TooManyRequests", "because"), UNREACHABLE),
        (refused(500, "InternalError", "because"), UNREACHABLE),
        (refused(503, "", "because"), UNREACHABLE),
        (ApiError::NoAnswer("x".into()), UNREACHABLE),
        (DeadlineExceeded(Duration::from_secs(1)).into(), UNREACHABLE),
        (bad.unwrap_err().into(), REFUSED),
    ] {
        assert_eq!(why_dropped(&error), why, "{error}");
    }
}
