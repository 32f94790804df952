//! The way to the API server: one service from a request to its answer.
//!
//! Owns [`Transport`], the seam at which a simulation puts its own API server. Promises that a
//! transport made from a configuration speaks TLS with the cluster's authority, reads rotated
//! tokens and authorities anew, gives up connecting after 30 s, and sends nothing
//! twice (a request that never left an idle connection is not sent yet): what is repeated is the
//! layers' decision. Leaves limits, deadlines and metrics to `layers`.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::{Body, ConfigExt as _};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};

use super::config::ConfigError;

/// An idle connection is probed so often.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A connection that was of no use so long is closed: what a burst opened is given back.
const IDLE: Duration = Duration::from_secs(90);

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
pub fn transport(config: &kube::Config) -> Result<Transport, ConfigError> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_nodelay(true);
    // As in client-go: a peer that is gone is noticed, also by a watch that waits.
    connector.set_keepalive(Some(KEEPALIVE));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
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

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::kube_api::testing::request;

    /// Takes one request, answers it and gives what came.
    async fn serve_once(listener: TcpListener) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut came = Vec::new();
        while !came.ends_with(b"\r\n\r\n") {
            came.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine").await.unwrap();
        String::from_utf8(came).unwrap()
    }

    #[tokio::test]
    async fn requests_reach_the_server_below_its_path_with_the_token() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/prefix/", listener.local_addr().unwrap());
        let mut config = kube::Config::new(url.parse().unwrap());
        config.auth_info.token = Some("secret".to_owned().into());
        let service = transport(&config).unwrap();
        let asking = service.oneshot(request(http::Method::GET, "/api/v1/nodes?limit=1"));
        let (came, response) = tokio::join!(serve_once(listener), asking);
        let came = came.to_ascii_lowercase();
        assert!(came.starts_with("get /prefix/api/v1/nodes?limit=1 http/1.1\r\n"), "{came}");
        assert!(came.contains("\r\nauthorization: bearer secret\r\n"), "{came}");
        assert_eq!(read(response.unwrap().into_body(), 10).await.unwrap(), "fine");
    }

    #[tokio::test]
    async fn credentials_that_cannot_be_read_are_told_before_the_first_request() {
        let mut config = kube::Config::new(http::Uri::from_static("https://a"));
        config.auth_info.token_file = Some("/nonexistent/token".to_owned());
        let error = transport(&config).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/token"), "{error}");
    }
}
