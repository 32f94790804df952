//! A driver that checks what it copies: each source of a volume must exist and have its
//! finalizer, from the call's first moment to its last.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use support::simulation::DRIVER;
use testkit::{
    apiserver::ApiServer,
    driver::{
        Answer, Around, Backend as _, Call, Host, Script, Scripted,
        proto::{CreateVolumeRequest, CreateVolumeResponse, volume_content_source::Type},
    },
};
use tokio::time::sleep;

use super::{CLONE, RESTORE};

/// A scripted driver that checks its sources. The handle of a snapshot, and of a claim's volume, is
/// `handle-` and its name.
pub(crate) struct CheckingDriver {
    scripted: Scripted,
    api: ApiServer,
    found: Mutex<Vec<String>>,
    /// How long making a volume takes.
    takes: Mutex<Duration>,
}

impl CheckingDriver {
    pub(crate) fn host(api: &ApiServer) -> Arc<Host<Self>> {
        let scripted = Scripted::new(Script { name: Some(DRIVER.into()), ..Script::default() });
        let (found, takes) = (Mutex::default(), Mutex::default());
        Arc::new(Host::new(Self { scripted, api: api.clone(), found, takes }))
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
        let name = name.trim_start_matches("handle-");
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

impl Around for CheckingDriver {
    type Inside = Scripted;

    fn inside(&self) -> &Scripted {
        &self.scripted
    }

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
}
