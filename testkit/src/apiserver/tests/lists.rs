//! Lists, their pages and their versions.

use std::{collections::BTreeMap, pin::pin};

use futures::future::{Either, select};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{claim, get, server, volume};
use crate::apiserver::{ApiServer, Options, User};

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
    let early = server.revision();
    server.create(&volume("w")).unwrap();
    let list =
        async |query: &str| get(&server, &format!("/api/v1/persistentvolumes?{query}")).await;
    assert_eq!(
        names(&list(&format!("resourceVersion={early}&resourceVersionMatch=Exact")).await.1),
        ["v0"]
    );
    assert_eq!(
        names(&list(&format!("resourceVersion={early}&resourceVersionMatch=NotOlderThan")).await.1),
        ["v0", "w"]
    );
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
    for bad in [
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=5&resourceVersionMatch=Newest",
    ] {
        assert_eq!(list(bad).await.0, 422, "{bad}");
    }
    assert_eq!(list("resourceVersion=x").await.0, 400);
    server.compact();
    assert_eq!(list(&format!("resourceVersion={early}&resourceVersionMatch=Exact")).await.0, 410);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_lists_its_own_and_selectors_select() {
    let server = server();
    server.namespace("other");
    for (namespace, name) in [("sc", "a"), ("sc", "b"), ("other", "c")] {
        let mut object = claim(name);
        object["metadata"]["namespace"] = json!(namespace);
        object["metadata"]["labels"] = json!({"n": name});
        server.create(&object).unwrap();
    }
    let list = async |path: &str| get(&server, path).await.1;
    assert_eq!(names(&list("/api/v1/persistentvolumeclaims").await), ["c", "a", "b"]);
    assert_eq!(names(&list("/api/v1/namespaces/sc/persistentvolumeclaims").await), ["a", "b"]);
    let selected = list("/api/v1/persistentvolumeclaims?labelSelector=n%20in%20(a,c)&fieldSelector=metadata.namespace%3Dsc").await;
    assert_eq!(names(&selected), ["a"]);
    assert_eq!(selected["kind"], "PersistentVolumeClaimList");
    assert!(selected["items"][0].get("kind").is_none(), "items of built-in kinds carry no type");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn pages_joined_are_the_list_of_their_version(
        before in prop::collection::btree_set(0u8..40, 0..20),
        writes in prop::collection::vec((0u8..40, any::<bool>()), 0..20),
        limit in 1usize..7,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = server();
            for name in &before {
                server.create(&volume(&format!("v{name:02}"))).unwrap();
            }
            let expected: Vec<String> = before.iter().map(|name| format!("v{name:02}")).collect();
            let (mut token, mut received, mut writes) = (String::new(), Vec::new(), writes.into_iter());
            loop {
                let (code, page) = get(&server, &format!("/api/v1/persistentvolumes?limit={limit}&continue={token}")).await;
                assert_eq!(code, 200);
                received.extend(names(&page).into_iter().map(str::to_owned));
                let left = page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
                assert_eq!(usize::try_from(left).unwrap(), expected.len() - received.len());
                token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
                if token.is_empty() {
                    break;
                }
                for (name, delete) in writes.by_ref().take(3) {
                    let name = format!("v{name:02}");
                    let _ = if delete { server.delete("PersistentVolume", "", &name) } else { server.create(&volume(&name)).map(|_| ()) };
                }
            }
            assert_eq!(received, expected);
        });
    }

    #[test]
    fn a_list_and_the_watch_after_it_make_the_newest_list(writes in prop::collection::vec((0u8..8, 0u8..3), 1..40), split in 0usize..40) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = server();
            let split = split.min(writes.len());
            apply(&server, &writes[..split]);
            let (_, list) = get(&server, "/api/v1/persistentvolumes").await;
            let mut objects: BTreeMap<String, Value> = keyed(&list);
            let since = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            apply(&server, &writes[split..]);
            let uri = format!("/api/v1/persistentvolumes?watch=1&timeoutSeconds=1&resourceVersion={since}");
            let request = http::Request::builder().uri(uri).body(bytes::Bytes::new()).unwrap();
            let body = server.handle(&crate::apiserver::User::new("t"), request).await.into_body();
            let lines = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let mut event: Value = serde_json::from_slice(line).unwrap();
                let mut object = event["object"].take();
                object.as_object_mut().unwrap().retain(|member, _| member != "kind" && member != "apiVersion");
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                match event["type"].as_str().unwrap() {
                    "ADDED" => assert!(objects.insert(name, object).is_none()),
                    "MODIFIED" => assert!(objects.insert(name, object).is_some()),
                    "DELETED" => assert!(objects.remove(&name).is_some()),
                    other => panic!("unexpected {other}"),
                }
            }
            assert_eq!(objects, keyed(&get(&server, "/api/v1/persistentvolumes").await.1));
        });
    }
}

