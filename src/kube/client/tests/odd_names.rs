//! Tests with names that would change the meaning of a URL: users choose the names of objects.

use std::{fs, ops::ControlFlow, path::Path};

use serde_json::json;

use crate::kube::{
    Client, Edit, Kind, Name, Patch, Scope,
    objects::{Claim, StorageClass},
    testing::{Answer, Server, client},
};

/// Names that would leave the path, name a subresource, or encode either.
const REFUSED: [&str; 8] =
    ["../../other/secrets/s", "snap/status", "..", ".", "/", "a%2fb", "%2e%2e", ""];

/// Names that are escaped and then harmless.
const ESCAPED: [&str; 7] =
    ["snap?watch=1", "a#b", "A b", "schnäppchen", "...", "a&b=c", "x\r\nhost: y"];

#[tokio::test]
async fn bad_names_are_never_requested() {
    let server = Server::new(|_, _| Answer::json(200, &json!({"items": []})));
    let client = client(&server);
    for odd in REFUSED {
        // Requests for objects take a `Name`, lists a `Scope`.
        assert!(Name::cluster(odd).is_err(), "{odd:?}");
        assert!(Name::namespaced("ns", odd).is_err(), "{odd:?}");
        assert!(Name::namespaced(odd, "name").is_err(), "{odd:?}");
        assert!(Scope::namespace(odd).is_err(), "{odd:?}");
        let created = client.create::<Claim>(Some(odd), &json!({})).await;
        assert!(created.is_err(), "{odd:?}");
        if !odd.is_empty() {
            assert!(client.find_kind(odd, "v1", "K").await.is_err(), "{odd:?}");
            assert!(client.find_kind("g", odd, "K").await.is_err(), "{odd:?}");
        }
    }
    assert!(server.requests().is_empty());
}

/// Sends every kind of request for an object of this namespace and name.
async fn send_all(client: &Client, namespace: &str, name: &str) {
    let kind = Kind::of::<Claim>();
    let object = Name::namespaced(namespace, name).unwrap();
    let patch = Patch::Merge(json!({}));
    let nothing = |_: &mut serde_json::Value| Edit::Nothing;
    // The answers do not matter.
    let _ = client.get::<Claim>(object).await;
    let _ = client.get_raw(&kind, object).await;
    let _ = client.get_metadata(&kind, object).await;
    let _ = client.replace_raw::<Claim>(object, &json!({})).await;
    let _ = client.patch::<Claim>(object, &patch).await;
    let _ = client.delete::<Claim>(object, None).await;
    let _ = client.edit::<Claim>(object, "uid", nothing).await;
    let _ = client.create::<Claim>(Some(namespace), &json!({})).await;
    let scope = Scope::namespace(namespace).unwrap().named(name).labelled(name);
    let _ = client.list::<Claim>(&scope, |_| ControlFlow::Break(())).await;
    let _ = client.get::<StorageClass>(Name::cluster(name).unwrap()).await;
}

#[tokio::test]
async fn an_odd_name_stays_in_its_segment_in_every_request() {
    for odd in ESCAPED {
        let server = Server::new(|_, _| Answer::json(200, &json!({"items": []})));
        send_all(&client(&server), odd, odd).await;
        let requests = server.requests();
        assert_eq!(requests.len(), 10, "{odd:?}");
        for request in requests {
            let url: http::Uri = request.url.parse().unwrap();
            let depth = url.path().split('/').count();
            let (object, collection) = (7, 6);
            let class = url.path().starts_with("/apis/storage.k8s.io/v1/storageclasses/");
            assert!(class && depth == 6 || depth == object || depth == collection, "{url}");
            let pairs = url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
            let expected = match &*request.method {
                "GET" if depth == collection && !class => 3,
                "GET" | "DELETE" => 0,
                _ => 1,
            };
            assert_eq!(pairs.count(), expected, "{url}");
        }
    }
}

#[test]
fn urls_are_built_only_in_this_module() {
    fn search(directory: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("kube") {
                    search(&path, found);
                }
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            let tests = path.file_stem().is_some_and(|name| name == "tests" || name == "testing");
            let makes_urls = ["\"/api", "/apis/"];
            if !tests && makes_urls.iter().any(|sign| product.contains(sign)) {
                found.push(path.display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    search(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert_eq!(found, Vec::<String>::new());
}
