//! Builds a CreateVolumeRequest from claim and class.
//!
//! Runs the checks before a call, in external-provisioner's order. Nothing is sent to the driver
//! here: a failure happens before the call and says nothing about an earlier one
//! ([`NotPrepared::Failed`]).

use std::sync::Arc;

use csi_translation::Migration;
use go_fmt::quantity::Quantity;

use crate::{
    controller::{
        dependencies::Dependency,
        model::source::{Source, SourceKind},
        provisioner::{Failure, NotPrepared, ProvisionRequest},
    },
    csi::proto::{
        CapacityRange, CreateVolumeRequest, controller_service_capability::rpc::Type as Rpc,
    },
    kube::{
        ApiError,
        objects::{Claim, StorageClass, View as _, VolumeAttributesClass},
    },
};

use super::{
    ProvisionerSettings, access_modes, capabilities,
    data_source::{self, Copyable},
    keys::SecretKeys,
    parameters,
    reads::Reads,
    secrets::{self, SecretReference, SecretValues, TemplateContext},
    topology::Topology,
};

/// A request, with the values of the class that the PersistentVolume needs.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Without its secrets.
    pub request: CreateVolumeRequest,
    /// The size that the claim requests; may overflow the request's field.
    pub size: Quantity,
    /// The provisioner's secret.
    pub(super) secret: SecretValues,
    /// The file system type of mounted volumes; if empty, the driver chooses.
    pub(super) fs_type: String,
    pub(super) secrets: SecretReferences,
    /// The source of the volume, unless it is created empty.
    pub source: Option<Source>,
    /// Whether the claim has lost access to the source: the volume is discarded at once.
    pub(super) access_revoked: bool,
    /// Whether the driver has topology.
    pub(super) has_topology: bool,
    /// For a class of an in-tree plugin: the PersistentVolume is translated back.
    pub migration: Option<Migration>,
}

impl Prepared {
    /// Without the values of the provisioner's secret.
    #[must_use]
    pub fn without_secret(self) -> Self {
        Self { secret: SecretValues::default(), ..self }
    }
}

/// The secrets that a class names, resolved for one claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SecretReferences {
    /// For DeleteVolume.
    pub(super) deletion: Option<SecretReference>,
    pub(super) controller_publish: Option<SecretReference>,
    pub(super) node_stage: Option<SecretReference>,
    pub(super) node_publish: Option<SecretReference>,
    pub(super) controller_expand: Option<SecretReference>,
    pub(super) node_expand: Option<SecretReference>,
    pub(super) controller_modify: Option<SecretReference>,
}

/// Builds the request, or returns why there is none. `named` is the claim's source.
pub(super) async fn build(
    reads: &Reads,
    settings: &ProvisionerSettings,
    topology: Option<&Topology>,
    request: &mut ProvisionRequest,
    named: Option<&Copyable>,
) -> Result<Prepared, NotPrepared> {
    let mut prepared = draft(settings, request, named.map(|named| named.source.kind))
        .map_err(|why| why.finished().lasting())?;
    if let Some(named) = named {
        let source = data_source::resolve(reads, settings, request, &prepared.size, named).await?;
        prepared.request.volume_content_source = Some(data_source::content_source(&source));
        prepared.source = Some(source);
        prepared.access_revoked = named.access_revoked;
    }
    if let Some(topology) = topology {
        prepared.has_topology = true;
        prepared.request.accessibility_requirements = topology.decide(request).await?;
    }
    warn_of_deprecated_parameters(&request.class);
    let volume_name = prepared.request.name.clone();
    let context = TemplateContext::of_claim(&request.claim, &volume_name);
    (prepared.secrets, prepared.secret) =
        resolve_secrets(reads, settings, request, &context).await?;
    let given = &request.class.parameters;
    prepared.request.parameters =
        parameters::for_driver(given, |key| settings.ceph_rbd().is_known(given, key))
            .map_err(|why| why.finished().lasting())?;
    if settings.flags.extra_create_metadata {
        prepared.request.parameters.extend(parameters::metadata(&request.claim, &volume_name));
    }
    add_mutable_parameters(reads, settings, request, &mut prepared).await?;
    Ok(prepared)
}

fn warn_of_deprecated_parameters(class: &StorageClass) {
    for (old, new) in parameters::deprecated(&class.parameters) {
        tracing::warn!(
            class = class.name(),
            "\"{old}\" is deprecated and will be removed in a future release, please use \"{new}\" instead"
        );
    }
}

/// Adds the parameters of the claim's VolumeAttributesClass, if it names one.
async fn add_mutable_parameters(
    reads: &Reads,
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
    prepared: &mut Prepared,
) -> Result<(), NotPrepared> {
    let Some(name) = settings.attributes_class(&request.claim) else { return Ok(()) };
    let class = attributes_class(reads, settings, name).await?;
    prepared.request.mutable_parameters.clone_from(&class.parameters);
    Ok(())
}

