//! `testkit driver`: the disk driver on a unix socket.

use std::{io, path::PathBuf};

use clap::Args;

use super::{
    Host,
    disk::{DiskDriver, Settings},
};
use crate::program::asked_to_end;

/// Where the driver is reached and keeps its volumes.
#[derive(Debug, Args)]
pub struct Driver {
    /// The unix socket to serve on.
    #[arg(long)]
    socket: PathBuf,
    /// Directory that holds the volumes.
    #[arg(long)]
    root: PathBuf,
    /// What the driver is called.
    #[arg(long, default_value = "disk.csi.example.com")]
    name: String,
}

/// Serves until SIGTERM or SIGINT, and prints every call without its secrets.
pub async fn run(command: Driver) -> io::Result<()> {
    let Driver { socket, root, name } = command;
    let asked = asked_to_end()?;
    let host = Host::new(DiskDriver::open(Settings { name, root })?);
    host.listen(&socket)?;
    println!("ready unix://{}", socket.display());
    tokio::select! {
        () = print_calls(&host) => {}
        () = asked => {}
    }
    host.stop();
    Ok(())
}

async fn print_calls(host: &Host<DiskDriver>) {
    let mut printed = 0;
    loop {
        for call in host.journal().after(printed).await {
            println!("{}", call.without_secrets());
            printed += 1;
        }
    }
}
