//! The way to the API server: one service from a request to its answer.
//!
//! Owns [`Transport`], the seam at which a simulation puts its own API server. Promises that a
//! transport made from a configuration speaks TLS with the cluster's authority, reads rotated
//! tokens and authorities anew, goes through the proxy that it names (by a CONNECT tunnel or SOCKS),
//! gives up connecting after 30 s, notices within 35 s that a peer is gone (of a proxy's tunnel the proxy),
//! and by itself sends nothing
//! twice (a request that never left an idle connection is not sent yet): what is repeated is the
//! layers' decision, also with a token from a file. Leaves limits, deadlines and metrics to `layers`.

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

/// A peer that is gone without a word (no power, no route) must be noticed on a connection that waits, as
/// a watch does, no later than client-go's HTTP/2 pings notice it: 45 s. A silent connection is probed
/// after this time,
const KEEPALIVE: Duration = Duration::from_secs(15);

/// then so often,
const PROBES_EVERY: Duration = Duration::from_secs(5);

/// and given up after so many probes without an answer.
const PROBES: u32 = 3;

/// The same where data is under way, which the kernel would send again for a quarter of an hour.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// A connection that was of no use so long is closed, and its buffers with it: looked for as often,
/// so that all that a burst has opened is gone within 40 s.
const IDLE: Duration = Duration::from_secs(20);

/// The most that a connection holds of an answer that is being read, in bytes; its head must fit. Left
/// alone it grows to 400 KiB and stays so, which for watches is for ever.
const READ_AHEAD: usize = 64 << 10;

/// Room for the header of a request as it leaves, in lines. What the server says in its answer takes
/// the same room, as a rule without growing.
const HEADER_LINES: usize = 12;

/// A request on its way through the rules; its URL has a path and a query only. Its body is in one
/// piece, so that it can be sent again.
pub(crate) type Request = http::Request<Bytes>;

/// A request as it leaves.
pub type KubeRequest = http::Request<Body>;

/// The body of an answer. A watch's goes on for minutes.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// An answer of the API server.
pub type Response = http::Response<ResponseBody>;

/// What becomes of a request.
pub type Outcome = Result<Response, BoxError>;

/// A way from requests to their answers. It is always ready; whoever must wait waits in the
/// request's own future.
pub(crate) trait Service: Send + Sync + 'static {
    /// Sends a request, which is lent: it may be sent again, with what rules have put on it.
    fn send(&self, request: &mut Request) -> impl Future<Output = Outcome> + Send;
}

/// Carries requests to the API server. Clones share its connections, and cost next to nothing.
#[derive(Clone)]
pub struct Transport(Arc<dyn AnyService>);

/// A way of whatever type.
trait AnyService: Send + Sync {
    fn send_boxed<'a>(&'a self, request: &'a mut Request) -> BoxFuture<'a, Outcome>;
}

impl<W: Service> AnyService for W {
    fn send_boxed<'a>(&'a self, request: &'a mut Request) -> BoxFuture<'a, Outcome> {
        self.send(request).boxed()
    }
}

impl Transport {
    /// A transport that goes this way. Each request costs one allocation here, however many rules
    /// the way consists of.
    pub(crate) fn new(way: impl Service) -> Self {
        Self(Arc::new(way))
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

/// For kube's client.
impl TowerService<KubeRequest> for Transport {
    type Response = Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Outcome>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: KubeRequest) -> Self::Future {
        let way = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            way.send(&mut Request::from_parts(parts, body)).await
        })
    }
}

/// The transport that `config` describes. To be called inside a tokio runtime.
///
/// # Errors
/// When certificates, keys or credentials cannot be read.
pub fn transport(config: &kube::Config) -> Result<Transport, ConfigError> {
    let connector = connector(config);
    let Some(url) = &config.proxy_url else { return over(connector, config) };
    let credentials = proxy::credentials(url);
    if url.scheme_str().is_some_and(|scheme| scheme.starts_with("socks5")) {
        let socks = SocksV5::new(url.clone(), connector);
        return match credentials {
            Some((name, password)) => over(socks.with_auth(name, password), config),
            None => over(socks, config),
        };
    }
    // As in Go, the way to an https proxy is checked like the one to the server.
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let tunnel = Tunnel::new(url.clone(), connector);
    let tunnel = match credentials.and_then(basic) {
        Some(authorization) => tunnel.with_auth(authorization),
        None => tunnel,
    };
    over(tunnel.map_request(with_port), config)
}

/// What connects to the server or the proxy.
fn connector(config: &kube::Config) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(PROBES_EVERY));
    connector.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    connector
}

