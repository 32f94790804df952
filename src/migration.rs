//! In-tree volumes: translation between Kubernetes' former storage plugins and their CSI drivers.
//!
//! Owns which driver took over from which plugin, and what becomes of the plugin's classes and
//! PersistentVolumes, one file a plugin (reference 3.16; Kubernetes' csi-translation-lib v0.36,
//! for ceph's rbd v0.30). Everything here is a pure function of objects. Promises the original's
//! rules and texts, and that nothing is translated half: what cannot be told in the other form is
//! an error. Leaves when to translate to `csi_provisioner`, and whose a claim or a volume is to
//! `controller::ownership`.

// What one plugin's function may refuse, another's never has to.
#![allow(clippy::unnecessary_wraps)]

mod aws_ebs;
mod azure_disk;
mod azure_file;
mod cinder;
mod class;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod gce_pd;
mod partition;
mod portworx;
mod rbd;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod topology;
mod url;
mod vsphere;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity,
};

pub use self::error::Untranslatable;
use crate::kube::objects::{InTreeSource, StorageClass, Volume};

/// The plugins whose drivers translate always, as in the original.
const PLUGINS: [&Plugin; 7] = [
    &aws_ebs::PLUGIN,
    &azure_disk::PLUGIN,
    &azure_file::PLUGIN,
    &cinder::PLUGIN,
    &gce_pd::PLUGIN,
    &portworx::PLUGIN,
    &vsphere::PLUGIN,
];

/// One in-tree plugin and the driver that took over from it.
#[derive(Debug)]
struct Plugin {
    /// The CSI driver's name.
    driver: &'static str,
    /// The plugin's own name: what classes and volumes of its time bear.
    in_tree: &'static str,
    /// Turns a class of the plugin into one of the driver.
    class_to_csi: fn(&mut StorageClass) -> Result<(), Untranslatable>,
    /// Puts the plugin's part into a PersistentVolume whose CSI part was taken out.
    to_in_tree: fn(&CSIPersistentVolumeSource, &mut PersistentVolume) -> Result<(), Untranslatable>,
    /// What a PersistentVolume with this part would be as one of CSI; `None` where the part is
    /// another plugin's.
    to_csi: fn(&Volume, &InTreeSource) -> Option<Result<CsiVolume, Untranslatable>>,
    /// The part of the driver's ids that also translated ones tell.
    key: fn(&str) -> &str,
}

/// An in-tree PersistentVolume as its driver sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct CsiVolume {
    /// The driver's part.
    pub source: CSIPersistentVolumeSource,
    /// From which nodes the volume can be reached, in the driver's topology keys.
    pub node_affinity: Option<VolumeNodeAffinity>,
}

/// Translation for one driver that took over from an in-tree plugin.
#[derive(Debug, Clone, Copy)]
pub struct Migration(&'static Plugin);

impl Migration {
    /// The translation for the CSI driver of this name, where it took over from a plugin. `rbd`:
    /// whether that counts for ceph's retired plugin, too (the feature gate `CSIMigrationRBD`).
    pub fn of_driver(driver: &str, rbd: bool) -> Option<Self> {
        let retired = rbd.then_some(&rbd::PLUGIN);
        PLUGINS.into_iter().chain(retired).find(|plugin| plugin.driver == driver).map(Self)
    }

    /// The plugin's own name.
    pub fn in_tree_name(self) -> &'static str {
        self.0.in_tree
    }

    /// The driver's class for a class of the plugin. Its name, options and policy stay.
    pub fn class_to_csi(self, class: &StorageClass) -> Result<StorageClass, Untranslatable> {
        let mut translated = class.clone();
        (self.0.class_to_csi)(&mut translated)?;
        Ok(translated)
    }

    /// The part of one of the driver's ids by which its volumes are told apart: a translated id and
    /// the driver's own for the same volume have the same, as far as can be known.
    pub fn key(self, handle: &str) -> &str {
        (self.0.key)(handle)
    }

    /// The plugin's PersistentVolume for one of the driver.
    pub fn to_in_tree(
        self,
        mut volume: PersistentVolume,
    ) -> Result<PersistentVolume, Untranslatable> {
        let csi = volume.spec.as_mut().and_then(|spec| spec.csi.take());
        let csi = csi.ok_or(Untranslatable::NotOfCsi)?;
        (self.0.to_in_tree)(&csi, &mut volume)?;
        Ok(volume)
    }

    /// What a PersistentVolume of the plugin is to the driver.
    pub fn to_csi(self, volume: &Volume) -> Result<CsiVolume, Untranslatable> {
        let part = volume.spec.in_tree.as_deref();
        let translated = part.and_then(|part| (self.0.to_csi)(volume, part));
        translated.unwrap_or(Err(Untranslatable::OtherPlugin(self.0.in_tree)))
    }
}

/// For drivers whose ids a PersistentVolume of the plugin tells in full.
fn whole(handle: &str) -> &str {
    handle
}

/// The spec of a PersistentVolume, made where it lacks one.
fn spec(volume: &mut PersistentVolume) -> &mut PersistentVolumeSpec {
    volume.spec.get_or_insert_default()
}

/// One of the driver's attributes of a volume.
fn attribute<'a>(csi: &'a CSIPersistentVolumeSource, key: &str) -> Option<&'a str> {
    csi.volume_attributes.as_ref()?.get(key).map(String::as_str)
}
