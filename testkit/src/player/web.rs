//! The process's own HTTP server, as a scenario looks at it.

use std::time::Duration;

use http::{Request, header::HOST};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// GETs a path from this host; status and body, or `None` when there is no answer.
pub(crate) async fn get(port: u16, path: &str) -> Option<(u16, String)> {
    timeout(PATIENCE, fetch(port, path)).await.ok()?
}

async fn fetch(port: u16, path: &str) -> Option<(u16, String)> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let request = Request::get(path).header(HOST, format!("127.0.0.1:{port}"));
    let request = request.body(Empty::<Bytes>::new()).ok()?;
    let exchange = async {
        let response = sender.send_request(request).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        Some((status, String::from_utf8_lossy(&body).into_owned()))
    };
    // The connection has to be driven while the exchange goes on.
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        _ = connection => exchange.await,
    }
}
