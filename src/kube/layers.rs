//! The tower layers between kube-rs's client and the connections.
//!
//! From the outside in: `refusals`, `retry_after`, `throttle`, `in_flight`, `gate`, `deadline`,
//! `whole_answers`, `requests`. The order matters: every retry takes a token from the throttle again, nothing
//! waits between the gate and the connection, and a deadline counts from the sending to the end of an answer.
//! [`Lanes`](super::Lanes) decide which lane has which layers. Outside of a lane are `pages`, for lists, for
//! each watcher a throttle of its own, and `version`, where a server has a kind in an older one.
//!
//! Each layer is a function from the service below it to a service. None applies backpressure through
//! readiness: all waiting happens in the request's own future, so that dropping the future frees its
//! permit at once.

pub(crate) mod deadline;
pub(crate) mod gate;
pub(crate) mod in_flight;
pub(crate) mod pages;
pub(crate) mod refusals;
pub(crate) mod requests;
pub(crate) mod retry_after;
pub(crate) mod throttle;
pub(crate) mod version;
pub(crate) mod whole_answers;

use bytes::Bytes;
use futures::TryFutureExt as _;
use http_body_util::{BodyExt as _, Collected, Limited, combinators::UnsyncBoxBody};
use kube::client::Body;
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};

/// A request of kube-rs's client. Its body is in memory.
pub type Request = http::Request<Body>;

/// The body of a response. That of a watch lasts for minutes.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// A response of the API server.
pub type Response = http::Response<ResponseBody>;

/// The result of a request.
pub(crate) type Outcome = Result<Response, BoxError>;

/// A service that answers requests, of any type. Clones share its connections.
pub type ApiService = BoxCloneSyncService<Request, Response, BoxError>;

/// What layers wrap. A layer calls a clone of it, which is always ready.
pub(crate) trait Next:
    Service<Request, Response = Response, Error = BoxError, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
    /// Sends a request.
    fn send(&self, request: Request) -> impl Future<Output = Outcome> + Send + 'static {
        self.clone().oneshot(request)
    }
}

impl<S> Next for S where
    S: Service<Request, Response = Response, Error = BoxError, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// The same request again: its body is in memory.
pub(crate) fn again(request: &Request) -> Request {
    let body = request.body().try_clone().unwrap_or_else(Body::empty);
    let mut copy = Request::new(body);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    copy
}

/// Reads a body to its end; fails beyond `max` bytes.
pub(crate) fn read(
    body: ResponseBody,
    max: usize,
) -> impl Future<Output = Result<Bytes, BoxError>> + Send + 'static {
    Limited::new(body, max).collect().map_ok(Collected::to_bytes)
}
