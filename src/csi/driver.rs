//! The driver as the rest of the program uses it.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tonic::Code;

use super::{
    Connector,
    answer::AnswerMemory,
    calls::{Calls, Migrates},
    identity::{self, Capabilities, controller},
    last_calls::LastCalls,
    link::{Dialer, Link, LogThrottle},
    proto::{
        CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
        GetCapacityRequest, GetCapacityResponse,
    },
    status::CallError,
};
use crate::{
    metrics::{Metrics, UNKNOWN_DRIVER},
    runtime::{Gate, Tasks},
};

/// How long to wait for the driver's socket at start.
const SOCKET_WAIT: Duration = Duration::from_secs(30);

/// The interval between probes of a driver that is not ready.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The full method name of `CreateVolume`.
pub const CREATE_VOLUME: &str = "/csi.v1.Controller/CreateVolume";
/// The full method name of `DeleteVolume`.
pub const DELETE_VOLUME: &str = "/csi.v1.Controller/DeleteVolume";

/// The full method name of `GetCapacity`.
const GET_CAPACITY: &str = "/csi.v1.Controller/GetCapacity";

/// How to connect to and call the driver.
#[derive(Clone)]
pub struct DriverSettings {
    /// The driver's socket: `--csi-address`.
    pub socket: PathBuf,
    /// The deadline of each call: `--timeout`.
    pub timeout: Duration,
    /// Whether to call `NodeGetInfo`: `--node-deployment`.
    pub node_info_required: bool,
    /// Runs the connection's own tasks.
    pub tasks: Tasks,
    /// Which drivers' calls are counted with the label `migrated`.
    pub migrates: Migrates,
}

/// The driver could not be used at start. Texts and exit codes are external-provisioner's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No socket appeared in time.
    #[error("context deadline exceeded")]
    NoSocket,
    /// Probe failed with an error that is not transient.
    #[error("CSI driver probe failed: {0}")]
    Probe(#[source] CallError),
    /// `GetPluginInfo` failed.
    #[error("Error getting CSI driver name: {0}")]
    Name(#[source] CallError),
    /// The driver's name is empty.
    #[error("Error getting CSI driver name: driver name is empty")]
    EmptyName,
    /// `GetPluginCapabilities` or `ControllerGetCapabilities` failed.
    #[error("Error getting CSI driver capabilities: {0}")]
    Capabilities(#[source] CallError),
    /// `NodeGetInfo` failed: the driver has no node service, or does not know its node.
    #[error("Failed to get node info from CSI driver: {0}")]
    NodeInfo(#[source] CallError),
}

impl ConnectError {
    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoSocket | Self::Probe(_) => 1,
            Self::Name(_) | Self::EmptyName | Self::Capabilities(_) | Self::NodeInfo(_) => 255,
        }
    }
}

/// After a lost connection another driver answered, or the same one with other capabilities or
/// another topology, on which decisions rely; or none answered for too long. The process must end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectionEnded(String);

/// A driver that was ready. Clones are the same driver.
#[derive(Clone)]
pub struct Driver(Arc<Shared>);

/// The connection to the driver at one moment, or the lack of one. It is not renewed.
#[derive(Debug, Clone)]
pub struct Connection(Result<Link, CallError>);

impl Connection {
    /// Whether a call could be sent over it.
    pub fn is_up(&self) -> bool {
        self.0.as_ref().is_ok_and(|link| !link.is_lost())
    }
}

struct Shared {
    identity: Identity,
    calls: Calls,
    dialer: Dialer,
    /// Whether `NodeGetInfo` is called.
    node_info_required: bool,
    /// The link that calls are sent over. While there is none they fail at once, and
    /// [`Driver::watch`] reconnects.
    link: Mutex<Option<Link>>,
}

/// What identifies a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    name: String,
    capabilities: Capabilities,
    /// The topology segment of the driver's node; `None` unless `NodeGetInfo` is called.
    node_topology: Option<BTreeMap<String, String>>,
}

