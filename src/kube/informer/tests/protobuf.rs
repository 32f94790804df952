//! Lists and watches in protobuf and in JSON.

use http::header::{ACCEPT, CONTENT_TYPE};
use kube::config::{KubeConfigOptions, Kubeconfig};
use testkit::{
    apiserver::{ApiServer, Options, User},
    control_plane::ControlPlane,
};
use tower::{ServiceExt as _, service_fn};

use super::*;
use crate::kube::{
    connection::transport::{KubeRequest, Transport, boxed, transport},
    objects::{Volume, protobuf::samples},
    testing::kube_client,
};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";
const EITHER: &str = "application/vnd.kubernetes.protobuf, application/json";

/// A server with five claims.
fn server(protobuf: bool) -> ApiServer {
    let server = ApiServer::new(Options { protobuf, ..Options::default() });
    server.namespace("sc");
    for name in ["a", "b", "c", "d", "e"] {
        let metadata = json!({"name": name, "namespace": "sc", "annotations": {"k": name}});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                          "resources": {"requests": {"storage": "1Gi"}}});
        let claim = json!({"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec});
        server.create(&claim).unwrap();
    }
    server
}

/// The transport, and the form of each answer on it.
fn noted(transport: Transport) -> (Transport, Arc<Mutex<Vec<String>>>) {
    let forms = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&forms);
    let noted = boxed(service_fn(move |request: KubeRequest| {
        let (note, transport) = (Arc::clone(&note), transport.clone());
        async move {
            let word = super::request(&request.uri().to_string());
            let response = transport.oneshot(request).await?;
            let form = response.headers()[CONTENT_TYPE].to_str().unwrap();
            note.lock().push(format!("{} {form}", word.split(' ').next().unwrap()));
            Ok::<_, tower::BoxError>(response)
        }
    }));
    (noted, forms)
}

/// An informer of all `V`.
fn informer_on<V: View>(transport: Transport) -> Informer<V> {
    let metrics = Metrics::new();
    Informer::new(&client_on(transport, &metrics), Scope::all(), random(), &metrics)
}

/// Lists all `V`, in pages; returns the events up to the end of the list, and the form of each page.
async fn listed<V: View>(transport: Transport) -> (Vec<InformerEvent<V>>, Vec<String>) {
    let (transport, forms) = noted(transport);
    let informer = informer_on::<V>(transport);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let run =
        informer.with_settings(Rest::Pages.settings()).run(move |event| drop(sender.send(event)));
    let complete = async {
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            let is_last = matches!(event, InformerEvent::InitDone);
            events.push(event);
            if is_last {
                break;
            }
        }
        events
    };
    let events = tokio::select! {
        () = run => panic!("an informer never returns"),
        events = complete => events,
    };
    // Whether the watch that follows has begun depends on which future is polled first.
    let pages = forms.lock().iter().filter(|form| form.starts_with("page")).cloned().collect();
    (events, pages)
}

/// Reads all `V` with kube's client, in JSON, as the informer's events.
async fn read_in_json<V: View>(transport: Transport) -> Vec<InformerEvent<V>> {
    let client = kube_client(transport);
    let path = crate::kube::Kind::of::<V>().collection(None);
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let mut list: Value = client.request(request).await.unwrap();
    let objects: Vec<V> = serde_json::from_value(list["items"].take()).unwrap();
    let objects = objects.into_iter().map(InformerEvent::InitApply);
    std::iter::once(InformerEvent::Init).chain(objects).chain([InformerEvent::InitDone]).collect()
}

fn text<V: std::fmt::Debug>(events: &[InformerEvent<V>]) -> String {
    format!("{events:#?}")
}

#[tokio::test(start_paused = true)]
async fn a_list_reads_the_same_in_protobuf_and_in_json() {
    let served = |protobuf| boxed(server(protobuf).service(User::new("provisioner")));
    let (events, forms) = listed::<Claim>(served(true)).await;
    let page = format!("page {PROTOBUF}");
    assert_eq!(forms, [&*page, &page, &page]);
    let (in_json, forms) = listed::<Claim>(served(false)).await;
    assert_eq!(forms[0], format!("page {JSON}"));
    let words: Vec<String> = events.iter().map(word).collect();
    let objects = ["a", "b", "c", "d", "e"].map(|name| format!("init-apply {name}"));
    assert_eq!(words[1..6], objects);
    assert_eq!(text(&events), text(&in_json), "down to the last field");
}

/// Runs an informer against a server that answers the first page with `first`, unless that is requested in
/// JSON alone; returns what each page accepted.
async fn accepted(first: Answer) -> (Run, Vec<String>) {
    let run = run(100, move |_, seen| match request(&seen.url).as_str() {
        "page" if seen.header("accept") == JSON => page(&["a"], "next"),
        "page" => first.clone(),
        "page next" => page(&["b"], ""),
        _ => Answer::watch(),
    })
    .await;
    let seen = run.server.requests();
    let pages = seen.iter().filter(|seen| query(&seen.url, "watch").is_empty());
    let accepted = pages.map(|seen| seen.header("accept").to_owned()).collect();
    (run, accepted)
}