/// `Proxy-Authorization`, marked so that nobody prints it.
fn basic((name, password): (String, String)) -> Option<HeaderValue> {
    let encoded = STANDARD.encode(format!("{name}:{password}"));
    let mut value = HeaderValue::try_from(format!("Basic {encoded}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The server with its port: a tunnel takes 443 for granted.
fn with_port(server: Uri) -> Uri {
    let plain = server.scheme_str() == Some("http") && server.port().is_none();
    let host = server.host().filter(|_| plain);
    host.and_then(|host| format!("http://{host}:80/").parse().ok()).unwrap_or(server)
}

/// The transport whose connections `connector` makes.
fn over<C>(connector: C, config: &kube::Config) -> Result<Transport, ConfigError>
where
    C: TowerService<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let token = file_token(&config.auth_info)?;
    let library = if token.is_some() { None } else { config.auth_layer()? };
    let mut clients = Client::builder(TokioExecutor::new());
    clients.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).http1_max_buf_size(READ_AHEAD);
    let usual = clients.build::<_, Body>(connector.clone());
    let over_new = clients.pool_max_idle_per_host(0).build::<_, Body>(connector);
    let client = Clients { usual, over_new };
    let service = ServiceBuilder::new()
        .map_err(credentials::told)
        .option_layer(library)
        .layer(config.extra_headers_layer()?)
        .map_request(naming(host(&config.cluster_url)))
        .map_err(BoxError::from)
        .service(client);
    Ok(Transport::new(layer(token, Wire { server: config.cluster_url.clone(), service })))
}

/// Marks a request that takes no connection that was there before: that one may be dead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverNew;

/// One client that keeps connections for the next request, and one that makes one for each.
#[derive(Clone)]
struct Clients<C> {
    usual: Client<C, Body>,
    over_new: Client<C, Body>,
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
        match request.extensions().get::<OverNew>() {
            Some(OverNew) => self.over_new.request(request),
            None => self.usual.request(request),
        }
    }
}

/// What a request to `server` says in `Host`.
fn host(server: &Uri) -> Option<HeaderValue> {
    let usual = if server.scheme_str() == Some("https") { 443 } else { 80 };
    let host = server.host()?;
    let host = match server.port_u16().filter(|port| *port != usual) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    HeaderValue::try_from(host).ok()
}

/// Puts `host` on requests, as hyper would, but without making the text for each anew.
fn naming(host: Option<HeaderValue>) -> impl Fn(KubeRequest) -> KubeRequest + Clone {
    move |mut request| {
        if let Some(host) = &host {
            request.headers_mut().entry(HOST).or_insert_with(|| host.clone());
        }
        request
    }
}

/// The token of a file, where a file is what these credentials come down to; all others are left to
/// the library. As in client-go a file's token wins over one that stands beside it.
fn file_token(credentials: &AuthInfo) -> Result<Option<FileToken>, ConfigError> {
    let others = credentials.auth_provider.is_some() || credentials.username.is_some();
    let path = credentials.token_file.as_ref().filter(|path| !path.is_empty() && !others);
    let open = |path: &String| {
        FileToken::open(path.into())
            .map_err(|error| ConfigError::Token { path: path.into(), source: error })
    };
    path.map(open).transpose()
}

/// Makes a transport of any service that answers requests: the tests' own API servers.
pub fn boxed<S, B>(service: S) -> Transport
where
    S: TowerService<KubeRequest, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Transport::new(Wire { server: Uri::default(), service })
}

/// The end of the way.
struct Wire<S> {
    /// The URL below which the server's paths are.
    server: Uri,
    service: S,
}

impl<S, B> Service for Wire<S>
where
    S: TowerService<KubeRequest, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async fn send(&self, request: &mut Request) -> Outcome {
        let request = leaving(request, &self.server)?;
        let response = self.service.clone().oneshot(request).await.map_err(Into::into)?;
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}

/// The request as it leaves for `server`.
fn leaving(request: &Request, server: &Uri) -> Result<KubeRequest, http::Error> {
    let mut leaving = KubeRequest::new(request.body().clone().into());
    leaving.method_mut().clone_from(request.method());
    *leaving.uri_mut() = below(server, request.uri())?;
    let lines = request.headers().iter().map(|(name, value)| (name.clone(), value.clone()));
    leaving.headers_mut().reserve(HEADER_LINES);
    leaving.headers_mut().extend(lines);
    if let Some(over_new) = request.extensions().get::<OverNew>() {
        leaving.extensions_mut().insert(*over_new);
    }
    Ok(leaving)
}

