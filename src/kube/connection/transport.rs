//! Sends requests to the API server.
//!
//! Simulations replace [`Transport`] by their own API server. A transport made from a configuration
//! uses TLS with the cluster's authority, rereads rotated tokens and authorities, connects through
//! the configured proxy (CONNECT tunnel or SOCKS) with a time-out of 30 s, and notices within 35 s
//! that a peer is gone (through a tunnel: that the proxy is gone). It never sends a request twice;
//! only layers do. A request that was not written to an idle connection was not sent.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderValue, Uri, header::HOST};
use http_body_util::{BodyExt as _, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use hyper::{
    body::Incoming,
    rt::{Read, Write},
};
use hyper_util::{
    client::{
        self,
        legacy::{
            Client, ResponseFuture,
            connect::{
                Connect, Connection, HttpConnector,
                proxy::{SocksV5, Tunnel},
            },
        },
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    client::{Body, ConfigExt as _},
    config::AuthInfo,
};
use tower::{BoxError, Service as TowerService, ServiceBuilder, ServiceExt as _};

use super::{config::ConfigError, credentials, proxy};
use crate::kube::stack::{file_token::FileToken, layer};

/// How long a connection is silent before the first keepalive probe. A peer that disappears without
/// closing its connections (no power, no route) must be noticed no later than client-go's HTTP/2 pings
/// notice it, which is after 45 s.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The time between two probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// The number of unanswered probes after which a connection is closed.
const PROBES: u32 = 3;

/// How long sent data may be unacknowledged before a connection is closed; by default the kernel
/// retransmits for a quarter of an hour.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection may be idle before it is closed. Idle connections are checked at the same
/// interval, so all connections that a burst has opened are closed within 40 s.
const IDLE: Duration = Duration::from_secs(20);

/// The size of a connection's read buffer, in bytes; the head of an answer must fit. By default it
/// grows to 400 KiB and never shrinks, which for watches means for ever.
const READ_BUFFER: usize = 64 << 10;

/// The initial capacity of a request's header map; the headers of a response usually fit too.
const HEADER_CAPACITY: usize = 12;

/// A request within the stack. Its URL has only a path and a query. Its body is in memory, so that it
/// can be sent again.
pub(crate) type Request = http::Request<Bytes>;

/// A request as it is sent.
pub type KubeRequest = http::Request<Body>;

/// The body of a response. That of a watch lasts for minutes.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// A response of the API server.
pub type Response = http::Response<ResponseBody>;

/// The result of a request.
pub type Outcome = Result<Response, BoxError>;

/// Answers requests. A service is always ready; all waiting happens in the request's future.
pub(crate) trait Service: Send + Sync + 'static {
    /// Sends a request. It is borrowed, so that the caller can send it again, with what layers have
    /// added to it.
    fn send(&self, request: &mut Request) -> impl Future<Output = Outcome> + Send;
}

/// A service that sends requests to the API server. Clones are cheap and share its connections.
#[derive(Clone)]
pub struct Transport(Arc<dyn AnyService>);

/// A [`Service`] as a trait object.
trait AnyService: Send + Sync {
    fn send_boxed<'a>(&'a self, request: &'a mut Request) -> BoxFuture<'a, Outcome>;
}

impl<S: Service> AnyService for S {
    fn send_boxed<'a>(&'a self, request: &'a mut Request) -> BoxFuture<'a, Outcome> {
        self.send(request).boxed()
    }
}

impl Transport {
    /// A transport that sends requests through `service`. Each request costs one allocation here,
    /// however many layers the service has.
    pub(crate) fn new(service: impl Service) -> Self {
        Self(Arc::new(service))
    }
}

impl Service for Transport {
    async fn send(&self, request: &mut Request) -> Outcome {
        self.0.send_boxed(request).await
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

/// The transport for `config`. Must be called inside a tokio runtime.
///
/// # Errors
/// If certificates, keys or credentials cannot be read.
pub fn transport(config: &kube::Config) -> Result<Transport, ConfigError> {
    let connector = connector(config);
    let Some(url) = &config.proxy_url else { return with_connector(connector, config) };
    let credentials = proxy::credentials(url);
    if url.scheme_str().is_some_and(|scheme| scheme.starts_with("socks5")) {
        let socks = SocksV5::new(url.clone(), connector);
        return match credentials {
            Some((name, password)) => with_connector(socks.with_auth(name, password), config),
            None => with_connector(socks, config),
        };
    }
    // As in Go, an https proxy is verified with the same authority as the server.
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let tunnel = Tunnel::new(url.clone(), connector);
    let tunnel = match credentials.and_then(basic_authorization) {
        Some(authorization) => tunnel.with_auth(authorization),
        None => tunnel,
    };
    with_connector(tunnel.map_request(with_port), config)
}

/// The TCP connector for the server or the proxy.
fn connector(config: &kube::Config) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(PROBE_INTERVAL));
    connector.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
    connector
}

/// The value of `Proxy-Authorization`, marked as sensitive.
fn basic_authorization((name, password): (String, String)) -> Option<HeaderValue> {
    let encoded = STANDARD.encode(format!("{name}:{password}"));
    let mut value = HeaderValue::try_from(format!("Basic {encoded}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Adds port 80 to the URL of a plain server, because a tunnel's default is 443.
fn with_port(server: Uri) -> Uri {
    let plain = server.scheme_str() == Some("http") && server.port().is_none();
    let host = server.host().filter(|_| plain);
    host.and_then(|host| format!("http://{host}:80/").parse().ok()).unwrap_or(server)
}

/// The transport whose connections are made by `connector`.
fn with_connector<C>(connector: C, config: &kube::Config) -> Result<Transport, ConfigError>
where
    C: TowerService<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let token = file_token(&config.auth_info)?;
    let auth = if token.is_some() { None } else { config.auth_layer()? };
    let mut clients = Client::builder(TokioExecutor::new());
    clients.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).http1_max_buf_size(READ_BUFFER);
    let pooled = clients.build::<_, Body>(connector.clone());
    let unpooled = clients.pool_max_idle_per_host(0).build::<_, Body>(connector);
    let client = Clients { pooled, unpooled };
    let service = ServiceBuilder::new()
        .map_err(credentials::redact)
        .option_layer(auth)
        .layer(config.extra_headers_layer()?)
        .map_request(set_host(host(&config.cluster_url)))
        .map_err(BoxError::from)
        .service(client);
    Ok(Transport::new(layer(token, SendService { server: config.cluster_url.clone(), service })))
}

/// An extension of a request that must be sent over a new connection, because existing ones may be
/// dead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewConnection;

/// A client with a connection pool, and one that opens a connection for each request.
#[derive(Clone)]
struct Clients<C> {
    pooled: Client<C, Body>,
    unpooled: Client<C, Body>,
}

impl<C> TowerService<KubeRequest> for Clients<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = http::Response<Incoming>;
    type Error = client::legacy::Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: KubeRequest) -> Self::Future {
        match request.extensions().get::<NewConnection>() {
            Some(NewConnection) => self.unpooled.request(request),
            None => self.pooled.request(request),
        }
    }
}

