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
    subcommand::{Command, Output, parse},
};
use csi_provisioner::{
    app::process,
    logging,
    runtime::{Clock, Gate, SystemClock},
};

fn main() -> ExitCode {
    logging::escape_panics();
    let output = match parse(env::args_os()) {
        Ok(Command::Check(request)) => block_on(check(&request), check::NOT_CHECKED),
        Ok(Command::Explain(request)) => block_on(explain(*request), explain::UNKNOWN),
        Ok(Command::Status(request)) => {
            let shown = status::run(&request, &SystemClock, |output| _ = print(output));
            block_on(shown, status::FAILED)
        }
        Ok(Command::ReleaseClaims(request)) => {
            block_on(release_claims(&request), release_claims::FAILED)
        }
        // A program that runs on, with logs and signals as the sidecar has them.
        Ok(Command::Shadow { args }) => return shadow(args),
        Ok(Command::ShadowReport(request)) => {
            block_on(shadow_report::run(&request), shadow_report::FAILED)
        }
        Err(refused) => refused,
    };
    print(&output)
}

fn print(output: &Output) -> ExitCode {
    // A pager that was left does not read it to the end.
    let _ = write!(io::stdout(), "{}", output.text);
    for error in &output.errors {
        let _ = writeln!(io::stderr(), "{error}");
    }
    ExitCode::from(output.exit_code)
}

/// Runs a command to its end; `failed` is its exit code if it gives an error.
fn block_on(work: impl Future<Output = Result<Output, String>>, failed: u8) -> Output {
    let output = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let output = runtime.block_on(work);
            // Blocking tasks that still run must not delay the exit.
            runtime.shutdown_background();
            output
        }
        Err(error) => Err(format!("cannot start the async runtime: {error}")),
    };
    output.unwrap_or_else(|why| Output::failure(&why, failed))
}

async fn release_claims(request: &release_claims::Request) -> Result<Output, String> {
    let client = request.server.client(Gate::open(Arc::new(SystemClock))).await?;
    let namespace = lease_namespace(request.lease_namespace.as_deref());
    release_claims::run(&client, request, &namespace).await
}

async fn explain(request: explain::Request) -> Result<Output, String> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let kubernetes = &request.flags.kubernetes;
    let (kubeconfig, master) = (kubernetes.kubeconfig.clone(), kubernetes.master.clone());
    let server = ApiServer { kubeconfig, master };
    let request = request.in_namespace(server.namespace().await);
    // While the gate is shut, nothing can be written.
    let client = server.client(Gate::shut(Arc::clone(&clock))).await;
    let namespace = lease_namespace(request.lease_namespace.as_deref());
    let explanation = match client {
        Ok(client) => explain::run(&client, &*clock, &request, &namespace).await,
        Err(why) => explain::unreachable(&request, &why),
    };
    Ok(explanation.output(request.is_json))
}

fn shadow(args: Vec<OsString>) -> ExitCode {
    match shadow::parse(args.into_iter(), |name| env::var_os(name)) {
        Ok((parsed, driver)) => {
            process::run(Ok(parsed), |flags, env, stop| shadow::run(flags, driver, env, stop))
        }
        Err(refusal) => process::refuse(&refusal),
    }
}

async fn check(request: &check::Request) -> Result<Output, String> {
    let manifests = request.files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let client = if request.server.is_named() {
        Some(request.server.client(Gate::open(Arc::new(SystemClock))).await?)
    } else {
        None
    };
    check::run(client.as_ref(), request, &manifests).await
}

/// Reads a file, or stdin for `-`.
fn read(file: &String) -> Result<String, String> {
    let text = match file.as_str() {
        "-" => io::read_to_string(io::stdin()),
        path => fs::read_to_string(path),
    };
    text.map_err(|error| format!("cannot read {file}: {error}"))
}
