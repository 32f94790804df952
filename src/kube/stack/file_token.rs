//! Shows the server the token that stands in a file.
//!
//! Owns the token of a service account, or of a kubeconfig's `tokenFile`. As in client-go it is read
//! anew every 50 s, and what cannot be read leaves the last one in use. A token that the server
//! refuses with 401 is read anew at once; where the file holds another one by then, the request,
//! which was not carried out, is made once more with that (client-go leaves this to the next
//! request). Promises that refusals, however many, cost one read in [`BETWEEN_READS`], that the same
//! token is never shown twice for one request, and that no token is ever printed.

use std::{io, path::PathBuf, time::Duration};

use http::{
    HeaderValue, StatusCode,
    header::{AUTHORIZATION, InvalidHeaderValue},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Layer, Outcome};
use crate::kube::connection::transport::{Request, Service};

/// So old a token is read anew: a kubelet exchanges it long before it runs out.
const PERIOD: Duration = Duration::from_secs(50);

/// The least time between two reads that refusals cause.
const BETWEEN_READS: Duration = Duration::from_secs(1);

/// Why a file's token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the token file: {0}")]
    Unreadable(#[from] io::Error),
    /// It holds nothing.
    #[error("the token file is empty")]
    Empty,
    /// It holds what cannot be sent.
    #[error("the token file holds no token: {0}")]
    NotAToken(#[from] InvalidHeaderValue),
}

/// Reads the file.
type Read = Box<dyn Fn() -> io::Result<String> + Send + Sync>;

/// Puts the token of a file on each request.
pub(crate) struct FileToken {
    read: Read,
    held: Mutex<Held>,
}

/// The token in use.
struct Held {
    /// As the header's value.
    token: HeaderValue,
    /// When the file was last read, or was to be.
    read: Instant,
}

impl FileToken {
    /// The token in the file at `path`.
    ///
    /// # Errors
    /// When there is none to begin with.
    pub(crate) fn open(path: PathBuf) -> Result<Self, TokenError> {
        Self::read_by(Box::new(move || std::fs::read_to_string(&path)))
    }

    fn read_by(read: Read) -> Result<Self, TokenError> {
        let token = header(&read()?)?;
        Ok(Self { read, held: Mutex::new(Held { token, read: Instant::now() }) })
    }

    /// The token to show.
    fn token(&self) -> HeaderValue {
        self.newer_than(PERIOD)
    }

    /// The token that the file holds where `refused` is no longer it.
    fn after(&self, refused: &HeaderValue) -> Option<HeaderValue> {
        // Another request may have been refused before, and have found the new one.
        let held = self.held.lock().token.clone();
        let token = if held == *refused { self.newer_than(BETWEEN_READS) } else { held };
        (token != *refused).then_some(token)
    }

    /// The token, read anew where that was done longer than `age` ago.
    fn newer_than(&self, age: Duration) -> HeaderValue {
        let mut held = self.held.lock();
        if held.read.elapsed() >= age {
            held.read = Instant::now();
            match (self.read)().map_err(TokenError::from).and_then(|text| header(&text)) {
                Ok(token) => held.token = token,
                Err(error) => tracing::warn!(%error, "the token that was read last is used on"),
            }
        }
        held.token.clone()
    }
}

fn header(text: &str) -> Result<HeaderValue, TokenError> {
    let token = text.trim();
    if token.is_empty() {
        return Err(TokenError::Empty);
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}"))?;
    header.set_sensitive(true);
    Ok(header)
}

impl Layer for FileToken {
    async fn apply(&self, request: &mut Request, next: &impl Service) -> Outcome {
        let token = self.token();
        request.headers_mut().insert(AUTHORIZATION, token.clone());
        let response = next.send(request).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let Some(token) = self.after(&token) else { return Ok(response) };
        tracing::info!("the API server refused our token, and its file holds another one by now");
        request.headers_mut().insert(AUTHORIZATION, token);
        next.send(request).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use bytes::Bytes;
    use futures::future::join_all;
    use http::Method;
    use tokio::time::sleep;

    use super::*;
    use crate::kube::{
        connection::transport::Transport,
        stack::layer,
        testing::{Answer, Server, request, send},
    };

    /// A file with a token, a server that knows one, and the way there.
    struct House {
        file: Arc<Mutex<io::Result<&'static str>>>,
        reads: Arc<AtomicUsize>,
        known: Arc<Mutex<&'static str>>,
        server: Server,
        service: Transport,
    }

    fn house() -> House {
        let file: Arc<Mutex<io::Result<_>>> = Arc::new(Mutex::new(Ok("old\n")));
        let reads = Arc::new(AtomicUsize::new(0));
        let (read, count) = (Arc::clone(&file), Arc::clone(&reads));
        let rule = FileToken::read_by(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            match &*read.lock() {
                Ok(text) => Ok((*text).to_owned()),
                Err(error) => Err(error.kind().into()),
            }
        }));
        let known = Arc::new(Mutex::new("old"));
        let current = Arc::clone(&known);
        let server = Server::new(move |_, seen| {
            let is_known = seen.header("authorization") == format!("Bearer {}", current.lock());
            Answer::status(if is_known { 200 } else { 401 })
        });
        let service = Transport::new(layer(rule.unwrap(), server.transport.clone()));
        House { file, reads, known, server, service }
    }

    impl House {
        async fn get(&self) -> u16 {
            send(&self.service, request(Method::GET, "/api/v1/nodes"))
                .await
                .unwrap()
                .status()
                .into()
        }

        /// The tokens that were shown, in order.
        fn shown(&self) -> Vec<String> {
            self.server.seen().iter().map(|seen| seen.header("authorization").to_owned()).collect()
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_is_read_anew_every_fifty_seconds() {
        let house = house();
        assert_eq!(house.get().await, 200);
        *house.file.lock() = Ok("new");
        *house.known.lock() = "new";
        sleep(PERIOD).await;
        assert_eq!((house.get().await, house.get().await), (200, 200));
        assert_eq!(house.shown(), ["Bearer old", "Bearer new", "Bearer new"]);
        assert_eq!(house.reads(), 2, "at the start and once since");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_read_anew_at_once_and_the_same_request_made_again() {
        let house = house();
        sleep(BETWEEN_READS).await;
        *house.file.lock() = Ok("new");
        *house.known.lock() = "new";
        let post = http::Request::post("/api/v1/persistentvolumes").header("x", "y");
        let post = post.body(Bytes::from("{}")).unwrap();
        assert_eq!(send(&house.service, post).await.unwrap().status(), StatusCode::OK);
        let seen = house.server.seen();
        let said = seen.iter().map(|seen| {
            let token = seen.header("authorization");
            format!("{token}: {} {} {} {}", seen.method, seen.url, seen.header("x"), seen.body)
        });
        let what = "POST /api/v1/persistentvolumes y {}";
        assert_eq!(
            said.collect::<Vec<_>>(),
            [format!("Bearer old: {what}"), format!("Bearer new: {what}")]
        );
        assert_eq!(house.server.times(), [1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_token_is_not_shown_again() {
        let house = house();
        *house.known.lock() = "another";
        sleep(BETWEEN_READS).await;
        assert_eq!(house.get().await, 401);
        assert_eq!(house.shown(), ["Bearer old"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_token_that_is_refused_as_well_is_the_end_of_it() {
        let house = house();
        *house.known.lock() = "another";
        *house.file.lock() = Ok("new");
        sleep(BETWEEN_READS).await;
        assert_eq!(house.get().await, 401);
        assert_eq!(house.shown(), ["Bearer old", "Bearer new"]);
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_that_last_read_the_file_once_a_second() {
        let house = house();
        *house.known.lock() = "another";
        for _ in 0..100 {
            sleep(Duration::from_millis(100)).await;
            assert_eq!(join_all((0..10).map(|_| house.get())).await, [401; 10]);
        }
        assert_eq!(house.server.seen().len(), 1000);
        assert_eq!(house.reads(), 1 + 10, "in ten seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_are_refused_at_once_share_what_one_has_read() {
        let house = house();
        sleep(BETWEEN_READS).await;
        *house.file.lock() = Ok("new");
        *house.known.lock() = "new";
        assert_eq!(join_all((0..10).map(|_| house.get())).await, [200; 10]);
        assert_eq!(house.reads(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_read_leaves_the_last_token_in_use() {
        for unusable in [Err(io::ErrorKind::NotFound.into()), Ok(" \n"), Ok("a\u{7}b")] {
            let house = house();
            *house.file.lock() = unusable;
            sleep(PERIOD).await;
            assert_eq!(house.get().await, 200);
            assert_eq!(house.reads(), 2);
        }
    }

    #[test]
    fn without_a_token_to_begin_with_there_is_none() {
        let opened = |text: &'static str| FileToken::read_by(Box::new(move || Ok(text.to_owned())));
        assert!(matches!(opened(""), Err(TokenError::Empty)));
        assert!(matches!(opened("a\nb"), Err(TokenError::NotAToken(_))));
        let missing = FileToken::open("/does/not/exist".into());
        assert!(matches!(missing, Err(TokenError::Unreadable(_))));
    }

    #[tokio::test]
    async fn the_token_is_not_printed() {
        let house = house();
        let printed = format!("{:?}", header("hush").unwrap());
        assert!(!printed.contains("hush"), "{printed}");
        assert_eq!(house.get().await, 200);
    }
}
