//! Limits the length of answers: kube-rs reads all of a list's page before it parses it. A watch has no
//! end, so its answer has no limit.

use std::task::{Context, Poll};

use futures::FutureExt as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower::{BoxError, Layer, Service};

use super::{
    Answering, Next, Request, Response, ResponseBody,
    target::{Target, Verb},
};
use crate::kube::error::ApiError;

/// Fails answers that are longer than so many bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerLimitLayer(pub(crate) usize);

impl<S> Layer<S> for AnswerLimitLayer {
    type Service = AnswerLimit<S>;

    fn layer(&self, next: S) -> AnswerLimit<S> {
        AnswerLimit { max: self.0, next }
    }
}

/// The service of [`AnswerLimitLayer`].
#[derive(Debug, Clone)]
pub(crate) struct AnswerLimit<S> {
    max: usize,
    next: S,
}

impl<S: Next> Service<Request> for AnswerLimit<S> {
    type Response = Response;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Answering {
        let target = Target::of(&request);
        if target.verb == Verb::Watch {
            return self.next.send(request).boxed();
        }
        let (about, max) = (target.about(), self.max);
        let answer = self.next.send(request);
        async move { Ok(answer.await?.map(|body| limited(body, max, about))) }.boxed()
    }
}

/// The body, which fails beyond `max` bytes.
fn limited(body: ResponseBody, max: usize, about: String) -> ResponseBody {
    let too_large = move |error: BoxError| {
        if error.is::<LengthLimitError>() {
            return ApiError::TooLarge { about: about.clone(), max }.into();
        }
        error
    };
    Limited::new(body, max).map_err(too_large).boxed_unsync()
}
