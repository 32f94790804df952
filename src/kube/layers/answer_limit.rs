//! Limits the length of answers: kube-rs reads all of a list's page before it parses it. A watch has no
//! end, so its answer has no limit.

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower::{BoxError, service_fn};

use super::{
    Next, Outcome, Request, ResponseBody,
    target::{Target, Verb},
};
use crate::kube::error::ApiError;

/// Fails answers that are longer than `max` bytes.
pub(crate) fn answer_limit(max: usize, next: impl Next) -> impl Next {
    service_fn(move |request| send(max, next.clone(), request))
}

async fn send(max: usize, next: impl Next, request: Request) -> Outcome {
    let target = Target::of(&request);
    if target.verb == Verb::Watch {
        return next.send(request).await;
    }
    let about = target.about();
    Ok(next.send(request).await?.map(|body| limited(body, max, about)))
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