impl Driver {
    /// Waits for the driver's socket and until the driver is ready, and reads its identity.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(
        settings: DriverSettings,
        connector: Connector,
        gate: Gate,
        metrics: &Metrics,
    ) -> Result<Self, ConnectError> {
        let DriverSettings { socket, timeout: call_timeout, node_info_required, tasks, migrates } =
            settings;
        let dialer = Dialer { socket, connector, tasks };
        let calls = Calls {
            timeout: call_timeout,
            gate,
            metrics: metrics.csi.clone(),
            driver: UNKNOWN_DRIVER.into(),
            migrates,
            memory: AnswerMemory::default(),
            last: LastCalls::default(),
        };
        let link = timeout(SOCKET_WAIT, dialer.dial_until_up())
            .await
            .map_err(|_| ConnectError::NoSocket)?;
        let (link, identity) = identify(&dialer, &calls, link, node_info_required).await?;
        tracing::info!(driver = identity.name, "Detected CSI driver");
        let calls = calls.for_driver(&identity.name);
        let link = Mutex::new(Some(link));
        Ok(Self(Arc::new(Shared { identity, calls, dialer, node_info_required, link })))
    }

    /// The driver's name.
    pub fn name(&self) -> &str {
        &self.0.identity.name
    }

    /// The driver's capabilities.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.identity.capabilities
    }

    /// The topology segment of the driver's node, as read at start; `None` unless
    /// [`DriverSettings::node_info_required`].
    pub fn node_topology(&self) -> Option<&BTreeMap<String, String>> {
        self.0.identity.node_topology.as_ref()
    }

    /// The deadline of a call.
    pub fn timeout(&self) -> Duration {
        self.0.calls.timeout
    }

    /// Counts a call of this method that cannot be sent because a string in it is not UTF-8, and
    /// returns grpc-go's error for it.
    pub fn record_unsendable(&self, method: &'static str) -> CallError {
        self.0.calls.record_unsendable(method)
    }

    /// How the last calls ended.
    pub fn last_calls(&self) -> &LastCalls {
        &self.0.calls.last
    }

    /// The current connection.
    pub fn connection(&self) -> Connection {
        Connection(self.link())
    }

    /// Calls `CreateVolume` over `connection`. `migrated`: for a volume that becomes an in-tree
    /// volume. Sent only while the gate is open.
    ///
    /// # Errors
    /// The driver's status, or a local error; see [`CallError::is_final`] and
    /// [`CallError::is_unsent`].
    pub async fn create_volume(
        &self,
        connection: Connection,
        request: CreateVolumeRequest,
        migrated: bool,
    ) -> Result<CreateVolumeResponse, CallError> {
        let calls = self.0.calls.for_migrated(migrated);
        let create = |wire, request| async { controller(wire).create_volume(request).await };
        calls.send(CREATE_VOLUME, connection.0, Some(calls.gate.clone()), request, create).await
    }

    /// Calls `DeleteVolume`, with another deadline than `--timeout` if `within` says one. `migrated`: for an
    /// in-tree volume. Sent only while the gate is open.
    ///
    /// # Errors
    /// As of [`Driver::create_volume`].
    pub async fn delete_volume(
        &self,
        request: DeleteVolumeRequest,
        migrated: bool,
        within: Option<Duration>,
    ) -> Result<DeleteVolumeResponse, CallError> {
        let timeout = within.unwrap_or_else(|| self.timeout());
        let calls = Calls { timeout, ..self.0.calls.for_migrated(migrated) };
        let delete = |wire, request| async { controller(wire).delete_volume(request).await };
        calls.send(DELETE_VOLUME, self.link(), Some(calls.gate.clone()), request, delete).await
    }

    /// Calls `GetCapacity`. Sent only while the gate is open.
    ///
    /// # Errors
    /// As of [`Driver::create_volume`].
    pub async fn get_capacity(
        &self,
        request: GetCapacityRequest,
    ) -> Result<GetCapacityResponse, CallError> {
        let get = |wire, request| async { controller(wire).get_capacity(request).await };
        let calls = &self.0.calls;
        calls.send(GET_CAPACITY, self.link(), Some(calls.gate.clone()), request, get).await
    }

    /// Keeps the connection up. After a loss, also of an idle connection, it reconnects, waits
    /// until the driver is ready and reads its identity again; until then calls fail at once.
    /// Returns only when another driver answers, or none within `patience`; the connection then stays
    /// down.
    pub async fn watch(self, patience: Duration) -> ConnectionEnded {
        let mut up = Instant::now();
        loop {
            if let Ok(link) = self.link() {
                link.lost().await;
                *self.0.link.lock() = None;
                tracing::error!(address = %self.0.dialer.socket.display(), "Lost connection");
                // Limits the rate for a driver that keeps crashing.
                sleep_until(up + PROBE_INTERVAL).await;
            }
            let Ok((link, identity)) = timeout(patience, self.reconnect()).await else {
                return self.0.away(patience);
            };
            if let Some(ended) = self.0.compare(&identity) {
                return ended;
            }
            tracing::info!(address = %self.0.dialer.socket.display(), "Connected to the CSI driver again");
            *self.0.link.lock() = Some(link);
            up = Instant::now();
        }
    }

    /// Reconnects and reads the identity, until both succeed.
    async fn reconnect(&self) -> (Link, Identity) {
        let Shared { dialer, calls, node_info_required, .. } = &*self.0;
        let calls = calls.for_driver(UNKNOWN_DRIVER);
        let mut throttle = LogThrottle::default();
        loop {
            let link = dialer.dial_until_up().await;
            match identify(dialer, &calls, link, *node_info_required).await {
                Ok(found) => return found,
                Err(error) if throttle.is_due() => {
                    tracing::warn!(%error, "The CSI driver cannot be used yet");
                }
                Err(_) => {}
            }
            sleep(PROBE_INTERVAL).await;
        }
    }

    fn link(&self) -> Result<Link, CallError> {
        let link = self.0.link.lock().clone();
        link.ok_or_else(|| CallError::unavailable("not connected to the CSI driver").unsent())
    }
}

