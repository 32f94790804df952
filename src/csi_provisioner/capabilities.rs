//! The capabilities a driver needs.
//!
//! The checks and their error texts. Pure. `csi` reads the capabilities.

use super::ProvisionerSettings;
use crate::{
    controller::{model::source::SourceKind, provisioner::Failure},
    csi::{
        Capabilities,
        proto::{
            controller_service_capability::rpc::Type as Rpc,
            plugin_capability::service::Type as Service,
        },
    },
    kube::objects::Claim,
};

/// Checks the capabilities needed to create or delete any volume.
///
/// # Errors
/// external-provisioner's text for the missing capability.
pub(super) fn check(capabilities: &Capabilities) -> Result<(), Failure> {
    let lacks = if !capabilities.plugin.contains(&Service::ControllerService) {
        "plugin CONTROLLER_SERVICE"
    } else if !capabilities.has(Rpc::CreateDeleteVolume) {
        "controller CREATE_DELETE_VOLUME"
    } else {
        return Ok(());
    };
    Err(Failure::new(format!(
        "CSI driver does not support dynamic provisioning: {lacks} capability is not reported"
    )))
}

/// Checks the capabilities needed for this claim's volume.
///
/// # Errors
/// external-provisioner's text for the missing capability.
pub(super) fn check_create(
    settings: &ProvisionerSettings,
    claim: &Claim,
    source: Option<SourceKind>,
) -> Result<(), Failure> {
    check(&settings.driver.capabilities)?;
    let modified = settings.attributes_class(claim).map(|_| Rpc::ModifyVolume);
    let copied = source.map(|kind| match kind {
        SourceKind::Snapshot => Rpc::CreateDeleteSnapshot,
        SourceKind::Claim => Rpc::CloneVolume,
    });
    let mut needed = copied.into_iter().chain(modified);
    let lacking = needed.find(|rpc| !settings.driver.capabilities.has(*rpc));
    lacking.map_or(Ok(()), |rpc| {
        let what = match rpc {
            Rpc::CreateDeleteSnapshot => "snapshot restore",
            Rpc::CloneVolume => "clone operations",
            _ => "VolumeAttributesClass",
        };
        let name = rpc.as_str_name();
        Err(Failure::new(format!(
            "CSI driver does not support {what}: controller {name} capability is not reported"
        )))
    })
}
