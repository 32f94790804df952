//! CSI drivers for tests: a scriptable one, one that keeps volumes on disk, and one of many nodes; a test's own wraps
//! ([`Around`]) the scripted one. A [`Backend`] answers, a [`Host`] serves it, and a [`Journal`] has every call. A
//! call whose caller went away is dropped where it stands; on a paused, single-threaded runtime the same calls give
//! the same answers.

use std::{
    future::{Future, ready},
    time::Duration,
};

mod around;
pub mod cli;
mod description;
pub mod disk;
mod host;
mod journal;
pub mod local;
mod rules;
mod scripted;
mod service;

pub use around::Around;
pub use description::Description;
pub use host::Host;
pub use journal::{Journal, Record, as_json};
pub(crate) use rules::pattern;
pub use rules::{Code, Failure, Match, NodeSpec, Ready, Rule, Script, VolumeSpec};
pub use scripted::{Flight, Scripted};
pub use tonic::Status;

/// Messages and server traits of `proto/csi.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod proto {
    tonic::include_proto!("csi.v1");
}

use proto::{
    CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
    GetCapacityRequest, GetCapacityResponse, NodeGetInfoResponse,
};

/// One call as it reached the driver.
#[derive(Debug, Clone)]
pub struct Call<T> {
    /// The message.
    pub request: T,
    /// What the caller's deadline left when the call came; `None` when it set none.
    pub time_left: Option<Duration>,
}

/// What a driver answers: a message or a gRPC status.
pub type Answer<T> = Result<T, Status>;

/// What a driver does with each call that a provisioner makes. The calls are written down by
/// the adapter before they get here.
pub trait Backend: Send + Sync + 'static {
    /// What it says of itself when it is asked.
    fn description(&self) -> Description;
    /// Does what it does before it says what it is: `GetPluginInfo`, `GetPluginCapabilities`, `Probe` and
    /// `ControllerGetCapabilities` are answered by [`Self::description`] afterwards, and a probe by what this returns.
    fn identify(&self, _method: &'static str) -> impl Future<Output = Answer<Ready>> + Send {
        ready(Ok(Ready::Yes))
    }
    /// `Controller.CreateVolume`
    fn create_volume(
        &self,
        call: Call<CreateVolumeRequest>,
    ) -> impl Future<Output = Answer<CreateVolumeResponse>> + Send;
    /// `Controller.DeleteVolume`
    fn delete_volume(
        &self,
        call: Call<DeleteVolumeRequest>,
    ) -> impl Future<Output = Answer<DeleteVolumeResponse>> + Send;
    /// `Controller.GetCapacity`
    fn get_capacity(
        &self,
        call: Call<GetCapacityRequest>,
    ) -> impl Future<Output = Answer<GetCapacityResponse>> + Send;
    /// `Node.NodeGetInfo`
    fn node_get_info(&self) -> impl Future<Output = Answer<NodeGetInfoResponse>> + Send;
}
