//! The fuzz target of the HTTP endpoint: any bytes from a client.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{StatusCode, Uri, header::LOCATION};
use hyper::rt::{Read, ReadBufCursor, Write};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{Limits, Places, Routes, service};
use crate::{flags::LEADER_ELECTION_CHECK, fuzzing::text};

const METRICS: &str = "/metrics";
/// Longer than any answer takes.
const MOMENT: Duration = Duration::from_secs(20);

/// Checks that a client gets an answer or a closed connection, that only served paths are answered with
/// success, and that redirections lead to paths of this endpoint and end.
///
/// # Panics
/// If that does not hold.
pub fn http(data: &[u8]) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else {
        return;
    };
    let routes = Arc::new(
        Routes::new(METRICS, || "metric 1\n".to_owned())
            .check("/readyz", || Err("not synced".to_owned()))
            .check(LEADER_ELECTION_CHECK, || Ok(())),
    );
    let request = text(data);
    let path = request.split(['\r', '\n', ' ']).find(|word| word.contains('/')).unwrap_or(&request);
    runtime.block_on(async {
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
    for line in answers.split("\r\n").filter(|line| line.starts_with("location:")) {
        let target = line.trim_start_matches("location:").trim();
        assert!(stays(target), "{line:?}");
    }
}

/// Whether a redirection leads to a path of this endpoint, also for clients that read backslashes as
/// slashes.
fn stays(target: &str) -> bool {
    target.starts_with('/') && !target.starts_with("//") && !target.starts_with("/\\")
}

/// Checks that success is only for served paths, and that redirections end.
async fn check_path(routes: &Routes, path: &str) {
    let Ok(mut uri) = path.parse::<Uri>() else { return };
    for hop in 0..3 {
        let answer = routes.answer(&uri).await;
        let is_served = [METRICS, LEADER_ELECTION_CHECK].contains(&uri.path());
        let expected = match uri.path() {
            _ if is_served => StatusCode::OK,
            "/readyz" => StatusCode::INTERNAL_SERVER_ERROR,
            _ if answer.status() == StatusCode::TEMPORARY_REDIRECT => answer.status(),
            _ => StatusCode::NOT_FOUND,
        };
        assert_eq!(answer.status(), expected, "{uri}");
        if expected != StatusCode::TEMPORARY_REDIRECT {
            return;
        }
        let target = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
        let target = target.unwrap_or_default();
        assert!(stays(target), "{uri} leads to {target:?}");
        assert!(hop < 2, "{path:?} leads round and round");
        let Ok(next) = target.parse() else { return };
        uri = next;
    }
}

/// The answers to a client that sends these bytes and nothing more.
async fn exchange(routes: &Arc<Routes>, data: &[u8]) -> Vec<u8> {
    let places = Places::new(1, 1);
    let place = Arc::new(places.take(IpAddr::V4(Ipv4Addr::LOCALHOST)).await);
    let wire = Wire { sent: io::Cursor::new(data.to_vec()), answers: Arc::default() };
    let answers = Arc::clone(&wire.answers);
    let connection = Limits::USUAL.protocol().serve_connection(wire, service(routes, &place));
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
