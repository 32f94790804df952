//! Builds a PersistentVolume from the driver's response.
//!
//! Sets every field that comes from the driver or the class, and translates the PersistentVolume of an
//! in-tree class. Pure. The controller adds claimRef, class name, protection finalizer and provisioner
//! annotation.

use std::collections::BTreeMap;

use go_fmt::quantity::Quantity;
use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::{api::resource, apis::meta::v1::ObjectMeta},
};

use super::{
    ProvisionerSettings,
    access_modes::is_block,
    defects::{self, Defect},
    request::{Prepared, SecretReferences},
    secrets::SecretReference,
    topology,
};
use crate::{
    controller::provisioner::ProvisionRequest,
    csi::proto::{CreateVolumeRequest, Volume, volume_capability::access_mode::Mode},
};

/// The volume attribute with the identity of the process that provisioned the volume.
pub const IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";
/// The annotation with the name of the secret for deletion; always set, empty without a secret.
pub(super) const DELETION_SECRET_NAME: &str =
    "volume.kubernetes.io/provisioner-deletion-secret-name";
/// The annotation with its namespace.
pub(super) const DELETION_SECRET_NAMESPACE: &str =
    "volume.kubernetes.io/provisioner-deletion-secret-namespace";
/// The annotation with the name of the secret for modification; set only with a secret.
const MODIFY_SECRET_NAME: &str = "volume.kubernetes.io/controller-modify-secret-name";
/// The annotation with its namespace.
const MODIFY_SECRET_NAMESPACE: &str = "volume.kubernetes.io/controller-modify-secret-namespace";

/// Builds the PersistentVolume for `volume`, which the driver created for the request.
///
/// # Errors
/// What makes the volume unusable.
pub fn build_usable(
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
    prepared: &Prepared,
    volume: &Volume,
) -> Result<core::PersistentVolume, Defect> {
    if let Some(defect) = defects::find(prepared, volume) {
        return Err(defect);
    }
    let pv = build(settings, request, prepared, volume);
    match prepared.migration {
        None => Ok(pv),
        Some(migration) => migration.to_in_tree(pv).map_err(Defect::Untranslatable),
    }
}

/// Builds the PersistentVolume for `volume`, which the driver created for the request, in CSI's form.
pub(super) fn build(
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
    prepared: &Prepared,
    volume: &Volume,
) -> core::PersistentVolume {
    let wanted = &request.claim.spec;
    let spec = core::PersistentVolumeSpec {
        access_modes: Some(wanted.access_modes.iter().map(ToString::to_string).collect()),
        mount_options: Some(request.class.mount_options.clone())
            .filter(|options| !options.is_empty()),
        capacity: Some(BTreeMap::from([(
            "storage".to_owned(),
            capacity(volume, &prepared.request),
        )])),
        csi: Some(source(settings, request, prepared, volume)),
        node_affinity: prepared.has_topology.then(|| topology::affinity(volume)).flatten(),
        persistent_volume_reclaim_policy: request.class.reclaim_policy.clone(),
        volume_mode: wanted.volume_mode.as_deref().map(str::to_owned),
        volume_attributes_class_name: settings.attributes_class(&request.claim).map(str::to_owned),
        ..core::PersistentVolumeSpec::default()
    };
    core::PersistentVolume {
        metadata: ObjectMeta {
            name: Some(prepared.request.name.clone()),
            annotations: Some(annotations(&prepared.secrets)),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// The driver's size, or the requested size if the driver does not know (zero).
fn capacity(volume: &Volume, request: &CreateVolumeRequest) -> resource::Quantity {
    let bytes = match volume.capacity_bytes {
        0 => request.capacity_range.unwrap_or_default().required_bytes,
        bytes => bytes,
    };
    resource::Quantity(Quantity::from_bytes(bytes).to_string())
}

fn source(
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
    prepared: &Prepared,
    volume: &Volume,
) -> core::CSIPersistentVolumeSource {
    let secrets = &prepared.secrets;
    let mut attributes = BTreeMap::from([(IDENTITY.to_owned(), settings.driver.identity.clone())]);
    // The driver's value takes precedence if it uses our key.
    attributes.extend(volume.volume_context.clone());
    core::CSIPersistentVolumeSource {
        driver: settings.driver.name.clone(),
        volume_handle: volume.volume_id.clone(),
        volume_attributes: Some(attributes),
        fs_type: Some(prepared.fs_type.clone())
            .filter(|fs_type| !is_block(&request.claim) && !fs_type.is_empty()),
        read_only: is_read_only(settings, &prepared.request).then_some(true),
        controller_publish_secret_ref: reference(secrets.controller_publish.as_ref()),
        node_stage_secret_ref: reference(secrets.node_stage.as_ref()),
        node_publish_secret_ref: reference(secrets.node_publish.as_ref()),
        controller_expand_secret_ref: reference(secrets.controller_expand.as_ref()),
        node_expand_secret_ref: reference(secrets.node_expand.as_ref()),
    }
}

/// Whether the volume is read-only: the claim requests only that, and the flag is set.
fn is_read_only(settings: &ProvisionerSettings, request: &CreateVolumeRequest) -> bool {
    let [only] = request.volume_capabilities.as_slice() else { return false };
    let mode = only.access_mode.map(|access| access.mode());
    settings.flags.controller_publish_readonly && mode == Some(Mode::MultiNodeReaderOnly)
}

fn annotations(secrets: &SecretReferences) -> BTreeMap<String, String> {
    let (name, namespace) = secrets
        .deletion
        .as_ref()
        .map(|secret| (&*secret.name, &*secret.namespace))
        .unwrap_or_default();
    let mut annotations = BTreeMap::from([
        (DELETION_SECRET_NAME.to_owned(), name.to_owned()),
        (DELETION_SECRET_NAMESPACE.to_owned(), namespace.to_owned()),
    ]);
    if let Some(secret) = &secrets.controller_modify {
        annotations.insert(MODIFY_SECRET_NAME.to_owned(), secret.name.clone());
        annotations.insert(MODIFY_SECRET_NAMESPACE.to_owned(), secret.namespace.clone());
    }
    annotations
}

fn reference(secret: Option<&SecretReference>) -> Option<core::SecretReference> {
    secret.map(|secret| core::SecretReference {
        name: Some(secret.name.clone()),
        namespace: Some(secret.namespace.clone()),
    })
}

#[cfg(test)]
mod tests;
