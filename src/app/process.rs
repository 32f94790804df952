//! The process around a program of this library: logging, the async runtime, signals, free memory, the
//! termination message and the exit code. `main` of the sidecar and of shadow mode are little more.

use std::{
    env, fs,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{AppError, Env, Host};
use crate::{
    csi::unix_connector,
    flags::{Flags, Parsed, Refusal, VERSION},
    kube::ConfigSource,
    logging,
    metrics::Metrics,
    plain_text::escaped,
    runtime::{Generator, SystemClock, TokioSpawner},
};

/// The file from which Kubernetes reads a container's termination message.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// The interval at which free memory is returned to the system: short enough that memory is free soon after
/// a burst, long enough that it costs little under steady load.
const TRIM_INTERVAL: Duration = Duration::from_secs(15);

/// Runs `program` with the parsed flags until it ends or a signal asks for it; refused flags are printed.
pub fn run<P>(
    parsed: Result<Parsed, Refusal>,
    program: impl FnOnce(Flags, Env, CancellationToken) -> P,
) -> ExitCode
where
    P: Future<Output = Result<(), AppError>>,
{
    trim::free_large_at_once();
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(refusal) => return refuse(&refusal),
    };
    if let Err(error) = logging::init(&parsed.flags.logging, Arc::new(SystemClock)) {
        let _ = writeln!(io::stderr(), "{error}");
    }
    tracing::info!("Version: {VERSION}");
    for warning in parsed.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end(255, &format!("cannot start the async runtime: {error}")),
    };
    let code = runtime.block_on(handled(parsed.flags, program));
    // Blocking tasks that still run must not delay the exit.
    runtime.shutdown_background();
    code
}

/// Prints why the flags were refused, or the text that they asked for, such as `--help`.
pub fn refuse(refusal: &Refusal) -> ExitCode {
    // A pager that was left does not read it to the end.
    if refusal.exit_code == 0 {
        let _ = writeln!(io::stdout(), "{}", refusal.text);
    } else {
        let _ = writeln!(io::stderr(), "{}", refusal.text);
        write_termination_message(refusal.text.lines().last().unwrap_or_default());
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
async fn handled<P>(
    flags: Flags,
    program: impl FnOnce(Flags, Env, CancellationToken) -> P,
) -> ExitCode
where
    P: Future<Output = Result<(), AppError>>,
{
    let stop = CancellationToken::new();
    tokio::select! {
        biased;
        code = handle_signals(stop.clone()) => code,
        code = run_program(flags, program, stop.clone()) => code,
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

async fn run_program<P>(
    flags: Flags,
    program: impl FnOnce(Flags, Env, CancellationToken) -> P,
    stop: CancellationToken,
) -> ExitCode
where
    P: Future<Output = Result<(), AppError>>,
{
    let kubernetes = &flags.kubernetes;
    let (master, kubeconfig) = (kubernetes.master.as_deref(), kubernetes.kubeconfig.as_deref());
    let source = ConfigSource::resolve(master, kubeconfig, |name| env::var_os(name));
    let connections = tokio::select! {
        biased;
        connections = source.connect() => connections,
        () = stop.cancelled() => return ExitCode::SUCCESS,
    };
    let connections = match connections {
        Ok(connections) => connections,
        Err(error) => return end(255, &format!("Failed to create config: {error}")),
    };
    let env = Env {
        connections,
        connector: unix_connector(),
        clock: Arc::new(SystemClock),
        random: Arc::new(Generator::from_entropy()),
        spawner: Arc::new(TokioSpawner),
        metrics: Metrics::new(),
        host: Host::of_this_process(),
    };
    match program(flags, env, stop).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => end(error.exit_code(), &error.to_string()),
    }
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
