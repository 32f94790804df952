//! The binary: parses the flags, starts the async runtime, runs the program, and sets the exit code.

use std::{env, fs, io, path::Path, process::ExitCode, sync::Arc, time::Duration};

use csi_provisioner::{
    app,
    app::{Env, Host},
    check,
    csi::unix_connector,
    explain,
    flags::{Flags, Refusal},
    kube,
    kube::{Client, ConfigSource, LaneSettings, Lanes, Transport},
    leader::{pod_uid_from_mountinfo, pod_uid_from_token},
    logging,
    metrics::Metrics,
    plain_text::escaped,
    release_claims,
    release_claims::{Report, Request},
    runtime::{Clock, Gate, Generator, SystemClock, TokioSpawner, spawn_blocking},
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
    match env::args_os().nth(1) {
        Some(first) if first == release_claims::NAME => return release_claims(),
        Some(first) if first == check::NAME => return check(),
        Some(first) if first == explain::NAME => return explain(),
        _ => {}
    }
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
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let code = runtime.block_on(run(parsed.flags));
    // Blocking tasks that still run must not delay the exit.
    runtime.shutdown_background();
    code
}

fn runtime() -> Result<Runtime, ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| end(255, &format!("cannot start the async runtime: {error}")))
}

/// Runs `csi-provisioner release-claims`: prints the table to stdout and failures to stderr.
fn release_claims() -> ExitCode {
    let request = match Request::parse(env::args_os().skip(2)) {
        Ok(request) => request,
        Err(refusal) => return refuse_arguments(&refusal),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let report = match runtime.block_on(report(&request)) {
        Ok(report) => report,
        Err(why) => Report::failure(&why),
    };
    print!("{}", report.text);
    for failure in &report.failures {
        eprintln!("{failure}");
    }
    ExitCode::from(u8::from(!report.failures.is_empty()))
}

/// Prints why the arguments of a subcommand were refused, or its help.
fn refuse_arguments((text, code): &(String, u8)) -> ExitCode {
    match code {
        0 => println!("{text}"),
        _ => eprintln!("{text}"),
    }
    ExitCode::from(*code)
}

/// Runs `csi-provisioner explain`: prints the explanation to stdout.
fn explain() -> ExitCode {
    let request = match explain::Request::parse(env::args_os().skip(2)) {
        Ok(request) => request,
        Err(refusal) => return refuse_arguments(&refusal),
    };
    let Ok(runtime) = runtime() else { return ExitCode::from(explain::UNKNOWN) };
    let explanation = runtime.block_on(explanation(&request));
    // Blocking tasks that still run must not delay the exit.
    runtime.shutdown_background();
    let text = if request.is_json { explanation.to_json() } else { explanation.to_text() };
    print!("{text}");
    ExitCode::from(explanation.standing.exit_code())
}

async fn explanation(request: &explain::Request) -> explain::Explanation {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let kubernetes = &request.flags.kubernetes;
    let (master, kubeconfig) = (kubernetes.master.as_deref(), kubernetes.kubeconfig.as_deref());
    // While the gate is shut, nothing can be written.
    let client = client(master, kubeconfig, Gate::shut(Arc::clone(&clock))).await;
    let host = host();
    let namespace = lease_namespace(request.lease_namespace.as_deref(), &host);
    match client {
        Ok(client) => explain::run(&client, &*clock, request, namespace).await,
        Err(why) => explain::unreachable(request, &why),
    }
}

/// A client on the lane for objects.
async fn client(
    master: Option<&str>,
    kubeconfig: Option<&Path>,
    gate: Gate,
) -> Result<Client, String> {
    let transport = transport(master, kubeconfig).await;
    let transport = transport.map_err(|error| format!("cannot reach the API server: {error}"))?;
    let metrics = Metrics::new().map_err(|error| error.to_string())?;
    let random = Arc::new(Generator::from_entropy());
    Ok(Lanes::new(transport, LaneSettings::default(), gate, random, &metrics).objects)
}

async fn report(request: &Request) -> Result<Report, String> {
    let kubeconfig = request.kubeconfig.as_ref().map(Path::new);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let gate = Gate::open(Arc::clone(&clock));
    let client = client(request.master.as_deref(), kubeconfig, gate).await?;
    let host = host();
    let namespace = lease_namespace(request.lease_namespace.as_deref(), &host);
    Ok(release_claims::run(&client, &*clock, request, namespace).await)
}

/// Runs `csi-provisioner check`: prints the findings to stdout.
fn check() -> ExitCode {
    let request = match check::Request::parse(env::args_os().skip(2)) {
        Ok(request) => request,
        Err(refusal) => return refuse_arguments(&refusal),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let report = match runtime.block_on(checked(&request)) {
        Ok(report) => report,
        Err(why) => check::Report::failure(&why),
    };
    print!("{}", report.text);
    if let Some(failure) = &report.failure {
        eprintln!("{failure}");
    }
    ExitCode::from(report.exit_code)
}

async fn checked(request: &check::Request) -> Result<check::Report, String> {
    let read = |file: &String| match file.as_str() {
        "-" => io::read_to_string(io::stdin()),
        path => fs::read_to_string(path),
    };
    let read = |file| read(file).map_err(|error| format!("cannot read {file}: {error}"));
    let manifests = request.files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let client = if request.asks_cluster() {
        let (master, kubeconfig) = (request.master.as_deref(), request.kubeconfig.as_deref());
        let gate = Gate::open(Arc::new(SystemClock));
        Some(client(master, kubeconfig.map(Path::new), gate).await?)
    } else {
        None
    };
    Ok(check::run(client.as_ref(), request, &manifests).await)
}

/// The namespace of the Leases: the flag's value, else the pod's own namespace. Empty if neither is known,
/// as on a workstation. A replica uses `default` in that case, but here that would be a guess.
fn lease_namespace<'a>(flag: Option<&'a str>, host: &'a Host) -> &'a str {
    let candidates =
        [flag, host.pod_namespace.as_deref(), host.service_account_namespace.as_deref()];
    let mut candidates = candidates.into_iter().flatten().map(str::trim);
    candidates.find(|name| !name.is_empty()).unwrap_or_default()
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
