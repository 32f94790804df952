//! Cinder, of `OpenStack`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, CinderPersistentVolumeSource, PersistentVolume,
};

use crate::{
    Class, InTreeSource, Plugin, Translated, Untranslatable, Volume, class, spec, topology,
};

const DRIVER: &str = "cinder.csi.openstack.org";
const ZONE: &str = "topology.cinder.csi.openstack.org/zone";

pub(crate) const PLUGIN: Plugin = Plugin {
    driver: DRIVER,
    in_tree: "kubernetes.io/cinder",
    class_to_csi,
    to_in_tree,
    to_csi,
    node_affinity: |volume| topology::zones_to_csi(volume, ZONE),
};

/// The driver supports the plugin's other parameters, `availability` among them.
fn class_to_csi(class: &mut Class<'_>) -> Result<(), Untranslatable> {
    class::rename_fs_type(class);
    class::rename_zone_keys(class, ZONE);
    Ok(())
}

/// Cinder's zones do not determine a region.
fn to_in_tree(
    csi: &CSIPersistentVolumeSource,
    volume: &mut PersistentVolume,
) -> Result<(), Untranslatable> {
    topology::zones_to_in_tree(volume, ZONE, None)?;
    spec(volume).cinder = Some(CinderPersistentVolumeSource {
        volume_id: csi.volume_handle.clone(),
        fs_type: csi.fs_type.clone(),
        read_only: csi.read_only,
        secret_ref: None,
    });
    Ok(())
}

fn to_csi(_: &Volume<'_>, source: &InTreeSource) -> Option<Translated> {
    let InTreeSource::Cinder(cinder) = source else { return None };
    Some(Ok((cinder.volume_id.clone(), BTreeMap::new())))
}

#[cfg(test)]
mod tests;
