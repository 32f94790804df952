//! The identity of the driver: readiness, name, capabilities, node.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    calls::Calls,
    link::Link,
    proto::{
        self, ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse,
        GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
        GetPluginInfoResponse, NodeGetInfoRequest, NodeGetInfoResponse, ProbeRequest,
        ProbeResponse, controller_service_capability, plugin_capability,
    },
    status::CallError,
};

/// What a driver can do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Capabilities of the plug-in as a whole.
    pub plugin: BTreeSet<plugin_capability::service::Type>,
    /// Capabilities of its controller service; empty for a driver without one.
    pub controller: BTreeSet<controller_service_capability::rpc::Type>,
}

/// The CSI specification has no capability of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the CSI specification has no capability {0:?}: use names such as CREATE_DELETE_VOLUME")]
pub struct UnknownCapability(String);

impl Capabilities {
    /// The capabilities with these names, separated by commas.
    ///
    /// # Errors
    /// A name that the CSI specification does not have.
    pub fn from_names(names: &str) -> Result<Self, UnknownCapability> {
        let mut capabilities = Self::default();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let service = plugin_capability::service::Type::from_str_name(name);
            let rpc = controller_service_capability::rpc::Type::from_str_name(name);
            match (service, rpc) {
                (Some(service), _) => capabilities.plugin.insert(service),
                (None, Some(rpc)) => capabilities.controller.insert(rpc),
                (None, None) => return Err(UnknownCapability(name.to_owned())),
            };
        }
        Ok(capabilities)
    }
}

/// The node a driver runs on (`NodeGetInfo`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The node's topology segment. `None` if the driver does not return one, which differs from a
    /// segment without keys.
    pub topology: Option<BTreeMap<String, String>>,
}

/// Calls `Probe`. A driver that does not set `ready` is ready.
pub(super) async fn probe(calls: &Calls, link: &Link) -> Result<bool, CallError> {
    const METHOD: &str = "/csi.v1.Identity/Probe";
    let answer: ProbeResponse = calls.call(METHOD, Ok(link.clone()), ProbeRequest {}).await?;
    Ok(answer.ready.unwrap_or(true))
}

/// Calls `GetPluginInfo` and returns the name, which may be empty.
pub(super) async fn name(calls: &Calls, link: &Link) -> Result<String, CallError> {
    const METHOD: &str = "/csi.v1.Identity/GetPluginInfo";
    let answer: GetPluginInfoResponse =
        calls.call(METHOD, Ok(link.clone()), GetPluginInfoRequest {}).await?;
    Ok(answer.name)
}

/// Reads the capabilities. The controller's are read only if the driver has a controller service.
pub(super) async fn capabilities(calls: &Calls, link: &Link) -> Result<Capabilities, CallError> {
    let plugin = plugin_capabilities(calls, link).await?;
    let has_controller = plugin.contains(&plugin_capability::service::Type::ControllerService);
    let controller =
        if has_controller { controller_capabilities(calls, link).await? } else { BTreeSet::new() };
    Ok(Capabilities { plugin, controller })
}

/// Calls `NodeGetInfo`.
pub(super) async fn node_info(calls: &Calls, link: &Link) -> Result<NodeInfo, CallError> {
    const METHOD: &str = "/csi.v1.Node/NodeGetInfo";
    let answer: NodeGetInfoResponse =
        calls.call(METHOD, Ok(link.clone()), NodeGetInfoRequest {}).await?;
    let topology = answer.accessible_topology.map(|topology| topology.segments);
    Ok(NodeInfo { topology })
}

async fn plugin_capabilities(
    calls: &Calls,
    link: &Link,
) -> Result<BTreeSet<plugin_capability::service::Type>, CallError> {
    const METHOD: &str = "/csi.v1.Identity/GetPluginCapabilities";
    let answer: GetPluginCapabilitiesResponse =
        calls.call(METHOD, Ok(link.clone()), GetPluginCapabilitiesRequest {}).await?;
    let services =
        answer.capabilities.into_iter().filter_map(|capability| match capability.r#type {
            // Ignore capabilities that are newer than this program.
            Some(plugin_capability::Type::Service(service)) => service.r#type.try_into().ok(),
            _ => None,
        });
    Ok(services.collect())
}

async fn controller_capabilities(
    calls: &Calls,
    link: &Link,
) -> Result<BTreeSet<controller_service_capability::rpc::Type>, CallError> {
    const METHOD: &str = "/csi.v1.Controller/ControllerGetCapabilities";
    let answer: ControllerGetCapabilitiesResponse =
        calls.call(METHOD, Ok(link.clone()), ControllerGetCapabilitiesRequest {}).await?;
    let rpcs = answer.capabilities.into_iter().filter_map(|capability| {
        let proto::controller_service_capability::Type::Rpc(rpc) = capability.r#type?;
        rpc.r#type.try_into().ok()
    });
    Ok(rpcs.collect())
}
