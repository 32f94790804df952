//! The line that a run prints.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{
    options::Options,
    program::{Cpu, Memory},
    progress::{Milestone, Progress},
};

/// What was asked for, of `program` on a server.
pub(super) fn setting(options: &Options, server: &str, program: &str) -> Value {
    json!({
        "server": server, "program": program, "arguments": options.arguments,
        "claims": options.claims, "bound": options.bound,
    })
}

/// What one half cost: the program's processor time, its requests to the API server, and calls of the driver.
pub(super) struct Cost {
    pub(super) cpu: Cpu,
    pub(super) requests: BTreeMap<String, usize>,
    pub(super) driver_calls: BTreeMap<&'static str, usize>,
}

/// From claims to volumes: until the last PersistentVolume was observed, and how long each claim took.
pub(super) fn provision(progress: &Progress, cost: &Cost) -> Value {
    use Milestone::{Asked, Saved};
    let Cost { cpu, requests, driver_calls } = cost;
    json!({
        "saved": pace(progress, Asked, Saved),
        "claim_to_saved": latency(progress.took(Asked, Saved)),
        "cpu": cpu, "api": {"calls": requests}, "driver_calls": driver_calls,
    })
}

/// From the deletion of claims until their volumes are gone.
pub(super) fn delete(progress: &Progress, cost: &Cost) -> Value {
    let Cost { cpu, requests, driver_calls } = cost;
    json!({
        "gone": pace(progress, Milestone::Dropped, Milestone::Gone),
        "cpu": cpu, "api": {"calls": requests}, "driver_calls": driver_calls,
    })
}

/// The program's memory after its first volume came and went, with every claim bound, and after all was deleted; the
/// most that was resident until the first volume had come and gone, and ever.
pub(super) fn memory(idle: Memory, provisioned: Memory, end: Memory) -> Value {
    json!({
        "idle": idle, "provisioned": provisioned, "end": end,
        "start_peak_rss_kib": idle.peak_kib, "peak_rss_kib": end.peak_kib,
    })
}

/// How long a number of claims took, from the first one's `from` to the last one's `to`.
fn pace(progress: &Progress, from: Milestone, to: Milestone) -> Option<Value> {
    let seconds = progress.span(from, to)?.as_secs_f64();
    let claims = f64::from(u32::try_from(progress.count(to)).unwrap_or(u32::MAX));
    let per_second = if seconds > 0.0 { claims / seconds } else { 0.0 };
    Some(json!({"seconds": rounded(seconds), "per_second": rounded(per_second)}))
}

/// What half of the latencies, 99 of 100 and all of them do not exceed (nearest rank).
fn latency(mut latencies: Vec<Duration>) -> Option<Value> {
    latencies.sort_unstable();
    let percentile = |percent: usize| {
        let rank = (latencies.len() * percent).div_ceil(100).max(1);
        latencies.get(rank - 1).map(|latency| rounded(latency.as_secs_f64() * 1e3))
    };
    let (p50, p99, max) = (percentile(50)?, percentile(99)?, percentile(100)?);
    Some(json!({"p50_ms": p50, "p99_ms": p99, "max_ms": max}))
}

/// To the microsecond, or whatever a thousandth is: more digits say nothing.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