/// The `Host` header of requests to `server`.
fn host(server: &Uri) -> Option<HeaderValue> {
    let default_port = if server.scheme_str() == Some("https") { 443 } else { 80 };
    let host = server.host()?;
    let host = match server.port_u16().filter(|port| *port != default_port) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    HeaderValue::try_from(host).ok()
}

/// Sets the `Host` header as hyper would, but without formatting it for each request.
fn set_host(host: Option<HeaderValue>) -> impl Fn(KubeRequest) -> KubeRequest + Clone {
    move |mut request| {
        if let Some(host) = &host {
            request.headers_mut().entry(HOST).or_insert_with(|| host.clone());
        }
        request
    }
}

/// The layer for a token file, if `credentials` use one; kube handles all other credentials. As in
/// client-go a token file wins over an inline token.
fn file_token(credentials: &AuthInfo) -> Result<Option<FileToken>, ConfigError> {
    let others = credentials.auth_provider.is_some() || credentials.username.is_some();
    let path = credentials.token_file.as_ref().filter(|path| !path.is_empty() && !others);
    let open = |path: &String| {
        FileToken::open(path.into())
            .map_err(|error| ConfigError::Token { path: path.into(), source: error })
    };
    path.map(open).transpose()
}

/// Makes a transport of a tower service, such as the API servers of tests.
pub fn boxed<S, B>(service: S) -> Transport
where
    S: TowerService<KubeRequest, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Transport::new(SendService { server: Uri::default(), service })
}

