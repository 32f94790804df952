//! Portworx.

use std::{collections::BTreeMap, mem::take};

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, PortworxVolumeSource,
};

use crate::{Class, InTreeSource, Plugin, Translated, Untranslatable, Volume, kept, spec};

const DRIVER: &str = "pxd.portworx.com";
/// The parameter with the name of the secret for everything.
const AUTH_SECRET_NAME: &str = "openstorage.io/auth-secret-name";
/// The key of its namespace.
const AUTH_SECRET_NAMESPACE: &str = "openstorage.io/auth-secret-namespace";
/// The kinds of secrets in the provisioner's keys.
const PURPOSES: [&str; 6] = [
    "provisioner",
    "controller-publish",
    "node-stage",
    "node-publish",
    "controller-expand",
    "node-expand",
];

pub(crate) const PLUGIN: Plugin = Plugin {
    driver: DRIVER,
    in_tree: "kubernetes.io/portworx-volume",
    class_to_csi,
    to_in_tree,
    to_csi,
    node_affinity: kept,
};

fn class_to_csi(class: &mut Class<'_>) -> Result<(), Untranslatable> {
    for (key, value) in take(class.parameters) {
        let half = match &*key.to_lowercase() {
            AUTH_SECRET_NAME => "name",
            AUTH_SECRET_NAMESPACE => "namespace",
            _ => {
                class.parameters.insert(key, value);
                continue;
            }
        };
        class.parameters.extend(
            PURPOSES.map(|purpose| {
                (format!("csi.storage.k8s.io/{purpose}-secret-{half}"), value.clone())
            }),
        );
    }
    DRIVER.clone_into(class.provisioner);
    Ok(())
}

fn to_in_tree(
    csi: &CSIPersistentVolumeSource,
    volume: &mut PersistentVolume,
) -> Result<(), Untranslatable> {
    spec(volume).portworx_volume = Some(PortworxVolumeSource {
        volume_id: csi.volume_handle.clone(),
        fs_type: csi.fs_type.clone(),
        read_only: csi.read_only,
    });
    Ok(())
}

fn to_csi(_: &Volume<'_>, source: &InTreeSource) -> Option<Translated> {
    let InTreeSource::Portworx(disk) = source else { return None };
    Some(Ok((disk.volume_id.clone(), BTreeMap::new())))
}
