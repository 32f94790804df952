//! In-tree volumes: translation between Kubernetes' former storage plugins and their CSI drivers.
//!
//! Knows which driver took over from which plugin, and translates the plugin's classes and
//! PersistentVolumes; one file a plugin. The rules and texts are those of Kubernetes'
//! csi-translation-lib v0.36 (v0.30 for ceph's rbd). Everything here is a pure function of objects:
//! a [`Class`] and a [`Volume`] are the parts of them that it needs. Translation is all or nothing:
//! what cannot be expressed in the other form is an error. When to translate is for the caller to
//! decide.

// The plugins share function types, and some of these functions never fail.
#![allow(clippy::unnecessary_wraps)]

mod aws_ebs;
mod azure_disk;
mod azure_file;
mod cinder;
mod class;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../fuzz/bodies/migration.rs"]
pub mod fuzz;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../fuzz/bodies/fuzzing.rs"]
mod fuzzing;
mod gce_pd;
mod partition;
mod portworx;
mod rbd;
mod source;
#[cfg(any(test, feature = "fuzzing"))]
mod testing;
mod topology;
mod vsphere;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec, TopologySelectorTerm,
    VolumeNodeAffinity,
};

pub use crate::source::InTreeSource;

/// The plugins whose drivers always translate, as in external-provisioner.
const PLUGINS: [&Plugin; 7] = [
    &aws_ebs::PLUGIN,
    &azure_disk::PLUGIN,
    &azure_file::PLUGIN,
    &cinder::PLUGIN,
    &gce_pd::PLUGIN,
    &portworx::PLUGIN,
    &vsphere::PLUGIN,
];

/// The driver's handle of a volume, and the attributes from which [`Plugin::to_in_tree`] makes the same source.
type Translated = Result<(String, BTreeMap<String, String>), Untranslatable>;

/// One in-tree plugin and the driver that took over from it.
#[derive(Debug)]
struct Plugin {
    /// The CSI driver's name.
    driver: &'static str,
    /// The plugin's name, as used in classes and volumes.
    in_tree: &'static str,
    /// Turns a class of the plugin into one of the driver.
    class_to_csi: fn(&mut Class<'_>) -> Result<(), Untranslatable>,
    /// Adds the plugin's source to a PersistentVolume whose CSI source was removed.
    to_in_tree: fn(&CSIPersistentVolumeSource, &mut PersistentVolume) -> Result<(), Untranslatable>,
    /// What the driver knows a PersistentVolume with this source by; `None` if the source is another plugin's.
    to_csi: fn(&Volume<'_>, &InTreeSource) -> Option<Translated>,
    /// The node affinity of the plugin's PersistentVolume, in the driver's keys.
    node_affinity: fn(&Volume<'_>) -> Option<VolumeNodeAffinity>,
}

/// Why a class or a PersistentVolume can't be translated, in external-provisioner's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// The PersistentVolume is not of the plugin that the driver took over from.
    #[error(
        "the PersistentVolume is not of the in-tree plugin {0}, from which the driver took over"
    )]
    OtherPlugin(&'static str),
    /// The object is invalid, or the other form cannot express it.
    #[error("{0}")]
    Invalid(String),
}

impl Untranslatable {
    fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }
}

/// The parts of a StorageClass that translation changes.
#[derive(Debug)]
pub struct Class<'a> {
    /// The provisioner's name.
    pub provisioner: &'a mut String,
    /// The parameters.
    pub parameters: &'a mut BTreeMap<String, String>,
    /// The topologies that volumes of the class may have.
    pub allowed_topologies: &'a mut Vec<TopologySelectorTerm>,
}

/// What translation reads of a PersistentVolume of an in-tree plugin.
#[derive(Debug)]
pub struct Volume<'a> {
    /// The PersistentVolume's name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: &'a BTreeMap<String, String>,
    /// The namespace of the volume's claim; empty without a claim.
    pub claim_namespace: &'a str,
    /// The nodes that can access the volume.
    pub node_affinity: Option<&'a VolumeNodeAffinity>,
    /// The plugin's source.
    pub in_tree: Option<&'a InTreeSource>,
}