/// The innermost service: adds the server's URL to requests and sends them with a tower service.
struct SendService<S> {
    /// The URL below which the server's paths are.
    server: Uri,
    service: S,
}

impl<S, B> Service for SendService<S>
where
    S: TowerService<KubeRequest, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async fn send(&self, request: &mut Request) -> Outcome {
        let request = outgoing(request, &self.server)?;
        let response = self.service.clone().oneshot(request).await.map_err(Into::into)?;
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}

/// The request as it is sent to `server`.
fn outgoing(request: &Request, server: &Uri) -> Result<KubeRequest, http::Error> {
    let mut outgoing = KubeRequest::new(request.body().clone().into());
    outgoing.method_mut().clone_from(request.method());
    *outgoing.uri_mut() = join(server, request.uri())?;
    let headers = request.headers().iter().map(|(name, value)| (name.clone(), value.clone()));
    outgoing.headers_mut().reserve(HEADER_CAPACITY);
    outgoing.headers_mut().extend(headers);
    if let Some(new_connection) = request.extensions().get::<NewConnection>() {
        outgoing.extensions_mut().insert(*new_connection);
    }
    Ok(outgoing)
}

/// Appends `path` to the URL of `server`.
fn join(server: &Uri, path: &Uri) -> Result<Uri, http::Error> {
    let mut parts = server.clone().into_parts();
    if let Some(path) = path.path_and_query() {
        parts.path_and_query = Some(match server.path().trim_end_matches('/') {
            "" => path.clone(),
            prefix => format!("{prefix}{path}").try_into()?,
        });
    }
    Ok(Uri::from_parts(parts)?)
}

/// Why a body could not be read to its end.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// It is longer than the limit.
    TooLong,
    /// The connection broke.
    Broken(BoxError),
}

