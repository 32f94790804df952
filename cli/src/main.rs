//! Runs the command that the first argument names: reads what it needs from files and environment, prints
//! what it returns, and sets the exit code.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
};

use cli::{
    check,
    connection::{ApiServer, lease_namespace},
    explain, release_claims, shadow, shadow_report, status,
    subcommand::{
        CHECK, EXPLAIN, Output, RELEASE_CLAIMS, SHADOW, SHADOW_REPORT, STATUS, parse, unknown,
        usage, version,
    },
};
use csi_provisioner::{
    app::process,
    logging,
    runtime::{Clock, Gate, SystemClock},
};

fn main() -> ExitCode {
    logging::escape_panics();
    let name = env::args_os().nth(1).unwrap_or_default();
    let output = match name.to_str() {
        Some(CHECK) => check(),
        Some(EXPLAIN) => explain(),
        Some(STATUS) => status(),
        Some(RELEASE_CLAIMS) => release_claims(),
        // A program that runs on, with logs and signals as the sidecar has them.
        Some(SHADOW) => return shadow(),
        Some(SHADOW_REPORT) => shadow_report(),
        Some("help" | "--help" | "-h") => Ok(usage()),
        Some("version" | "--version") => Ok(version()),
        _ => Err(unknown(&name)),
    };
    print(&output.unwrap_or_else(|refused| refused))
}

fn print(output: &Output) -> ExitCode {
    // A pager that was left does not read it to the end.
    let _ = write!(io::stdout(), "{}", output.text);
    for error in &output.errors {
        let _ = writeln!(io::stderr(), "{error}");
    }
    ExitCode::from(output.exit_code)
}

/// The arguments after the command's name.
fn arguments() -> impl Iterator<Item = OsString> {
    env::args_os().skip(2)
}

/// Runs `work` to its end.
///
/// # Errors
/// Why the async runtime does not start.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the async runtime: {error}"))?;
    let done = runtime.block_on(work);
    // Blocking tasks that still run must not delay the exit.
    runtime.shutdown_background();
    Ok(done)
}

fn release_claims() -> Result<Output, Output> {
    let request: release_claims::Request = parse(arguments(), release_claims::WRONG_ARGUMENTS)?;
    let released = block_on(released(&request)).flatten();
    released.map_err(|why| release_claims::failure(&why))
}

async fn released(request: &release_claims::Request) -> Result<Output, String> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let gate = Gate::open(Arc::clone(&clock));
    let client = request.server.client(gate).await?;
    let namespace = lease_namespace(request.lease_namespace.as_deref());
    Ok(release_claims::run(&client, &*clock, request, &namespace).await)
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
    let (kubeconfig, master) = (kubernetes.kubeconfig.clone(), kubernetes.master.clone());
    // While the gate is shut, nothing can be written.
    let client = ApiServer { kubeconfig, master }.client(Gate::shut(Arc::clone(&clock))).await;
    let namespace = lease_namespace(request.lease_namespace.as_deref());
    match client {
        Ok(client) => explain::run(&client, &*clock, request, &namespace).await,
        Err(why) => explain::unreachable(request, &why),
    }
}

fn shadow() -> ExitCode {
    match shadow::parse(arguments(), |name| env::var_os(name)) {
        Ok((parsed, driver)) => {
            process::run(Ok(parsed), |flags, env, stop| shadow::run(flags, driver, env, stop))
        }
        Err(refusal) => process::refuse(&refusal),
    }
}

fn shadow_report() -> Result<Output, Output> {
    let request: shadow_report::Request = parse(arguments(), shadow_report::FAILED)?;
    let report = block_on(shadow_report::run(&request));
    report.map_err(|why| Output::failure(why, shadow_report::FAILED))?
}

fn status() -> Result<Output, Output> {
    let request: status::Request = parse(arguments(), status::FAILED)?;
    let shown = block_on(status::run(&request, &SystemClock, |output| {
        print(output);
    }));
    shown.map_err(|why| Output::failure(why, status::FAILED))
}

fn check() -> Result<Output, Output> {
    let request: check::Request = parse(arguments(), check::NOT_CHECKED)?;
    let checked = block_on(checked(&request)).flatten();
    checked.map_err(|why| check::failure(&why))
}

async fn checked(request: &check::Request) -> Result<Output, String> {
    let manifests = request.files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let client = if request.server.is_named() {
        Some(request.server.client(Gate::open(Arc::new(SystemClock))).await?)
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
