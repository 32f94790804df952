//! The server over real sockets on the loopback device.

mod crowd;

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::sleep,
};

use super::*;
use crate::runtime::TokioSpawner;

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    stopped: tokio::sync::oneshot::Receiver<()>,
}

async fn start(metrics_path: &str) -> Running {
    start_with(metrics_path, Limits::USUAL).await
}

async fn start_with(metrics_path: &str, limits: Limits) -> Running {
    let routes = Routes::new(metrics_path, || "metric 1\n".to_owned())
        .check("/healthz", || Ok(()))
        .check("/readyz", || Err("not synced".to_owned()));
    start_routes(routes, limits).await
}

/// A server of these routes.
async fn start_routes(routes: Routes, limits: Limits) -> Running {
    let mut server = Server::bind("127.0.0.1:0", routes).await.unwrap();
    server.limits = limits;
    let address = server.listener.local_addr().unwrap();
    let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
    let (stop, (done, stopped)) = (CancellationToken::new(), tokio::sync::oneshot::channel());
    let running = server.run(tasks.clone(), stop.clone());
    tasks.spawn("server", async move {
        running.await;
        let _ = done.send(());
    });
    Running { address, stop, stopped }
}

/// The answer's status line, headers and body.
async fn get(address: SocketAddr, path: &str) -> (String, String, String) {
    ask(address, "GET", path, "").await
}

async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    (status.to_owned(), headers.to_ascii_lowercase(), body.to_owned())
}

#[tokio::test]
async fn health_checks_answer_as_in_external_provisioner() {
    let server = start("/metrics").await;
    let (status, headers, body) = get(server.address, "/healthz").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "ok"));
    assert!(headers.contains("content-type: text/plain; charset=utf-8"));
    let (status, headers, body) = get(server.address, "/readyz").await;
    assert_eq!(status, "HTTP/1.1 500 Internal Server Error");
    assert_eq!(body, "internal server error: not synced\n");
    assert!(headers.contains("x-content-type-options: nosniff"));
}

#[tokio::test]
async fn other_paths_are_not_found_in_gos_words() {
    let server = start("/m").await;
    for path in ["/", "/metrics", "/m/", "//m", "/healthz/", "/debug/pprof/profile"] {
        let (status, _, body) = get(server.address, path).await;
        assert_eq!(
            (status.as_str(), body.as_str()),
            ("HTTP/1.1 404 Not Found", "404 page not found\n"),
            "{path}"
        );
    }
    assert_eq!(get(server.address, "/m").await.2, "metric 1\n");
}

#[tokio::test]
async fn scrapers_that_accept_other_formats_get_plain_text() {
    let server = start("/metrics").await;
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\nAccept-Encoding: gzip\r\n";
    let (status, headers, body) = ask(server.address, "GET", "/metrics?x=y", accept).await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "metric 1\n"));
    let content_type =
        "content-type: text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    assert!(headers.contains(content_type) && !headers.contains("content-encoding"), "{headers}");
}

#[tokio::test]
async fn a_header_that_is_too_long_is_refused() {
    let server = start("/metrics").await;
    let long = |length: usize| format!("X: {}\r\n", "x".repeat(length));
    assert_eq!(ask(server.address, "GET", "/healthz", &long(8000)).await.2, "ok");
    let (status, ..) = ask(server.address, "GET", "/healthz", &long(17_000)).await;
    assert_eq!(status, "HTTP/1.1 431 Request Header Fields Too Large");
}

/// Longer than any of these tests takes.
const WHILE: Duration = Duration::from_secs(60);

fn short() -> Limits {
    let header = Duration::from_millis(200);
    Limits { connections: 2, header, ..Limits::USUAL }
}

/// Reads until the server closes the connection.
async fn until_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let _ = timeout(WHILE, stream.read_to_end(&mut rest)).await.unwrap();
}

/// How long the server leaves a connection open on which this was sent.
async fn open_for(server: SocketAddr, sent: &str) -> Duration {
    let start = Instant::now();
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    until_closed(&mut stream).await;
    start.elapsed()
}

#[tokio::test]
async fn silent_connections_are_closed() {
    let server = start_with("/metrics", short()).await;
    let silent = open_for(server.address, "GET / HTTP/1.1\r\n").await;
    let idle = open_for(server.address, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    for kept in [silent, idle] {
        assert!(kept >= Duration::from_millis(150), "{kept:?}");
    }
}

#[tokio::test]
async fn a_client_that_trickles_bytes_is_disconnected_too() {
    let server = start_with("/metrics", short()).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    let start = Instant::now();
    while slow.write_all(b"x").await.is_ok() {
        assert!(start.elapsed() < WHILE, "it goes on for ever");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_connection_ends_at_its_maximum_age_even_if_busy() {
    let life = Duration::from_secs(2);
    let server = start_with("/metrics", Limits { life, ..Limits::USUAL }).await;
    let (start, mut answers, mut answer) = (Instant::now(), 0, [0; 512]);
    let mut busy = TcpStream::connect(server.address).await.unwrap();
    while busy.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.is_ok()
        && busy.read(&mut answer).await.is_ok_and(|length| length > 0)
    {
        answers += 1;
        assert!(start.elapsed() < WHILE, "it goes on for ever");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(answers > 1 && start.elapsed() >= life, "{answers} in {:?}", start.elapsed());
}

/// An address, by its last number.
fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_keeps_its_place_for_a_moment_and_an_ended_one_gives_it_back() {
    let mut connections = Connections::default();
    let first = connections.admit(address(1), 2).await;
    connections.admit(address(2), 2).await.cancel();
    let start = Instant::now();
    let third = connections.admit(address(3), 2).await;
    assert_eq!(start.elapsed(), Duration::ZERO, "the second one has ended");
    let _fourth = connections.admit(address(4), 2).await;
    assert!((PACE..2 * PACE).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(first.is_cancelled() && !third.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn the_address_with_the_most_connections_gives_a_place() {
    let mut connections = Connections::default();
    let mut places = Vec::new();
    for last in [1, 2, 2, 3, 2, 4] {
        places.push(connections.admit(address(last), 4).await);
    }
    let lost: Vec<_> = places.iter().map(CancellationToken::is_cancelled).collect();
    assert_eq!(lost, [false, true, true, false, false, false]);
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
async fn a_failure_to_listen_has_the_text_of_external_provisioner() {
    let server = start("/metrics").await;
    let address = server.address.to_string();
    let routes = Routes::new("/m", String::new);
    let error = Server::bind(&address, routes).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "Failed to start HTTP server at specified address (\"{address}\") and metrics path (\"/m\"): listen tcp {address}: bind: address already in use"
        )
    );
}

#[tokio::test]
async fn json_is_alone_on_its_address() {
    let routes = Routes::status("/status.json", |query| format!("{query:?}"));
    let Running { address, stop, .. } = start_routes(routes, Limits::USUAL).await;
    let (status, headers, body) = get(address, "/status.json?claim=a/b").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", r#""claim=a/b""#));
    for header in [
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "content-type: application/json",
    ] {
        assert!(headers.contains(header), "{headers}");
    }
    for path in ["/", "/metrics", "/healthz", "/debug/pprof/", "/x"] {
        assert_eq!(get(address, path).await.0, "HTTP/1.1 404 Not Found", "{path}");
    }
    let error = Server::bind(&address.to_string(), Routes::default()).await.err().unwrap();
    assert!(error.to_string().starts_with("cannot serve the status: listen tcp"), "{error}");
    stop.cancel();
}