/// The URL of what is at `path` below `server`.
fn below(server: &Uri, path: &Uri) -> Result<Uri, http::Error> {
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
pub(crate) enum Unread {
    /// It is longer than the reader wants.
    TooLong,
    /// It broke off.
    Broken(BoxError),
}

/// Reads a body of at most `limit` bytes. What comes in one piece is not copied.
pub(crate) fn read(
    body: ResponseBody,
    limit: usize,
) -> impl Future<Output = Result<Bytes, Unread>> + Send {
    Limited::new(body, limit).collect().map(|whole| match whole {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Unread::TooLong),
        Err(error) => Err(Unread::Broken(error)),
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

    /// Takes one request, answers it and gives what came.
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

    /// Takes requests on one connection, and answers with these status lines; gives the tokens shown.
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
    async fn a_token_that_was_exchanged_in_its_file_is_shown_once_the_old_one_is_refused() {
        let file = std::env::temp_dir().join(format!("token-{}", std::process::id()));
        std::fs::write(&file, "first\n").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut config = kube::Config::new(url.parse().unwrap());
        config.auth_info.token_file = Some(file.to_string_lossy().into_owned());
        // As the pod of a cluster has it: what stands beside the file is as old as the start.
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

    /// Takes connections, and answers so many requests on each; then it is silent there.
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

    /// A plain server on a free port, and the transport to it.
    async fn plain() -> (TcpListener, Transport) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (listener, transport(&kube::Config::new(url.parse().unwrap())).unwrap())
    }

    /// What comes of a request within a moment, its answer read to the end; `None`: no answer.
    async fn ask(service: &Transport, request: Request) -> Option<http::StatusCode> {
        let answered = async {
            let response = send(service, request).await.unwrap();
            let status = response.status();
            read(response.into_body(), 10).await.unwrap();
            status
        };
        tokio::time::timeout(Duration::from_millis(500), answered).await.ok()
    }

    const FINE: Option<http::StatusCode> = Some(http::StatusCode::OK);

    #[tokio::test]
    async fn a_request_that_is_given_up_takes_its_connection_with_it() {
        let (listener, service) = plain().await;
        let version = || request(http::Method::GET, "/version");
        let asking = async {
            assert_eq!(ask(&service, version()).await, FINE);
            assert_eq!(ask(&service, version()).await, None, "the first connection is dead");
            assert_eq!(ask(&service, version()).await, FINE, "this is another one");
        };
        tokio::select! {
            biased;
            () = asking => {}
            () = serve_some(listener, &[1, 1]) => {}
        }
    }

    #[tokio::test]
    async fn a_request_over_a_new_connection_uses_none_that_is_there() {
        let (listener, service) = plain().await;
        let mut over_new = request(http::Method::GET, "/version");
        over_new.extensions_mut().insert(OverNew);
        let asking = async {
            assert_eq!(ask(&service, request(http::Method::GET, "/version")).await, FINE);
            assert_eq!(ask(&service, over_new).await, FINE, "although one is idle");
        };
        tokio::select! {
            biased;
            () = asking => {}
            () = serve_some(listener, &[1, 1]) => {}
        }
    }

    /// A proxy that lets one tunnel through; gives the request for it.
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
    async fn a_proxy_is_asked_for_a_tunnel_with_its_credentials_and_nothing_else() {
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
    async fn a_proxy_that_refuses_is_named_without_its_password() {
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
        let told = "no answer from the API server: client error (Connect): tunnel error: proxy authorization required";
        assert_eq!(error.to_string(), told);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_as_such() {
        let config = kube::Config::new(Uri::from_static("http://127.0.0.1:1"));
        let service = transport(&config).unwrap();
        let outcome = send(&service, request(http::Method::GET, "/version")).await;
        let told = ApiError::from_transport(outcome.unwrap_err()).to_string();
        assert!(told.contains("Connection refused"), "{told}");
    }

    #[test]
    fn a_host_is_named_with_its_port_unless_that_is_the_usual_one() {
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
    fn tunnels_to_plain_servers_name_port_80() {
        for (server, named) in [
            ("http://a/x", "http://a:80/"),
            ("http://a:81/x", "http://a:81/x"),
            ("https://a/", "https://a/"),
        ] {
            assert_eq!(with_port(server.parse().unwrap()).to_string(), named);
        }
    }

    #[tokio::test]
    async fn credentials_that_cannot_be_read_are_told_before_the_first_request() {
        let mut config = kube::Config::new(http::Uri::from_static("https://a"));
        config.auth_info.token_file = Some("/nonexistent/token".to_owned());
        let error = transport(&config).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/token"), "{error}");
    }
}
