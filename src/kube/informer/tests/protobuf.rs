//! Lists in the form that the server speaks.

use http::header::CONTENT_TYPE;
use kube::config::{KubeConfigOptions, Kubeconfig};
use testkit::apiserver::{ApiServer, Options, User};
use tower::{ServiceExt as _, service_fn};

use super::*;
use crate::kube::{
    connection::transport::{KubeRequest, Transport, boxed, transport},
    objects::{Volume, protobuf::samples},
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

/// The transport, and in which form each answer comes on it.
fn noted(transport: Transport) -> (Transport, Arc<Mutex<Vec<String>>>) {
    let forms = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&forms);
    let noted = boxed(service_fn(move |request: KubeRequest| {
        let (note, transport) = (Arc::clone(&note), transport.clone());
        async move {
            let verb = asked(&request.uri().to_string());
            let response = transport.oneshot(request).await?;
            let form = response.headers()[CONTENT_TYPE].to_str().unwrap();
            note.lock().push(format!("{} {form}", verb.split(' ').next().unwrap()));
            Ok::<_, tower::BoxError>(response)
        }
    }));
    (noted, forms)
}

/// What is shown of all `V` until they are listed, and in which form each answer came.
async fn followed<V: View>(
    transport: Transport,
    way: Service,
) -> (Vec<InformerEvent<V>>, Vec<String>) {
    let (transport, forms) = noted(transport);
    let metrics = Metrics::new().unwrap();
    let gate = Gate::open(Arc::new(SystemClock));
    let lanes = Lanes::new(transport, LaneSettings::default(), gate, random(), &metrics);
    let settings = Settings { page_size: 2, ..Settings::default() };
    let reflector = Informer::<V>::new(&lanes.objects, Scope::all(), settings, random(), &metrics);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let run = way.run(reflector, move |event| drop(sender.send(event)));
    let complete = async {
        let mut shown = Vec::new();
        while let Some(event) = receiver.recv().await {
            let whole = matches!(event, InformerEvent::InitDone);
            shown.push(event);
            if whole {
                break;
            }
        }
        shown
    };
    let shown = tokio::select! {
        () = run => panic!("a reflector never returns"),
        shown = complete => shown,
    };
    // Whether the watch that follows has begun depends on who is polled first.
    let pages = forms.lock().iter().filter(|form| form.starts_with("page")).cloned().collect();
    (shown, pages)
}

fn text<V: std::fmt::Debug>(shown: &[InformerEvent<V>]) -> String {
    format!("{shown:#?}")
}

#[tokio::test(start_paused = true)]
async fn lists_are_read_in_the_form_that_the_server_speaks_and_say_the_same() {
    let served = |protobuf| boxed(server(protobuf).service(User::new("provisioner")));
    let (shown, forms) = followed::<Claim>(served(true), Service::Listed).await;
    let page = format!("page {PROTOBUF}");
    assert_eq!(forms, [&*page, &page, &page]);
    let (shown_by_json, forms) = followed::<Claim>(served(false), Service::Listed).await;
    assert_eq!(forms[0], format!("page {JSON}"));
    let words: Vec<String> = shown.iter().map(word).collect();
    assert_eq!(
        words,
        ["restarted", "listed a", "listed b", "listed c", "listed d", "listed e", "complete"]
    );
    assert_eq!(text(&shown), text(&shown_by_json), "down to the last field");
}

/// Lists as `first` answers, and in JSON whoever asks for nothing else; gives what each was asked for.
async fn asked_for(first: Answer) -> (Run, Vec<String>) {
    let run = reflect_with(Service::Listed, 100, move |_, seen| match asked(&seen.url).as_str() {
        "page" if seen.header("accept") == JSON => page(&["a"], "next"),
        "page" => first.clone(),
        "page next" => page(&["b"], ""),
        _ => Answer::watch(),
    })
    .await;
    let seen = run.server.seen();
    let pages = seen.iter().filter(|seen| query(&seen.url, "watch").is_empty());
    let accepted = pages.map(|seen| seen.header("accept").to_owned()).collect();
    (run, accepted)
}

fn protobuf(code: u16, body: impl Into<bytes::Bytes>) -> Answer {
    Answer::status(code).header("content-type", PROTOBUF).chunk(0, body)
}

#[tokio::test(start_paused = true)]
async fn a_list_in_a_protobuf_that_cannot_be_read_is_asked_for_in_json() {
    for first in [
        protobuf(200, &b"k8s\x01"[..]),
        protobuf(200, &b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\0"[..]),
        protobuf(200, &b"k8s\0\x12\x02\x08\x01"[..]),
        Answer::refusal(406, "NotAcceptable", "only JSON"),
    ] {
        let (run, accepted) = asked_for(first).await;
        assert_eq!(run.words().iter().rev().take(4).rev().copied().collect::<Vec<_>>(), PAGED);
        assert_eq!(accepted[..3], [EITHER, JSON, JSON]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_or_is_refused_is_asked_for_in_the_same_form() {
    for first in [
        protobuf(200, &b"k8s\0\x12\x0a"[..]).end(End::Broken),
        protobuf(200, &b"k8s\0\x12\x0a"[..]),
        protobuf(410, testkit::apiserver::protobuf::status(&status(410, "Expired")).unwrap()),
        Answer::refusal(500, "InternalError", "etcd is away"),
        Answer::none(),
    ] {
        let (_, accepted) = asked_for(first).await;
        assert!(accepted.len() > 1 && accepted.iter().all(|accepted| accepted == EITHER));
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_told_also_where_the_server_says_it_in_protobuf() {
    let (log, _guard) = logged();
    let refusal = testkit::apiserver::protobuf::status(&status(403, "Forbidden")).unwrap();
    asked_for(protobuf(403, refusal)).await;
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

/// On a real server, where `KUBEBUILDER_ASSETS` names one.
#[tokio::test]
async fn a_servers_own_protobuf_says_what_its_json_says() {
    let plane = testkit::control_plane::ControlPlane::start().await.unwrap();
    fill(&plane.client("admin").await.unwrap()).await;
    let kubeconfig = Kubeconfig::read_from(plane.layout().kubeconfig("admin")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let transport = transport(&config).unwrap();
    both::<Volume>(&transport).await;
    both::<Claim>(&transport).await;
}

/// Lists all `V` in protobuf and in JSON.
async fn both<V: View>(transport: &Transport) {
    let (shown, forms) = followed::<V>(transport.clone(), Service::Listed).await;
    assert_eq!(forms[0], format!("page {PROTOBUF}"));
    let (shown_by_json, _) = followed::<V>(transport.clone(), Service::Plain).await;
    assert!(
        shown.len() > 3
            && shown.iter().all(|shown| !matches!(shown, InformerEvent::Unreadable { .. }))
    );
    assert_eq!(text(&shown), text(&shown_by_json));
}
