//! Lists, their pages and their versions.

use serde_json::{Value, json};

use super::{get, server, volume};
use crate::apiserver::ApiServer;

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

fn with_volumes(count: usize) -> ApiServer {
    let server = server();
    for i in 0..count {
        server.create(&volume(&format!("v{i}"))).unwrap();
    }
    server
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_state_whatever_is_written_between() {
    let server = with_volumes(5);
    let (_, first) = get(&server, "/api/v1/persistentvolumes?limit=2").await;
    assert_eq!(
        (names(&first), &first["metadata"]["remainingItemCount"]),
        (vec!["v0", "v1"], &json!(3))
    );
    server.delete("PersistentVolume", "", "v3").unwrap();
    server.create(&volume("v2a")).unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) =
        get(&server, &format!("/api/v1/persistentvolumes?limit=2&continue={token}")).await;
    assert_eq!(
        (names(&second), &second["metadata"]["remainingItemCount"]),
        (vec!["v2", "v3"], &json!(1))
    );
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, third) =
        get(&server, &format!("/api/v1/persistentvolumes?limit=2&continue={token}")).await;
    assert_eq!((names(&third), &third["metadata"]["continue"]), (vec!["v4"], &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_refused_with_one_that_goes_on_inconsistently() {
    let server = with_volumes(3);
    let (_, first) = get(&server, "/api/v1/persistentvolumes?limit=1").await;
    server.create(&volume("v1a")).unwrap();
    server.compact();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (code, status) =
        get(&server, &format!("/api/v1/persistentvolumes?limit=9&continue={token}")).await;
    assert_eq!((code, status["reason"].as_str()), (410, Some("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let (_, rest) =
        get(&server, &format!("/api/v1/persistentvolumes?limit=9&continue={token}")).await;
    assert_eq!(names(&rest), ["v1", "v1a", "v2"]);
    assert_eq!(get(&server, "/api/v1/persistentvolumes?limit=1&continue=nonsense").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn versions_are_matched_as_documented() {
    let server = with_volumes(1);
    server.create(&volume("w")).unwrap();
    let list =
        async |query: &str| get(&server, &format!("/api/v1/persistentvolumes?{query}")).await;
    assert_eq!(
        names(&list("resourceVersion=0&limit=1").await.1),
        ["v0", "w"],
        "0 is answered whole"
    );
    let (code, status) = list("resourceVersion=999999").await;
    assert_eq!(
        (code, status["details"]["causes"][0]["reason"].as_str()),
        (504, Some("ResourceVersionTooLarge"))
    );
    assert_eq!(list("resourceVersion=5&resourceVersionMatch=Exact").await.0, 422);
    assert_eq!(list("watch=true&sendInitialEvents=true").await.0, 422);
    assert_eq!(list("resourceVersion=x").await.0, 400);
}
