//! The identity of the driver: readiness, name, capabilities, node.

use std::collections::{BTreeMap, BTreeSet};

use http::Uri;

use super::{
    calls::Calls,
    link::Link,
    proto::{
        ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
        NodeGetInfoRequest, ProbeRequest, controller_client::ControllerClient,
        controller_service_capability, identity_client::IdentityClient, node_client::NodeClient,
        plugin_capability,
    },
    status::CallError,
    wire::Wire,
};

/// What a driver can do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Capabilities of the plug-in as a whole.
    pub plugin: BTreeSet<plugin_capability::service::Type>,
    /// Capabilities of its controller service; empty for a driver without one.
    pub controller: BTreeSet<controller_service_capability::rpc::Type>,
}

impl Capabilities {
    /// Whether the driver's controller service has this capability.
    pub fn has(&self, rpc: controller_service_capability::rpc::Type) -> bool {
        self.controller.contains(&rpc)
    }
}

/// The `:authority` of every request: grpc-go's for unix sockets.
const ORIGIN: &str = "http://localhost";

fn identity(wire: Wire) -> IdentityClient<Wire> {
    IdentityClient::with_origin(wire, Uri::from_static(ORIGIN))
}

pub(super) fn controller(wire: Wire) -> ControllerClient<Wire> {
    ControllerClient::with_origin(wire, Uri::from_static(ORIGIN))
}

/// Calls `Probe`. A driver that does not set `ready` is ready.
pub(super) async fn probe(calls: &Calls, link: &Link) -> Result<bool, CallError> {
    const METHOD: &str = "/csi.v1.Identity/Probe";
    let send = |wire, request| async { identity(wire).probe(request).await };
    let answer = calls.send(METHOD, Ok(link.clone()), None, ProbeRequest {}, send).await?;
    Ok(answer.ready.unwrap_or(true))
}

/// Calls `GetPluginInfo` and returns the name, which may be empty.
pub(super) async fn name(calls: &Calls, link: &Link) -> Result<String, CallError> {
    const METHOD: &str = "/csi.v1.Identity/GetPluginInfo";
    let send = |wire, request| async { identity(wire).get_plugin_info(request).await };
    Ok(calls.send(METHOD, Ok(link.clone()), None, GetPluginInfoRequest {}, send).await?.name)
}

/// Reads the capabilities. The controller's are read only if the driver has a controller service.
pub(super) async fn capabilities(calls: &Calls, link: &Link) -> Result<Capabilities, CallError> {
    let plugin = plugin_capabilities(calls, link).await?;
    let has_controller = plugin.contains(&plugin_capability::service::Type::ControllerService);
    let controller =
        if has_controller { controller_capabilities(calls, link).await? } else { BTreeSet::new() };
    Ok(Capabilities { plugin, controller })
}

/// Calls `NodeGetInfo` and returns the topology segment of the driver's node. `None` if the driver does not
/// return one, which differs from a segment without keys.
pub(super) async fn node_topology(
    calls: &Calls,
    link: &Link,
) -> Result<Option<BTreeMap<String, String>>, CallError> {
    const METHOD: &str = "/csi.v1.Node/NodeGetInfo";
    let send = |wire, request| async {
        let mut node = NodeClient::with_origin(wire, Uri::from_static(ORIGIN));
        node.node_get_info(request).await
    };
    let answer = calls.send(METHOD, Ok(link.clone()), None, NodeGetInfoRequest {}, send).await?;
    Ok(answer.accessible_topology.map(|topology| topology.segments))
}

async fn plugin_capabilities(
    calls: &Calls,
    link: &Link,
) -> Result<BTreeSet<plugin_capability::service::Type>, CallError> {
    const METHOD: &str = "/csi.v1.Identity/GetPluginCapabilities";
    let send = |wire, request| async { identity(wire).get_plugin_capabilities(request).await };
    let answer =
        calls.send(METHOD, Ok(link.clone()), None, GetPluginCapabilitiesRequest {}, send).await?;
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
    let send =
        |wire, request| async { controller(wire).controller_get_capabilities(request).await };
    let answer = calls
        .send(METHOD, Ok(link.clone()), None, ControllerGetCapabilitiesRequest {}, send)
        .await?;
    let rpcs = answer.capabilities.into_iter().filter_map(|capability| {
        let controller_service_capability::Type::Rpc(rpc) = capability.r#type?;
        rpc.r#type.try_into().ok()
    });
    Ok(rpcs.collect())
}
