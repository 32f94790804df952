//! Connects to the API server.
//!
//! A configuration's connections use TLS with the cluster's authority, reread rotated tokens and
//! authorities (kube-rs does), go through the configured proxy (CONNECT tunnel or SOCKS), connect within
//! 30 s, and notice within 35 s that a peer is gone (through a tunnel: that the proxy is gone). No request
//! is sent twice; only layers do that. A request that was not written to an idle connection was not sent.
//! Simulations replace the connections by their own API server.

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures::future::select_ok;
use http::Uri;
use http_body_util::BodyExt as _;
use hyper::rt::{Read, Write};
use hyper_util::{
    client::{
        legacy::{
            Client,
            connect::{
                Connection, HttpConnector,
                proxy::{SocksV5, Tunnel},
            },
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::{Body, ConfigExt as _};
use tokio::time::sleep;
use tower::{
    BoxError, Service, ServiceBuilder, ServiceExt as _, service_fn, util::BoxCloneSyncService,
};

use super::{config::ConfigError, credentials};
use crate::kube::layers::{ApiService, Request};

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

/// After how long another connection is begun beside one for a request about the Lease that is not up yet, TLS
/// included. A server that is gone never takes it, while load balancers name it for many seconds; another one may
/// take the next connection before the term ends.
const FRESH_CONNECT: Duration = Duration::from_millis(1500);

/// How many connections are begun for one request about the Lease; the first one that is up serves it.
const FRESH_CONNECTIONS: u32 = 4;

/// The size of a connection's read buffer, in bytes; the head of an answer must fit. By default it
/// grows to 400 KiB and never shrinks, which for watches means for ever.
const READ_BUFFER: usize = 64 << 10;

/// The connections to the API server. Clones share them.
#[derive(Clone)]
pub struct Connections {
    /// Connections that serve one request after the other.
    pub(crate) kept: ApiService,
    /// A new connection for each request: for the Lease, which must not wait on a dead one.
    pub(crate) fresh: ApiService,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connections")
    }
}

impl Connections {
    /// Connections as `config` says. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If certificates, keys or credentials cannot be read.
    pub fn open(config: &kube::Config) -> Result<Self, ConfigError> {
        let connector = connector(config);
        let Some(proxy) = proxy(config) else {
            return Self::through(connector, &without_needless_authorities(config));
        };
        if proxy.uri().scheme_str().is_some_and(|scheme| scheme.starts_with("socks5")) {
            let socks = SocksV5::new(proxy.uri().clone(), connector);
            return match proxy.raw_auth() {
                Some((name, password)) => {
                    Self::through(socks.with_auth(name.to_owned(), password.to_owned()), config)
                }
                None => Self::through(socks, config),
            };
        }
        // An https proxy is verified with the same authority as the server.
        let connector = config.rustls_https_connector_with_connector(connector)?;
        let tunnel = Tunnel::new(proxy.uri().clone(), connector);
        let tunnel = match proxy.basic_auth() {
            Some(authorization) => tunnel.with_auth(authorization.clone()),
            None => tunnel,
        };
        Self::through(tunnel.map_request(with_port), config)
    }

    /// Connections that `connector` makes.
    fn through<C>(connector: C, config: &kube::Config) -> Result<Self, ConfigError>
    where
        C: Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: Connection + Read + Write + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError>,
    {
        let connector = config.rustls_https_connector_with_connector(connector)?;
        let mut clients = Client::builder(TokioExecutor::new());
        clients
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(READ_BUFFER);
        let kept = clients.build::<_, Body>(connector.clone());
        let connector = service_fn(move |uri| connect_soon(connector.clone(), uri));
        let connector = BoxCloneSyncService::new(connector);
        let fresh = clients.pool_max_idle_per_host(0).build::<_, Body>(connector);
        // One service has the credentials: a plugin that makes them may take seconds.
        let (kept, fresh) = (erased(kept), erased(fresh));
        let either = service_fn(move |request: Request| match request.extensions().get() {
            Some(Fresh) => fresh.clone().oneshot(request),
            None => kept.clone().oneshot(request),
        });
        let kept = with_credentials(erased(either), config)?;
        let fresh = erased(kept.clone().map_request(|mut request: Request| {
            request.extensions_mut().insert(Fresh);
            request
        }));
        Ok(Self { kept, fresh })
    }

    /// kube-rs's client over these connections, without layers: for requests that upgrade their connection.
    pub fn kube(&self) -> kube::Client {
        kube::Client::new(self.kept.clone(), "default")
    }

    /// Connections to `service`, such as the API servers of tests.
    pub fn to<S, B>(service: S) -> Self
    where
        S: Service<Request, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let service = erased(service);
        Self { kept: service.clone(), fresh: service }
    }
}

/// An extension of a request that needs a new connection.
#[derive(Debug, Clone, Copy)]
struct Fresh;

/// Connects to `uri`; begins again every [`FRESH_CONNECT`] until one of [`FRESH_CONNECTIONS`] connections is up.
async fn connect_soon<C>(connector: C, uri: Uri) -> Result<C::Response, C::Error>
where
    C: Service<Uri> + Clone,
{
    let connect = |number| {
        let (connector, uri) = (connector.clone(), uri.clone());
        Box::pin(async move {
            sleep(number * FRESH_CONNECT).await;
            connector.oneshot(uri).await
        })
    };
    let (connection, _) = select_ok((0..FRESH_CONNECTIONS).map(connect)).await?;
    Ok(connection)
}

/// A service that puts the server's address, the credentials and the User-Agent on each request.
fn with_credentials(
    connections: ApiService,
    config: &kube::Config,
) -> Result<ApiService, ConfigError> {
    let service = ServiceBuilder::new()
        .map_err(credentials::redact)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(connections);
    Ok(erased(service))
}

/// The service without its type.
fn erased<S, B>(service: S) -> ApiService
where
    S: Service<Request, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let boxed =
        |response: http::Response<B>| response.map(|body| body.map_err(Into::into).boxed_unsync());
    ApiService::new(service.map_response(boxed).map_err(Into::into))
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

/// The configuration with no authority where none is needed: kube-rs would read the system's, and fail in an image
/// that has none.
fn without_needless_authorities(config: &kube::Config) -> kube::Config {
    let mut config = config.clone();
    let is_verified =
        config.cluster_url.scheme_str() == Some("https") && !config.accept_invalid_certs;
    if !is_verified {
        config.root_cert.get_or_insert_default();
    }
    config
}

/// The proxy on the way to the server: the kubeconfig's, which `NO_PROXY` does not concern, otherwise that of
/// the environment (`HTTPS_PROXY`, `NO_PROXY` and others, by curl's rules).
fn proxy(config: &kube::Config) -> Option<Intercept> {
    let matcher = match &config.proxy_url {
        Some(url) => Matcher::builder().all(url.to_string()).build(),
        None => Matcher::from_env(),
    };
    matcher.intercept(&config.cluster_url)
}

/// Adds port 80 to the URL of a plain server, because a tunnel's default is 443.
fn with_port(server: Uri) -> Uri {
    let plain = server.scheme_str() == Some("http") && server.port().is_none();
    let host = server.host().filter(|_| plain);
    host.and_then(|host| format!("http://{host}:80/").parse().ok()).unwrap_or(server)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::kube::{
        connection::config::{ConfigSource, load},
        error::ApiError,
        testing::{read, request, send},
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
    async fn requests_reach_the_server_below_its_path_with_token_and_user_agent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let master = Some(format!("http://{}/prefix/", listener.local_addr().unwrap()));
        let mut config = load(&ConfigSource { master, ..ConfigSource::default() }).await.unwrap();
        config.auth_info.token = Some("secret".to_owned().into());
        let service = Connections::open(&config).unwrap().kept;
        let asking = send(&service, request(http::Method::GET, "/api/v1/nodes?limit=1"));
        let (came, response) = tokio::join!(serve_once(listener), asking);
        let came = came.to_ascii_lowercase();
        assert!(came.starts_with("get /prefix/api/v1/nodes?limit=1 http/1.1\r\n"), "{came}");
        assert!(came.contains("\r\nauthorization: bearer secret\r\n"), "{came}");
        assert!(
            came.contains(&format!("\r\nhost: {}\r\n", config.cluster_url.authority().unwrap())),
            "{came}"
        );
        let agent = format!("\r\nuser-agent: csi-provisioner/v{}", env!("CARGO_PKG_VERSION"));
        assert!(came.contains(&agent) && came.matches("user-agent").count() == 1, "{came}");
        assert_eq!(read(response.unwrap()).await.unwrap(), "fine");
    }
    /// The server answers one request on each connection: on one that is used again there is no answer.
    #[tokio::test]
    async fn each_request_for_the_lease_has_a_connection_of_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let config = kube::Config::new(url.parse().unwrap());
        let Connections { kept, fresh } = Connections::open(&config).unwrap();
        let mut held = Vec::new();
        for (service, what) in [(&kept, "leaves one idle"), (&fresh, "first"), (&fresh, "second")] {
            let asking = send(service, request(http::Method::GET, "/version"));
            let answering = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                head(&mut stream).await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
                stream
            };
            let both = futures::future::join(asking, answering);
            let answered = tokio::time::timeout(Duration::from_secs(60), both).await;
            let (response, stream) = answered.expect(what);
            read(response.unwrap()).await.unwrap();
            held.push(stream);
        }
    }

    /// How long it takes to connect where each connection takes so long, or is refused, and the outcome.
    async fn connects(times: &'static [Result<u64, u64>]) -> (Duration, bool) {
        let begun = Arc::new(AtomicUsize::new(0));
        let connector = service_fn(move |_: Uri| {
            let time = times[begun.fetch_add(1, Ordering::Relaxed)];
            async move {
                let (Ok(took) | Err(took)) = time;
                sleep(Duration::from_millis(took)).await;
                time
            }
        });
        let start = tokio::time::Instant::now();
        let outcome = connect_soon(connector, Uri::from_static("https://api.example")).await;
        (start.elapsed(), outcome.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_connection_that_is_up_serves_the_lease() {
        const NEVER: u64 = 1_000_000;
        for (case, times, took, is_up) in [
            ("at once", &[Ok(3)][..], 3, true),
            ("slowly, with a second one begun", &[Ok(2000), Ok(2000)], 2000, true),
            ("the server is gone, another takes the next", &[Ok(NEVER), Ok(5)], 1505, true),
            ("refused, and then not", &[Err(1), Ok(5)], 1505, true),
            ("refused", &[Err(1), Err(1), Err(1), Err(1)], 4501, false),
        ] {
            assert_eq!(connects(times).await, (Duration::from_millis(took), is_up), "{case}");
        }
    }

    #[test]
    fn no_authority_is_read_where_none_is_needed() {
        for (url, accept_invalid_certs, is_needed) in [
            ("http://api.example", false, false),
            ("https://api.example", true, false),
            ("https://api.example", false, true),
        ] {
            let mut config = kube::Config::new(url.parse().unwrap());
            config.accept_invalid_certs = accept_invalid_certs;
            let config = without_needless_authorities(&config);
            assert_eq!(config.root_cert.is_none(), is_needed, "{url} {accept_invalid_certs}");
        }
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
        let service = Connections::open(&config).unwrap().kept;
        let asking = send(&service, request(http::Method::GET, "/version"));
        let (_client, outcome) = tokio::join!(refusing, asking);
        let error = ApiError::from_transport(outcome.unwrap_err());
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
        let expected = "no answer from the API server: client error (Connect): tunnel error: proxy authorization required";
        assert_eq!(error.to_string(), expected);
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
}
