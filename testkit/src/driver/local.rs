//! A driver of node-local volumes: it has its own node's, in memory, with limited capacity, and refuses a volume that
//! may not be there. Each call takes a while, so that calls on several nodes overlap.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    Answer, Backend, Call, Description, Status,
    proto::{
        CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
        GetCapacityRequest, GetCapacityResponse, NodeGetInfoResponse, Topology, Volume,
    },
};

/// The topology key whose values are the nodes' names.
pub const NODE_KEY: &str = "topology.example.com/node";

/// How a driver is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it is called.
    pub name: String,
    /// The node it runs on.
    pub node: String,
    /// Bytes to give out altogether.
    pub size: i64,
    /// How long `GetCapacity`, `CreateVolume` and `DeleteVolume` take each.
    pub pace: Duration,
}

/// A driver with volumes on one node.
#[derive(Debug)]
pub struct LocalDriver {
    settings: Settings,
    volumes: Mutex<BTreeMap<String, i64>>,
    stalled: watch::Sender<bool>,
}

impl LocalDriver {
    /// A driver without volumes.
    pub fn new(settings: Settings) -> Self {
        Self { settings, volumes: Mutex::default(), stalled: watch::Sender::new(false) }
    }

    /// Whether `CreateVolume` is answered no more, or again: each call then waits before it does
    /// anything.
    pub fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    /// Ids of its volumes.
    pub fn volumes(&self) -> Vec<String> {
        self.volumes.lock().keys().cloned().collect()
    }

    /// Where it is.
    fn place(&self) -> Topology {
        Topology { segments: [(NODE_KEY.to_owned(), self.settings.node.clone())].into() }
    }

    fn available(&self) -> i64 {
        self.settings.size - self.volumes.lock().values().sum::<i64>()
    }

    fn create(&self, request: &CreateVolumeRequest) -> Result<Volume, Status> {
        let bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
        let requirements = request.accessibility_requirements.as_ref();
        if requirements.is_some_and(|wanted| !wanted.requisite.contains(&self.place())) {
            return Err(Status::resource_exhausted("the volume may not be on this node"));
        }
        // One name on two nodes is two volumes.
        let id = format!("{}@{}", request.name, self.settings.node);
        if !self.volumes.lock().contains_key(&id) {
            if bytes > self.available() {
                return Err(Status::resource_exhausted("not enough space left on this node"));
            }
            self.volumes.lock().insert(id.clone(), bytes);
        }
        Ok(Volume {
            volume_id: id,
            capacity_bytes: bytes,
            accessible_topology: vec![self.place()],
            ..Volume::default()
        })
    }

    async fn take_time(&self) {
        tokio::time::sleep(self.settings.pace).await;
    }
}

impl Backend for LocalDriver {
    fn description(&self) -> Description {
        let plugin = ["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"];
        let controller = ["CREATE_DELETE_VOLUME", "GET_CAPACITY"];
        Description::new(&self.settings.name, &plugin, &controller)
    }

    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        // The sender lives as long as `self`.
        let _ = self.stalled.subscribe().wait_for(|stalled| !stalled).await;
        self.take_time().await;
        let volume = self.create(&call.request)?;
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        self.take_time().await;
        self.volumes.lock().remove(&call.request.volume_id);
        Ok(DeleteVolumeResponse {})
    }

    async fn get_capacity(&self, _call: Call<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        self.take_time().await;
        Ok(GetCapacityResponse {
            available_capacity: self.available(),
            ..GetCapacityResponse::default()
        })
    }

    async fn node_get_info(&self) -> Answer<NodeGetInfoResponse> {
        Ok(NodeGetInfoResponse {
            node_id: self.settings.node.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(self.place()),
        })
    }
}