impl Volume<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    fn annotation(&self, key: &str) -> &str {
        self.annotations.get(key).map(String::as_str).unwrap_or_default()
    }
}

/// What the driver answered, as an in-tree PersistentVolume shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct CsiVolume {
    /// The driver's handle.
    pub handle: String,
    /// The volume's attributes.
    pub attributes: BTreeMap<String, String>,
    /// The volume's node affinity, in the driver's topology keys.
    pub node_affinity: Option<VolumeNodeAffinity>,
}

/// Translation for one driver that took over from an in-tree plugin.
#[derive(Debug, Clone, Copy)]
pub struct Migration(&'static Plugin);

impl Migration {
    /// The translation for the CSI driver of this name, if it took over from a plugin. `rbd`:
    /// whether to include ceph's retired plugin (the feature gate `CSIMigrationRBD`).
    pub fn of_driver(driver: &str, rbd: bool) -> Option<Self> {
        let retired = rbd.then_some(&rbd::PLUGIN);
        PLUGINS.into_iter().chain(retired).find(|plugin| plugin.driver == driver).map(Self)
    }

    /// The plugin's name.
    pub fn in_tree_name(self) -> &'static str {
        self.0.in_tree
    }

    /// Translates a class of the plugin to the driver's.
    ///
    /// # Errors
    /// The driver's cannot express it; the class may be translated in part.
    pub fn class_to_csi(self, mut class: Class<'_>) -> Result<(), Untranslatable> {
        (self.0.class_to_csi)(&mut class)
    }

    /// The part of a volume handle that identifies the volume: a translated handle and the driver's
    /// own for the same volume have the same, as far as possible.
    pub fn key(self, handle: &str) -> &str {
        // Of others the plugin's PersistentVolumes contain the whole handle.
        if self.0.driver == gce_pd::PLUGIN.driver { gce_pd::key(handle) } else { handle }
    }

    /// Translates a PersistentVolume of the driver to the plugin's.
    pub fn to_in_tree(
        self,
        mut volume: PersistentVolume,
    ) -> Result<PersistentVolume, Untranslatable> {
        let csi = volume.spec.as_mut().and_then(|spec| spec.csi.take());
        let not_of_csi = || Untranslatable::invalid("pv is nil or CSI source not defined on pv");
        let csi = csi.ok_or_else(not_of_csi)?;
        (self.0.to_in_tree)(&csi, &mut volume)?;
        Ok(volume)
    }

    /// Translates a PersistentVolume of the plugin to CSI.
    pub fn to_csi(self, volume: &Volume<'_>) -> Result<CsiVolume, Untranslatable> {
        let translated = volume.in_tree.and_then(|part| (self.0.to_csi)(volume, part));
        let other = Untranslatable::OtherPlugin(self.0.in_tree);
        let (handle, attributes) = translated.ok_or(other)??;
        Ok(CsiVolume { handle, attributes, node_affinity: (self.0.node_affinity)(volume) })
    }
}

/// The node affinity as it is.
fn kept(volume: &Volume<'_>) -> Option<VolumeNodeAffinity> {
    volume.node_affinity.cloned()
}

/// The spec of a PersistentVolume, created if missing.
fn spec(volume: &mut PersistentVolume) -> &mut PersistentVolumeSpec {
    volume.spec.get_or_insert_default()
}

/// A volume attribute.
fn attribute<'a>(csi: &'a CSIPersistentVolumeSource, key: &str) -> Option<&'a str> {
    csi.volume_attributes.as_ref()?.get(key).map(String::as_str)
}

/// Attributes of a volume.
fn attributes<const N: usize>(all: [(&str, String); N]) -> BTreeMap<String, String> {
    all.map(|(key, value)| (key.to_owned(), value)).into()
}

#[cfg(test)]
mod tests;
