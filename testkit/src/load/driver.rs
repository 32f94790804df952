//! The driver that the measured provisioner talks to: it takes its time over volumes, so many at once.

use std::{path::Path, time::Duration};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::sleep,
};

use super::{LoadError, objects::DRIVER, options::Options};
use crate::driver::{
    Answer, Around, Backend, Call, Host, Script, Scripted,
    proto::{CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse},
};

/// The driver, inside its host.
#[derive(Debug)]
pub(super) struct Slow {
    scripted: Scripted,
    takes: Duration,
    slots: Semaphore,
}

impl Slow {
    /// The driver that the options ask for, on a socket.
    pub(super) fn serve(options: &Options, socket: &Path) -> Result<Host<Self>, LoadError> {
        let attaches = (options.residents.attachments > 0).then_some("PUBLISH_UNPUBLISH_VOLUME");
        let capabilities = ["CREATE_DELETE_VOLUME"].into_iter().chain(attaches);
        let script = Script {
            name: Some(DRIVER.to_owned()),
            controller_capabilities: Some(capabilities.map(str::to_owned).collect()),
            ..Script::default()
        };
        let slots = options.driver_slots.unwrap_or(Semaphore::MAX_PERMITS);
        let host = Host::new(Self {
            scripted: Scripted::new(script),
            takes: Duration::from_millis(options.driver_latency),
            slots: Semaphore::new(slots.min(Semaphore::MAX_PERMITS)),
        });
        host.listen(socket)?;
        Ok(host)
    }

    /// Ids of its volumes.
    pub(super) fn volumes(&self) -> std::collections::BTreeSet<String> {
        self.scripted.volumes()
    }

    /// Works in one of the slots. The slot is free when what it returns is dropped.
    async fn work(&self) -> Option<SemaphorePermit<'_>> {
        let slot = self.slots.acquire().await.ok();
        if !self.takes.is_zero() {
            sleep(self.takes).await;
        }
        slot
    }
}

impl Around for Slow {
    type Inside = Scripted;

    fn inside(&self) -> &Scripted {
        &self.scripted
    }

    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let _slot = self.work().await;
        Backend::create_volume(&self.scripted, call).await
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        let _slot = self.work().await;
        Backend::delete_volume(&self.scripted, call).await
    }
}
