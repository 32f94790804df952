//! From claim and class to a CreateVolumeRequest.
//!
//! Owns the checks before a call, in the original's order (reference 3.4), and the request they
//! end in. Promises that nothing is sent to the driver here: what fails, fails before the call and
//! says nothing about an earlier one ([`NotSent::Failed`]).

use std::sync::Arc;

use crate::{
    controller::{
        dependencies::index::Dependency,
        model::source::{Source, SourceKind},
        provisioner::{Failure, NotSent, ProvisionRequest},
    },
    csi::proto::{CapacityRange, CreateVolumeRequest},
    kube::{
        ApiError,
        objects::{Claim, View as _, VolumeAttributesClass},
        quantity::Quantity,
    },
};

use super::{
    Settings, access_modes, capabilities,
    data_source::{self, Copyable},
    keys::SecretKind,
    parameters,
    reads::Reads,
    secrets::{self, SecretReference, SecretValues, TemplateContext},
    topology::Topology,
};

/// A request, and what of the class goes into the PersistentVolume afterwards.
#[derive(Debug, Clone)]
pub(super) struct Prepared {
    /// Without its secrets.
    pub(super) request: CreateVolumeRequest,
    /// The size that the claim asks for; may be more than a request can say.
    pub(super) size: Quantity,
    /// The provisioner's secret.
    pub(super) secret: SecretValues,
    /// For mounted volumes, the file system type; empty lets the driver choose.
    pub(super) fs_type: String,
    pub(super) secrets: SecretReferences,
    /// What was read for it, beside claim and class: where the driver refuses, a change may help.
    pub(super) read: Vec<Dependency>,
    /// What the volume is made from, where it is not made empty.
    pub(super) source: Option<Source>,
    /// Whether the claim has lost the right to that: the volume goes at once.
    pub(super) is_forfeited: bool,
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

/// Makes the request for an order, or says why there is none. `named` is the claim's source.
pub(super) async fn prepare(
    reads: &Reads,
    settings: &Settings,
    topology: Option<&Topology>,
    order: &mut ProvisionRequest,
    named: Option<&Copyable>,
) -> Result<Prepared, NotSent> {
    let mut prepared = draft(settings, order, named.map(|named| named.kind))
        .map_err(|why| why.finished().lasting())?;
    if let Some(named) = named {
        let source =
            data_source::resolve(&reads.client, settings, order, &prepared.size, named).await?;
        prepared.request.volume_content_source = Some(data_source::content_source(&source));
        prepared.source = Some(source);
        prepared.is_forfeited = named.is_forfeited;
    }
    if let Some(topology) = topology {
        prepared.request.accessibility_requirements = topology.decide(order).await?;
    }
    for (old, new) in parameters::deprecated(&order.class.parameters) {
        tracing::warn!(
            class = order.class.name(),
            "\"{old}\" is deprecated and will be removed in a future release, please use \"{new}\" instead"
        );
    }
    let volume_name = prepared.request.name.clone();
    let context = TemplateContext::of_claim(&order.claim, &volume_name);
    (prepared.secrets, prepared.secret) = resolve_secrets(reads, settings, order, &context).await?;
    prepared.read.extend(prepared.secret.source().cloned());
    let given = &order.class.parameters;
    prepared.request.parameters =
        parameters::for_driver(given, |key| settings.ceph_rbd.is_known(given, key))
            .map_err(|why| why.finished().lasting())?;
    if settings.extra_create_metadata {
        prepared.request.parameters.extend(parameters::metadata(&order.claim, &volume_name));
    }
    if let Some(attributes) = settings.attributes_class(&order.claim) {
        let class = attributes_class(reads, settings, attributes).await?;
        let awaited = Dependency::object::<VolumeAttributesClass>(None, attributes);
        prepared.read.push(awaited.observed_as(&class.metadata));
        prepared.request.mutable_parameters.clone_from(&class.parameters);
    }
    Ok(prepared)
}

/// The part of the request that needs nothing but the order.
pub(super) fn draft(
    settings: &Settings,
    order: &ProvisionRequest,
    source: Option<SourceKind>,
) -> Result<Prepared, NotSent> {
    let (claim, class) = (&*order.claim, &*order.class);
    capabilities::check_create(settings, claim, source)?;
    if claim.spec.selector {
        return Err(Failure::new("claim Selector is not supported").into());
    }
    let name = order.volume_name.clone()?;
    let fs_type = parameters::fs_type(&class.parameters, &settings.default_fs_type)?;
    let size = size(claim)?;
    settings.ceph_rbd.check_size(&class.parameters, &fs_type, &size)?;
    let multi_writer = settings.capabilities.single_node_multi_writer();
    let request = CreateVolumeRequest {
        name,
        // Where the size does not fit, none is asked for, as in the original: a volume that is
        // too small for it is then found out by what the driver answers.
        capacity_range: Some(CapacityRange {
            required_bytes: size.checked_value().unwrap_or(0),
            limit_bytes: 0,
        }),
        volume_capabilities: access_modes::capabilities(claim, class, &fs_type, multi_writer)?,
        ..CreateVolumeRequest::default()
    };
    Ok(Prepared {
        request,
        size,
        secret: SecretValues::default(),
        fs_type,
        secrets: SecretReferences::default(),
        read: Vec::new(),
        source: None,
        is_forfeited: false,
    })
}

/// The size that the claim asks for; zero when it asks for none.
fn size(claim: &Claim) -> Result<Quantity, NotSent> {
    let Some(storage) = &claim.spec.resources.requests.storage else {
        return Ok(Quantity::from_bytes(0));
    };
    Quantity::parse(storage).map_err(|why| {
        NotSent::Failed(Failure::new(format!(
            "the claim requests {storage:?} of storage, which is no quantity: {why}"
        )))
    })
}

/// Resolves every secret of the class and reads the provisioner's, which fails before the others
/// are looked at, as in the original.
async fn resolve_secrets(
    reads: &Reads,
    settings: &Settings,
    order: &ProvisionRequest,
    context: &TemplateContext<'_>,
) -> Result<(SecretReferences, SecretValues), Failure> {
    let parameters = &order.class.parameters;
    let reference = |kind| secrets::reference(kind, parameters, context).map_err(Failure::lasting);
    let deletion = settings.ceph_rbd.deletion_secret(parameters, context);
    let provisioner = reference(SecretKind::Provisioner)?;
    let secret = secrets::read(&reads.secrets, provisioner.as_ref()).await?;
    let references = SecretReferences {
        deletion: deletion.map_err(Failure::lasting)?,
        controller_publish: reference(SecretKind::ControllerPublish)?,
        node_stage: reference(SecretKind::NodeStage)?,
        node_publish: reference(SecretKind::NodePublish)?,
        controller_expand: reference(SecretKind::ControllerExpand)?,
        node_expand: reference(SecretKind::NodeExpand)?,
        controller_modify: reference(SecretKind::ControllerModify)?,
    };
    Ok((references, secret))
}

/// The names of the secrets that the order's class names for its claim, as far as they resolve.
pub(super) fn secret_names(settings: &Settings, order: &ProvisionRequest) -> Vec<String> {
    let volume_name = order.volume_name.as_deref().unwrap_or_default();
    let context = TemplateContext::of_claim(&order.claim, volume_name);
    let parameters = &order.class.parameters;
    let deletion = settings.ceph_rbd.deletion_secret(parameters, &context);
    let kinds =
        SecretKind::ALL.into_iter().map(|kind| secrets::reference(kind, parameters, &context));
    let named = kinds.chain([deletion]);
    let text = |named: Result<Option<SecretReference>, Failure>| match named {
        Ok(Some(SecretReference { namespace, name })) => format!("{namespace}/{name}"),
        Ok(None) | Err(_) => String::new(),
    };
    named.map(text).collect()
}

/// The claim's VolumeAttributesClass.
async fn attributes_class(
    reads: &Reads,
    settings: &Settings,
    name: &str,
) -> Result<Arc<VolumeAttributesClass>, Failure> {
    let awaited = Dependency::object::<VolumeAttributesClass>(None, name);
    let unread = |error: Arc<ApiError>| {
        let is_missing = error.is_not_found();
        Failure::new(error).unread(awaited.clone(), is_missing)
    };
    let class = reads.attributes_classes.get(None, name).await.map_err(unread)?;
    if class.driver_name == settings.driver_name {
        return Ok(class);
    }
    let foreign = Failure::new(format!(
        "VAC {} referenced in PVC is for driver {} which does not match driver name {}",
        class.name(),
        class.driver_name,
        settings.driver_name
    ));
    Err(foreign.finished().lasting().awaiting([awaited.observed_as(&class.metadata)]))
}

#[cfg(test)]
mod tests;
