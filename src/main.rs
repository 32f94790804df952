//! The binary: parses the flags, starts the async runtime, runs the program, and sets the exit code.

// Beside this file, `subcommands.rs` would look like a module of the library.
#[path = "main/subcommands.rs"]
mod subcommands;

use std::{env, fs, path::Path, process::ExitCode, sync::Arc, time::Duration};

use csi_provisioner::{
    app,
    app::{Env, Host},
    csi::unix_connector,
    flags::{Flags, Refusal, VERSION},
    kube,
    kube::{ConfigSource, Transport},
    leader::{pod_uid_from_mountinfo, pod_uid_from_token},
    logging,
    plain_text::escaped,
    runtime::{Generator, SystemClock, TokioSpawner, spawn_blocking},
};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// The directory of the service account's files.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The file from which Kubernetes reads a container's termination message.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// The interval at which free memory is returned to the system: short enough that memory is free soon after
/// a burst, long enough that it costs little under steady load.
const TRIM_INTERVAL: Duration = Duration::from_secs(15);

fn main() -> ExitCode {
    logging::escape_panics();
    if let Some(code) = env::args_os().nth(1).and_then(|first| subcommands::run(&first)) {
        return code;
    }
    let parsed = match Flags::parse(env::args_os(), |name| env::var_os(name)) {
        Ok(parsed) => parsed,
        Err(refusal) => return refuse(&refusal),
    };
    if let Err(error) = logging::init(&parsed.flags.logging, Arc::new(SystemClock)) {
        eprintln!("{error}");
    }
    tracing::info!("Version: {VERSION}");
    for warning in parsed.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(why) => return end(255, &why),
    };
    let code = runtime.block_on(run(parsed.flags));
    // Blocking tasks that still run must not delay the exit.
    runtime.shutdown_background();
    code
}

fn runtime() -> Result<Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot start the async runtime: {error}"))
}

/// Prints why the flags were refused, or the text that they asked for, such as `--help`.
fn refuse(refusal: &Refusal) -> ExitCode {
    if refusal.to_stderr {
        eprintln!("{}", refusal.text);
        if refusal.exit_code != 0 {
            write_termination_message(refusal.text.lines().last().unwrap_or_default());
        }
    } else {
        println!("{}", refusal.text);
    }
    ExitCode::from(refusal.exit_code)
}

/// Logs why the process ends, and writes the termination message.
fn end(code: u8, why: &str) -> ExitCode {
    tracing::error!("{why}");
    write_termination_message(why);
    ExitCode::from(code)
}

/// Writes the termination message, escaped for terminals. Outside a pod the file does not exist.
fn write_termination_message(message: &str) {
    if Path::new(TERMINATION_LOG).exists() {
        let _ = fs::write(TERMINATION_LOG, escaped(message).to_string());
    }
}

/// Runs the program, and handles signals from the start: the kernel ignores signals without a handler for
/// the first process of a container.
async fn run(flags: Flags) -> ExitCode {
    let stop = CancellationToken::new();
    tokio::select! {
        biased;
        code = handle_signals(stop.clone()) => code,
        code = run_program(flags, stop.clone()) => code,
        code = trim_memory() => code,
    }
}

/// Returns free memory to the system periodically. Never returns.
async fn trim_memory() -> ExitCode {
    loop {
        sleep(TRIM_INTERVAL).await;
        trim::trim();
    }
}

async fn run_program(flags: Flags, stop: CancellationToken) -> ExitCode {
    let kubernetes = &flags.kubernetes;
    let master = kubernetes.master.as_deref();
    let kubeconfig = kubernetes.kubeconfig.as_deref();
    let transport = tokio::select! {
        biased;
        transport = transport(master, kubeconfig) => transport,
        () = stop.cancelled() => return ExitCode::SUCCESS,
    };
    let transport = match transport {
        Ok(transport) => transport,
        Err(error) => return end(255, &format!("Failed to create config: {error}")),
    };
    let env = Env {
        transport,
        connector: unix_connector(),
        clock: Arc::new(SystemClock),
        random: Arc::new(Generator::from_entropy()),
        spawner: Arc::new(TokioSpawner),
        host: host(),
    };
    match app::run(flags, env, stop).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => end(error.exit_code(), &error.to_string()),
    }
}

async fn transport(master: Option<&str>, kubeconfig: Option<&Path>) -> Result<Transport, String> {
    let source = ConfigSource::resolve(master, kubeconfig, |name| env::var_os(name));
    let config = kube::config::load(&source).await.map_err(|error| error.to_string())?;
    // A credential plugin may take long; signals must be handled meanwhile.
    let transport = spawn_blocking(move || kube::transport(&config)).await?;
    transport.map_err(|error| error.to_string())
}

/// Shuts down gracefully at the first signal, and returns at the second.
async fn handle_signals(stop: CancellationToken) -> ExitCode {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return end(255, "cannot listen for signals");
    };
    for first in [true, false] {
        tokio::select! {
            biased;
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
    }
}
