//! Azure's managed disks.

use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, CSIPersistentVolumeSource, PersistentVolume,
};

use crate::{
    Class, InTreeSource, Plugin, Translated, Untranslatable, Volume, attributes, class, kept, spec,
};

const DRIVER: &str = "disk.csi.azure.com";
const ZONE: &str = "topology.disk.csi.azure.com/zone";
const MANAGED: &str = "Managed";

/// A volume attribute of the driver.
const CACHING_MODE: &str = "cachingmode";

/// The pattern of a managed disk's URI, as printed in messages.
const MANAGED_URI: &str =
    ".*/subscriptions/(?:.*)/resourceGroups/(?:.*)/providers/Microsoft.Compute/disks/(.+)";
/// The pattern of another disk's URI, as printed in messages.
const UNMANAGED_URI: &str = "http(?:.*)://(?:.*)/vhds/(.+)";

pub(crate) const PLUGIN: Plugin = Plugin {
    driver: DRIVER,
    in_tree: "kubernetes.io/azure-disk",
    class_to_csi,
    to_in_tree,
    to_csi,
    node_affinity: kept,
};

/// The driver reads the file system from the parameters itself.
fn class_to_csi(class: &mut Class<'_>) -> Result<(), Untranslatable> {
    class::zones_to_topologies(class, ZONE)?;
    for expression in class::expressions(class).filter(|it| it.key == ZONE) {
        for zone in &mut expression.values {
            // In a region without zones, the plugin numbered its fault domains.
            if !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_digit()) {
                zone.clear();
            }
        }
    }
    Ok(())
}

/// The topology keeps the driver's keys, as in external-provisioner.
fn to_in_tree(
    csi: &CSIPersistentVolumeSource,
    volume: &mut PersistentVolume,
) -> Result<(), Untranslatable> {
    let mut disk = AzureDiskVolumeSource {
        disk_name: disk_name(&csi.volume_handle)?.to_owned(),
        disk_uri: csi.volume_handle.clone(),
        fs_type: Some(csi.fs_type.clone().unwrap_or_default()),
        read_only: Some(csi.read_only.unwrap_or_default()),
        kind: Some(MANAGED.to_owned()),
        caching_mode: None,
    };
    for (key, value) in csi.volume_attributes.iter().flatten().filter(|(_, it)| !it.is_empty()) {
        match &*key.to_lowercase() {
            CACHING_MODE => disk.caching_mode = Some(value.clone()),
            class::FS_TYPE => disk.fs_type = Some(value.clone()),
            _ => {}
        }
    }
    spec(volume).azure_disk = Some(disk);
    Ok(())
}

/// The disk name in a URI.
fn disk_name(uri: &str) -> Result<&str, Untranslatable> {
    let is_unmanaged =
        uri.len() > 4 && uri.get(..4).is_some_and(|it| it.eq_ignore_ascii_case("http"));
    let (parts, format) = if is_unmanaged {
        (&["http", "://", "/vhds/"][..], UNMANAGED_URI)
    } else {
        (
            &["/subscriptions/", "/resourceGroups/", "/providers/Microsoft.Compute/disks/"][..],
            MANAGED_URI,
        )
    };
    behind_last(uri, parts).ok_or_else(|| {
        Untranslatable::invalid(format!(
            "could not get disk name from {uri}, correct format: {format}"
        ))
    })
}

/// The text after the last part, if the other parts occur before it, in order.
fn behind_last<'a>(text: &'a str, parts: &[&str]) -> Option<&'a str> {
    let (last, before) = parts.split_last()?;
    let mut rest = text;
    for part in before {
        rest = rest.split_once(part)?.1;
    }
    let mut found = rest.rmatch_indices(last).map(|(at, _)| rest.get(at + last.len()..));
    found.find_map(|name| name.filter(|name| !name.is_empty()))
}

fn to_csi(_: &Volume<'_>, source: &InTreeSource) -> Option<Translated> {
    let InTreeSource::AzureDisk(disk) = source else { return None };
    Some(source_of(disk))
}

fn source_of(disk: &AzureDiskVolumeSource) -> Translated {
    if let Some(kind) = disk.kind.as_ref().filter(|kind| !kind.eq_ignore_ascii_case(MANAGED)) {
        return Err(Untranslatable::invalid(format!(
            "kind({kind}) is not supported in csi migration"
        )));
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let given = [(CACHING_MODE, text(&disk.caching_mode)), (class::FS_TYPE, text(&disk.fs_type))];
    Ok((disk.disk_uri.clone(), attributes(given)))
}

#[cfg(test)]
mod tests;
