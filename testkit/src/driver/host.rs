//! Where a driver is reached: a unix socket, or in-memory streams for simulated time. [`Host::stop`] cuts every
//! connection and running call at once, as a killed driver does.
//!
//! Clients built on gRPC's C core (Python, C++) name the socket's path as their `:authority`, which h2 refuses with
//! `PROTOCOL_ERROR`: they have to set the channel argument `grpc.default_authority=localhost`, which grpc-go sends.

use std::{
    convert::Infallible,
    fmt, fs,
    future::Future,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream},
    net::UnixListener,
    task::JoinSet,
};
use tonic::service::Routes;
use tower::Service as _;

use super::{Backend, Journal, service::routes};

/// How much an in-memory stream holds in each direction before its writer waits.
const STREAM_BUFFER: usize = 64 * 1024;

/// How long a listener rests after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A driver and the places it can be reached at. All tasks die with it.
pub struct Host<B> {
    backend: Arc<B>,
    journal: Arc<Journal>,
    routes: Routes,
    state: Mutex<State>,
}

/// Whether callers get through.
enum State {
    /// New streams are served; the tasks are the listeners, connections and calls.
    Serving { tasks: Tasks, sockets: Vec<PathBuf> },
    /// Nobody answers.
    Stopped,
}

impl<B: fmt::Debug> fmt::Debug for Host<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("backend", &self.backend).finish_non_exhaustive()
    }
}

impl<B: Backend> Host<B> {
    /// A driver that serves [`Host::connect`] from the start and sockets after [`Host::listen`].
    pub fn new(backend: B) -> Self {
        let (backend, journal) = (Arc::new(backend), Arc::new(Journal::default()));
        let routes = routes(Arc::clone(&backend), Arc::clone(&journal)).prepare();
        Self { backend, journal, routes, state: Mutex::new(State::serving()) }
    }

    /// What answers the calls.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Every call so far; it outlives [`Host::stop`].
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Serves in-memory streams again after [`Host::stop`].
    pub fn start(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Stopped) {
            *state = State::serving();
        }
    }

    /// Serves on a unix socket, in place of whatever lies at `path`.
    pub fn listen(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        self.start();
        if let State::Serving { tasks, sockets } = &mut *self.state.lock() {
            sockets.push(path.to_owned());
            tasks.spawn(accept(listener, self.routes.clone(), tasks.clone()));
        }
        Ok(())
    }

    /// A new in-memory connection; refused while the driver is stopped.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let State::Serving { tasks, .. } = &*self.state.lock() else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let (ours, theirs) = tokio::io::duplex(STREAM_BUFFER);
        tasks.spawn(serve(ours, self.routes.clone(), tasks.clone()));
        Ok(theirs)
    }

    /// Cuts all connections and running calls at once and takes the sockets away.
    pub fn stop(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Stopped);
        if let State::Serving { tasks, sockets } = before {
            tasks.abort();
            for socket in sockets {
                // A socket that somebody else removed is as gone as we want it.
                let _ = fs::remove_file(socket);
            }
        }
    }
}

impl<B> Drop for Host<B> {
    fn drop(&mut self) {
        if let State::Serving { tasks, .. } = &*self.state.lock() {
            tasks.abort();
        }
    }
}

impl State {
    fn serving() -> Self {
        Self::Serving { tasks: Tasks::default(), sockets: Vec::new() }
    }
}

async fn accept(listener: UnixListener, routes: Routes, tasks: Tasks) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => tasks.spawn(serve(stream, routes.clone(), tasks.clone())),
            // One caller is lost, or too many files are open: the next may get through.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    routes: Routes,
    tasks: Tasks,
) {
    let service = service_fn(move |request| answer(routes.clone(), request));
    let connection = http2::Builder::new(tasks).serve_connection(TokioIo::new(stream), service);
    // A broken connection is the caller's to notice.
    let _ = connection.await;
}

async fn answer(
    mut routes: Routes,
    request: Request<Incoming>,
) -> Result<Response<tonic::body::Body>, Infallible> {
    routes.call(request).await
}

// === Tasks ===

/// The tasks of one time of serving, which end together.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn abort(&self) {
        self.0.lock().abort_all();
    }
}

/// hyper starts a task for every call.
impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}