impl Shared {
    /// Returns the difference if the driver that answers now is not the one that was found at
    /// start.
    fn compare(&self, found: &Identity) -> Option<ConnectionEnded> {
        let Identity { name, capabilities, node_topology } = &self.identity;
        let difference = if found.name != *name {
            let address = self.dialer.socket.display();
            format!(
                "after a lost connection the CSI driver at {address} has another name: {} instead of {name}",
                found.name
            )
        } else if found.capabilities != *capabilities {
            let is = &found.capabilities;
            format!(
                "after a lost connection CSI driver {name} has other capabilities: {is:?} instead of {capabilities:?}"
            )
        } else if found.node_topology != *node_topology {
            let is = &found.node_topology;
            format!(
                "after a lost connection CSI driver {name} has another node topology: {is:?} instead of {node_topology:?}"
            )
        } else {
            return None;
        };
        Some(ConnectionEnded(difference))
    }

    fn away(&self, patience: Duration) -> ConnectionEnded {
        let (name, address) = (&self.identity.name, self.dialer.socket.display());
        ConnectionEnded(format!(
            "CSI driver {name} at {address} was not ready again within {patience:?}; another replica may lead"
        ))
    }
}

/// Waits until the driver is ready and reads its identity.
async fn identify(
    dialer: &Dialer,
    calls: &Calls,
    link: Link,
    node_info_required: bool,
) -> Result<(Link, Identity), ConnectError> {
    let link = until_ready(dialer, calls, link).await.map_err(ConnectError::Probe)?;
    let name = identity::name(calls, &link).await.map_err(ConnectError::Name)?;
    if name.is_empty() {
        return Err(ConnectError::EmptyName);
    }
    let calls = calls.for_driver(&name);
    // external-provisioner opens another connection here, and probes again.
    let link = if calls.migrates() { until_ready(dialer, &calls, link).await } else { Ok(link) };
    let link = link.map_err(ConnectError::Probe)?;
    let capabilities =
        identity::capabilities(&calls, &link).await.map_err(ConnectError::Capabilities)?;
    let node_topology = if node_info_required {
        identity::node_topology(&calls, &link).await.map_err(ConnectError::NodeInfo)?
    } else {
        None
    };
    Ok((link, Identity { name, capabilities, node_topology }))
}

/// Probes once a second until the driver is ready, over a new link if the old one was lost.
async fn until_ready(dialer: &Dialer, calls: &Calls, mut link: Link) -> Result<Link, CallError> {
    let mut ticks = interval(PROBE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut throttle = LogThrottle::default();
    loop {
        ticks.tick().await;
        if link.is_lost() {
            link = dialer.dial_until_up().await;
        }
        let log_now = throttle.is_due();
        if log_now {
            tracing::info!("Probing CSI driver for readiness");
        }
        let why = match identity::probe(calls, &link).await {
            Ok(true) => return Ok(link),
            Ok(false) => "it says so".to_owned(),
            Err(error) if matches!(error.code(), Code::DeadlineExceeded | Code::Unavailable) => {
                error.to_string()
            }
            Err(error) => return Err(error),
        };
        if log_now {
            tracing::info!(why, "CSI driver is not ready");
        }
    }
}