/// The part of the request that needs no reads.
pub(super) fn draft(
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
    source: Option<SourceKind>,
) -> Result<Prepared, Failure> {
    let claim = &*request.claim;
    let class = &*request.class;
    capabilities::check_create(settings, claim, source)?;
    if claim.spec.selector {
        return Err(Failure::new("claim Selector is not supported"));
    }
    let name = request.volume_name.clone()?;
    let fs_type = parameters::fs_type(&class.parameters, &settings.flags.default_fstype)?;
    let size = size(claim)?;
    settings.ceph_rbd().check_size(&class.parameters, &fs_type, &size)?;
    let multi_writer = settings.driver.capabilities.has(Rpc::SingleNodeMultiWriter);
    let create = CreateVolumeRequest {
        name,
        // If the size overflows, none is requested, as in external-provisioner; a volume that is
        // too small is then detected from the response.
        capacity_range: Some(CapacityRange {
            required_bytes: size.checked_value().unwrap_or(0),
            limit_bytes: 0,
        }),
        volume_capabilities: access_modes::volume_capabilities(
            claim,
            class,
            &fs_type,
            multi_writer,
        )?,
        ..CreateVolumeRequest::default()
    };
    Ok(Prepared {
        request: create,
        size,
        secret: SecretValues::default(),
        fs_type,
        secrets: SecretReferences::default(),
        source: None,
        access_revoked: false,
        has_topology: false,
        migration: None,
    })
}

/// The size that the claim requests; zero if it requests none.
fn size(claim: &Claim) -> Result<Quantity, Failure> {
    let Some(storage) = &claim.spec.resources.requests.storage else {
        return Ok(Quantity::from_bytes(0));
    };
    Quantity::parse(storage).map_err(|why| {
        Failure::new(format!(
            "the claim requests {storage:?} of storage, which is no quantity: {why}"
        ))
    })
}

/// Resolves every secret of the class and reads the provisioner's. As in external-provisioner, a
/// failed read is reported before errors of the others.
async fn resolve_secrets(
    reads: &Reads,
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
    context: &TemplateContext<'_>,
) -> Result<(SecretReferences, SecretValues), Failure> {
    let parameters = &request.class.parameters;
    let reference = |keys| secrets::reference(keys, parameters, context).map_err(Failure::lasting);
    let deletion = settings.ceph_rbd().deletion_secret(parameters, context);
    let provisioner = reference(SecretKeys::PROVISIONER)?;
    let secret = secrets::read(&reads.secrets, provisioner.as_ref()).await?;
    let references = SecretReferences {
        deletion: deletion.map_err(Failure::lasting)?,
        controller_publish: reference(SecretKeys::CONTROLLER_PUBLISH)?,
        node_stage: reference(SecretKeys::NODE_STAGE)?,
        node_publish: reference(SecretKeys::NODE_PUBLISH)?,
        controller_expand: reference(SecretKeys::CONTROLLER_EXPAND)?,
        node_expand: reference(SecretKeys::NODE_EXPAND)?,
        controller_modify: reference(SecretKeys::CONTROLLER_MODIFY)?,
    };
    Ok((references, secret))
}

/// The names of the secrets that the class names for the claim, as far as they resolve.
pub(super) fn secret_names(
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
) -> Vec<String> {
    let context = TemplateContext::of_claim(&request.claim, request.name());
    let parameters = &request.class.parameters;
    let deletion = settings.ceph_rbd().deletion_secret(parameters, &context);
    let kinds =
        SecretKeys::ALL.into_iter().map(|keys| secrets::reference(keys, parameters, &context));
    let named = kinds.chain([deletion]);
    let text = |named: Result<Option<SecretReference>, Failure>| match named {
        Ok(Some(SecretReference { namespace, name })) => format!("{namespace}/{name}"),
        Ok(None) | Err(_) => String::new(),
    };
    named.map(text).collect()
}

/// Reads the claim's VolumeAttributesClass.
async fn attributes_class(
    reads: &Reads,
    settings: &ProvisionerSettings,
    name: &str,
) -> Result<Arc<VolumeAttributesClass>, Failure> {
    let dependency = Dependency::object::<VolumeAttributesClass>(None, name);
    let unread = |error: Arc<ApiError>| {
        let is_missing = error.is_not_found();
        Failure::new(error).unread(dependency.clone(), is_missing)
    };
    let class = reads.attributes_classes.get(None, name).await.map_err(unread)?;
    if class.driver_name == settings.driver.name {
        return Ok(class);
    }
    let foreign = Failure::new(format!(
        "VAC {} referenced in PVC is for driver {} which does not match driver name {}",
        class.name(),
        class.driver_name,
        settings.driver.name
    ));
    Err(foreign.finished().lasting().awaiting([dependency]))
}

#[cfg(test)]
mod tests;
