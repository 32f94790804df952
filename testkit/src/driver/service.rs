//! The one adapter between tonic's generated services and a [`Backend`].
//!
//! Writes each call into the [`Journal`] the moment it arrives, then asks the backend.

use std::{sync::Arc, time::Duration};

use prost::Message;
use tonic::{Request, Response, Status, async_trait, metadata::MetadataMap, service::Routes};

use super::{
    Answer, Backend, Call, Journal, Ready,
    proto::{
        ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, CreateVolumeRequest,
        CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest,
        GetCapacityResponse, GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse,
        GetPluginInfoRequest, GetPluginInfoResponse, NodeGetInfoRequest, NodeGetInfoResponse,
        ProbeRequest, ProbeResponse,
        controller_server::{Controller, ControllerServer},
        identity_server::{Identity, IdentityServer},
        node_server::{Node, NodeServer},
    },
};

/// A backend and its journal, as tonic's servers want it.
struct Service<B> {
    backend: Arc<B>,
    journal: Arc<Journal>,
}

/// The three CSI services of `backend`.
pub(super) fn routes<B: Backend>(backend: Arc<B>, journal: Arc<Journal>) -> Routes {
    let service = Arc::new(Service { backend, journal });
    Routes::new(IdentityServer::from_arc(Arc::clone(&service)))
        .add_service(ControllerServer::from_arc(Arc::clone(&service)))
        .add_service(NodeServer::from_arc(service))
}

impl<B: Backend> Service<B> {
    /// Writes the call down and unpacks it.
    fn arrived<M: Message>(&self, method: &'static str, request: Request<M>) -> Call<M> {
        self.journal.note(method, request.get_ref());
        let time_left = time_left(request.metadata());
        Call { request: request.into_inner(), time_left }
    }

    /// The same for a call that asks what the driver is.
    async fn identified<M: Message>(
        &self,
        method: &'static str,
        request: Request<M>,
    ) -> Answer<Ready> {
        self.arrived(method, request);
        self.backend.identify(method).await
    }
}

type Reply<T> = Result<Response<T>, Status>;

#[async_trait]
impl<B: Backend> Identity for Service<B> {
    async fn get_plugin_info(
        &self,
        request: Request<GetPluginInfoRequest>,
    ) -> Reply<GetPluginInfoResponse> {
        self.identified("GetPluginInfo", request).await?;
        Ok(Response::new(self.backend.description().plugin_info()))
    }

    async fn get_plugin_capabilities(
        &self,
        request: Request<GetPluginCapabilitiesRequest>,
    ) -> Reply<GetPluginCapabilitiesResponse> {
        self.identified("GetPluginCapabilities", request).await?;
        self.backend.description().plugin_capabilities().map(Response::new)
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Reply<ProbeResponse> {
        let ready = match self.identified("Probe", request).await? {
            Ready::Yes => Some(true),
            Ready::No => Some(false),
            Ready::Unsaid => None,
        };
        Ok(Response::new(ProbeResponse { ready }))
    }
}

#[async_trait]
impl<B: Backend> Controller for Service<B> {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Reply<CreateVolumeResponse> {
        let call = self.arrived("CreateVolume", request);
        self.backend.create_volume(call).await.map(Response::new)
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Reply<DeleteVolumeResponse> {
        let call = self.arrived("DeleteVolume", request);
        self.backend.delete_volume(call).await.map(Response::new)
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Reply<GetCapacityResponse> {
        let call = self.arrived("GetCapacity", request);
        self.backend.get_capacity(call).await.map(Response::new)
    }

    async fn controller_get_capabilities(
        &self,
        request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Reply<ControllerGetCapabilitiesResponse> {
        self.identified("ControllerGetCapabilities", request).await?;
        self.backend.description().controller_capabilities().map(Response::new)
    }
}

#[async_trait]
impl<B: Backend> Node for Service<B> {
    async fn node_get_info(
        &self,
        request: Request<NodeGetInfoRequest>,
    ) -> Reply<NodeGetInfoResponse> {
        self.arrived("NodeGetInfo", request);
        self.backend.node_get_info().await.map(Response::new)
    }
}

/// The `grpc-timeout` header: a number of at most 8 digits and its unit (gRPC over HTTP/2).
fn time_left(metadata: &MetadataMap) -> Option<Duration> {
    let header = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = header.split_at_checked(header.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.saturating_mul(3600)),
        "M" => Duration::from_secs(number.saturating_mul(60)),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}
