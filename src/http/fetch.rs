//! Fetches one page over plain HTTP, for the subcommands that ask a running process.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};
pub use tower::BoxError;

/// How long the answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most that is read of it, in bytes.
const MAX_BODY: usize = 4 << 20;

/// Fetches the body of this path from the server at this address.
///
/// # Errors
/// There is no answer in time, it is too long, or it is an error.
pub async fn fetch(address: &str, path: &str) -> Result<Bytes, BoxError> {
    let answer = timeout(TIMEOUT, get(address, path)).await;
    answer.unwrap_or_else(|_| Err("no answer in time".into()))
}

async fn get(address: &str, path: &str) -> Result<Bytes, BoxError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // What is asked for here answers loopback names only, against pages in browsers.
    let request =
        Request::get(path).header(header::HOST, "localhost").body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        if !response.status().is_success() {
            return Err(format!("it answers {}", response.status()).into());
        }
        Ok(Limited::new(response.into_body(), MAX_BODY).collect().await?.to_bytes())
    };
    tokio::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // The connection may end right before the answer is taken.
        ended = connection => { ended?; exchange.await }
    }
}
