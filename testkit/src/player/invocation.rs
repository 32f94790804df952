//! How a process is started: its arguments and its environment, from what a scenario says.

use std::{collections::BTreeMap, path::Path};

use super::{
    api::NAMESPACE,
    scenario::{Launch, Scenario},
};

/// The flags every process gets, unless a scenario gives all of them itself. It logs as much as it
/// can (the reference player: 5), so that every run shows that no secret is logged.
const BASE_FLAGS: [&str; 8] = [
    "--v=10",
    "--timeout=3s",
    "--retry-interval-start=100ms",
    "--retry-interval-max=2s",
    "--worker-threads=10",
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
    "--http-endpoint=127.0.0.1:{http}",
];

/// The name of the process that is meant when none is named.
pub(super) const MAIN: &str = "main";

/// Where the parts of one run are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'a> {
    /// The driver's socket.
    pub(super) socket: &'a str,
    /// The port that the main process serves its metrics on.
    pub(super) http: u16,
    /// The kubeconfig to run with.
    pub(super) kubeconfig: &'a Path,
    /// The player's own `PATH`.
    pub(super) path: &'a str,
}

/// One start of the binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invocation {
    /// Its arguments.
    pub(super) arguments: Vec<String>,
    /// Its whole environment.
    pub(super) environment: BTreeMap<String, String>,
    /// The host name it sees.
    pub(super) hostname: Option<String>,
}

/// How `launch` starts a process in `scenario`.
pub(super) fn invocation(scenario: &Scenario, launch: &Launch, places: Places<'_>) -> Invocation {
    let mut arguments = vec![format!("--csi-address=unix://{}", places.socket)];
    arguments.extend(flags(scenario, launch, places));
    Invocation {
        arguments,
        environment: environment(scenario, launch, places),
        hostname: launch.hostname.as_ref().or(scenario.hostname.as_ref()).cloned(),
    }
}

fn flags(scenario: &Scenario, launch: &Launch, places: Places<'_>) -> Vec<String> {
    let fill = |flag: &str| {
        flag.replace("{http}", &places.http.to_string()).replace("{sock}", places.socket)
    };
    let raw = launch.raw_flags.as_ref().or(scenario.raw_flags.as_ref());
    let mut flags: Vec<String> = match raw {
        None => {
            let own = scenario.flags.iter().chain(&launch.flags).map(String::as_str);
            BASE_FLAGS.into_iter().chain(own).map(fill).collect()
        }
        Some(raw) => {
            let metrics = (!scenario.no_http).then_some("--http-endpoint=127.0.0.1:{http}");
            let given = raw.iter().map(String::as_str).chain(metrics).map(fill);
            given.chain(launch.flags.iter().cloned()).collect()
        }
    };
    let is_main = launch.process.as_deref().is_none_or(|process| process == MAIN);
    if !is_main || launch.http == Some(false) {
        flags.retain(|flag| !flag.starts_with("--http-endpoint"));
    }
    flags
}

fn environment(
    scenario: &Scenario,
    launch: &Launch,
    places: Places<'_>,
) -> BTreeMap<String, String> {
    let kubeconfig = places.kubeconfig.display().to_string();
    let common = [
        ("PATH", places.path),
        ("KUBECONFIG", &kubeconfig),
        ("NAMESPACE", NAMESPACE),
        ("POD_NAMESPACE", NAMESPACE),
    ];
    let mut all: BTreeMap<String, Option<String>> =
        common.map(|(key, value)| (key.to_owned(), Some(value.to_owned()))).into();
    all.extend(scenario.env.clone());
    all.extend(launch.env.clone());
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}
