//! Reads the bodies of answers, few large ones at once.
//!
//! Users write claims, snapshots and grants, and one of 1.4 MB is 8 MB of JSON. So beyond [`SMALL`] bytes a
//! body is read on only while it holds one of [`AT_ONCE`] permits, which its reader keeps until the object
//! is dealt with. Small bodies wait for nothing.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many large bodies are read at once.
const AT_ONCE: usize = 4;

/// The longest body that needs no permit, in bytes.
const SMALL: usize = 64 << 10;

/// Why a body could not be read to its end.
#[derive(Debug)]
pub(super) enum BodyError {
    /// It is longer than the limit.
    TooLong,
    /// The connection broke, or the deadline passed.
    Broken(kube::Error),
}

/// The right to read and keep one large body. Dropping it lets the next reader go on.
#[derive(Debug)]
pub(super) struct Permit {
    _permit: OwnedSemaphorePermit,
}

/// Reads bodies. Clones share the permits.
#[derive(Debug, Clone)]
pub(super) struct Bodies(Arc<Semaphore>);

impl Default for Bodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Bodies {
    /// Reads a body of at most `max` bytes. `held` is the permit of an earlier body for the same work, so
    /// that none waits for another while it holds one. Returns it, or the one that this body needed.
    pub(super) async fn read(
        &self,
        mut body: impl http_body::Body<Data = Bytes, Error = kube::Error> + Unpin,
        max: usize,
        mut held: Option<Permit>,
    ) -> Result<(Bytes, Option<Permit>), BodyError> {
        let (mut frames, mut length) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
            length += data.len();
            if length > max {
                return Err(BodyError::TooLong);
            }
            if length > SMALL && held.is_none() {
                // Never closed, so always given.
                let permit = Arc::clone(&self.0).acquire_owned().await.ok();
                held = permit.map(|permit| Permit { _permit: permit });
            }
            frames.push(data);
        }
        Ok((joined(frames, length), held))
    }
}

/// The frames as one. Each is dropped as soon as it is copied.
fn joined(mut frames: Vec<Bytes>, length: usize) -> Bytes {
    if frames.len() <= 1 {
        return frames.pop().unwrap_or_default();
    }
    let mut whole = Vec::with_capacity(length);
    for frame in frames {
        whole.extend_from_slice(&frame);
    }
    whole.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{StreamExt as _, future::join_all, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// A body of so many frames of 16 KiB, one each 10 ms.
    fn body(frames: usize) -> impl http_body::Body<Data = Bytes, Error = kube::Error> + Unpin {
        let frames = stream::iter(0..frames).then(|_| async {
            sleep(Duration::from_millis(10)).await;
            Ok(Frame::data(Bytes::from(vec![b'x'; 16 << 10])))
        });
        StreamBody::new(frames.boxed())
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_take_turns_and_small_ones_do_not_wait() {
        let bodies = Bodies::default();
        let began = Instant::now();
        // Each gives its permit back as soon as it has its body.
        let length =
            async || bodies.read(body(100), 32 << 20, None).await.map(|(body, _)| body.len());
        let large = join_all((0..40).map(|_| length()));
        let small = async {
            sleep(Duration::from_millis(100)).await;
            let asked = Instant::now();
            bodies.read(body(4), 32 << 20, None).await.unwrap();
            asked.elapsed()
        };
        let (large, small) = tokio::join!(large, small);
        assert!(large.iter().all(|read| read.as_ref().is_ok_and(|length| *length == 100 << 14)));
        assert!(small < Duration::from_millis(50), "{small:?}");
        // Ten rounds of four; the first 64 KiB come beforehand.
        assert!(began.elapsed() >= Duration::from_secs(9), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_holds_a_permit_needs_no_other() {
        let bodies = Bodies::default();
        let first = join_all((0..AT_ONCE).map(|_| bodies.read(body(10), 1 << 20, None))).await;
        let again = first.into_iter().map(|read| bodies.read(body(10), 1 << 20, read.unwrap().1));
        assert!(join_all(again).await.iter().all(Result::is_ok));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_too_long_is_an_error_and_gives_its_permit_back() {
        let bodies = Bodies::default();
        for _ in 0..2 * AT_ONCE {
            let read = bodies.read(body(10), 100 << 10, None).await;
            assert!(matches!(read, Err(BodyError::TooLong)));
        }
        assert_eq!(bodies.0.available_permits(), AT_ONCE);
    }
}
