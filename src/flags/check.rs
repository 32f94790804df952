//! Which command lines are refused, in external-provisioner's order and with its exit codes, and the
//! warnings about the others.

use std::time::Duration;

use go_fmt::quote;
use jiff::SignedDuration;

use super::{
    Flags, LeaderElection, Refusal,
    command::Given,
    gates,
    groups::{Kubernetes, RetiredFlags},
    retired::{
        self, CAPACITY_MODE, ENABLE_LEADER_ELECTION, ENDPOINTS, LEADER_ELECTION_TYPE, RETIRED,
        Retired,
    },
    values::CENTRAL,
};

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

/// external-provisioner's checks before `--version`: logging, gates, the node's name. Returns warnings about
/// the gates.
pub(super) fn before_version(flags: &Flags) -> Result<Vec<String>, Refusal> {
    retired_values(&flags.retired)?;
    logging(flags)?;
    let warnings =
        gates::check(&flags.feature_gates()).map_err(|error| Refusal::new(&error, 255))?;
    if flags.node_deployment().is_some_and(|node| node.node_name.is_empty()) {
        // external-provisioner's text, though the flag has another name.
        let text =
            "The NODE_NAME environment variable must be set when using --enable-node-deployment.";
        return Err(Refusal::new(text, 255));
    }
    Ok(warnings)
}

/// external-provisioner's checks after `--version`, and what it only detects once the driver has answered, or
/// by a panic.
pub(super) fn after_version(flags: &Flags) -> Result<(), Refusal> {
    if flags.http.endpoint.is_some() && flags.http.metrics_address.is_some() {
        return Err(Refusal::new(
            "only one of `--metrics-address` and `--http-endpoint` can be set.",
            1,
        ));
    }
    let length = flags.naming.uuid_length;
    if length != -1 && !(0..=32).contains(&length) {
        let text = format!(
            "--volume-name-uuid-length={length} makes no names: a UUID has 32 digits; use 0 to 32, or -1 for the whole UUID"
        );
        return Err(Refusal::new(&text, 2));
    }
    if flags.provisioning.workers == 0 {
        return Err(Refusal::new(
            "--worker-threads=0 would never provision anything; use at least 1",
            2,
        ));
    }
    bursts(&flags.kubernetes, flags.capacity().is_some())?;
    let election = flags.leader_election().map_or(Ok(()), election_times);
    election.map_err(|text| Refusal::new(text, 2))?;
    metrics_path(flags)
}

/// client-go's rule and text.
fn bursts(kubernetes: &Kubernetes, capacity: bool) -> Result<(), Refusal> {
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

/// It is another path than those that are served beside it.
fn metrics_path(flags: &Flags) -> Result<(), Refusal> {
    let (http, path) = (&flags.http, flags.http.metrics_path.as_str());
    if http.address().is_none() {
        return Ok(());
    }
    let check_served = http.endpoint.is_some() && flags.leader_election().is_some();
    let text = if !path.starts_with('/') {
        format!("--metrics-path={} is no path: it must start with /", quote(path))
    } else if check_served && path == LEADER_ELECTION_CHECK {
        format!("--metrics-path={path} is the path of a health check; use another")
    } else if http.pprof && PROFILES.contains(&path) {
        format!("--metrics-path={path} is the path of a profile; use another")
    } else if path.contains(['{', '}', ' ', '\t']) {
        format!("--metrics-path={path} is a pattern, not a path; use another")
    } else {
        return Ok(());
    };
    Err(Refusal::new(&text, 2))
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

fn logging(flags: &Flags) -> Result<(), Refusal> {
    let errors = logging_errors(flags);
    let all = match errors.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        more => format!("[{}]", more.join(", ")),
    };
    Err(Refusal::new(&format!("\"LoggingConfiguration is invalid\" err={}", quote(&all)), 1))
}

fn logging_errors(Flags { logging, log_output: output, .. }: &Flags) -> Vec<String> {
    let mut errors = Vec::new();
    if output.log_flush_frequency <= 0 {
        let frequency = SignedDuration::from_nanos(output.log_flush_frequency);
        let shown = quote(&format!("{}s", frequency.as_secs_f64()));
        errors.push(format!("flushFrequency: Invalid value: {shown}: Must be greater than zero"));
    }
    let format = logging.format.as_str();
    if format != "text" && format != "json" {
        errors.push(format!("format: Invalid value: {}: Unsupported log format", quote(format)));
    }
    if logging.vmodule.iter().any(|levels| !levels.is_empty()) && !["text", ""].contains(&format) {
        errors.push("vmodule: Forbidden: Only supported for text log format".to_owned());
    }
    let alpha = [
        (output.log_text_split_stream, "options.text.splitStream"),
        (!output.log_text_info_buffer_size.is_zero(), "options.text.infoBufferSize"),
        (output.log_json_split_stream, "options.json.splitStream"),
        (!output.log_json_info_buffer_size.is_zero(), "options.json.infoBufferSize"),
    ];
    errors.extend(
        alpha.into_iter().filter(|(set, _)| *set).map(|(_, field)| {
            format!("{field}: Forbidden: Feature LoggingAlphaOptions is disabled")
        }),
    );
    errors
}

/// Retired flags keep their meaning, so the values that were wrong are wrong.
fn retired_values(retired: &RetiredFlags) -> Result<(), Refusal> {
    let refuse = |flag: &str, value: &str, allowed: &str, exit_code| {
        let text = format!("--{flag}={value} is not supported: it was {allowed}");
        Err(Refusal::new(&text, exit_code))
    };
    match retired.leader_election_type.as_deref() {
        None | Some("endpoints" | "leases") => {}
        Some(kind) => return refuse(LEADER_ELECTION_TYPE, kind, "`endpoints` or `leases`", 1),
    }
    match retired.capacity_controller_deployment_mode.as_deref() {
        None | Some("central") => Ok(()),
        Some(mode) => refuse(CAPACITY_MODE, mode, "`central` or empty", 2),
    }
}

/// What the user should know.
pub(super) fn warnings(flags: &Flags, given: &[Given]) -> Vec<String> {
    let is_given = |name: &str| given.iter().any(|given| given.name == name);
    let has_type = flags.retired.leader_election_type.is_some();
    let locks = if has_type { LEADER_ELECTION_TYPE } else { ENABLE_LEADER_ELECTION };
    let retired = RETIRED.iter().filter(|flag| is_given(flag.name)).map(|flag: &Retired| {
        let more = if flag.name == locks && flags.locks_endpoints() { ENDPOINTS } else { "" };
        retired::warning(flag, more)
    });
    let threads = [
        ("cloning-protection-threads", flags.provisioning.cloning_protection_workers),
        ("capacity-threads", flags.capacity.workers),
    ];
    let idle = threads
        .iter()
        .filter(|(_, threads)| *threads == 0)
        .map(|(name, _)| format!("--{name}=0 would leave work undone for ever; using 1"));
    let is_central = |it: &&Given| it.name == "enable-capacity" && it.value == CENTRAL;
    let spelling = given.iter().find(is_central).map(|_| {
        "--enable-capacity=central is a retired spelling: use --enable-capacity".to_owned()
    });
    let deprecated = is_given("metrics-address").then(|| {
        "flag --metrics-address is deprecated: use --http-endpoint, which also serves health checks"
            .to_owned()
    });
    retired.chain(idle).chain(spelling).chain(deprecated).collect()
}
