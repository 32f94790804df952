//! Virtual disks of `VMware`'s `vSphere`.

use std::mem::take;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, VsphereVirtualDiskVolumeSource,
};

use crate::{
    Class, InTreeSource, Plugin, Translated, Untranslatable, Volume, attribute, attributes, class,
    spec, topology,
};

const DRIVER: &str = "csi.vsphere.vmware.com";
/// The driver's keys for zone and region.
const PLACES: [&str; 2] = ["topology.csi.vmware.com/zone", "topology.csi.vmware.com/region"];
/// The volume attribute with a volume's path, set if the class has [`MARK`].
const PATH: &str = "initialvolumefilepath";
/// Makes the driver create a volume of the plugin's kind.
const MARK: &str = "csimigration";
/// The parameter with the storage policy.
const POLICY: &str = "storagepolicyname";
/// The plugin's parameters that the driver supports with [`SUFFIX`].
const RENAMED: [&str; 8] = [
    "datastore",
    "diskformat",
    "hostfailurestotolerate",
    "forceprovisioning",
    "cachereservation",
    "diskstripes",
    "objectspacereservation",
    "iopslimit",
];
const SUFFIX: &str = "-migrationparam";

pub(crate) const PLUGIN: Plugin = Plugin {
    driver: DRIVER,
    in_tree: "kubernetes.io/vsphere-volume",
    class_to_csi,
    to_in_tree,
    to_csi,
    node_affinity: |volume| topology::zones_and_regions_to_csi(volume, PLACES),
};

/// Parameters that the plugin did not support are dropped, those for the provisioner among them.
fn class_to_csi(class: &mut Class<'_>) -> Result<(), Untranslatable> {
    let known = take(class.parameters).into_iter().filter_map(|(key, value)| {
        let key = key.to_lowercase();
        match &*key {
            class::FS_TYPE => Some((class::CSI_FS_TYPE.to_owned(), value)),
            POLICY => Some((key, value)),
            renamed if RENAMED.contains(&renamed) => Some((format!("{key}{SUFFIX}"), value)),
            _ => None,
        }
    });
    *class.parameters = known.collect();
    class.parameters.insert(MARK.to_owned(), "true".to_owned());
    let [zone, _] = PLACES;
    class::rename_zone_keys(class, zone);
    Ok(())
}

fn to_in_tree(
    csi: &CSIPersistentVolumeSource,
    volume: &mut PersistentVolume,
) -> Result<(), Untranslatable> {
    topology::zones_and_regions_to_in_tree(volume, PLACES);
    spec(volume).vsphere_volume = Some(VsphereVirtualDiskVolumeSource {
        fs_type: csi.fs_type.clone(),
        volume_path: attribute(csi, PATH).unwrap_or_default().to_owned(),
        ..VsphereVirtualDiskVolumeSource::default()
    });
    Ok(())
}

fn to_csi(_: &Volume<'_>, source: &InTreeSource) -> Option<Translated> {
    let InTreeSource::Vsphere(disk) = source else { return None };
    let path = || disk.volume_path.clone();
    Some(Ok((path(), attributes([(PATH, path())]))))
}

#[cfg(test)]
mod tests;
