//! The in-memory API server over HTTPS, with the directory that clients find it by. It answers when [`Served::start`]
//! returns, and all is closed when [`Served`] is dropped.

mod audit_file;
pub mod layout;
pub mod manifests;
pub(crate) mod tls;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;

pub use self::audit_file::AuditFile;
use self::{
    layout::{CLIENTS, Client, Layout},
    tls::Identity,
};
use super::{
    ApiServer, Body, Disconnected, Options, WallClock,
    access::{
        auth::{self, Tokens},
        bootstrap,
        rbac::Rbac,
    },
    hooks::Hooks,
    refuse,
};
use crate::ports::free_port;

/// How many changes of each kind watches can go back: a served API may run for days, and clients
/// that fall further behind get an error, as from a real server after some minutes.
const HISTORY: usize = 20_000;

/// How many connections may wait to be taken.
const BACKLOG: u32 = 1024;

/// How long to wait after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// For how long a process that is being started may hold what this one has open.
const STARTING: Duration = Duration::from_secs(30);

/// How a server is to be served.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the authority and the kubeconfigs are written.
    pub dir: PathBuf,
    /// Port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
    /// File that gets a line for every request.
    pub audit: Option<PathBuf>,
}

impl Settings {
    /// A free port, and no audit log.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), port: 0, audit: None }
    }
}

/// A served API server; it ends when dropped.
#[derive(Debug)]
pub struct Served {
    url: String,
    layout: Layout,
    door: Arc<Door>,
    tls: Arc<ServerConfig>,
    accepting: JoinSet<()>,
    /// Keeps the port while nobody listens on it.
    away: Option<TcpSocket>,
}

impl Served {
    /// Serves a fresh API server on 127.0.0.1.
    pub async fn start(settings: Settings) -> Result<Self, crate::Error> {
        let Settings { dir, port, audit } = settings;
        let identity = Identity::generate()?;
        let (listener, url) = listen(port).await?;
        let layout = Layout::new(dir);
        let dir = layout.root().display();
        layout
            .write(&url, &identity.authority_pem)
            .map_err(|error| format!("can't write {dir}: {error}"))?;
        let audit = audit.map(|path| AuditFile::open(&path)).transpose()?.map(Arc::new);
        let door = Arc::new(Door::new(audit));
        let client = door.api.client(auth::admin());
        manifests::apply(&client, &bootstrap()?).await?;
        manifests::apply(&client, &manifests::embedded()?).await?;
        let tls = identity.server;
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&tls).into(), Arc::clone(&door)));
        Ok(Self { url, layout, door, tls, accepting, away: None })
    }

    /// Where it is served.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The directory clients find it by.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The server itself, for faults and direct looks.
    pub fn api(&self) -> &ApiServer {
        &self.door.api
    }

    /// Closes all connections and refuses new ones, as a server does that is restarted. Its objects and
    /// their history stay.
    pub async fn go_away(&mut self) -> io::Result<()> {
        self.accepting.shutdown().await;
        let port = self.url.rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.ok_or(io::ErrorKind::InvalidInput)?;
        let socket = TcpSocket::new_v4()?;
        // Connections of before are not quite gone yet.
        socket.set_reuseaddr(true)?;
        let began = Instant::now();
        // A process that is being started, by another test perhaps, holds the listener until it runs its program.
        while let Err(error) = socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
            if error.kind() != io::ErrorKind::AddrInUse || began.elapsed() > STARTING {
                return Err(error);
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
        self.away = Some(socket);
        Ok(())
    }

    /// Serves again after [`Self::go_away`].
    pub fn come_back(&mut self) -> io::Result<()> {
        let Some(socket) = self.away.take() else { return Ok(()) };
        let listener = socket.listen(BACKLOG)?;
        self.accepting.spawn(accept(
            listener,
            Arc::clone(&self.tls).into(),
            Arc::clone(&self.door),
        ));
        Ok(())
    }

    /// Takes a certificate of another authority, which counts for connections after the next
    /// [`Self::come_back`], and writes the authority into the layout; the kubeconfigs keep the old one.
    pub fn rotate_authority(&mut self) -> Result<(), crate::Error> {
        let identity = Identity::generate()?;
        self.layout.write_authority(&identity.authority_pem)?;
        self.tls = identity.server;
        Ok(())
    }

    /// Knows the bearer of `old` by `new` from now on, and by nothing else.
    pub fn rotate_token(&self, old: &Client, new: &str) {
        self.door.tokens.add(new, old.user());
        self.door.tokens.revoke(old.token);
    }

    /// Closes the port and all connections, and waits until they are closed.
    pub async fn stop(mut self) {
        self.accepting.shutdown().await;
    }
}

// === Door ===

/// Why a connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
enum Closed {
    /// The client did not send its request to the end.
    #[error(transparent)]
    Incomplete(#[from] hyper::Error),
    /// A fault says so.
    #[error(transparent)]
    Cut(#[from] Disconnected),
}

/// Where requests come in: finds out whose they are.
#[derive(Debug)]
struct Door {
    api: ApiServer,
    tokens: Arc<Tokens>,
}

impl Door {
    /// An API server with every hook in place, and the tokens of [`CLIENTS`].
    fn new(audit: Option<Arc<AuditFile>>) -> Self {
        let tokens = Arc::new(tokens());
        let hooks = Hooks {
            authorizer: Some(Arc::new(Rbac::default())),
            tokens: Some(Arc::clone(&tokens)),
            audit,
        };
        let seed = u64::try_from(wall_clock()().as_nanosecond()).unwrap_or_default();
        let options =
            Options { clock: wall_clock(), seed, history: HISTORY, hooks, ..Options::default() };
        let api = ApiServer::new(options);
        Self { api, tokens }
    }

    /// Answers one request.
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Closed> {
        let (parts, body) = request.into_parts();
        let body: Bytes = body.collect().await?.to_bytes();
        match self.tokens.user(&parts.headers) {
            Ok(user) => Ok(self.api.answer(&user, Request::from_parts(parts, body)).await?),
            Err(status) => Ok(refuse(&status)),
        }
    }
}

/// The machine's own time: clients outside compare it with theirs.
#[allow(clippy::disallowed_methods)] // a served API is never part of a simulation
fn wall_clock() -> WallClock {
    Arc::new(jiff::Timestamp::now)
}

fn tokens() -> Tokens {
    let tokens = Tokens::default();
    for client in CLIENTS {
        tokens.add(client.token, client.user());
    }
    tokens
}

// === Connections ===

async fn listen(port: u16) -> Result<(TcpListener, String), crate::Error> {
    // While the server is away, no connection of a client gets such a port by chance.
    let port = if port == 0 { free_port()? } else { port };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let failed = |error| format!("can't listen on {address}: {error} (port 0 takes a free one)");
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    Ok((listener, format!("https://127.0.0.1:{port}")))
}

/// Takes connections for ever; those it took end with it.
async fn accept(listener: TcpListener, tls: TlsAcceptor, door: Arc<Door>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, tls.clone(), Arc::clone(&door)));
                }
                // Out of file descriptors, for one: some may be free soon.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection to its end. What goes wrong on it is the client's to notice.
async fn connection(stream: TcpStream, tls: TlsAcceptor, door: Arc<Door>) {
    // Only a matter of speed: small answers should not wait for more to fill a packet.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(move |request| {
        let door = Arc::clone(&door);
        async move { door.answer(request).await }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
