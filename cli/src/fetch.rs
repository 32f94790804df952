//! Reads the status of a running process over plain HTTP.

use std::time::Duration;

use bytes::Bytes;
use csi_provisioner::status::{JSON_PATH, Status};
use http::{Request, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tower::BoxError;

/// How long the answer may take.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The most that is read of it, in bytes.
const MAX_BODY: usize = 4 << 20;

/// The address with a host: one without is of this machine or pod.
pub fn with_host(address: String) -> String {
    if address.starts_with(':') { format!("127.0.0.1{address}") } else { address }
}

/// Fetches the status of the sidecar with this `--status-endpoint`; `query` chooses what it lists.
///
/// # Errors
/// The address, and why there is no status.
pub async fn fetch_status(address: &str, query: &str) -> Result<Status, String> {
    let status: Status = fetch(address, query).await?;
    if status.version.is_empty() {
        return Err(format!("{address}: this is shadow mode, or not csi-provisioner"));
    }
    Ok(status)
}

/// Fetches what the process with this `--status-endpoint` serves.
///
/// # Errors
/// The address, and why there is no answer.
pub async fn fetch<T: DeserializeOwned>(address: &str, query: &str) -> Result<T, String> {
    let answer = timeout(TIMEOUT, async {
        let stream = TcpStream::connect(address).await?;
        fetch_over(stream, query).await
    });
    let answer = answer.await.unwrap_or_else(|_| Err("no answer in time".into()));
    answer.map_err(|why| format!("{address}: {why}"))
}

/// Fetches it over this connection.
///
/// # Errors
/// The answer is an error, is too long, or is something else.
pub async fn fetch_over<T: DeserializeOwned>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    query: &str,
) -> Result<T, BoxError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // What is asked for here answers loopback names only, against pages in browsers.
    let request = Request::get(format!("{JSON_PATH}?{query}"))
        .header(header::HOST, "localhost")
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        if !response.status().is_success() {
            return Err(format!("it answers {}", response.status()).into());
        }
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await?.to_bytes();
        Ok(serde_json::from_slice(&body)?)
    };
    tokio::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // The connection may end right before the answer is taken.
        ended = connection => { ended?; exchange.await }
    }
}
