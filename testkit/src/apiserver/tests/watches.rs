//! Watches, their bookmarks and their ends.

use std::time::Duration;

use futures::{Stream, StreamExt as _};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{server, volume};
use crate::apiserver::{
    ApiServer, User,
    faults::{Effect, Rule, StreamFault},
    status::Status,
};

/// A raw watch: each item is an event, or an error where the connection broke.
async fn watch(
    server: &ApiServer,
    query: &str,
) -> (u16, impl Stream<Item = Result<Value, String>> + Unpin + use<>) {
    let uri = format!("/api/v1/persistentvolumes?watch=true&{query}");
    let request = http::Request::builder().uri(uri).body(bytes::Bytes::new()).unwrap();
    let response = server.handle(&User::new("tester"), request).await;
    let code = response.status().as_u16();
    let lines = response.into_body().into_data_stream();
    let events = lines.map(|line| {
        line.map(|line| serde_json::from_slice(&line).unwrap()).map_err(|error| error.to_string())
    });
    (code, Box::pin(events))
}

/// `TYPE name`, `BOOKMARK`, `ERROR code`.
fn short(event: &Value) -> String {
    let object = &event["object"];
    let what = match event["type"].as_str().unwrap() {
        "BOOKMARK" => String::new(),
        "ERROR" => object["code"].to_string(),
        _ => object["metadata"]["name"].as_str().unwrap().to_owned(),
    };
    format!("{} {what}", event["type"].as_str().unwrap()).trim().to_owned()
}

/// The next `count` events; fails when they do not come at once.
async fn take(
    events: &mut (impl Stream<Item = Result<Value, String>> + Unpin),
    count: usize,
) -> Vec<String> {
    let mut received = Vec::new();
    while received.len() < count {
        let next = timeout(Duration::from_secs(1), events.next()).await.expect("an event is due");
        received.push(short(&next.expect("the stream goes on").expect("the connection holds")));
    }
    received
}

fn label(server: &ApiServer, name: &str, value: &Value) {
    server
        .merge("PersistentVolume", "", name, &json!({"metadata": {"labels": {"l": value}}}))
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_selection_is_entered_and_left() {
    let server = server();
    let (_, mut events) = watch(&server, "labelSelector=l%3Dx").await;
    server.create(&volume("a")).unwrap();
    label(&server, "a", &json!("x"));
    server
        .merge("PersistentVolume", "", "a", &json!({"metadata": {"annotations": {"n": "1"}}}))
        .unwrap();
    label(&server, "a", &json!("y"));
    let leaving = server.revision();
    server.delete("PersistentVolume", "", "a").unwrap();
    assert_eq!(take(&mut events, 2).await, ["ADDED a", "MODIFIED a"]);
    let left = events.next().await.unwrap().unwrap();
    assert_eq!(
        (left["type"].as_str(), left["object"]["metadata"]["labels"]["l"].as_str()),
        (Some("DELETED"), Some("x"))
    );
    assert_eq!(left["object"]["metadata"]["resourceVersion"], json!(leaving.to_string()));
    assert!(
        timeout(Duration::from_secs(1), events.next()).await.is_err(),
        "a later deletion is not this watch's"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_the_history_expires_in_its_stream() {
    let server = server();
    let since = server.revision();
    server.create(&volume("a")).unwrap();
    server.compact();
    let (code, mut events) = watch(&server, &format!("resourceVersion={since}")).await;
    assert_eq!(code, 200);
    assert_eq!(take(&mut events, 1).await, ["ERROR 410"]);
    assert!(events.next().await.is_none());
    server.faults().add(Rule::on(
        "watch",
        "persistentvolumes",
        Effect::Answer(Status::expired("too old")),
    ));
    assert_eq!(watch(&server, "resourceVersion=1").await.0, 410);
}

#[tokio::test(start_paused = true)]
async fn stream_faults_strike_after_the_events_they_let_pass() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let cases = [
        (StreamFault::End { after: 1 }, "ADDED a, end"),
        (StreamFault::Cut { after: 1 }, "ADDED a, broken"),
        (StreamFault::Expire { after: 2 }, "ADDED a, ADDED b, ERROR 410, end"),
        (StreamFault::Stall { after: 1 }, "ADDED a, silence"),
        (StreamFault::Drag { after: 1, by: minutes(2) }, "ADDED a, silence"),
        (
            StreamFault::Drag { after: 1, by: minutes(1) },
            "ADDED a, ADDED b, ADDED c, BOOKMARK, silence",
        ),
    ];
    for (fault, expected) in cases {
        let server = server();
        for name in ["a", "b", "c"] {
            server.create(&volume(name)).unwrap();
        }
        server.faults().add(Rule::on("watch", "persistentvolumes", Effect::Stream(fault)));
        let (_, mut events) = watch(&server, "resourceVersion=1&allowWatchBookmarks=true").await;
        let mut received = Vec::new();
        loop {
            match timeout(Duration::from_secs(61), events.next()).await {
                Err(_) => received.push("silence".to_owned()),
                Ok(None) => received.push("end".to_owned()),
                Ok(Some(Err(_))) => received.push("broken".to_owned()),
                Ok(Some(Ok(event))) => {
                    received.push(short(&event));
                    if received.len() < 5 && !received.ends_with(&["BOOKMARK".to_owned()]) {
                        continue;
                    }
                    received.push("silence".to_owned());
                }
            }
            break;
        }
        assert_eq!(received.join(", "), expected, "{fault:?}");
    }
}
