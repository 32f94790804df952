//! The driver that a source belongs to: the one that created the claim's volume, or the snapshot.
//!
//! Reads it from objects that only admins and controllers write: the PersistentVolume that is bound
//! to the claim, and the VolumeSnapshotContent that is bound to the snapshot. Only that driver can
//! copy the source, so only its provisioner knows whether a copy is in progress; the finalizers are
//! shared by the provisioners of all drivers. A source without a volume or content belongs to no
//! driver.

use super::{
    Protection,
    source::{NamedSource, SourceKind},
};
use crate::kube::{
    ApiError, Client, Name,
    objects::{Claim, View, Volume, VolumeSnapshot, VolumeSnapshotContent},
};

impl Protection {
    /// Whether the object `uid` belongs to a driver other than ours. Reads it live.
    pub(super) async fn is_of_another_driver(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> Result<bool, ApiError> {
        let client = &self.0.deps.client;
        let driver = match source.kind {
            SourceKind::Claim => driver_of_claim(client, source, uid).await?,
            SourceKind::Snapshot => driver_of_snapshot(client, source, uid).await?,
        };
        let another = driver.filter(|driver| *driver != self.0.deps.driver);
        if let Some(driver) = &another {
            tracing::debug!(%source, driver, "the source is left to the provisioner of its driver");
        }
        Ok(another.is_some())
    }
}

async fn driver_of_claim(
    client: &Client,
    source: &NamedSource,
    uid: &str,
) -> Result<Option<String>, ApiError> {
    let name = Name::namespaced(&source.namespace, &source.name)?;
    let claim = client.get_opt::<Claim>(name).await?;
    let volume = claim.and_then(|claim| claim.spec.volume_name).unwrap_or_default();
    let volume = read_cluster_object::<Volume>(client, &volume).await?;
    Ok(volume.and_then(|volume| driver_of_volume(&volume, uid)))
}

/// The CSI driver of the volume, where it is bound to the claim `uid`.
fn driver_of_volume(volume: &Volume, uid: &str) -> Option<String> {
    let is_bound = volume.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid == uid);
    volume.csi_driver().filter(|_| is_bound).map(str::to_owned)
}

async fn driver_of_snapshot(
    client: &Client,
    source: &NamedSource,
    uid: &str,
) -> Result<Option<String>, ApiError> {
    let name = Name::namespaced(&source.namespace, &source.name)?;
    let snapshot = client.get_opt::<VolumeSnapshot>(name).await?;
    let content = snapshot.and_then(|it| it.status.bound_volume_snapshot_content_name);
    let content = read_cluster_object(client, &content.unwrap_or_default()).await?;
    Ok(content.and_then(|content| driver_of_content(content, uid)))
}

/// The CSI driver of the content, where it is bound to the snapshot `uid`.
fn driver_of_content(content: VolumeSnapshotContent, uid: &str) -> Option<String> {
    let is_bound = content.spec.volume_snapshot_ref.uid == uid;
    is_bound.then_some(content.spec.driver)
}

/// Reads an object by a name that a user may have written.
async fn read_cluster_object<V: View>(client: &Client, name: &str) -> Result<Option<V>, ApiError> {
    // No object has an invalid name.
    let Ok(name) = Name::cluster(name) else { return Ok(None) };
    client.get_opt(name).await
}

#[cfg(test)]
mod tests;
