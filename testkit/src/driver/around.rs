//! A driver around another, which answers all that this one does not do in its own way.

use super::{
    Answer, Backend, Call, Description, Ready,
    proto::{
        CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
        GetCapacityRequest, GetCapacityResponse, NodeGetInfoResponse,
    },
};

/// Does something before or after the driver inside makes or deletes a volume.
pub trait Around: Send + Sync + 'static {
    /// What is inside.
    type Inside: Backend;

    /// The driver inside.
    fn inside(&self) -> &Self::Inside;

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
        self.inside().delete_volume(call)
    }
}

impl<D: Around> Backend for D {
    fn description(&self) -> Description {
        self.inside().description()
    }

    async fn identify(&self, method: &'static str) -> Answer<Ready> {
        self.inside().identify(method).await
    }

    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        Around::create_volume(self, call).await
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        Around::delete_volume(self, call).await
    }

    async fn get_capacity(&self, call: Call<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        self.inside().get_capacity(call).await
    }

    async fn node_get_info(&self) -> Answer<NodeGetInfoResponse> {
        self.inside().node_get_info().await
    }
}
