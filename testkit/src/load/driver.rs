//! The driver that the measured provisioner talks to.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use super::options::{Options, Store};
use crate::driver::{
    Host, Rule, Script, Scripted,
    disk::{DiskDriver, Settings},
};

/// A driver on a unix socket.
#[derive(Debug)]
pub(super) struct Driver {
    host: Backing,
    socket: PathBuf,
}

#[derive(Debug)]
enum Backing {
    Memory(Host<Scripted>),
    Disk(Host<DiskDriver>),
}

impl Driver {
    /// The driver that the options ask for, called `name`, with its files in `directory`.
    pub(super) fn serve(options: &Options, name: &str, directory: &Path) -> io::Result<Self> {
        let (name, socket) = (name.to_owned(), directory.join("csi.sock"));
        let host = match options.driver {
            Store::Memory => {
                let host = Host::new(Scripted::new(script(name, options)));
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
            Backing::Memory(host) => Ok(host.backend().volumes().len()),
            Backing::Disk(host) => host.backend().volumes().map(|volumes| volumes.len()),
        }
    }
}

/// A driver that takes its time over volumes and nothing else.
fn script(name: String, options: &Options) -> Script {
    let latency = options.driver_latency;
    let slowly = || vec![Rule { delay_ms: Some(latency), ..Rule::default() }];
    let rules = || (latency > 0).then(slowly);
    let attaches = (options.residents.attachments > 0).then_some("PUBLISH_UNPUBLISH_VOLUME");
    let capabilities = ["CREATE_DELETE_VOLUME"].into_iter().chain(attaches);
    Script {
        name: Some(name),
        controller_capabilities: Some(capabilities.map(str::to_owned).collect()),
        create_volume: rules(),
        delete_volume: rules(),
        ..Script::default()
    }
}