/// Reads a body of at most `limit` bytes. A body of a single frame is not copied.
pub(crate) fn read(
    body: ResponseBody,
    limit: usize,
) -> impl Future<Output = Result<Bytes, BodyError>> + Send {
    Limited::new(body, limit).collect().map(|whole| match whole {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(BodyError::TooLong),
        Err(error) => Err(BodyError::Broken(error)),
    })
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::kube::{
        connection::config::{ConfigSource, load},
        error::ApiError,
        testing::{request, send},
    };

    /// Reads the head of a request.
    async fn head(stream: &mut tokio::net::TcpStream) -> String {
        let mut came = Vec::new();
        while !came.ends_with(b"\r\n\r\n") {
            came.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(came).unwrap()
    }

    /// Answers one request and returns its head.
    async fn serve_once(listener: TcpListener) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let came = head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine").await.unwrap();
        came
    }

    #[tokio::test]
    async fn requests_reach_the_server_below_its_path_with_the_token() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/prefix/", listener.local_addr().unwrap());
        let mut config = kube::Config::new(url.parse().unwrap());
        config.auth_info.token = Some("secret".to_owned().into());
        let service = transport(&config).unwrap();
        let asking = send(&service, request(http::Method::GET, "/api/v1/nodes?limit=1"));
        let (came, response) = tokio::join!(serve_once(listener), asking);
        let came = came.to_ascii_lowercase();
        assert!(came.starts_with("get /prefix/api/v1/nodes?limit=1 http/1.1\r\n"), "{came}");
        assert!(came.contains("\r\nauthorization: bearer secret\r\n"), "{came}");
        assert!(
            came.contains(&format!("\r\nhost: {}\r\n", config.cluster_url.authority().unwrap())),
            "{came}"
        );
        assert_eq!(read(response.unwrap().into_body(), 10).await.unwrap(), "fine");
    }

    #[tokio::test]
    async fn requests_have_the_user_agent_of_the_configuration() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let master = Some(listener.local_addr().unwrap().to_string());
        let config = load(&ConfigSource { master, ..ConfigSource::default() }).await.unwrap();
        let service = transport(&config).unwrap();
        let asking = send(&service, request(http::Method::GET, "/version"));
        let (came, response) = tokio::join!(serve_once(listener), asking);
        assert_eq!(response.unwrap().status(), http::StatusCode::OK);
        let own: Vec<_> = came.lines().filter_map(|it| it.strip_prefix("user-agent: ")).collect();
        assert_eq!(own.len(), 1, "{came}");
        let version = env!("CARGO_PKG_VERSION");
        assert!(own[0].starts_with(&format!("csi-provisioner/v{version} (linux/")), "{came}");
    }

    /// Answers requests on one connection with these status lines; returns their tokens.
    async fn serve_with(listener: TcpListener, answers: &[&str]) -> Vec<String> {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut tokens = vec![];
        for answer in answers {
            let came = head(&mut stream).await.to_ascii_lowercase();
            let token = came.split("authorization: ").nth(1).and_then(|it| it.lines().next());
            tokens.push(token.unwrap_or_default().to_owned());
            let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        tokens
    }

    #[tokio::test]
    async fn a_new_token_in_the_file_is_sent_after_the_old_one_is_refused() {
        let file = std::env::temp_dir().join(format!("token-{}", std::process::id()));
        std::fs::write(&file, "first\n").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut config = kube::Config::new(url.parse().unwrap());
        config.auth_info.token_file = Some(file.to_string_lossy().into_owned());
        // As in a pod: the inline token was read at the start.
        config.auth_info.token = Some("stale".to_owned().into());
        let service = transport(&config).unwrap();
        std::fs::write(&file, "second\n").unwrap();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let asking = send(&service, request(http::Method::GET, "/version"));
        let answers = ["401 Unauthorized", "200 OK"];
        let (tokens, response) = tokio::join!(serve_with(listener, &answers), asking);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(tokens, ["bearer first", "bearer second"]);
        assert_eq!(response.unwrap().status(), http::StatusCode::OK);
    }

    /// Accepts one connection per entry and answers that many requests on it, then no more.
    async fn serve_some(listener: TcpListener, answers: &[usize]) {
        let mut held = Vec::new();
        for answers in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            for _ in 0..*answers {
                head(&mut stream).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
            held.push(stream);
        }
        std::future::pending::<()>().await;
    }

    /// A listener on a free port, and a transport to it.
    async fn plain() -> (TcpListener, Transport) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (listener, transport(&kube::Config::new(url.parse().unwrap())).unwrap())
    }

    /// Sends a request and reads its answer; `None` if there is none within half a second.
    async fn ask(service: &Transport, request: Request) -> Option<http::StatusCode> {
        let answered = async {
            let response = send(service, request).await.unwrap();
            let status = response.status();
            read(response.into_body(), 10).await.unwrap();
            status
        };
        tokio::time::timeout(Duration::from_millis(500), answered).await.ok()
    }

    const OK: Option<http::StatusCode> = Some(http::StatusCode::OK);

    #[tokio::test]
    async fn a_dropped_request_closes_its_connection() {
        let (listener, service) = plain().await;
        let version = || request(http::Method::GET, "/version");
        let asking = async {
            assert_eq!(ask(&service, version()).await, OK);
            assert_eq!(ask(&service, version()).await, None, "the first connection is dead");
            assert_eq!(ask(&service, version()).await, OK, "on a new connection");
        };
        tokio::select! {
            biased;
            () = asking => {}
            () = serve_some(listener, &[1, 1]) => {}
        }
    }

    #[tokio::test]
    async fn a_request_over_a_new_connection_uses_no_idle_one() {
        let (listener, service) = plain().await;
        let mut over_new = request(http::Method::GET, "/version");
        over_new.extensions_mut().insert(NewConnection);
        let asking = async {
            assert_eq!(ask(&service, request(http::Method::GET, "/version")).await, OK);
            assert_eq!(ask(&service, over_new).await, OK, "although one is idle");
        };
        tokio::select! {
            biased;
            () = asking => {}
            () = serve_some(listener, &[1, 1]) => {}
        }
    }

    /// A proxy that serves one tunnel; returns the CONNECT request.
    async fn proxy_once(listener: TcpListener) -> String {
        let (mut client, _) = listener.accept().await.unwrap();
        let came = head(&mut client).await;
        let target = came.split(' ').nth(1).unwrap();
        let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        came
    }

    #[tokio::test]
    async fn a_proxy_gets_its_own_credentials_and_not_the_servers() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let mut config = kube::Config::new(format!("http://{address}").parse().unwrap());
        config.auth_info.token = Some("secret".to_owned().into());
        let url = format!("http://user:p%40ss@{}", proxy.local_addr().unwrap());
        config.proxy_url = Some(url.parse().unwrap());
        let asking = async {
            let service = transport(&config).unwrap();
            let response = send(&service, request(http::Method::GET, "/version")).await.unwrap();
            read(response.into_body(), 10).await.unwrap()
        };
        let (tunnelled, came, answer) = tokio::join!(proxy_once(proxy), serve_once(server), asking);
        assert_eq!(answer, "fine");
        let expected = format!(
            "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"
        );
        assert_eq!(tunnelled, expected, "the proxy sees no token");
        assert!(came.to_ascii_lowercase().contains("authorization: bearer secret"), "{came}");
    }

    #[tokio::test]
    async fn the_error_of_a_refusing_proxy_has_no_password() {
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = kube::Config::new(Uri::from_static("https://api.example"));
        let url = format!("http://user:hush@{}", proxy.local_addr().unwrap());
        config.proxy_url = Some(url.parse().unwrap());
        let refusing = async {
            let (mut client, _) = proxy.accept().await.unwrap();
            let answer = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
            client.write_all(answer).await.unwrap();
            client.flush().await.unwrap();
            // Kept open until the client has read it.
            let _ = client.read_u8().await;
            client
        };
        let service = transport(&config).unwrap();
        let asking = send(&service, request(http::Method::GET, "/version"));
        let (_client, outcome) = tokio::join!(refusing, asking);
        let error = ApiError::from_transport(outcome.unwrap_err());
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
        let expected = "no answer from the API server: client error (Connect): tunnel error: proxy authorization required";
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test]
    async fn a_refused_connection_is_reported() {
        let config = kube::Config::new(Uri::from_static("http://127.0.0.1:1"));
        let service = transport(&config).unwrap();
        let outcome = send(&service, request(http::Method::GET, "/version")).await;
        let text = ApiError::from_transport(outcome.unwrap_err()).to_string();
        assert!(text.contains("Connection refused"), "{text}");
    }

    #[test]
    fn the_host_header_has_the_port_unless_it_is_the_default() {
        for (server, named) in [
            ("https://a", "a"),
            ("https://a:443/x", "a"),
            ("https://a:80", "a:80"),
            ("http://a:80", "a"),
            ("http://a:443", "a:443"),
            ("https://user:word@a:6443", "a:6443"),
            ("https://[::1]:6443", "[::1]:6443"),
            ("https://[::1]", "[::1]"),
        ] {
            assert_eq!(host(&server.parse().unwrap()).unwrap(), named, "{server}");
        }
    }

    #[test]
    fn tunnels_to_plain_servers_have_port_80() {
        for (server, named) in [
            ("http://a/x", "http://a:80/"),
            ("http://a:81/x", "http://a:81/x"),
            ("https://a/", "https://a/"),
        ] {
            assert_eq!(with_port(server.parse().unwrap()).to_string(), named);
        }
    }

    #[tokio::test]
    async fn an_unreadable_token_file_fails_before_the_first_request() {
        let mut config = kube::Config::new(http::Uri::from_static("https://a"));
        config.auth_info.token_file = Some("/nonexistent/token".to_owned());
        let error = transport(&config).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/token"), "{error}");
    }
}
