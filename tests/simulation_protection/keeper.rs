//! A driver that looks after what it copies: whatever it is asked to make a volume from must be
//! there and guarded, from the call's first moment to its last.

use std::{io, sync::Arc, time::Duration};

use csi_provisioner::csi::{BoxedIo, Connector};
use futures::FutureExt as _;
use parking_lot::Mutex;
use testkit::{
    apiserver::ApiServer,
    driver::{
        Answer, Backend, Call, Host, Script, Scripted,
        proto::{
            ControllerGetCapabilitiesResponse, CreateVolumeRequest, CreateVolumeResponse,
            DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse,
            GetPluginCapabilitiesResponse, GetPluginInfoResponse, NodeGetInfoResponse,
            ProbeResponse, volume_content_source::Type,
        },
    },
};
use tokio::time::sleep;

use super::{CLONE, RESTORE, world::DRIVER};

/// A scripted driver that checks its sources. A snapshot's handle is its name, and so is that of
/// the volume of a claim.
pub(crate) struct Keeper {
    scripted: Scripted,
    api: ApiServer,
    found: Mutex<Vec<String>>,
    /// How long making a volume takes.
    takes: Mutex<Duration>,
}

impl Keeper {
    pub(crate) fn host(api: &ApiServer) -> Arc<Host<Self>> {
        let scripted = Scripted::new(Script { name: Some(DRIVER.into()), ..Script::default() });
        let (found, takes) = (Mutex::default(), Mutex::default());
        Arc::new(Host::new(Self { scripted, api: api.clone(), found, takes }))
    }

    pub(crate) fn connector(host: &Arc<Host<Self>>) -> Connector {
        let dialed = Arc::clone(host);
        Arc::new(move |_| {
            let stream: io::Result<BoxedIo> = dialed.connect().map(|it| Box::new(it) as BoxedIo);
            async move { stream }.boxed()
        })
    }

    pub(crate) fn scripted(&self) -> &Scripted {
        &self.scripted
    }

    pub(crate) fn takes(&self, time: Duration) {
        *self.takes.lock() = time;
    }

    /// What was found to be missing or unguarded while a volume was made from it.
    pub(crate) fn found(&self) -> Vec<String> {
        self.found.lock().clone()
    }

    fn check(&self, when: &str, request: &CreateVolumeRequest) {
        let source = request.volume_content_source.as_ref().and_then(|it| it.r#type.as_ref());
        let (kind, name, finalizer) = match source {
            Some(Type::Snapshot(source)) => ("VolumeSnapshot", &source.snapshot_id, RESTORE),
            Some(Type::Volume(source)) => ("PersistentVolumeClaim", &source.volume_id, CLONE),
            None => return,
        };
        let object = self.api.get(kind, "sc", name);
        let wears = |object: &serde_json::Value| {
            let finalizers = object["metadata"]["finalizers"].as_array();
            finalizers.is_some_and(|finalizers| finalizers.iter().any(|one| one == finalizer))
        };
        if !object.as_ref().is_some_and(wears) {
            self.found.lock().push(format!("{when} {}: {kind} {name} is {object:?}", request.name));
        }
    }
}

impl Backend for Keeper {
    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let request = call.request.clone();
        let end = tokio::time::Instant::now() + *self.takes.lock();
        self.check("at the start of", &request);
        while tokio::time::Instant::now() < end {
            sleep(Duration::from_millis(50)).await;
            self.check("in", &request);
        }
        let answer = self.scripted.create_volume(call).await;
        self.check("at the end of", &request);
        answer
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        self.scripted.delete_volume(call).await
    }

    async fn get_plugin_info(&self) -> Answer<GetPluginInfoResponse> {
        self.scripted.get_plugin_info().await
    }

    async fn get_plugin_capabilities(&self) -> Answer<GetPluginCapabilitiesResponse> {
        self.scripted.get_plugin_capabilities().await
    }

    async fn probe(&self) -> Answer<ProbeResponse> {
        self.scripted.probe().await
    }

    async fn controller_get_capabilities(&self) -> Answer<ControllerGetCapabilitiesResponse> {
        self.scripted.controller_get_capabilities().await
    }

    async fn get_capacity(&self, call: Call<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        self.scripted.get_capacity(call).await
    }

    async fn node_get_info(&self) -> Answer<NodeGetInfoResponse> {
        self.scripted.node_get_info().await
    }
}
