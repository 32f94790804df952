//! Runs the subcommands: reads what they need from files and environment, and prints what they return.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use csi_provisioner::{
    app::Host,
    check, explain,
    flags::subcommand::{CHECK, EXPLAIN, Output, RELEASE_CLAIMS, SHADOW_REPORT},
    kube::{Client, LaneSettings, Lanes},
    metrics::Metrics,
    release_claims,
    runtime::{Clock, Gate, Generator, SystemClock},
    shadow_report,
};

use super::{host, runtime, transport};

/// Runs the subcommand of this name and prints its output; `None` if there is none.
pub(super) fn run(name: &OsStr) -> Option<ExitCode> {
    let output = match name.to_str()? {
        RELEASE_CLAIMS => release_claims(),
        CHECK => check(),
        EXPLAIN => explain(),
        SHADOW_REPORT => shadow_report(),
        _ => return None,
    };
    Some(print(&output.unwrap_or_else(|refused| refused)))
}

fn print(output: &Output) -> ExitCode {
    print!("{}", output.text);
    for error in &output.errors {
        eprintln!("{error}");
    }
    ExitCode::from(output.exit_code)
}

/// The arguments after the subcommand's name.
fn arguments() -> impl Iterator<Item = OsString> {
    env::args_os().skip(2)
}

/// Runs `work` to its end.
///
/// # Errors
/// Why the async runtime does not start.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = runtime()?;
    let done = runtime.block_on(work);
    // Blocking tasks that still run must not delay the exit.
    runtime.shutdown_background();
    Ok(done)
}

fn release_claims() -> Result<Output, Output> {
    let request = release_claims::Request::parse(arguments())?;
    let released = block_on(released(&request)).flatten();
    released.map_err(|why| release_claims::failure(&why))
}

async fn released(request: &release_claims::Request) -> Result<Output, String> {
    let kubeconfig = request.kubeconfig.as_ref().map(Path::new);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let gate = Gate::open(Arc::clone(&clock));
    let client = client(request.master.as_deref(), kubeconfig, gate).await?;
    let host = host();
    let namespace = lease_namespace(request.lease_namespace.as_deref(), &host);
    Ok(release_claims::run(&client, &*clock, request, namespace).await)
}

fn explain() -> Result<Output, Output> {
    let request = explain::Request::parse(arguments())?;
    let explanation = block_on(explanation(&request));
    let explanation = explanation.map_err(|why| Output::failure(why, explain::UNKNOWN))?;
    Ok(explanation.output(request.is_json))
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

fn shadow_report() -> Result<Output, Output> {
    let request = shadow_report::Request::parse(arguments())?;
    let report = block_on(shadow_report::run(&request));
    report.map_err(|why| Output::failure(why, shadow_report::FAILED))?
}

fn check() -> Result<Output, Output> {
    let request = check::Request::parse(arguments())?;
    let checked = block_on(checked(&request)).flatten();
    checked.map_err(|why| check::failure(&why))
}

async fn checked(request: &check::Request) -> Result<Output, String> {
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

/// Reads a file, or stdin for `-`.
fn read(file: &String) -> Result<String, String> {
    let text = match file.as_str() {
        "-" => io::read_to_string(io::stdin()),
        path => fs::read_to_string(path),
    };
    text.map_err(|error| format!("cannot read {file}: {error}"))
}

/// A client on the lane for objects.
async fn client(
    master: Option<&str>,
    kubeconfig: Option<&Path>,
    gate: Gate,
) -> Result<Client, String> {
    let transport = transport(master, kubeconfig).await;
    let transport = transport.map_err(|error| format!("cannot reach the API server: {error}"))?;
    let metrics = Metrics::new();
    let random = Arc::new(Generator::from_entropy());
    Ok(Lanes::new(transport, LaneSettings::default(), gate, random, &metrics).objects)
}

/// The namespace of the Leases: the flag's value, else the pod's own namespace. Empty if neither is known,
/// as on a workstation. A replica uses `default` in that case, but here that would be a guess.
fn lease_namespace<'a>(flag: Option<&'a str>, host: &'a Host) -> &'a str {
    let candidates =
        [flag, host.pod_namespace.as_deref(), host.service_account_namespace.as_deref()];
    let mut candidates = candidates.into_iter().flatten().map(str::trim);
    candidates.find(|name| !name.is_empty()).unwrap_or_default()
}
