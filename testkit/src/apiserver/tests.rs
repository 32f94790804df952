//! The faults of watches, which tests of the program rely on: one that does not strike would let them pass.

use std::time::Duration;

use futures::{Stream, StreamExt as _};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    ApiServer, Options, User,
    faults::{Effect, Rule, StreamFault},
};

/// A raw watch: each item is an event, or an error where the connection broke.
async fn watch(server: &ApiServer) -> impl Stream<Item = Result<Value, String>> + Unpin + use<> {
    let uri = "/api/v1/persistentvolumes?watch=true&resourceVersion=1&allowWatchBookmarks=true";
    let request = http::Request::builder().uri(uri).body(bytes::Bytes::new()).unwrap();
    let response = server.handle(&User::new("tester"), request).await;
    let lines = response.into_body().into_data_stream();
    Box::pin(lines.map(|line| {
        line.map(|line| serde_json::from_slice(&line).unwrap()).map_err(|error| error.to_string())
    }))
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
        let server = ApiServer::new(Options::default());
        for name in ["a", "b", "c"] {
            let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                    "csi": {"driver": "d.example.com", "volumeHandle": name}}});
            server.create(&volume).unwrap();
        }
        server.faults().add(Rule::on("watch", "persistentvolumes", Effect::Stream(fault)));
        let mut events = watch(&server).await;
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
