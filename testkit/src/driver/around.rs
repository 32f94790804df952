//! A driver around a scripted one, which answers all that this one does not do in its own way.

use super::{
    Answer, Backend, Call, Scripted,
    proto::{
        ControllerGetCapabilitiesResponse, CreateVolumeRequest, CreateVolumeResponse,
        DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse,
        GetPluginCapabilitiesResponse, GetPluginInfoResponse, NodeGetInfoResponse, ProbeResponse,
    },
};

/// Does something before or after a scripted driver makes or deletes a volume.
pub trait Around: Send + Sync + 'static {
    /// The driver inside.
    fn scripted(&self) -> &Scripted;

    /// `Controller.CreateVolume`
    fn create_volume(
        &self,
        call: Call<CreateVolumeRequest>,
    ) -> impl Future<Output = Answer<CreateVolumeResponse>> + Send;

    /// `Controller.DeleteVolume`; passes through unless it is done otherwise.
    fn delete_volume(
        &self,
        call: Call<DeleteVolumeRequest>,
    ) -> impl Future<Output = Answer<DeleteVolumeResponse>> + Send {
        self.scripted().delete_volume(call)
    }
}

impl<D: Around> Backend for D {
    async fn get_plugin_info(&self) -> Answer<GetPluginInfoResponse> {
        self.scripted().get_plugin_info().await
    }

    async fn get_plugin_capabilities(&self) -> Answer<GetPluginCapabilitiesResponse> {
        self.scripted().get_plugin_capabilities().await
    }

    async fn probe(&self) -> Answer<ProbeResponse> {
        self.scripted().probe().await
    }

    async fn controller_get_capabilities(&self) -> Answer<ControllerGetCapabilitiesResponse> {
        self.scripted().controller_get_capabilities().await
    }

    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        Around::create_volume(self, call).await
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        Around::delete_volume(self, call).await
    }

    async fn get_capacity(&self, call: Call<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        self.scripted().get_capacity(call).await
    }

    async fn node_get_info(&self) -> Answer<NodeGetInfoResponse> {
        self.scripted().node_get_info().await
    }
}
