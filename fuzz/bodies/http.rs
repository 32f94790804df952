//! The fuzz target of the HTTP endpoint: any bytes from a client.

use std::{
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, StatusCode, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{Limits, Routes, service};
use crate::{flags::LEADER_ELECTION_CHECK, fuzzing::text};

const METRICS: &str = "/metrics";
/// Longer than any answer takes.
const MOMENT: Duration = Duration::from_secs(20);

/// Checks that a client gets an answer or a closed connection, and that only served paths are answered with
/// success.
///
/// # Panics
/// If that does not hold.
pub fn http(data: &[u8]) {
    let Ok(runtime) =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()
    else {
        return;
    };
    let request = text(data);
    let path = request.split(['\r', '\n', ' ']).find(|word| word.contains('/')).unwrap_or(&request);
    runtime.block_on(async {
        let routes = Arc::new(
            Routes::new(METRICS, || "metric 1\n".to_owned())
                .check("/readyz", || Err("not synced".to_owned()))
                .check(LEADER_ELECTION_CHECK, || Ok(())),
        );
        check_path(&routes, path).await;
        let answers = exchange(&routes, data).await;
        check_answers(&text(&answers), &request);
    });
}

fn check_answers(answers: &str, request: &str) {
    assert!(answers.is_empty() || answers.starts_with("HTTP/1."), "{answers:?}");
    let served = [METRICS, LEADER_ELECTION_CHECK].map(|path| request.matches(path).count());
    let answered =
        answers.matches("HTTP/1.1 200 ").count() + answers.matches("HTTP/1.0 200 ").count();
    assert!(answered <= served.iter().sum(), "{request:?} is answered by {answers:?}");
}

/// Checks that success is only for served paths.
async fn check_path(routes: &Routes, path: &str) {
    let Ok(uri) = path.parse::<Uri>() else { return };
    let expected = match uri.path() {
        METRICS | LEADER_ELECTION_CHECK => StatusCode::OK,
        "/readyz" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::NOT_FOUND,
    };
    assert_eq!(routes.answer(&uri, &HeaderMap::new()).await.status(), expected, "{uri}");
}

/// The answers to a client that sends these bytes and nothing more.
async fn exchange(routes: &Arc<Routes>, data: &[u8]) -> Vec<u8> {
    let wire = Wire { sent: io::Cursor::new(data.to_vec()), answers: Arc::default() };
    let answers = Arc::clone(&wire.answers);
    let connection = Limits::USUAL.protocol().serve_connection(wire, service(routes));
    // The connection may end with an error: the client sends anything.
    let ended = timeout(MOMENT, pin!(connection)).await;
    assert!(ended.is_ok(), "a connection hangs after {:?}", text(data));
    answers.lock().clone()
}

/// A connection in memory.
struct Wire {
    sent: io::Cursor<Vec<u8>>,
    answers: Arc<Mutex<Vec<u8>>>,
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // In pieces, as over a network.
        let mut piece = [0; 48];
        let free = buffer.remaining().min(piece.len());
        let count = io::Read::read(&mut self.sent, piece.get_mut(..free).unwrap_or_default())?;
        buffer.put_slice(piece.get(..count).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.answers.lock().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_bytes_are_answered_or_end_the_connection() {
        crate::fuzzing::run("http", 1000, super::http);
    }
}
