//! Which command lines are refused, in external-provisioner's order and with its exit codes, and the
//! warnings about the others.

use std::{ffi::OsString, time::Duration};

use super::{
    Flags, Gates, LeaderElection, Refusal,
    arguments::{
        Arguments, CapacityArguments, KubernetesArguments, LoggingArguments, RetiredArguments,
    },
    command::CommandLine,
    duration,
    retired::{
        self, CAPACITY_MODE, ENABLE_LEADER_ELECTION, ENDPOINTS, LEADER_ELECTION_TYPE, Retired,
    },
    values::CapacitySwitch,
};
use go_fmt::quote;

/// The path of external-provisioner's health check of leader election.
pub const LEADER_ELECTION_CHECK: &str = "/healthz/leader-election";

/// Where `--enable-pprof` serves its pages.
const PROFILES: [&str; 5] = [
    "/debug/pprof/",
    "/debug/pprof/cmdline",
    "/debug/pprof/profile",
    "/debug/pprof/symbol",
    "/debug/pprof/trace",
];

/// external-provisioner's checks before `--version`: logging, gates, the node's name.
pub(super) fn before_version(
    arguments: &Arguments,
    env: &impl Fn(&str) -> Option<OsString>,
) -> Result<(Gates, Vec<String>), Refusal> {
    retired_values(&arguments.retired)?;
    logging(&arguments.logging)?;
    let gates = arguments.miscellaneous.feature_gates.iter().flatten();
    let gates = gates.map(|(gate, value)| (gate.clone(), *value)).collect();
    let gates = Gates::resolve(&gates).map_err(|error| Refusal::new(&error, 255))?;
    let no_node = env("NODE_NAME").is_none_or(|name| name.is_empty());
    if arguments.node_deployment.node_deployment && no_node {
        // external-provisioner's text, though the flag has another name.
        let text =
            "The NODE_NAME environment variable must be set when using --enable-node-deployment.";
        return Err(Refusal::new(text, 255));
    }
    Ok(gates)
}

/// external-provisioner's checks after `--version`.
pub(super) fn after_version(arguments: &Arguments) -> Result<(), Refusal> {
    let given = |address: &Option<String>| address.as_ref().is_some_and(|text| !text.is_empty());
    if given(&arguments.http.metrics_address) && given(&arguments.http.http_endpoint) {
        return Err(Refusal::new(
            "only one of `--metrics-address` and `--http-endpoint` can be set.",
            1,
        ));
    }
    let length = arguments.naming.volume_name_uuid_length;
    if length != -1 && !(0..=32).contains(&length) {
        let text = format!(
            "--volume-name-uuid-length={length} makes no names: a UUID has 32 digits; use 0 to 32, or -1 for the whole UUID"
        );
        return Err(Refusal::new(&text, 2));
    }
    if arguments.provisioning.workers == 0 {
        return Err(Refusal::new(
            "--worker-threads=0 would never provision anything; use at least 1",
            2,
        ));
    }
    bursts(&arguments.kubernetes, wants_capacity(&arguments.capacity, &arguments.retired))
}

/// client-go's rule and text.
fn bursts(kubernetes: &KubernetesArguments, capacity: bool) -> Result<(), Refusal> {
    let stuck = |qps: f64, burst: i64| qps > 0.0 && burst <= 0;
    // external-provisioner's default is 5.
    let objects_stuck = stuck(kubernetes.kube_api_qps.unwrap_or(5.0), kubernetes.kube_api_burst);
    let capacity_stuck =
        stuck(kubernetes.kube_api_capacity_qps, kubernetes.kube_api_capacity_burst);
    if objects_stuck || (capacity && capacity_stuck) {
        return Err(Refusal::new(
            "Failed to create client: burst is required to be greater than 0 when RateLimiter is not set and QPS is set to greater than 0",
            255,
        ));
    }
    Ok(())
}

/// What external-provisioner only detects later: once the driver has answered, or by a panic.
pub(super) fn make_sense(flags: &Flags) -> Result<(), Refusal> {
    let election = flags.leader_election.as_ref().map_or(Ok(()), election_times);
    election.map_err(|text| Refusal::new(text, 2))?;
    let Some(http) = &flags.http else { return Ok(()) };
    let check_served = http.leader_election_check && flags.leader_election.is_some();
    if !http.metrics_path.starts_with('/') {
        let text = format!(
            "--metrics-path={} is no path: it must start with /",
            quote(&http.metrics_path)
        );
        return Err(Refusal::new(&text, 2));
    }
    let taken = [
        (check_served && http.metrics_path == LEADER_ELECTION_CHECK, "the path of a health check"),
        (http.pprof && PROFILES.contains(&http.metrics_path.as_str()), "the path of a profile"),
        (http.metrics_path.contains(['{', '}', ' ', '\t']), "a pattern, not a path"),
    ];
    if let Some((_, what)) = taken.iter().find(|(taken, _)| *taken) {
        let text = format!("--metrics-path={} is {what}; use another", http.metrics_path);
        return Err(Refusal::new(&text, 2));
    }
    Ok(())
}

/// client-go's rules and texts.
fn election_times(election: &LeaderElection) -> Result<(), &'static str> {
    let LeaderElection { lease_duration, renew_deadline, retry_period, .. } = election;
    // client-go's jitter factor, 1.2.
    let longest_retry = retry_period.saturating_mul(6) / 5;
    if lease_duration <= renew_deadline {
        Err("leaseDuration must be greater than renewDeadline")
    } else if *renew_deadline <= longest_retry {
        Err("renewDeadline must be greater than retryPeriod*JitterFactor")
    } else if *retry_period == Duration::ZERO {
        Err("retryPeriod must be greater than zero")
    } else {
        Ok(())
    }
}

