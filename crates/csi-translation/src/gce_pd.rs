//! Google Compute Engine's persistent disks.

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, GCEPersistentDiskVolumeSource, PersistentVolume,
};

use crate::{
    Class, InTreeSource, Plugin, Translated, Untranslatable, Volume, attribute, attributes, class,
    partition::{self, PARTITION},
    spec, topology,
};

const DRIVER: &str = "pd.csi.storage.gke.io";
const ZONE: &str = "topology.gke.io/zone";
/// The placeholder for an unknown project or zone, which the driver determines itself.
const UNSPECIFIED: &str = "UNSPECIFIED";

pub(crate) const PLUGIN: Plugin = Plugin {
    driver: DRIVER,
    in_tree: "kubernetes.io/gce-pd",
    class_to_csi,
    to_in_tree,
    to_csi,
    node_affinity: |volume| topology::zones_to_csi(volume, ZONE),
};

fn class_to_csi(class: &mut Class<'_>) -> Result<(), Untranslatable> {
    class::rename_fs_type(class);
    class::zones_to_topologies(class, ZONE)
}

fn to_in_tree(
    csi: &CSIPersistentVolumeSource,
    volume: &mut PersistentVolume,
) -> Result<(), Untranslatable> {
    let pd_name = disk_name(&csi.volume_handle)?.to_owned();
    let partition = attribute(csi, PARTITION).filter(|partition| !partition.is_empty());
    let partition = partition.map(|text| partition::parse(text, "Failed")).transpose()?;
    topology::zones_to_in_tree(volume, ZONE, Some(region_of))?;
    spec(volume).gce_persistent_disk = Some(GCEPersistentDiskVolumeSource {
        pd_name,
        fs_type: csi.fs_type.clone(),
        read_only: csi.read_only,
        partition,
    });
    Ok(())
}

/// The disk's name in `projects/<project>/zones/<zone>/disks/<name>`, or `regions/<region>`.
fn disk_name(handle: &str) -> Result<&str, Untranslatable> {
    let too_few = || {
        let got = handle.split('/').count();
        Untranslatable::invalid(format!(
            "failed to get id components.Got: {got}, wanted 6 components or more. "
        ))
    };
    handle.split('/').nth(5).ok_or_else(too_few)
}

fn to_csi(volume: &Volume<'_>, source: &InTreeSource) -> Option<Translated> {
    let InTreeSource::GcePd(disk) = source else { return None };
    let partition = disk.partition.map(|it| it.to_string()).unwrap_or_default();
    Some(handle(volume, &disk.pd_name).map(|handle| (handle, attributes([(PARTITION, partition)]))))
}

/// The handle without the project, which the plugin's PersistentVolumes do not contain: their disks
/// are in the cluster's project. Without a zone, the disk matches no other.
pub(crate) fn key(handle: &str) -> &str {
    let place = handle.strip_prefix("projects/").and_then(|rest| rest.split_once('/'));
    place.map_or(handle, |(_, place)| place)
}

/// The driver's handle of a disk, from the zones in the volume's labels. Unlike elsewhere the older
/// label takes precedence, and node affinity is ignored.
fn handle(volume: &Volume<'_>, disk: &str) -> Result<String, Untranslatable> {
    let label = |key| volume.label(key).filter(|zones| !zones.is_empty());
    let zones = label(topology::BETA_ZONE).or_else(|| label(topology::ZONE));
    let zones: Vec<&str> =
        zones.into_iter().flat_map(|zones| zones.split(topology::SEPARATOR)).collect();
    let place = match zones.as_slice() {
        [] => format!("zones/{UNSPECIFIED}"),
        [zone] => format!("zones/{zone}"),
        several => {
            let region = region_of(several).map_err(|why| {
                Untranslatable::invalid(format!("failed to get region from zones: {why}"))
            })?;
            format!("regions/{region}")
        }
    };
    Ok(format!("projects/{UNSPECIFIED}/{place}/disks/{disk}"))
}

/// The region of all zones.
fn region_of(zones: &[&str]) -> Result<String, Untranslatable> {
    topology::only_region(zones, |zone| {
        let parts: Vec<&str> = zone.split('-').collect();
        match parts.as_slice() {
            [locale, region, _] => Ok(format!("{locale}-{region}")),
            _ => Err(Untranslatable::invalid(format!(
                "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            ))),
        }
    })
}

#[cfg(test)]
mod tests;
