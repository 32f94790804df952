//! Runs the subcommands: reads what they need from files and environment, and prints what they return.

use std::{env, ffi::OsStr, fs, io, path::Path, process::ExitCode, sync::Arc};

use csi_provisioner::{
    app::Host,
    check, explain,
    kube::{Client, LaneSettings, Lanes},
    metrics::Metrics,
    release_claims,
    release_claims::{Report, Request},
    runtime::{Clock, Gate, Generator, SystemClock},
    shadow_report,
};

use super::{host, runtime, transport};

/// Runs the subcommand of this name; `None` if there is none.
pub(super) fn run(name: &OsStr) -> Option<ExitCode> {
    match name.to_str()? {
        release_claims::NAME => Some(release_claims()),
        check::NAME => Some(check()),
        explain::NAME => Some(explain()),
        shadow_report::NAME => Some(shadow_report()),
        _ => None,
    }
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
    ExitCode::from(explanation.state.exit_code())
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

/// Runs `csi-provisioner shadow-report`: prints the results to stdout.
fn shadow_report() -> ExitCode {
    let request = match shadow_report::Request::parse(env::args_os().skip(2)) {
        Ok(request) => request,
        Err(refusal) => return refuse_arguments(&refusal),
    };
    let Ok(runtime) = runtime() else { return ExitCode::from(shadow_report::FAILED) };
    match runtime.block_on(shadow_report::run(&request)) {
        Ok((text, code)) => {
            print!("{text}");
            ExitCode::from(code)
        }
        Err(why) => refuse_arguments(&(why, shadow_report::FAILED)),
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
