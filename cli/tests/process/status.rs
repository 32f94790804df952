//! `kubectl csi-provisioner status`, the real binary beside an API server that forwards a port: the leader is
//! found by its Lease, its status is read in its pod, and claims that wait for a pod are among it.

#![allow(clippy::disallowed_methods)] // servers of the test's own

use std::{convert::Infallible, future::ready, net::SocketAddr};

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use testkit::control_plane::TemporaryDirectory;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    net::TcpListener,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

use crate::ran::{Ran, run};

const DRIVER: &str = "disk.example.com";
const PORT: u16 = 8090;

/// What the leader says.
const STATUS: &str = r#"{"version": "v0", "leader": {"leads": true, "identity": "pod-1_a", "lease": "csi/disk-example-com"},
    "driver": {"name": "disk.example.com", "isConnected": true}}"#;

/// Whether the leader's process answers whom it has let in.
#[derive(Clone, Copy, PartialEq)]
enum Leader {
    Answers,
    Hangs,
}

/// A request's path with its answer.
fn answer(path: &str) -> Option<Value> {
    let list = |items: Value| json!({"metadata": {"resourceVersion": "1"}, "items": items});
    let renewed = jiff::Timestamp::now().to_string();
    Some(match path {
        "/apis/coordination.k8s.io/v1/namespaces/csi/leases/disk-example-com" => json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "disk-example-com", "namespace": "csi"},
            "spec": {"holderIdentity": "pod-1_a", "leaseDurationSeconds": 15, "renewTime": renewed},
        }),
        "/api/v1/namespaces/csi/pods/pod-1" => json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod-1", "namespace": "csi"},
            "spec": {"containers": [{"name": "p", "args": [format!("--status-endpoint=:{PORT}")]}]},
        }),
        "/apis/storage.k8s.io/v1/storageclasses" => list(json!([
            {"metadata": {"name": "late"}, "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"},
        ])),
        "/api/v1/persistentvolumeclaims" => list(json!([
            {"metadata": {"name": "cache", "namespace": "shop", "uid": "1"}, "spec": {"storageClassName": "late"}},
        ])),
        _ => return None,
    })
}

fn serve(mut request: Request<Incoming>, leader: Leader) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    if path == "/api/v1/namespaces/csi/pods/pod-1/portforward" {
        assert!(request.uri().query().is_some_and(|query| query.ends_with("ports=8090")));
        let accept = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move { forward(upgrade.await.unwrap(), leader).await });
        let response = Response::builder()
            .status(101)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", accept)
            .header("sec-websocket-protocol", "v4.channel.k8s.io");
        return response.body(Full::default()).unwrap();
    }
    let found = answer(&path);
    let status = if found.is_some() { 200 } else { 404 };
    let body =
        found.unwrap_or_else(|| json!({"kind": "Status", "code": 404, "reason": "NotFound"}));
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Full::from(body.to_string())).unwrap()
}

/// Speaks the protocol of a port-forward: a byte for the channel, then data; each channel begins with the port.
async fn forward(upgraded: Upgraded, leader: Leader) {
    let upgraded = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, None).await;
    let (mut sink, mut stream) = socket.split();
    let [low, high] = PORT.to_le_bytes();
    for channel in [0, 1] {
        sink.send(Message::binary(vec![channel, low, high])).await.unwrap();
    }
    if leader == Leader::Hangs {
        return stream.for_each(|_| ready(())).await;
    }
    let (pod, leader) = duplex(1 << 16);
    let leader = http1::Builder::new().serve_connection(
        TokioIo::new(leader),
        service_fn(async |request: Request<Incoming>| {
            // The leader answers loopback names only.
            assert_eq!(request.headers()["host"], "localhost");
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(STATUS)))
        }),
    );
    tokio::spawn(async move { leader.await.unwrap() });
    let (mut from_leader, mut to_leader) = tokio::io::split(pod);
    tokio::spawn(async move {
        while let Some(Ok(message)) = stream.next().await {
            let data = message.into_data();
            if data.len() > 1 {
                to_leader.write_all(&data[1..]).await.unwrap();
            }
        }
    });
    let mut data = vec![0; 4096];
    while let Ok(length @ 1..) = from_leader.read(&mut data[1..]).await {
        data[0] = 0;
        if sink.send(Message::binary(data[..=length].to_vec())).await.is_err() {
            return;
        }
    }
}

/// Starts an API server, or a proxy with one behind it.
async fn start(is_proxy: bool, leader: Leader) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if is_proxy {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                assert!(head.starts_with(b"CONNECT api.test:80 "));
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            }
            let connection = http1::Builder::new()
                .serve_connection(
                    TokioIo::new(stream),
                    service_fn(move |request| ready(Ok::<_, Infallible>(serve(request, leader)))),
                )
                .with_upgrades();
            tokio::spawn(connection);
        }
    });
    address
}

async fn shown(arguments: Vec<String>) -> Ran {
    let namespace = "--leader-election-namespace=csi";
    let all = ["status", "--driver", DRIVER, namespace].map(str::to_owned);
    let all: Vec<_> = all.into_iter().chain(arguments).collect();
    tokio::task::spawn_blocking(move || run(&all, "")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leaders_status_is_read_through_a_port_forward() {
    let master = format!("--master=http://{}", start(false, Leader::Answers).await);
    for (output, parts) in [
        (
            "text",
            ["pod-1_a leads by the Lease csi/disk-example-com", "shop/cache  until a pod uses it"],
        ),
        ("json", ["\"isConnected\": true", "\"shop/cache\""]),
    ] {
        let ran = shown(vec![master.clone(), "-o".to_owned(), output.to_owned()]).await;
        let printed = [ran.stdout, ran.stderr].concat();
        assert_eq!(ran.code, 0, "{printed}");
        assert!(parts.iter().all(|part| printed.contains(part)), "{printed}");
    }
}

/// Nothing else knows the server's name.
#[tokio::test(flavor = "multi_thread")]
async fn the_port_forward_goes_through_the_proxy() {
    let directory = TemporaryDirectory::new().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let proxy = format!("http://user:hush@{}", start(true, Leader::Answers).await);
    let cluster = json!({"server": "http://api.test", "proxy-url": proxy});
    let config = json!({
        "clusters": [{"name": "a", "cluster": cluster}], "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}], "current-context": "a",
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let ran = shown(vec![format!("--kubeconfig={}", kubeconfig.display())]).await;
    let printed = [ran.stdout, ran.stderr].concat();
    assert!(!printed.contains("hush"), "{printed}");
    assert_eq!(ran.code, 0, "{printed}");
    assert!(printed.contains("pod-1_a leads"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_hangs_is_not_waited_for() {
    let master = format!("--master=http://{}", start(false, Leader::Hangs).await);
    let ran = shown(vec![master]).await;
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    assert!(ran.stderr.contains("pod csi/pod-1, port 8090: no answer in time"), "{}", ran.stderr);
}
