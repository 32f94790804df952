//! The driver of the demo: testkit's driver with volumes on disk, and what that one lacks: zones, restored
//! volumes, and a CreateVolume that makes the volume and does not answer.

use testkit::driver::{
    Answer, Around, Backend as _, Call, Status,
    disk::DiskDriver,
    proto::{CreateVolumeRequest, CreateVolumeResponse},
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

impl Around for Driver {
    type Inside = DiskDriver;

    fn inside(&self) -> &DiskDriver {
        &self.disk
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
}
