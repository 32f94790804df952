//! The driver of the demo: testkit's driver with volumes on disk, and what that one lacks: zones, restored volumes, and a
//! CreateVolume that makes the volume and does not answer.

use testkit::driver::{
    Answer, Backend, Call, Status,
    disk::DiskDriver,
    proto::{
        ControllerGetCapabilitiesResponse, CreateVolumeRequest, CreateVolumeResponse,
        DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse,
        GetPluginCapabilitiesResponse, GetPluginInfoResponse, NodeGetInfoResponse, ProbeResponse,
    },
};
use tokio::sync::watch;

/// The topology key whose values are the zones, and the zone in which no volume can be made.
pub(crate) const ZONE_KEY: &str = "topology.disk.example.com/zone";
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
pub(crate) struct Driver {
    pub(crate) disk: DiskDriver,
    /// Whether CreateVolume makes the volume and does not answer. Calls that wait get their answer in the end.
    pub(crate) silent: watch::Sender<bool>,
}

impl Driver {
    pub(crate) fn new(disk: DiskDriver, ability: Ability) -> Self {
        let disk = match ability {
            Ability::None => disk,
            Ability::Snapshots => disk.able(&[], &["CREATE_DELETE_SNAPSHOT"]),
            Ability::Zones => disk.able(&["VOLUME_ACCESSIBILITY_CONSTRAINTS"], &[]),
        };
        Self { disk, silent: watch::Sender::new(false) }
    }
}

impl Backend for Driver {
    async fn get_plugin_info(&self) -> Answer<GetPluginInfoResponse> {
        self.disk.get_plugin_info().await
    }

    async fn get_plugin_capabilities(&self) -> Answer<GetPluginCapabilitiesResponse> {
        self.disk.get_plugin_capabilities().await
    }

    async fn probe(&self) -> Answer<ProbeResponse> {
        self.disk.probe().await
    }

    async fn controller_get_capabilities(&self) -> Answer<ControllerGetCapabilitiesResponse> {
        self.disk.controller_get_capabilities().await
    }

    async fn create_volume(
        &self,
        mut call: Call<CreateVolumeRequest>,
    ) -> Answer<CreateVolumeResponse> {
        let wanted = call.request.accessibility_requirements.as_ref();
        let place = wanted.and_then(|wanted| wanted.preferred.first()).cloned();
        let zone = place.as_ref().and_then(|place| place.segments.get(ZONE_KEY));
        if zone.is_some_and(|zone| zone == FULL_ZONE) {
            return Err(Status::resource_exhausted(format!("{FULL_ZONE} has no space left")));
        }
        // The disk driver refuses sources: its volumes begin empty, and nobody reads those of the demo.
        let source = call.request.volume_content_source.take();
        let mut answer = self.disk.create_volume(call).await?;
        // The sender lives as long as `self`.
        let _ = self.silent.subscribe().wait_for(|silent| !silent).await;
        if let Some(volume) = &mut answer.volume {
            volume.content_source = source;
            volume.accessible_topology = place.into_iter().collect();
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
