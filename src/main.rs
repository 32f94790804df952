//! Parses, builds the runtime, runs, and says how it ended.

use std::{env, fs, path::Path, process::ExitCode, sync::Arc};

use csi_provisioner::{
    app::{self, Host, World},
    csi::unix_connector,
    flags::{Flags, Refusal},
    kube_api::{self, ConfigError, ConfigSource, Transport},
    leader::{pod_uid_from_mountinfo, pod_uid_from_token},
    logging,
    runtime::{Generator, SystemClock, TokioSpawner},
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Where Kubernetes puts a pod's credentials.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Where Kubernetes looks for a container's last words.
const TERMINATION_LOG: &str = "/dev/termination-log";

fn main() -> ExitCode {
    let parsed = match Flags::parse(env::args_os(), |name| env::var_os(name)) {
        Ok(parsed) => parsed,
        Err(refusal) => return refuse(&refusal),
    };
    if let Err(error) = logging::init(&parsed.flags.logging, Arc::new(SystemClock)) {
        eprintln!("{error}");
    }
    for warning in parsed.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end(255, &format!("cannot start the async runtime: {error}")),
    };
    let code = runtime.block_on(run(parsed.flags));
    // Whatever still runs is over: nothing of it may keep the process.
    runtime.shutdown_background();
    code
}

fn refuse(refusal: &Refusal) -> ExitCode {
    if refusal.to_stderr {
        eprintln!("{}", refusal.text);
        if refusal.exit_code != 0 {
            leave(refusal.text.lines().last().unwrap_or_default());
        }
    } else {
        println!("{}", refusal.text);
    }
    ExitCode::from(refusal.exit_code)
}

/// Logs why the process ends, and leaves the text where Kubernetes looks for it.
fn end(code: u8, why: &str) -> ExitCode {
    tracing::error!("{why}");
    leave(why);
    ExitCode::from(code)
}

/// Writes the last words. Outside a pod there is no such file, and nobody to read it.
fn leave(words: &str) {
    if Path::new(TERMINATION_LOG).exists() {
        let _ = fs::write(TERMINATION_LOG, words);
    }
}

async fn run(flags: Flags) -> ExitCode {
    let transport = match transport(&flags).await {
        Ok(transport) => transport,
        Err(error) => return end(255, &format!("Failed to create config: {error}")),
    };
    let world = World {
        transport,
        connector: unix_connector(),
        clock: Arc::new(SystemClock),
        random: Arc::new(Generator::from_entropy()),
        spawner: Arc::new(TokioSpawner),
        host: host(),
    };
    let stop = CancellationToken::new();
    tokio::select! {
        outcome = app::run(flags, world, stop.clone()) => match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => end(error.exit_code(), &error.to_string()),
        },
        code = signals(stop.clone()) => code,
    }
}

async fn transport(flags: &Flags) -> Result<Transport, ConfigError> {
    let kubernetes = &flags.kubernetes;
    let source = ConfigSource::resolve(
        kubernetes.master.as_deref(),
        kubernetes.kubeconfig.as_deref(),
        |name| env::var_os(name),
    );
    kube_api::transport(&kube_api::config::load(&source).await?)
}

/// The first signal stops in order, the second at once.
async fn signals(stop: CancellationToken) -> ExitCode {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return end(255, "cannot listen for signals");
    };
    for first in [true, false] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if first {
            tracing::info!("Received SIGTERM or SIGINT signal, shutting down controller.");
            stop.cancel();
        }
    }
    ExitCode::FAILURE
}

fn host() -> Host {
    let file = |name: &str| fs::read_to_string(Path::new(SERVICE_ACCOUNT).join(name)).ok();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let pod_uid = file("token").and_then(|token| pod_uid_from_token(&token));
    Host {
        name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pod_uid: pod_uid.or_else(|| pod_uid_from_mountinfo(&mounts)),
        pod_namespace: env::var("POD_NAMESPACE").ok(),
        service_account_namespace: file("namespace"),
        capacity_namespace: env::var("NAMESPACE").ok(),
        pod_name: env::var("POD_NAME").ok(),
    }
}
