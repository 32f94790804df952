//! GETs what a process serves on this host over plain HTTP.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Status and body of a path; `None` when there is no answer.
pub async fn get(port: u16, path: &str) -> Option<(u16, String)> {
    timeout(PATIENCE, fetch(port, path)).await.ok()?
}

/// The body of a path; empty when there is no answer.
pub async fn page(port: u16, path: &str) -> String {
    get(port, path).await.unwrap_or_default().1
}

async fn fetch(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    // In this version the answer comes in one piece, and the connection ends with it.
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}