fn logging(arguments: &LoggingArguments) -> Result<(), Refusal> {
    let errors = logging_errors(arguments);
    let all = match errors.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        more => format!("[{}]", more.join(", ")),
    };
    Err(Refusal::new(&format!("\"LoggingConfiguration is invalid\" err={}", quote(&all)), 1))
}

fn logging_errors(arguments: &LoggingArguments) -> Vec<String> {
    let mut errors = Vec::new();
    if arguments.log_flush_frequency <= 0 {
        let shown = quote(&duration::format(arguments.log_flush_frequency));
        errors.push(format!("flushFrequency: Invalid value: {shown}: Must be greater than zero"));
    }
    let format = arguments.logging_format.as_str();
    if format != "text" && format != "json" {
        errors.push(format!("format: Invalid value: {}: Unsupported log format", quote(format)));
    }
    if arguments.vmodule.iter().any(|levels| !levels.is_empty()) && !["text", ""].contains(&format)
    {
        errors.push("vmodule: Forbidden: Only supported for text log format".to_owned());
    }
    let alpha = [
        (arguments.log_text_split_stream, "options.text.splitStream"),
        (arguments.log_text_info_buffer_size, "options.text.infoBufferSize"),
        (arguments.log_json_split_stream, "options.json.splitStream"),
        (arguments.log_json_info_buffer_size, "options.json.infoBufferSize"),
    ];
    errors.extend(
        alpha.into_iter().filter(|(set, _)| *set).map(|(_, field)| {
            format!("{field}: Forbidden: Feature LoggingAlphaOptions is disabled")
        }),
    );
    errors
}

/// Retired flags keep their meaning, so the values that were wrong are wrong.
fn retired_values(retired: &RetiredArguments) -> Result<(), Refusal> {
    let refuse = |flag: &str, value: &str, allowed: &str, exit_code| {
        let text = format!("--{flag}={value} is not supported: it was {allowed}");
        Err(Refusal::new(&text, exit_code))
    };
    match retired.leader_election_type.as_deref() {
        None | Some("" | "endpoints" | "leases") => {}
        Some(kind) => return refuse(LEADER_ELECTION_TYPE, kind, "`endpoints` or `leases`", 1),
    }
    match retired.capacity_controller_deployment_mode.as_deref() {
        None | Some("" | "central") => Ok(()),
        Some(mode) => refuse(CAPACITY_MODE, mode, "`central` or empty", 2),
    }
}

/// `--enable-capacity`, or the retired flag for it.
pub(super) fn wants_capacity(capacity: &CapacityArguments, retired: &RetiredArguments) -> bool {
    let mode = retired.capacity_controller_deployment_mode.as_deref();
    capacity.enable_capacity != CapacitySwitch::Off || mode.is_some_and(|mode| !mode.is_empty())
}

/// Whether a replica of v1 with the flag `name` locks something else than the Lease.
pub(super) fn locks_endpoints(name: &str, retired: &RetiredArguments) -> bool {
    let kind = retired.leader_election_type.as_deref().filter(|kind| !kind.is_empty());
    match (name, kind) {
        (ENABLE_LEADER_ELECTION, None) => retired.enable_leader_election,
        (LEADER_ELECTION_TYPE, kind) => kind == Some("endpoints"),
        _ => false,
    }
}

/// What the user should know.
pub(super) fn warnings(line: &CommandLine) -> Vec<String> {
    let Arguments { provisioning, capacity, http, retired, .. } = &line.arguments;
    let warn = |flag: &&'static Retired| {
        let more = if locks_endpoints(flag.name, retired) { ENDPOINTS } else { "" };
        retired::warning(flag, more)
    };
    let threads = [
        ("cloning-protection-threads", provisioning.cloning_protection_workers),
        ("capacity-threads", capacity.settings.workers),
    ];
    let idle = threads
        .iter()
        .filter(|(_, threads)| *threads == 0)
        .map(|(name, _)| format!("--{name}=0 would leave work undone for ever; using 1"));
    let spelling = (capacity.enable_capacity == CapacitySwitch::Central).then(|| {
        "--enable-capacity=central is a retired spelling: use --enable-capacity".to_owned()
    });
    let deprecated = http
        .metrics_address
        .as_ref()
        .map(|_| "flag --metrics-address is deprecated: use --http-endpoint, which also serves health checks".to_owned());
    line.retired.iter().map(warn).chain(idle).chain(spelling).chain(deprecated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::values::Labels;

    #[test]
    fn inconsistent_durations_are_refused_with_client_gos_texts() {
        for (lease, renew, retry, error) in [
            (15_000, 10_000, 5_000, None),
            (10_000, 10_000, 5_000, Some("leaseDuration must be greater than renewDeadline")),
            (
                15_000,
                6_000,
                5_000,
                Some("renewDeadline must be greater than retryPeriod*JitterFactor"),
            ),
            (15_000, 6_001, 5_000, None),
            (15_000, 10_000, 0, Some("retryPeriod must be greater than zero")),
            (0, 0, 0, Some("leaseDuration must be greater than renewDeadline")),
        ] {
            let election = LeaderElection {
                namespace: None,
                lease_duration: Duration::from_millis(lease),
                renew_deadline: Duration::from_millis(renew),
                retry_period: Duration::from_millis(retry),
                labels: Labels::new(),
            };
            assert_eq!(election_times(&election).err(), error, "{lease} {renew} {retry}");
        }
    }
}
