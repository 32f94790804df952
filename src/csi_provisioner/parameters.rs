//! StorageClass parameters: which are for the provisioner, which for the driver.
//!
//! Handles the reserved prefix `csi.storage.k8s.io/`, the file system type and the metadata
//! parameters. Pure. Secrets belong to `secrets`.

use std::collections::BTreeMap;

use super::keys::{FS_TYPE, OLD_FS_TYPE, RESERVED_PREFIX, SecretKeys, is_known};
use crate::{
    controller::provisioner::Failure,
    kube::objects::{Claim, View as _},
};

const CLAIM_NAME: &str = "csi.storage.k8s.io/pvc/name";
const CLAIM_NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";
const VOLUME_NAME: &str = "csi.storage.k8s.io/pv/name";

/// The file system type of the class, or `default`.
///
/// # Errors
/// external-provisioner's text if the class sets it twice.
pub(super) fn fs_type(
    parameters: &BTreeMap<String, String>,
    default: &str,
) -> Result<String, Failure> {
    let mut named = parameters
        .iter()
        .filter(|(key, _)| key.eq_ignore_ascii_case(OLD_FS_TYPE) || *key == FS_TYPE);
    let first = named.next().map(|(_, value)| value.as_str()).unwrap_or_default();
    if named.next().is_some() {
        return Err(Failure::new(format!(
            "fstype specified in parameters with both \"fstype\" and \"{FS_TYPE}\" keys"
        )));
    }
    Ok(if first.is_empty() { default } else { first }.to_owned())
}

/// The parameters for the driver: the class's without the reserved ones. `also` accepts further
/// reserved keys.
///
/// # Errors
/// external-provisioner's text for an unknown reserved key.
pub(super) fn for_driver(
    parameters: &BTreeMap<String, String>,
    also: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, String>, Failure> {
    let is_unknown =
        |key: &&String| key.starts_with(RESERVED_PREFIX) && !is_known(key) && !also(key);
    let unknown = parameters.keys().find(is_unknown);
    if let Some(key) = unknown {
        return Err(Failure::new(format!(
            "failed to strip CSI Parameters of prefixed keys: found unknown parameter key \"{key}\" with reserved namespace {RESERVED_PREFIX}"
        )));
    }
    let kept = parameters.iter().filter(|(key, _)| !key.starts_with(RESERVED_PREFIX));
    Ok(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// The deprecated keys that the class uses, each with its replacement.
pub(super) fn deprecated(
    parameters: &BTreeMap<String, String>,
) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
    let fs_type = parameters.keys().any(|key| key.eq_ignore_ascii_case(OLD_FS_TYPE));
    let secrets = SecretKeys::ALL.into_iter().flat_map(|keys| {
        let pairs = keys
            .deprecated
            .map(|(name, namespace)| [(name, keys.name), (namespace, keys.namespace)]);
        pairs.into_iter().flatten()
    });
    let used = secrets.filter(|(old, _)| parameters.contains_key(*old));
    fs_type.then_some((OLD_FS_TYPE, FS_TYPE)).into_iter().chain(used)
}

/// The names of claim and volume, which `--extra-create-metadata` passes to the driver.
pub(super) fn metadata(claim: &Claim, volume_name: &str) -> [(String, String); 3] {
    [(CLAIM_NAME, claim.name()), (CLAIM_NAMESPACE, claim.namespace()), (VOLUME_NAME, volume_name)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn for_driver(
        parameters: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, Failure> {
        super::for_driver(parameters, |_| false)
    }

    fn class(parameters: &[(&str, &str)]) -> BTreeMap<String, String> {
        parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn deprecated_keys_are_reported_with_their_replacements() {
        let used = |parameters: &[(&str, &str)]| deprecated(&class(parameters)).collect::<Vec<_>>();
        assert_eq!(used(&[("pool", "rbd"), (FS_TYPE, "xfs")]), []);
        assert_eq!(
            used(&[
                ("FSTYPE", "xfs"),
                ("csiNodeStageSecretName", "s"),
                ("csiProvisionerSecretNamespace", "n")
            ]),
            [
                ("fstype", "csi.storage.k8s.io/fstype"),
                (
                    "csiProvisionerSecretNamespace",
                    "csi.storage.k8s.io/provisioner-secret-namespace"
                ),
                ("csiNodeStageSecretName", "csi.storage.k8s.io/node-stage-secret-name"),
            ]
        );
    }

    #[test]
    fn every_key_of_a_secret_is_known_and_no_other() {
        let known: Vec<&str> = SecretKeys::ALL
            .into_iter()
            .flat_map(|keys| [keys.name, keys.namespace])
            .chain([FS_TYPE])
            .collect();
        assert_eq!(known.len(), 17);
        for key in known {
            assert_eq!(
                for_driver(&class(&[(key, "x"), ("own", "y")])),
                Ok(class(&[("own", "y")])),
                "{key}"
            );
        }
        for key in [
            "csi.storage.k8s.io/",
            "csi.storage.k8s.io/FSTYPE",
            "csi.storage.k8s.io/pvc/name",
            "csi.storage.k8s.io/pv/name",
            "csi.storage.k8s.io/provisioner-secret",
            "csi.storage.k8s.io/controller-expand-secret-Name",
        ] {
            assert!(for_driver(&class(&[(key, "x")])).is_err(), "{key}");
        }
        // Only the whole prefix is reserved.
        for key in ["csi.storage.k8s.io", "CSI.storage.k8s.io/x", " csi.storage.k8s.io/x", "csiX"] {
            assert_eq!(for_driver(&class(&[(key, "x")])), Ok(class(&[(key, "x")])), "{key}");
        }
    }
}
