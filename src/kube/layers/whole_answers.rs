//! Reads answers whole, within a budget.
//!
//! Users write claims, snapshots and grants, and one of 1.4 MB is 8 MB of JSON. So beyond each length of
//! [`TIERS`] a body is read on only with one of that tier's few permits, which the response has and its reader
//! may keep ([`BodyPermits`]). Small bodies wait for nothing, nor do answers to writes: who writes what is large
//! holds the permits of its read, and of an event, which nobody has read, only a small answer is. Lists of the
//! whole cluster have permits of their own, so that no user's objects hold them up. Of a refusal only the
//! beginning is read. A watch has no end and is passed on, as long as its lines end: kube-rs keeps a line in
//! memory until then.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, service_fn};

use super::{Next, Outcome, Request, Response, ResponseBody, refusals::MAX_REFUSAL};
use crate::kube::{
    error::ApiError,
    target::{Target, Verb},
};

/// The longest answer that needs no permit, in bytes.
pub(crate) const SMALL_ANSWER: usize = 32 << 10;

/// Lengths in bytes, and how many bodies may be longer at once.
const TIERS: [(usize, usize); 2] = [(SMALL_ANSWER, 2), (512 << 10, 1)];

/// The most that is read of an answer for which the request does not say more, in bytes: ten times the
/// largest request that the server accepts.
pub(crate) const MAX_ANSWER: usize = 32 << 20;

/// An extension of a request: the most that is read of its answer, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MaxAnswer(pub(crate) usize);

/// An extension of a response: the permits of its body. Dropping the last clone lets the next reader go on.
#[derive(Debug, Clone, Default)]
pub(crate) struct BodyPermits {
    permits: Arc<[OwnedSemaphorePermit]>,
}

impl BodyPermits {
    fn is_empty(&self) -> bool {
        self.permits.is_empty()
    }
}

/// The permits of each tier.
type Permits = [Arc<Semaphore>; TIERS.len()];

/// The permits of all lanes. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    objects: Permits,
    lists: Permits,
}

impl Default for Budget {
    fn default() -> Self {
        let new = || TIERS.map(|(_, at_once)| Arc::new(Semaphore::new(at_once)));
        Self { objects: new(), lists: new() }
    }
}

/// Reads the bodies of answers within `budget`, before they are passed on.
pub(crate) fn whole_answers(budget: Budget, next: impl Next) -> impl Next {
    service_fn(move |request| send(budget.clone(), next.clone(), request))
}

async fn send(budget: Budget, next: impl Next, request: Request) -> Outcome {
    let verb = Verb::of(&request);
    let (method, url) = (request.method().clone(), request.uri().clone());
    let about = || Target::parse(&method, &url).about();
    let of_cluster = verb == Verb::List && !url.path().contains("/namespaces/");
    let permits = if of_cluster { &budget.lists } else { &budget.objects };
    let permits = if verb.writes() { &[][..] } else { permits };
    let max = request.extensions().get().map_or(MAX_ANSWER, |MaxAnswer(max)| *max);
    let (mut parts, body) = next.send(request).await?.into_parts();
    let body = if !parts.status.is_success() {
        // The status counts even if the body cannot be read.
        super::read(body, MAX_REFUSAL).await.unwrap_or_default()
    } else if verb == Verb::Watch {
        return Ok(Response::from_parts(parts, with_short_lines(body, about())));
    } else if let Some((body, held)) = read(body, max, permits).await? {
        if !held.is_empty() {
            parts.extensions.insert(held);
        }
        body
    } else {
        return Err(ApiError::TooLarge { about: about(), max }.into());
    };
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    Ok(Response::from_parts(parts, body))
}

