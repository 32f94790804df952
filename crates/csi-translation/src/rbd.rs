//! Ceph's RBD, whose plugin was removed in Kubernetes 1.31 together with its translation.

use std::{collections::BTreeMap, fmt::Write as _, mem::take};

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, RBDPersistentVolumeSource,
};

use crate::{
    Class, InTreeSource, Plugin, Translated, Untranslatable, Volume, attribute, attributes, class,
    kept, spec,
};

const DRIVER: &str = "rbd.csi.ceph.com";
/// The annotation with the driver's handle of a volume that the driver created.
const VOLUME_HANDLE: &str = "rbd.csi.ceph.com/volume-handle";
/// The prefix of the plugin's image names.
const IMAGE_PREFIX: &str = "kubernetes-dynamic-pvc-";

// Parameters of the driver's classes, its volume attributes, and annotations.
const ADMIN_ID: &str = "adminId";
const CLUSTER_ID: &str = "clusterID";
const IMAGE_FEATURES: &str = "imageFeatures";
const IMAGE_FORMAT: &str = "imageFormat";
const IMAGE_NAME: &str = "imageName";
const JOURNAL_POOL: &str = "journalPool";
const MONITORS: &str = "monitors";
const POOL: &str = "pool";
/// The attributes that annotations keep.
const ANNOTATED: [&str; 4] = [CLUSTER_ID, JOURNAL_POOL, IMAGE_FEATURES, IMAGE_FORMAT];
/// The plugin's default pool.
const DEFAULT_POOL: &str = "rbd";
const DEFAULT_USER: &str = "admin";
const DEFAULT_NAMESPACE: &str = "default";

/// The parameters that are set to the plugin's administrator secret.
const SECRET_NAMES: [&str; 3] = [
    "csi.storage.k8s.io/provisioner-secret-name",
    "csi.storage.k8s.io/node-stage-secret-name",
    "csi.storage.k8s.io/controller-expand-secret-name",
];
const SECRET_NAMESPACES: [&str; 3] = [
    "csi.storage.k8s.io/provisioner-secret-namespace",
    "csi.storage.k8s.io/node-stage-secret-namespace",
    "csi.storage.k8s.io/controller-expand-secret-namespace",
];

pub(crate) const PLUGIN: Plugin = Plugin {
    driver: DRIVER,
    in_tree: "kubernetes.io/rbd",
    class_to_csi,
    to_in_tree,
    to_csi,
    node_affinity: kept,
};

/// Parameters that the plugin did not support are dropped.
fn class_to_csi(class: &mut Class<'_>) -> Result<(), Untranslatable> {
    let mut parameters = BTreeMap::from([
        ("migration".to_owned(), "true".to_owned()),
        (POOL.to_owned(), DEFAULT_POOL.to_owned()),
    ]);
    let mut set = |keys: &[&str], value: &str| {
        parameters.extend(keys.iter().map(|key| ((*key).to_owned(), value.to_owned())));
    };
    set(&SECRET_NAMESPACES, DEFAULT_NAMESPACE);
    for (key, value) in take(class.parameters) {
        match &*key.to_lowercase() {
            class::FS_TYPE => set(&[class::CSI_FS_TYPE], &value),
            "imagefeatures" => set(&[IMAGE_FEATURES], &value),
            "imageformat" => set(&[IMAGE_FORMAT], &value),
            "pool" => set(&[POOL], &value),
            "adminid" => set(&[ADMIN_ID], &value),
            "adminsecretname" => set(&SECRET_NAMES, &value),
            "adminsecretnamespace" => set(&SECRET_NAMESPACES, &value),
            "monitors" => {
                set(&[MONITORS], &value);
                set(&[CLUSTER_ID], &cluster_id(&value));
            }
            _ => {}
        }
    }
    let lacks = |key: &str| parameters.get(key).is_none_or(String::is_empty);
    if SECRET_NAMES.into_iter().any(lacks) {
        return Err(Untranslatable::invalid("missing Ceph admin secret name"));
    }
    if lacks(MONITORS) {
        return Err(Untranslatable::invalid("missing Ceph monitors"));
    }
    *class.parameters = parameters;
    DRIVER.clone_into(class.provisioner);
    Ok(())
}

/// The driver's cluster id for these monitors, separated by commas.
fn cluster_id(monitors: &str) -> String {
    format!("{:x}", md5::compute(monitors))
}

/// The monitors are lost, because the driver does not return them; an annotation holds the driver's
/// handle.
fn to_in_tree(
    csi: &CSIPersistentVolumeSource,
    volume: &mut PersistentVolume,
) -> Result<(), Untranslatable> {
    let of = |key| attribute(csi, key).unwrap_or_default().to_owned();
    let annotations = volume.metadata.annotations.get_or_insert_default();
    annotations.insert(VOLUME_HANDLE.to_owned(), csi.volume_handle.clone());
    for key in ANNOTATED {
        annotations.insert(key.to_owned(), of(key));
    }
    let user = Some(of(ADMIN_ID)).filter(|user| !user.is_empty());
    spec(volume).rbd = Some(RBDPersistentVolumeSource {
        monitors: vec![String::new()],
        image: of(IMAGE_NAME),
        pool: Some(of(POOL)),
        user: Some(user.unwrap_or_else(|| DEFAULT_USER.to_owned())),
        fs_type: csi.fs_type.clone(),
        read_only: csi.read_only,
        secret_ref: csi.node_stage_secret_ref.clone(),
        keyring: None,
    });
    Ok(())
}

fn to_csi(volume: &Volume<'_>, source: &InTreeSource) -> Option<Translated> {
    let InTreeSource::Rbd(rbd) = source else { return None };
    let pool = rbd.pool.clone().unwrap_or_default();
    let annotation = |key| volume.annotation(key).to_owned();
    let known = Some(annotation(VOLUME_HANDLE)).filter(|handle| !handle.is_empty());
    let handle = known.unwrap_or_else(|| {
        migrated_handle(&cluster_id(&rbd.monitors.join(",")), &rbd.image, &pool)
    });
    let user = rbd.user.clone().unwrap_or_default();
    let mut given = attributes([(IMAGE_NAME, rbd.image.clone()), (POOL, pool), (ADMIN_ID, user)]);
    given.extend(attributes(ANNOTATED.map(|key| (key, annotation(key)))));
    Some(Ok((handle, given)))
}

/// The driver's handle of an image that the plugin created: the hash of its monitors, the image,
/// and the pool in hexadecimal digits.
fn migrated_handle(cluster: &str, image: &str, pool: &str) -> String {
    let image = image.strip_prefix(IMAGE_PREFIX).unwrap_or(image);
    let mut handle = format!("mig_mons-{cluster}_image-{image}_");
    for byte in pool.bytes() {
        // Writing to a String cannot fail.
        let _ = write!(handle, "{byte:02x}");
    }
    handle
}

#[cfg(test)]
mod tests;
