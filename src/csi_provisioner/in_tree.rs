//! Classes and volumes of the in-tree plugin that the driver took over from.
//!
//! Decides when to translate: a class before its call and before a deletion that needs its secret,
//! the PersistentVolume of such a class after the call, and an in-tree PersistentVolume before its
//! deletion. Pure. The translation itself is the crate `csi-translation`.

use std::{borrow::Cow, sync::Arc};

use csi_translation::{CsiVolume, Migration, Untranslatable};
use k8s_openapi::api::core::v1::VolumeNodeAffinity;

use super::{ProvisionerSettings, secrets::names_credentials};
use crate::{
    controller::provisioner::{Failure, ProvisionRequest},
    kube::objects::{StorageClass, Volume},
};

/// Whether this program reads a secret for volumes of the class, which may be one of the in-tree
/// plugin.
pub fn reads_secret(class: &StorageClass, driver: &str, migration: Option<Migration>) -> bool {
    if class.provisioner == driver {
        return names_credentials(&class.parameters);
    }
    let migration = migration.filter(|migration| class.provisioner == migration.in_tree_name());
    let translated = migration.and_then(|migration| to_csi(migration, class).ok());
    translated.is_some_and(|class| names_credentials(&class.parameters))
}

/// The plugin's class as one of the driver. Its name, options and policy stay.
fn to_csi(migration: Migration, class: &StorageClass) -> Result<StorageClass, Untranslatable> {
    let mut translated = class.clone();
    migration.class_to_csi(translated.translatable())?;
    Ok(translated)
}

impl ProvisionerSettings {
    /// The translation for the class, if its provisioner is the in-tree plugin.
    fn migration_of(&self, class: &StorageClass) -> Option<Migration> {
        self.migration.filter(|migration| class.provisioner == migration.in_tree_name())
    }

    /// The request with the class translated for the driver; also the translation, if the class is
    /// the in-tree plugin's, because its PersistentVolume is translated back.
    pub(super) fn request_for_driver(
        &self,
        request: &ProvisionRequest,
    ) -> Result<(ProvisionRequest, Option<Migration>), Failure> {
        let migration = self.migration_of(&request.class);
        let class = match migration {
            None => Arc::clone(&request.class),
            Some(migration) => Arc::new(to_csi(migration, &request.class).map_err(|why| {
                Failure::new(format!("failed to translate storage class: {why}"))
            })?),
        };
        Ok((ProvisionRequest { class, ..request.clone() }, migration))
    }

    /// The class that names the secret for deleting `volume`.
    pub(super) fn class_for_deletion(
        &self,
        volume: &Volume,
        class: Option<Arc<StorageClass>>,
    ) -> Result<Option<Arc<StorageClass>>, Failure> {
        let Some(class) = class else { return Ok(None) };
        match self.migration_of(&class).filter(|_| volume.spec.in_tree.is_some()) {
            None => Ok(Some(class)),
            Some(migration) => {
                to_csi(migration, &class).map(Arc::new).map(Some).map_err(Failure::new)
            }
        }
    }

    /// The driver's id of a PersistentVolume's volume.
    ///
    /// # Errors
    /// The driver must not be asked to delete the volume: it is another driver's, or cannot be
    /// translated.
    pub fn handle<'a>(&self, volume: &'a Volume) -> Result<Cow<'a, str>, Failure> {
        match (&volume.spec.csi, &volume.spec.in_tree) {
            (Some(csi), _) if csi.driver == self.driver.name => {
                Ok(Cow::Borrowed(&csi.volume_handle))
            }
            (Some(csi), _) => Err(Failure::new(format!(
                "the volume belongs to the CSI driver {:?}, but its annotation names {:?}: it is not deleted",
                csi.driver, self.driver.name
            ))),
            (None, Some(_)) => {
                self.translated(volume).map(|translated| Cow::Owned(translated.handle))
            }
            (None, None) => Err(Failure::new("invalid CSI PV")),
        }
    }

    /// The volume's node affinity, in the driver's topology keys.
    ///
    /// # Errors
    /// As of [`ProvisionerSettings::handle`], for in-tree volumes.
    pub fn node_affinity<'a>(
        &self,
        volume: &'a Volume,
    ) -> Result<Option<Cow<'a, VolumeNodeAffinity>>, Failure> {
        if volume.spec.in_tree.is_none() {
            return Ok(volume.spec.node_affinity.as_ref().map(Cow::Borrowed));
        }
        Ok(self.translated(volume)?.node_affinity.map(Cow::Owned))
    }

    /// The CSI form of an in-tree PersistentVolume.
    ///
    /// # Errors
    /// The driver did not take over from its plugin, or it cannot be translated.
    pub fn translated(&self, volume: &Volume) -> Result<CsiVolume, Failure> {
        let foreign = || {
            Failure::new(format!(
                "the volume belongs to an in-tree plugin that the CSI driver {:?} did not take over from, but its annotation names the driver: it is not deleted",
                self.driver.name
            ))
        };
        let migration = self.migration.ok_or_else(foreign)?;
        migration.to_csi(&volume.translatable()).map_err(|why| match why {
            Untranslatable::OtherPlugin(_) => foreign(),
            Untranslatable::Invalid(why) => Failure::new(why),
        })
    }
}

#[cfg(test)]
mod tests;