/// The body of a watch, which fails when a line becomes longer than [`MAX_ANSWER`].
fn with_short_lines(body: ResponseBody, about: String) -> ResponseBody {
    let mut line = 0;
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame?;
        let data = frame.data_ref().map_or(&[][..], |data| data);
        line = match data.iter().rev().position(|byte| *byte == b'\n') {
            Some(after) => after,
            None => line + data.len(),
        };
        if line > MAX_ANSWER {
            return Err(ApiError::TooLarge { about: about.clone(), max: MAX_ANSWER }.into());
        }
        Ok(frame)
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The whole body and its permits; none if it is longer than `max`. Each frame is dropped as soon as it is
/// copied.
async fn read(
    mut body: ResponseBody,
    max: usize,
    permits: &[Arc<Semaphore>],
) -> Result<Option<(Bytes, BodyPermits)>, BoxError> {
    let mut tiers = TIERS.iter().zip(permits).peekable();
    let mut held = Vec::new();
    let mut next = async || body.frame().await.transpose().map(|frame| frame.map(Frame::into_data));
    let mut whole = Vec::new();
    while let Some(frame) = next().await? {
        let Ok(data) = frame else { continue };
        let length = whole.len() + data.len();
        if length > max {
            return Ok(None);
        }
        while let Some((_, tier)) = tiers.next_if(|((least, _), _)| length > *least) {
            held.push(Arc::clone(tier).acquire_owned().await?);
        }
        whole.extend_from_slice(&data);
    }
    // Most answers need none, and no memory for that.
    let permits = if held.is_empty() { Arc::default() } else { held.into() };
    Ok(Some((whole.into(), BodyPermits { permits })))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::join_all;
    use http::Method;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::kube::testing::{Answer, Server, read as read_body, request, send};

    const CLAIMS: &str = "/api/v1/namespaces/ns/persistentvolumeclaims";

    /// A server whose answers come in three parts a second apart; what the URL ends in says how long each
    /// is, in KiB.
    fn server() -> Server {
        Server::new(|_, request| {
            let length = request.url.rsplit('-').next().unwrap().parse::<usize>().unwrap() << 10;
            let part = || vec![b'x'; length];
            Answer::status(200).chunk(1, part()).chunk(1, part()).chunk(1, part())
        })
    }

    /// A request's length in KiB and its duration.
    async fn read(service: &impl Next, method: Method, url: &str) -> (usize, Duration) {
        let began = Instant::now();
        let response = send(service, request(method, url)).await.unwrap();
        (read_body(response).await.unwrap().len() >> 10, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_take_turns_and_others_do_not_wait() {
        let server = server();
        let service = whole_answers(Budget::default(), server.service.clone());
        for (size, at_once) in [(20, 2), (300, 1)] {
            let url = format!("{CLAIMS}/claim-{size}");
            let began = Instant::now();
            let large = join_all((0..8).map(|_| read(&service, Method::GET, &url)));
            let others = async {
                sleep(Duration::from_millis(500)).await;
                let small = format!("{CLAIMS}/claim-1");
                let list = "/api/v1/persistentvolumes?limit=500&continue=a-1500";
                let small = read(&service, Method::GET, &small);
                let list = read(&service, Method::GET, list);
                let write = read(&service, Method::PUT, &url);
                let (small, list, write) = tokio::join!(small, list, write);
                assert_eq!([small.0, list.0, write.0], [3, 4500, 3 * size]);
                assert!([small.1, list.1, write.1].iter().all(|took| took.as_secs() == 3));
            };
            let (large, ()) = tokio::join!(large, others);
            assert!(large.iter().all(|(length, _)| *length == 3 * size));
            // Only the third part of each needs a permit of which there are so few.
            assert_eq!(began.elapsed().as_secs(), 2 + 8 / at_once, "{size}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn permits_are_kept_by_the_reader_of_the_body() {
        let server = server();
        let service = whole_answers(Budget::default(), server.service.clone());
        let url = format!("{CLAIMS}/claim-1500");
        let response = send(&service, request(Method::GET, &url)).await.unwrap();
        let held: BodyPermits = response.extensions().get().cloned().unwrap();
        read_body(response).await.unwrap();
        let mut next = Box::pin(read(&service, Method::GET, &url));
        let early = tokio::time::timeout(Duration::from_secs(10), &mut next).await;
        assert!(early.is_err(), "the first one's permits are held");
        drop(held);
        assert_eq!(next.await.0, 4500);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_too_long_is_an_error_and_gives_its_permits_back() {
        let server = server();
        let service = whole_answers(Budget::default(), server.service.clone());
        for _ in 0..8 {
            let mut request = request(Method::GET, &format!("{CLAIMS}/claim-80"));
            request.extensions_mut().insert(MaxAnswer(100 << 10));
            let error = send(&service, request).await.unwrap_err();
            assert!(matches!(error.downcast_ref(), Some(ApiError::TooLarge { .. })), "{error}");
        }
    }
}
