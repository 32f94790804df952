//! The driver that the measured provisioner talks to.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::sleep,
};

use super::options::{Options, Store};
use crate::driver::{
    Answer, Around, Backend, Call, Host, Script, Scripted,
    disk::{DiskDriver, Settings},
    proto::{CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse},
};

/// What claims request whose CreateVolume hangs, and the same in bytes.
pub(super) const HANGING: &str = "13Gi";
const HANGING_BYTES: i64 = 13 << 30;

/// How long it hangs.
const HANGS: Duration = Duration::from_secs(5);

/// A driver on a unix socket.
#[derive(Debug)]
pub(super) struct Driver {
    host: Backing,
    socket: PathBuf,
}

#[derive(Debug)]
enum Backing {
    Memory(Host<Slow>),
    Disk(Host<DiskDriver>),
}

impl Driver {
    /// The driver that the options ask for, called `name`, with its files in `directory`.
    pub(super) fn serve(options: &Options, name: &str, directory: &Path) -> io::Result<Self> {
        let (name, socket) = (name.to_owned(), directory.join("csi.sock"));
        let host = match options.driver {
            Store::Memory => {
                let host = Host::new(Slow::new(name, options));
                host.listen(&socket)?;
                Backing::Memory(host)
            }
            Store::Disk => {
                let root = directory.join("volumes");
                let host = Host::new(DiskDriver::open(Settings { name, root, size: None })?);
                host.listen(&socket)?;
                Backing::Disk(host)
            }
        };
        Ok(Self { host, socket })
    }

    /// Where it is reached.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// From now on no call hangs, so that what was called for can end.
    pub(super) fn stop_hanging(&self) {
        if let Backing::Memory(host) = &self.host {
            host.backend().hangs.store(false, Ordering::Relaxed);
        }
    }

    /// How many calls each method had.
    pub(super) fn calls(&self) -> BTreeMap<&'static str, usize> {
        match &self.host {
            Backing::Memory(host) => host.journal().counts(),
            Backing::Disk(host) => host.journal().counts(),
        }
    }

    /// How many volumes there are.
    pub(super) fn volumes(&self) -> io::Result<usize> {
        match &self.host {
            Backing::Memory(host) => Ok(host.backend().scripted.volumes().len()),
            Backing::Disk(host) => host.backend().volumes().map(|volumes| volumes.len()),
        }
    }
}

/// A driver that takes its time over volumes, so many at once, and hangs over some.
#[derive(Debug)]
struct Slow {
    scripted: Scripted,
    takes: Duration,
    slots: Semaphore,
    /// Whether it hangs over some volumes.
    hangs: AtomicBool,
}

impl Slow {
    fn new(name: String, options: &Options) -> Self {
        let slots = options.driver_slots.unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            scripted: Scripted::new(script(name, options)),
            takes: Duration::from_millis(options.driver_latency),
            slots: Semaphore::new(slots.min(Semaphore::MAX_PERMITS)),
            hangs: AtomicBool::new(true),
        }
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
    fn scripted(&self) -> &Scripted {
        &self.scripted
    }

    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let bytes = call.request.capacity_range.as_ref().map(|range| range.required_bytes);
        if bytes == Some(HANGING_BYTES) && self.hangs.load(Ordering::Relaxed) {
            sleep(HANGS).await;
        }
        let _slot = self.work().await;
        Backend::create_volume(&self.scripted, call).await
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        let _slot = self.work().await;
        Backend::delete_volume(&self.scripted, call).await
    }
}

fn script(name: String, options: &Options) -> Script {
    let attaches = (options.residents.attachments > 0).then_some("PUBLISH_UNPUBLISH_VOLUME");
    let capabilities = ["CREATE_DELETE_VOLUME"].into_iter().chain(attaches);
    Script {
        name: Some(name),
        controller_capabilities: Some(capabilities.map(str::to_owned).collect()),
        ..Script::default()
    }
}
