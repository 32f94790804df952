//! The way to the API server: one service from a request to its answer.
//!
//! Owns [`Transport`], the seam at which a simulation puts its own API server. Promises that a
//! transport made from a configuration speaks TLS with the cluster's authority, reads rotated
//! tokens and authorities anew, gives up connecting after 30 s, and never retries: what is
//! repeated is the layers' decision. Leaves limits, deadlines and metrics to [`super::layers`].

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioExecutor};
use kube::client::{Body, ConfigExt as _};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};

use super::config::ConfigError;

/// A request to the API server; its URL has a path and a query only.
pub type Request = http::Request<Body>;

/// The body of an answer. A watch's goes on for minutes.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// An answer of the API server.
pub type Response = http::Response<ResponseBody>;

/// Carries requests to the API server. Clones share its connections.
pub type Transport = BoxCloneSyncService<Request, Response, BoxError>;

/// The transport that `config` describes. To be called inside a tokio runtime.
///
/// # Errors
/// When certificates, keys or credentials cannot be read.
pub fn transport(config: kube::Config) -> Result<Transport, ConfigError> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_nodelay(true);
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(boxed(service))
}

/// Makes a transport of any service that answers requests: the tests' own API servers.
pub fn boxed<S, B>(service: S) -> Transport
where
    S: Service<Request, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service = service
        .map_response(|response: http::Response<B>| {
            response.map(|body| body.map_err(Into::into).boxed_unsync())
        })
        .map_err(Into::into);
    BoxCloneSyncService::new(service)
}

/// Why a body could not be read to its end.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It is longer than the reader wants.
    TooLong,
    /// It broke off.
    Broken(BoxError),
}

/// Reads a body of at most `limit` bytes.
pub(crate) async fn read(mut body: ResponseBody, limit: usize) -> Result<Bytes, Unread> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(Unread::Broken)?;
        let Some(data) = frame.data_ref() else { continue };
        if data.len() > limit.saturating_sub(whole.len()) {
            return Err(Unread::TooLong);
        }
        whole.extend_from_slice(data);
    }
    Ok(whole.freeze())
}