fn protobuf(code: u16, body: impl Into<bytes::Bytes>) -> Answer {
    Answer::status(code).header("content-type", PROTOBUF).chunk(0, body)
}

#[tokio::test(start_paused = true)]
async fn after_unreadable_or_refused_protobuf_the_list_is_requested_in_json() {
    for first in [
        protobuf(200, &b"k8s\x01"[..]),
        protobuf(200, &b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\0"[..]),
        protobuf(200, &b"k8s\0\x12\x02\x08\x01"[..]),
        Answer::refusal(406, "NotAcceptable", "only JSON"),
    ] {
        let (run, accepted) = accepted(first).await;
        assert_eq!(run.words().iter().rev().take(4).rev().copied().collect::<Vec<_>>(), LISTED_AB);
        assert_eq!(accepted[..3], [EITHER, JSON, JSON]);
    }
}

#[tokio::test(start_paused = true)]
async fn after_another_failure_the_list_is_requested_in_protobuf_again() {
    for first in [
        protobuf(200, &b"k8s\0\x12\x0a"[..]).end(End::Broken),
        protobuf(200, &b"k8s\0\x12\x0a"[..]),
        protobuf(410, testkit::apiserver::protobuf::status(&status(410, "Expired")).unwrap()),
        Answer::refusal(500, "InternalError", "etcd is away"),
        Answer::none(),
    ] {
        let (_, accepted) = accepted(first).await;
        assert!(accepted.len() > 1 && accepted.iter().all(|accepted| accepted == EITHER));
    }
}

#[tokio::test(start_paused = true)]
async fn after_unreadable_or_refused_protobuf_the_watch_is_requested_in_json_at_its_version() {
    for first in [
        Answer::refusal(406, "NotAcceptable", "only JSON"),
        protobuf(200, &b"\0\0\0\x02\x0a\0"[..]),
        protobuf(
            200,
            testkit::apiserver::protobuf::event("ADDED", "PersistentVolume", &claim("b", 22))
                .unwrap(),
        ),
    ] {
        let run = run_once(Rest::Pages, 100, move |_, seen| {
            match (request(&seen.url).as_str(), seen.header("accept")) {
                ("page", _) => page(&["a"], ""),
                (_, EITHER) => first.clone(),
                _ => Answer::watch().event(0, "ADDED", &claim("b", 22)),
            }
        })
        .await;
        assert_eq!(run.words(), [&LISTED_A[..], &["apply b"]].concat());
        assert_eq!(run.requests(), ["page", "watch 20", "watch 20"]);
    }
}

/// The events of an informer of claims while objects are created and deleted, and the form of each answer, from a
/// server with or without protobuf.
async fn changes(in_protobuf: bool) -> (Vec<InformerEvent<Claim>>, Vec<String>) {
    let server = server(in_protobuf);
    let (transport, forms) = noted(boxed(server.service(User::new("provisioner"))));
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    let run = informer_on::<Claim>(transport).run(move |event| sink.lock().push(event));
    let change = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut claim = samples::claim("new");
        claim["metadata"] =
            json!({"name": "new", "namespace": "sc", "annotations": {"a": "\u{e9}"}});
        server.create(&claim).unwrap();
        server.delete("PersistentVolumeClaim", "sc", "a").unwrap();
        // Past a bookmark.
        tokio::time::sleep(Duration::from_secs(100)).await;
        server.delete("PersistentVolumeClaim", "sc", "b").unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    tokio::select! {
        () = run => panic!("an informer never returns"),
        () = change => {}
    }
    let (events, forms) = (events.lock().clone(), forms.lock().clone());
    (events, forms)
}

#[tokio::test(start_paused = true)]
async fn changes_read_the_same_in_protobuf_and_in_json() {
    let (in_protobuf, forms) = changes(true).await;
    assert_eq!(forms, [format!("page {PROTOBUF}"), format!("watch {PROTOBUF};stream=watch")]);
    let (in_json, forms) = changes(false).await;
    assert_eq!(forms, [format!("page {JSON}"), format!("watch {JSON}")]);
    let words: Vec<String> = in_protobuf.iter().skip(7).map(word).collect();
    assert_eq!(words, ["apply new", "apply new", "delete a", "delete b"]);
    assert_eq!(text(&in_protobuf), text(&in_json), "down to the last field");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_protobuf_is_reported() {
    let (log, _guard) = logged();
    let refusal = testkit::apiserver::protobuf::status(&status(403, "Forbidden")).unwrap();
    accepted(protobuf(403, refusal)).await;
    let text = log.text();
    assert_eq!(text.matches("not allowed to list or watch").count(), 1, "{text}");
}

/// Objects that a server has taken, their status written too, and each claim about to be deleted.
async fn fill(client: &kube::Client) {
    let volumes = samples::sources();
    let volumes = volumes.iter().enumerate().map(|(number, (source, part))| {
        samples::volume(&format!("{source}-{number}").to_lowercase(), source, part)
    });
    for (objects, path) in [
        (volumes.collect(), "/api/v1/persistentvolumes"),
        (
            vec![samples::claim("a"), samples::claim("b")],
            "/api/v1/namespaces/default/persistentvolumeclaims",
        ),
    ] {
        for object in objects {
            put_up(client, path, object).await;
        }
    }
    let gone = http::Request::delete("/api/v1/namespaces/default/persistentvolumeclaims/a");
    client.request::<Value>(gone.body(Vec::new()).unwrap()).await.unwrap();
}

async fn put_up(client: &kube::Client, path: &str, mut object: Value) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for given in
        ["uid", "resourceVersion", "generateName", "deletionTimestamp", "creationTimestamp"]
    {
        metadata.remove(given);
    }
    let status = object["status"].clone();
    let send = |request: http::request::Builder, body: Value| {
        let request = request.header(CONTENT_TYPE, JSON).body(body.to_string().into_bytes());
        client.request::<Value>(request.unwrap())
    };
    let mut made = send(http::Request::post(path), object).await.unwrap();
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    made["status"] = status;
    send(http::Request::put(format!("{path}/{name}/status")), made).await.unwrap();
}

/// The transport of an administrator.
async fn admin(plane: &ControlPlane) -> Transport {
    let kubeconfig = Kubeconfig::read_from(plane.layout().kubeconfig("admin")).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    transport(&config).unwrap()
}

/// On a real server, if `KUBEBUILDER_ASSETS` names one.
#[tokio::test]
async fn a_real_servers_protobuf_reads_as_its_json() {
    let plane = ControlPlane::start().await.unwrap();
    fill(&plane.client("admin").await.unwrap()).await;
    let transport = admin(&plane).await;
    both::<Volume>(&transport).await;
    both::<Claim>(&transport).await;
}

/// What an informer yields on `transport` once its list is complete, as text.
async fn watched<V: View>(
    transport: Transport,
    sender: tokio::sync::mpsc::UnboundedSender<String>,
) {
    let report = move |event| match event {
        InformerEvent::Init | InformerEvent::InitApply(_) => {}
        event => drop(sender.send(format!("{event:#?}"))),
    };
    informer_on::<V>(transport).run(report).await;
}

/// The transport, on which a watch accepts nothing but JSON.
fn watching_in_json(transport: Transport) -> Transport {
    boxed(service_fn(move |mut request: KubeRequest| {
        if query(&request.uri().to_string(), "watch") == "true" {
            request.headers_mut().insert(ACCEPT, JSON.parse().unwrap());
        }
        transport.clone().oneshot(request)
    }))
}

/// On a real server, if `KUBEBUILDER_ASSETS` names one.
#[tokio::test]
async fn a_real_servers_watch_in_protobuf_reads_as_in_json() {
    let plane = ControlPlane::start().await.unwrap();
    let client = plane.client("admin").await.unwrap();
    let transport = admin(&plane).await;
    let (noted, forms) = noted(transport.clone());
    let (in_protobuf, mut protobuf) = tokio::sync::mpsc::unbounded_channel();
    let (in_json, mut json) = tokio::sync::mpsc::unbounded_channel();
    let compare = async {
        assert_eq!(protobuf.recv().await, json.recv().await, "both lists are complete");
        tokio::time::sleep(Duration::from_millis(500)).await;
        fill(&client).await;
        // Two claims, their status, and a deletion that finalizers delay.
        for _ in 0..5 {
            let event = protobuf.recv().await.unwrap();
            assert_eq!(Some(event), json.recv().await, "down to the last field");
        }
    };
    tokio::select! {
        () = watched::<Claim>(noted, in_protobuf) => panic!("an informer never returns"),
        () = watched::<Claim>(watching_in_json(transport), in_json) => panic!("an informer never returns"),
        () = compare => {}
    }
    assert!(forms.lock().contains(&format!("watch {PROTOBUF};stream=watch")), "{:?}", forms.lock());
}

/// Lists all `V` in protobuf and in JSON.
async fn both<V: View>(transport: &Transport) {
    let (events, forms) = listed::<V>(transport.clone()).await;
    assert_eq!(forms[0], format!("page {PROTOBUF}"));
    assert!(events.len() > 3);
    assert_eq!(text(&events), text(&read_in_json::<V>(transport.clone()).await));
}
