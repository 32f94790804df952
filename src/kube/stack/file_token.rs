//! Authenticates requests with a bearer token that is read from a file.
//!
//! The file is a service account's token or a kubeconfig's `tokenFile`. As in client-go it is read
//! again every 50 s, and the last token stays in use when the file cannot be read. When the server
//! answers 401, the file is read at once; if it then holds another token, the request, which the
//! server did not carry out, is sent once more with that token (client-go uses it from the next
//! request on). Refusals cause at most one read in [`MIN_READ_INTERVAL`], a request is never sent
//! twice with the same token, and no token is ever printed.

use std::{io, path::PathBuf, time::Duration};

use http::{
    HeaderValue, StatusCode,
    header::{AUTHORIZATION, InvalidHeaderValue},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Layer, Outcome};
use crate::kube::connection::transport::{Request, Service};

/// How old a token may be before the file is read again; a kubelet replaces it long before it expires.
const PERIOD: Duration = Duration::from_secs(50);

/// The least time between two reads that refusals cause.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the token file: {0}")]
    Unreadable(#[from] io::Error),
    /// It holds nothing.
    #[error("the token file is empty")]
    Empty,
    /// Its content cannot be sent in a header.
    #[error("the token file holds no token: {0}")]
    NotAToken(#[from] InvalidHeaderValue),
}

/// Reads the file.
type Read = Box<dyn Fn() -> io::Result<String> + Send + Sync>;

/// Puts the token of a file on each request.
pub(crate) struct FileToken {
    read: Read,
    cached: Mutex<CachedToken>,
}

/// The token in use.
struct CachedToken {
    /// The value of the Authorization header.
    token: HeaderValue,
    /// When the file was last read, successfully or not.
    read_at: Instant,
}

impl FileToken {
    /// A layer that uses the token in the file at `path`, which it reads once now.
    ///
    /// # Errors
    /// When the file cannot be read or holds no token.
    pub(crate) fn open(path: PathBuf) -> Result<Self, TokenError> {
        Self::from_reader(Box::new(move || std::fs::read_to_string(&path)))
    }

    fn from_reader(read: Read) -> Result<Self, TokenError> {
        let token = header(&read()?)?;
        Ok(Self { read, cached: Mutex::new(CachedToken { token, read_at: Instant::now() }) })
    }

    /// The token for the next request.
    fn token(&self) -> HeaderValue {
        self.token_no_older_than(PERIOD)
    }

    /// The token in the file, if it is another one than `refused`.
    fn token_after_refusal(&self, refused: &HeaderValue) -> Option<HeaderValue> {
        // Another request may have been refused before and have read the new token.
        let cached = self.cached.lock().token.clone();
        let token =
            if cached == *refused { self.token_no_older_than(MIN_READ_INTERVAL) } else { cached };
        (token != *refused).then_some(token)
    }

    /// The cached token; reads the file first if the last read is at least `age` ago.
    fn token_no_older_than(&self, age: Duration) -> HeaderValue {
        let mut cached = self.cached.lock();
        if cached.read_at.elapsed() >= age {
            cached.read_at = Instant::now();
            match (self.read)().map_err(TokenError::from).and_then(|text| header(&text)) {
                Ok(token) => cached.token = token,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the token again; the last one stays in use");
                }
            }
        }
        cached.token.clone()
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
        let Some(token) = self.token_after_refusal(&token) else { return Ok(response) };
        tracing::info!(
            "the API server refused the token; sending the request again with the new token from the file"
        );
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

    /// A token file, and a server that accepts one token.
    struct Fixture {
        file: Arc<Mutex<io::Result<&'static str>>>,
        reads: Arc<AtomicUsize>,
        accepted: Arc<Mutex<&'static str>>,
        server: Server,
        service: Transport,
    }

    fn fixture() -> Fixture {
        let file: Arc<Mutex<io::Result<_>>> = Arc::new(Mutex::new(Ok("old\n")));
        let reads = Arc::new(AtomicUsize::new(0));
        let (read, count) = (Arc::clone(&file), Arc::clone(&reads));
        let file_token = FileToken::from_reader(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            match &*read.lock() {
                Ok(text) => Ok((*text).to_owned()),
                Err(error) => Err(error.kind().into()),
            }
        }));
        let accepted = Arc::new(Mutex::new("old"));
        let current = Arc::clone(&accepted);
        let server = Server::new(move |_, request| {
            let is_accepted =
                request.header("authorization") == format!("Bearer {}", current.lock());
            Answer::status(if is_accepted { 200 } else { 401 })
        });
        let service = Transport::new(layer(file_token.unwrap(), server.transport.clone()));
        Fixture { file, reads, accepted, server, service }
    }

    impl Fixture {
        async fn get(&self) -> u16 {
            send(&self.service, request(Method::GET, "/api/v1/nodes"))
                .await
                .unwrap()
                .status()
                .into()
        }

        /// The tokens of all requests, in order.
        fn sent_tokens(&self) -> Vec<String> {
            self.server
                .requests()
                .iter()
                .map(|request| request.header("authorization").to_owned())
                .collect()
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_is_read_again_every_fifty_seconds() {
        let fixture = fixture();
        assert_eq!(fixture.get().await, 200);
        *fixture.file.lock() = Ok("new");
        *fixture.accepted.lock() = "new";
        sleep(PERIOD).await;
        assert_eq!((fixture.get().await, fixture.get().await), (200, 200));
        assert_eq!(fixture.sent_tokens(), ["Bearer old", "Bearer new", "Bearer new"]);
        assert_eq!(fixture.reads(), 2, "at the start and once since");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_refusal_the_file_is_read_at_once_and_the_same_request_sent_again() {
        let fixture = fixture();
        sleep(MIN_READ_INTERVAL).await;
        *fixture.file.lock() = Ok("new");
        *fixture.accepted.lock() = "new";
        let post = http::Request::post("/api/v1/persistentvolumes").header("x", "y");
        let post = post.body(Bytes::from("{}")).unwrap();
        assert_eq!(send(&fixture.service, post).await.unwrap().status(), StatusCode::OK);
        let requests = fixture.server.requests();
        let said = requests.iter().map(|request| {
            let token = request.header("authorization");
            format!(
                "{token}: {} {} {} {}",
                request.method,
                request.url,
                request.header("x"),
                request.body
            )
        });
        let what = "POST /api/v1/persistentvolumes y {}";
        assert_eq!(
            said.collect::<Vec<_>>(),
            [format!("Bearer old: {what}"), format!("Bearer new: {what}")]
        );
        assert_eq!(fixture.server.times(), [1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_not_sent_again_with_the_same_token() {
        let fixture = fixture();
        *fixture.accepted.lock() = "another";
        sleep(MIN_READ_INTERVAL).await;
        assert_eq!(fixture.get().await, 401);
        assert_eq!(fixture.sent_tokens(), ["Bearer old"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_sent_again_only_once() {
        let fixture = fixture();
        *fixture.accepted.lock() = "another";
        *fixture.file.lock() = Ok("new");
        sleep(MIN_READ_INTERVAL).await;
        assert_eq!(fixture.get().await, 401);
        assert_eq!(fixture.sent_tokens(), ["Bearer old", "Bearer new"]);
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_refusals_read_the_file_once_a_second() {
        let fixture = fixture();
        *fixture.accepted.lock() = "another";
        for _ in 0..100 {
            sleep(Duration::from_millis(100)).await;
            assert_eq!(join_all((0..10).map(|_| fixture.get())).await, [401; 10]);
        }
        assert_eq!(fixture.server.requests().len(), 1000);
        assert_eq!(fixture.reads(), 1 + 10, "in ten seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_refused_at_once_share_one_read() {
        let fixture = fixture();
        sleep(MIN_READ_INTERVAL).await;
        *fixture.file.lock() = Ok("new");
        *fixture.accepted.lock() = "new";
        assert_eq!(join_all((0..10).map(|_| fixture.get())).await, [200; 10]);
        assert_eq!(fixture.reads(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_token_stays_in_use_when_the_file_cannot_be_read() {
        for unusable in [Err(io::ErrorKind::NotFound.into()), Ok(" \n"), Ok("a\u{7}b")] {
            let fixture = fixture();
            *fixture.file.lock() = unusable;
            sleep(PERIOD).await;
            assert_eq!(fixture.get().await, 200);
            assert_eq!(fixture.reads(), 2);
        }
    }

    #[test]
    fn opening_a_file_without_a_token_fails() {
        let opened =
            |text: &'static str| FileToken::from_reader(Box::new(move || Ok(text.to_owned())));
        assert!(matches!(opened(""), Err(TokenError::Empty)));
        assert!(matches!(opened("a\nb"), Err(TokenError::NotAToken(_))));
        let missing = FileToken::open("/does/not/exist".into());
        assert!(matches!(missing, Err(TokenError::Unreadable(_))));
    }

    #[tokio::test]
    async fn the_token_is_not_printed() {
        let fixture = fixture();
        let printed = format!("{:?}", header("hush").unwrap());
        assert!(!printed.contains("hush"), "{printed}");
        assert_eq!(fixture.get().await, 200);
    }
}
