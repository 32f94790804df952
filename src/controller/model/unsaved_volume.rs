//! A volume that exists at the driver and has no PersistentVolume yet.

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::time::Instant;

use super::{
    outcome::ProvisionedVolume, unusable_volume::Credentials, volume_handle::VolumeHandle,
};
use crate::kube::objects::Volume;

/// A volume that the driver has made and whose PersistentVolume is not saved yet.
#[derive(Debug, Clone, PartialEq)]
pub struct UnsavedVolume {
    /// The PersistentVolume, without what the controller adds.
    pub volume: PersistentVolume,
    /// The driver's ID of the volume. An in-tree PersistentVolume does not contain it.
    pub handle: VolumeHandle,
    /// The credentials with which the volume was made.
    pub credentials: Credentials,
    /// When the attempt that made the volume started.
    pub started: Instant,
    /// How the attempts to save it have failed.
    pub setback: Setback,
    /// What the watch has shown of its PersistentVolume.
    pub seen: Seen,
}

/// What failed attempts to save have shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Setback {
    /// Whether an earlier POST may have been carried out, so that the next attempt reads first.
    pub unclear: bool,
    /// Whether the API server refused the last attempt and will refuse the next one until somebody
    /// acts.
    pub refused: bool,
    /// Whether a PersistentVolume of the name has, or may have, this very volume: when that
    /// PersistentVolume is deleted, the volume may be deleted with it.
    pub may_share_handle: bool,
}

impl Setback {
    /// Adds what the latest attempt has shown: whether that was refused counts alone.
    pub fn add(&mut self, latest: Self) {
        self.unclear |= latest.unclear;
        self.refused = latest.refused;
        self.may_share_handle |= latest.may_share_handle;
    }
}

/// What the watch has shown of the PersistentVolume that is being saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Seen {
    /// Nothing yet.
    #[default]
    Nothing,
    /// It exists.
    Exists,
    /// It existed and is gone.
    Gone,
}

impl UnsavedVolume {
    /// The volume that an attempt has brought which started at `started`.
    pub fn new(provisioned: &ProvisionedVolume, started: Instant) -> Self {
        let ProvisionedVolume { volume, handle, credentials } = provisioned.clone();
        let (setback, seen) = <(Setback, Seen)>::default();
        Self { volume, handle, credentials, started, setback, seen }
    }

    /// The name of the PersistentVolume.
    pub fn name(&self) -> &str {
        self.volume.metadata.name.as_deref().unwrap_or_default()
    }

    /// The volume's ID in the PersistentVolume.
    pub fn source_id(&self) -> String {
        Volume::source_id_of(&self.volume)
    }
}
