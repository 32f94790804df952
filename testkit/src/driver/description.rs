//! What a driver says of itself, and its answers to the calls that ask for it.

use std::collections::BTreeMap;

use super::{
    Answer, Status,
    proto::{
        ControllerGetCapabilitiesResponse, ControllerServiceCapability,
        GetPluginCapabilitiesResponse, GetPluginInfoResponse, PluginCapability,
        controller_service_capability::{self, Rpc, rpc},
        plugin_capability::{self, Service, service},
    },
};

/// What a driver says of itself.
#[derive(Debug, Clone, Default)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// The names of the plugin's capabilities.
    pub plugin: Vec<String>,
    /// The names of the controller's capabilities.
    pub controller: Vec<String>,
}

impl Description {
    /// What this driver is.
    pub fn new(name: &str, plugin: &[&str], controller: &[&str]) -> Self {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Self { name: name.to_owned(), plugin: owned(plugin), controller: owned(controller) }
    }

    pub(super) fn plugin_info(&self) -> GetPluginInfoResponse {
        let (name, vendor_version) = (self.name.clone(), "1.0".to_owned());
        GetPluginInfoResponse { name, vendor_version, manifest: BTreeMap::new() }
    }

    pub(super) fn plugin_capabilities(&self) -> Answer<GetPluginCapabilitiesResponse> {
        let capabilities = self.plugin.iter().map(|name| {
            let kind =
                service::Type::from_str_name(name).ok_or_else(|| unknown_capability(name))?;
            let service = plugin_capability::Type::Service(Service { r#type: kind.into() });
            Ok(PluginCapability { r#type: Some(service) })
        });
        Ok(GetPluginCapabilitiesResponse { capabilities: capabilities.collect::<Answer<_>>()? })
    }

    pub(super) fn controller_capabilities(&self) -> Answer<ControllerGetCapabilitiesResponse> {
        let capabilities = self.controller.iter().map(|name| {
            let kind = rpc::Type::from_str_name(name).ok_or_else(|| unknown_capability(name))?;
            let rpc = controller_service_capability::Type::Rpc(Rpc { r#type: kind.into() });
            Ok(ControllerServiceCapability { r#type: Some(rpc) })
        });
        Ok(ControllerGetCapabilitiesResponse { capabilities: capabilities.collect::<Answer<_>>()? })
    }
}

/// What grpcio answers when a handler fails: `UNKNOWN`.
fn unknown_capability(name: &str) -> Status {
    Status::unknown(format!("the script names the capability {name:?}, which CSI does not have"))
}
