//! The driver of the demo: testkit's driver with volumes on disk, and what that one lacks: zones, restored volumes, and a
//! CreateVolume that makes the volume and does not answer.

use testkit::driver::{
    Answer, Backend, Call, Status, controller_capabilities,
    disk::DiskDriver,
    plugin_capabilities,
    proto::{
        ControllerGetCapabilitiesResponse, CreateVolumeRequest, CreateVolumeResponse,
        DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse,
        GetPluginCapabilitiesResponse, GetPluginInfoResponse, NodeGetInfoResponse, ProbeResponse,
        Topology,
    },
};
use tokio::sync::watch;

/// The topology key whose values are the zones.
pub const ZONE_KEY: &str = "topology.disk.example.com/zone";

/// The zone in which no volume can be made.
const FULL_ZONE: &str = "zone-a";

/// What the driver can do beyond creating and deleting volumes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ability {
    /// Nothing.
    #[default]
    None,
    /// It restores snapshots.
    Snapshots,
    /// Its volumes are in zones, of which one is full.
    Zones,
}

/// The driver.
#[derive(Debug)]
pub struct Driver {
    disk: DiskDriver,
    ability: Ability,
    /// Whether CreateVolume makes the volume and does not answer.
    silent: watch::Sender<bool>,
}

impl Driver {
    /// A driver that answers.
    pub fn new(disk: DiskDriver, ability: Ability) -> Self {
        Self { disk, ability, silent: watch::Sender::new(false) }
    }

    /// The volumes.
    pub fn disk(&self) -> &DiskDriver {
        &self.disk
    }

    /// From now on CreateVolume is not answered, or is answered again. Calls that wait get their answer.
    pub fn silence(&self, silent: bool) {
        self.silent.send_replace(silent);
    }

    /// Where the volume of this request is to be.
    fn place(&self, request: &CreateVolumeRequest) -> Result<Vec<Topology>, Status> {
        let wanted = request.accessibility_requirements.as_ref();
        let place = wanted.and_then(|wanted| wanted.preferred.first());
        if self.ability != Ability::Zones {
            return Ok(Vec::new());
        }
        if place.and_then(|place| place.segments.get(ZONE_KEY)).is_some_and(|it| it == FULL_ZONE) {
            return Err(Status::resource_exhausted(format!("{FULL_ZONE} has no space left")));
        }
        Ok(place.cloned().into_iter().collect())
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl Backend for Driver {
    async fn get_plugin_info(&self) -> Answer<GetPluginInfoResponse> {
        self.disk.get_plugin_info().await
    }

    async fn get_plugin_capabilities(&self) -> Answer<GetPluginCapabilitiesResponse> {
        match self.ability {
            Ability::Zones => plugin_capabilities(&owned(&[
                "CONTROLLER_SERVICE",
                "VOLUME_ACCESSIBILITY_CONSTRAINTS",
            ])),
            Ability::None | Ability::Snapshots => self.disk.get_plugin_capabilities().await,
        }
    }

    async fn probe(&self) -> Answer<ProbeResponse> {
        self.disk.probe().await
    }

    async fn controller_get_capabilities(&self) -> Answer<ControllerGetCapabilitiesResponse> {
        match self.ability {
            Ability::Snapshots => {
                controller_capabilities(&owned(&["CREATE_DELETE_VOLUME", "CREATE_DELETE_SNAPSHOT"]))
            }
            Ability::None | Ability::Zones => self.disk.controller_get_capabilities().await,
        }
    }

    async fn create_volume(
        &self,
        mut call: Call<CreateVolumeRequest>,
    ) -> Answer<CreateVolumeResponse> {
        let place = self.place(&call.request)?;
        // The disk driver refuses sources: its volumes begin empty, and nobody reads those of the demo.
        let source = call.request.volume_content_source.take();
        let mut answer = self.disk.create_volume(call).await?;
        // The sender lives as long as `self`.
        let _ = self.silent.subscribe().wait_for(|silent| !silent).await;
        if let Some(volume) = &mut answer.volume {
            volume.content_source = source;
            volume.accessible_topology = place;
        }
        Ok(answer)
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        self.disk.delete_volume(call).await
    }

    async fn get_capacity(&self, call: Call<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        self.disk.get_capacity(call).await
    }

    async fn node_get_info(&self) -> Answer<NodeGetInfoResponse> {
        self.disk.node_get_info().await
    }
}
