//! What the command line must not say, in the original's order and with its exit codes.

use std::{ffi::OsString, time::Duration};

use super::{
    Flags, Gates, LeaderElection, Refusal,
    command::Values,
    duration,
    retired::{
        self, CAPACITY_MODE, ENABLE_LEADER_ELECTION, ENDPOINTS, LEADER_ELECTION_TYPE, RETIRED,
    },
};
use crate::go_fmt::quote;

/// Where the health check of leader election is served.
const LEADER_ELECTION_CHECK: &str = "/healthz/leader-election";

/// Where `--enable-pprof` serves its pages.
const PROFILES: [&str; 5] = [
    "/debug/pprof/",
    "/debug/pprof/cmdline",
    "/debug/pprof/profile",
    "/debug/pprof/symbol",
    "/debug/pprof/trace",
];

/// The original's checks before it looks at `--version`: logging, gates, the node's name.
pub(super) fn before_version(
    values: &Values,
    env: &impl Fn(&str) -> Option<OsString>,
) -> Result<(Gates, Vec<String>), Refusal> {
    retired_values(values)?;
    logging(values)?;
    let gates = Gates::resolve(&values.gates()).map_err(|error| Refusal::new(&error, 255))?;
    let no_node = env("NODE_NAME").is_none_or(|name| name.is_empty());
    if values.get("node-deployment") && no_node {
        // The original's words, though the flag has another name.
        let text =
            "The NODE_NAME environment variable must be set when using --enable-node-deployment.";
        return Err(Refusal::new(text, 255));
    }
    Ok(gates)
}

/// Its checks after that.
pub(super) fn after_version(values: &Values) -> Result<(), Refusal> {
    if values.text("metrics-address").is_some() && values.text("http-endpoint").is_some() {
        return Err(Refusal::new(
            "only one of `--metrics-address` and `--http-endpoint` can be set.",
            1,
        ));
    }
    let length: i64 = values.get("volume-name-uuid-length");
    if length != -1 && !(0..=32).contains(&length) {
        let text = format!(
            "--volume-name-uuid-length={length} makes no names: a UUID has 32 digits; use 0 to 32, or -1 for the whole UUID"
        );
        return Err(Refusal::new(&text, 2));
    }
    if values.get::<u64>("worker-threads") == 0 {
        return Err(Refusal::new(
            "--worker-threads=0 would never provision anything; use at least 1",
            2,
        ));
    }
    bursts(values)
}

/// client-go's rule and words.
fn bursts(values: &Values) -> Result<(), Refusal> {
    let stuck = |qps: &str, unset: f64, burst: &str| {
        let qps = if values.is_given(qps) { values.get(qps) } else { unset };
        qps > 0.0 && values.get::<i64>(burst) <= 0
    };
    let capacity = || stuck("kube-api-capacity-qps", 1.0, "kube-api-capacity-burst");
    // Unset, the original's rate is 5.
    if stuck("kube-api-qps", 5.0, "kube-api-burst") || (wants_capacity(values) && capacity()) {
        return Err(Refusal::new(
            "Failed to create client: burst is required to be greater than 0 when RateLimiter is not set and QPS is set to greater than 0",
            255,
        ));
    }
    Ok(())
}

/// What the original only finds out later: once the driver has answered, or by a panic.
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

/// client-go's rules and words.
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

fn logging(values: &Values) -> Result<(), Refusal> {
    let errors = logging_errors(values);
    let all = match errors.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        more => format!("[{}]", more.join(", ")),
    };
    Err(Refusal::new(&format!("\"LoggingConfiguration is invalid\" err={}", quote(&all)), 1))
}

fn logging_errors(values: &Values) -> Vec<String> {
    let mut errors = Vec::new();
    let frequency: i64 = values.get("log-flush-frequency");
    if frequency <= 0 {
        let shown = quote(&duration::format(frequency));
        errors.push(format!("flushFrequency: Invalid value: {shown}: Must be greater than zero"));
    }
    let format: String = values.get("logging-format");
    if format != "text" && format != "json" {
        errors.push(format!("format: Invalid value: {}: Unsupported log format", quote(&format)));
    }
    if !values.vmodule().is_empty() && format != "text" && !format.is_empty() {
        errors.push("vmodule: Forbidden: Only supported for text log format".to_owned());
    }
    for (flag, field) in [
        ("log-text-split-stream", "options.text.splitStream"),
        ("log-text-info-buffer-size", "options.text.infoBufferSize"),
        ("log-json-split-stream", "options.json.splitStream"),
        ("log-json-info-buffer-size", "options.json.infoBufferSize"),
    ] {
        if values.get(flag) {
            errors.push(format!("{field}: Forbidden: Feature LoggingAlphaOptions is disabled"));
        }
    }
    errors
}

/// Retired flags mean what they meant, so what was wrong then is wrong now.
fn retired_values(values: &Values) -> Result<(), Refusal> {
    let refuse = |name: &str, allowed: &str, exit_code| {
        let value: String = values.get(name);
        Err(Refusal::new(
            &format!("--{name}={value} is not supported: it was {allowed}"),
            exit_code,
        ))
    };
    match values.text(LEADER_ELECTION_TYPE).as_deref() {
        None | Some("endpoints" | "leases") => {}
        Some(_) => return refuse(LEADER_ELECTION_TYPE, "`endpoints` or `leases`", 1),
    }
    match values.text(CAPACITY_MODE).as_deref() {
        None | Some("central") => Ok(()),
        Some(_) => refuse(CAPACITY_MODE, "`central` or empty", 2),
    }
}

/// `--enable-capacity`, or what once meant it.
pub(super) fn wants_capacity(values: &Values) -> bool {
    values.get("enable-capacity") || values.text(CAPACITY_MODE).is_some()
}

/// `--leader-election`, or what once meant it.
pub(super) fn wants_leader_election(values: &Values) -> bool {
    values.get("leader-election") || values.get(ENABLE_LEADER_ELECTION)
}

/// Whether the flag `name`, as given, made a replica of v1 lock something else than the Lease.
fn locks_endpoints(values: &Values, name: &str) -> bool {
    match (name, values.text(LEADER_ELECTION_TYPE).as_deref()) {
        (ENABLE_LEADER_ELECTION, None) => values.get(ENABLE_LEADER_ELECTION),
        (LEADER_ELECTION_TYPE, lock) => lock == Some("endpoints"),
        _ => false,
    }
}

/// What the user should know.
pub(super) fn warnings(values: &Values) -> Vec<String> {
    let retired = RETIRED.iter().filter(|flag| values.is_given(flag.name));
    let retired = retired.map(|flag| {
        let more = if locks_endpoints(values, flag.name) { ENDPOINTS } else { "" };
        retired::warning(flag, more)
    });
    let idle = ["cloning-protection-threads", "capacity-threads"]
        .iter()
        .filter(|name| values.get::<u64>(name) == 0)
        .map(|name| format!("--{name}=0 would leave work undone for ever; using 1"));
    let spelling = (values.spelled("enable-capacity") == Some("central")).then(|| {
        "--enable-capacity=central is a retired spelling: use --enable-capacity".to_owned()
    });
    let deprecated = values
        .is_given("metrics-address")
        .then(|| "flag --metrics-address is deprecated: use --http-endpoint, which also serves health checks".to_owned());
    retired.chain(idle).chain(spelling).chain(deprecated).collect()
}
