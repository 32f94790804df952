//! The server over real sockets on the loopback device.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::runtime::TokioSpawner;

struct Running {
    address: SocketAddr,
    healthy: Arc<AtomicBool>,
    stop: CancellationToken,
    stopped: tokio::sync::oneshot::Receiver<()>,
}

async fn start(metrics_path: &str) -> Running {
    let healthy = Arc::new(AtomicBool::new(true));
    let health = Arc::clone(&healthy);
    let routes = Routes::new(metrics_path, || Ok(b"metric 1\n".to_vec()))
        .check("/healthz", || Ok(()))
        .check("/readyz", || Err("not synced".to_owned()))
        .check(LEADER_ELECTION_CHECK, move || {
            let lost = "failed election to renew leadership on lease ".to_owned();
            if health.load(Ordering::Relaxed) { Ok(()) } else { Err(lost) }
        });
    let server = Server::bind("127.0.0.1:0", routes).await.unwrap();
    let address = server.listener.local_addr().unwrap();
    let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
    let (stop, (done, stopped)) = (CancellationToken::new(), tokio::sync::oneshot::channel());
    let running = server.run(tasks.clone(), stop.clone());
    tasks.passing("server", async move {
        running.await;
        let _ = done.send(());
    });
    Running { address, healthy, stop, stopped }
}

/// The answer's status line, headers and body.
async fn get(address: SocketAddr, path: &str) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    (status.to_owned(), headers.to_ascii_lowercase(), body.to_owned())
}

#[tokio::test]
async fn metrics_have_client_golangs_content_type() {
    let server = start("/metrics").await;
    let (status, headers, body) = get(server.address, "/metrics?x=y").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "metric 1\n"));
    let content_type =
        "content-type: text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    assert!(headers.contains(content_type), "{headers}");
}

#[tokio::test]
async fn health_checks_answer_as_the_original() {
    let server = start("/metrics").await;
    let (status, headers, body) = get(server.address, LEADER_ELECTION_CHECK).await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "ok"));
    assert!(headers.contains("content-type: text/plain; charset=utf-8"));
    server.healthy.store(false, Ordering::Relaxed);
    let (status, headers, body) = get(server.address, LEADER_ELECTION_CHECK).await;
    assert_eq!(status, "HTTP/1.1 500 Internal Server Error");
    assert_eq!(body, "internal server error: failed election to renew leadership on lease \n");
    assert!(headers.contains("x-content-type-options: nosniff"));
    assert_eq!(get(server.address, "/healthz").await.2, "ok");
    assert_eq!(get(server.address, "/readyz").await.2, "internal server error: not synced\n");
}

#[tokio::test]
async fn other_paths_are_not_found_in_gos_words() {
    let server = start("/m").await;
    for path in ["/", "/metrics", "/m/", "/healthz/", "/debug/pprof/"] {
        let (status, _, body) = get(server.address, path).await;
        assert_eq!(
            (status.as_str(), body.as_str()),
            ("HTTP/1.1 404 Not Found", "404 page not found\n"),
            "{path}"
        );
    }
    assert_eq!(get(server.address, "/m").await.2, "metric 1\n");
}

#[test]
fn a_path_that_ends_in_a_slash_stands_for_all_below() {
    assert!(is_at("/m/", "/m/x") && is_at("/", "/anything") && is_at("/m", "/m"));
    assert!(!is_at("/m", "/m/x") && !is_at("/m/", "/m"));
}

#[tokio::test]
async fn metrics_that_cannot_be_read_are_told() {
    let routes = Routes::new("/metrics", || Err("broken".to_owned()));
    assert_eq!(routes.answer("/metrics").status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn stopping_ends_the_server_and_idle_connections() {
    let server = start("/metrics").await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 512];
    assert!(idle.read(&mut answer).await.unwrap() > 0);
    server.stop.cancel();
    server.stopped.await.unwrap();
    assert_eq!(idle.read(&mut answer).await.unwrap(), 0, "the kept connection is closed");
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_server_that_cannot_listen_says_so_in_the_originals_words() {
    let server = start("/metrics").await;
    let address = server.address.to_string();
    let routes = || Routes::new("/m", || Ok(vec![]));
    let error = Server::bind(&address, routes()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "Failed to start HTTP server at specified address (\"{address}\") and metrics path (\"/m\"): listen tcp {address}: bind: address already in use"
        )
    );
    let error = Server::bind("no:such:address", routes()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("listen tcp: address no:such:address: too many colons in address")
    );
}

#[tokio::test]
async fn an_address_without_host_takes_all_interfaces() {
    let server = Server::bind(":0", Routes::new("/m", || Ok(vec![]))).await.unwrap();
    assert!(server.listener.local_addr().unwrap().ip().is_unspecified());
}
