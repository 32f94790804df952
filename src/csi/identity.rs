//! Who the driver is: ready, its name, its capabilities, where it runs.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    calls::{Calls, origin},
    link::Link,
    proto::{
        self, ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
        NodeGetInfoRequest, ProbeRequest, controller_client::ControllerClient,
        controller_service_capability, identity_client::IdentityClient, node_client::NodeClient,
        plugin_capability,
    },
    status::CallError,
};

/// What a driver says it can do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Of the plug-in as a whole.
    pub plugin: BTreeSet<plugin_capability::service::Type>,
    /// Of its controller service; empty for a driver without one.
    pub controller: BTreeSet<controller_service_capability::rpc::Type>,
}

/// Where a driver runs, as it says itself (CSI spec, `NodeGetInfo`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The node's topology segment, value by key; none for a driver that says nothing of it,
    /// which is not the same as one without keys.
    pub topology: Option<BTreeMap<String, String>>,
}

/// Asks whether the driver is ready. One that does not say is.
pub(super) async fn probe(calls: &Calls, link: &Link) -> Result<bool, CallError> {
    let answer = calls.call(
        "/csi.v1.Identity/Probe",
        Ok(link.clone()),
        ProbeRequest {},
        |wire, request| async { IdentityClient::with_origin(wire, origin()).probe(request).await },
    );
    Ok(answer.await?.ready.unwrap_or(true))
}

/// Asks for the driver's name; it may be empty.
pub(super) async fn name(calls: &Calls, link: &Link) -> Result<String, CallError> {
    const METHOD: &str = "/csi.v1.Identity/GetPluginInfo";
    let answer =
        calls.call(METHOD, Ok(link.clone()), GetPluginInfoRequest {}, |wire, request| async {
            IdentityClient::with_origin(wire, origin()).get_plugin_info(request).await
        });
    Ok(answer.await?.name)
}

/// Asks what the driver can do. A driver without a controller service is not asked about it.
pub(super) async fn capabilities(calls: &Calls, link: &Link) -> Result<Capabilities, CallError> {
    let plugin = plugin_capabilities(calls, link).await?;
    let has_controller = plugin.contains(&plugin_capability::service::Type::ControllerService);
    let controller =
        if has_controller { controller_capabilities(calls, link).await? } else { BTreeSet::new() };
    Ok(Capabilities { plugin, controller })
}

/// Asks where the driver runs.
pub(super) async fn node_info(calls: &Calls, link: &Link) -> Result<NodeInfo, CallError> {
    let answer = calls.call(
        "/csi.v1.Node/NodeGetInfo",
        Ok(link.clone()),
        NodeGetInfoRequest {},
        |wire, request| async {
            NodeClient::with_origin(wire, origin()).node_get_info(request).await
        },
    );
    let topology = answer.await?.accessible_topology.map(|topology| topology.segments);
    Ok(NodeInfo { topology })
}

async fn plugin_capabilities(
    calls: &Calls,
    link: &Link,
) -> Result<BTreeSet<plugin_capability::service::Type>, CallError> {
    const METHOD: &str = "/csi.v1.Identity/GetPluginCapabilities";
    let answer = calls.call(
        METHOD,
        Ok(link.clone()),
        GetPluginCapabilitiesRequest {},
        |wire, request| async {
            IdentityClient::with_origin(wire, origin()).get_plugin_capabilities(request).await
        },
    );
    let services =
        answer.await?.capabilities.into_iter().filter_map(|capability| match capability.r#type {
            // Capabilities newer than this program mean nothing to it.
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
    let answer = calls.call(
        METHOD,
        Ok(link.clone()),
        ControllerGetCapabilitiesRequest {},
        |wire, request| async {
            ControllerClient::with_origin(wire, origin()).controller_get_capabilities(request).await
        },
    );
    let rpcs = answer.await?.capabilities.into_iter().filter_map(|capability| {
        let proto::controller_service_capability::Type::Rpc(rpc) = capability.r#type?;
        rpc.r#type.try_into().ok()
    });
    Ok(rpcs.collect())
}