fn keyed(list: &Value) -> BTreeMap<String, Value> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), item.clone()))
        .collect()
}

/// Creates, changes or deletes; what does not fit is refused and does nothing.
fn apply(server: &ApiServer, writes: &[(u8, u8)]) {
    for (i, (name, what)) in writes.iter().enumerate() {
        let name = format!("v{name}");
        let _ = match what {
            0 => server.create(&volume(&name)).map(|_| ()),
            1 => server
                .merge(
                    "PersistentVolume",
                    "",
                    &name,
                    &json!({"metadata": {"labels": {"i": i.to_string()}}}),
                )
                .map(|_| ()),
            _ => server.delete("PersistentVolume", "", &name),
        };
    }
}

/// The media type, the code and the body that a client gets who accepts `accept`.
async fn accepting(server: &ApiServer, accept: &str, uri: &str) -> (String, u16, Vec<u8>) {
    let request = http::Request::get(uri).header("accept", accept).body(bytes::Bytes::new());
    let response = server.handle(&User::new("tester"), request.unwrap()).await;
    let media = response.headers()["content-type"].to_str().unwrap().to_owned();
    let code = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    (media, code, body.to_bytes().to_vec())
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf, application/json";
const VOLUMES: &str = "/api/v1/persistentvolumes";

#[tokio::test(start_paused = true)]
async fn claims_and_volumes_are_listed_in_protobuf_for_who_asks() {
    let server = with_volumes(2);
    for (uri, accept, expected) in [
        (VOLUMES, PROTOBUF_OR_JSON, PROTOBUF),
        ("/api/v1/namespaces/sc/persistentvolumeclaims", PROTOBUF_OR_JSON, PROTOBUF),
        ("/api/v1/nodes", PROTOBUF_OR_JSON, "application/json"),
        (VOLUMES, "application/json", "application/json"),
    ] {
        let (media, code, body) = accepting(&server, accept, uri).await;
        assert_eq!((&*media, code), (expected, 200), "{uri}");
        assert_eq!(body.starts_with(b"k8s\0"), media == PROTOBUF, "{uri}");
    }
    let (media, code, _) = accepting(&server, PROTOBUF_OR_JSON, "/api/v1/nodes/none").await;
    assert_eq!((&*media, code), (PROTOBUF, 404), "refusals too");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_protobuf_and_a_list_that_it_cannot_hold_are_json() {
    let plain = ApiServer::new(Options { protobuf: false, ..Options::default() });
    let (media, ..) = accepting(&plain, PROTOBUF_OR_JSON, VOLUMES).await;
    assert_eq!(media, "application/json");
    let server = with_volumes(1);
    let mut odd = volume("odd");
    odd["status"] = json!({"message": 7});
    server.create(&odd).unwrap();
    let (media, ..) = accepting(&server, PROTOBUF_OR_JSON, VOLUMES).await;
    assert_eq!(media, "application/json");
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_beside_a_long_list_is_answered_meanwhile() {
    let server = with_volumes(1_000);
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for accept in [PROTOBUF, "application/json", metadata] {
        let list = pin!(accepting(&server, accept, VOLUMES));
        let get = pin!(get(&server, "/api/v1/persistentvolumes/v7"));
        assert!(matches!(select(list, get).await, Either::Right(_)), "{accept}");
    }
}
