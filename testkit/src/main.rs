//! `testkit serve`: the in-memory API server over HTTPS, for kubectl, scenario players and demos;
//! `testkit play`: the scenario player; `testkit driver` and `testkit binder`: what a cluster has besides.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use kube::Client;
use testkit::{
    apiserver::serve::{Served, Settings},
    binder,
    control_plane::client_of,
    driver, player,
    program::asked_to_end,
};

/// What the tests of csi-provisioner stand on.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves an empty Kubernetes API over HTTPS until it is stopped.
    Serve(Serve),
    /// Plays recorded scenarios on a provisioner.
    Play(player::cli::Play),
    /// Serves a CSI driver that keeps its volumes on disk.
    Driver(driver::cli::Driver),
    /// Binds claims to volumes, as kube-controller-manager does.
    Binder {
        /// How the API server is reached; without it as kubectl finds it.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct Serve {
    /// Where the certificate authority and the kubeconfigs are written.
    #[arg(long)]
    dir: PathBuf,
    /// Port on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 16443)]
    port: u16,
    /// File that gets a line for every request, as kube-apiserver's audit log.
    #[arg(long)]
    audit: Option<PathBuf>,
}

fn main() -> ExitCode {
    run(Arguments::parse().command).unwrap_or_else(|error| {
        eprintln!("testkit: {error}");
        ExitCode::FAILURE
    })
}

#[tokio::main(flavor = "current_thread")]
async fn run(command: Command) -> Result<ExitCode, testkit::Error> {
    match command {
        Command::Serve(arguments) => serve(arguments).await?,
        Command::Play(arguments) => return player::cli::run(arguments).await,
        Command::Driver(arguments) => driver::cli::run(arguments).await?,
        Command::Binder { kubeconfig } => {
            let client = match kubeconfig {
                Some(path) => client_of(&path).await?,
                None => Client::try_default().await?,
            };
            binder::run(client, binder::Settings::default()).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn serve(arguments: Serve) -> Result<(), testkit::Error> {
    let Serve { dir, port, audit } = arguments;
    let settings = Settings { dir, port, audit };
    let asked = asked_to_end()?;
    let served = Served::start(settings).await?;
    println!("ready {} kubeconfig {}", served.url(), served.layout().kubeconfig("admin").display());
    asked.await;
    served.stop().await;
    Ok(())
}
