//! The line that a run prints.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    options::Options,
    program::{Cpu, Memory},
    progress::{Milestone, Progress},
    requests::Requests,
    residents::Residents,
};

/// A run, as one line of JSON. What could not be measured is `null`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was asked for.
    pub setting: Setting,
    /// Seconds from the program's start until its first volume was saved, of a claim made before.
    pub first_volume_seconds: Option<f64>,
    /// Seconds from a claim's creation until its volume was saved, made while the program still
    /// listed what stood in the cluster.
    pub first_new_volume_seconds: Option<f64>,
    /// From claims to volumes.
    pub provision: Provision,
    /// And back.
    pub delete: Delete,
    /// The program's memory.
    pub memory: MemoryUse,
    /// Volumes that the driver still holds at the end.
    pub volumes_left_at_driver: usize,
}

/// What was asked for.
#[derive(Debug, Serialize)]
pub struct Setting {
    /// The server's version, and whether it is this crate's.
    pub server: String,
    /// The measured program.
    pub program: String,
    /// Its further arguments.
    pub arguments: Vec<String>,
    /// Claims provisioned and deleted.
    pub claims: usize,
    /// Claims a second, unless they came in a burst.
    pub rate: Option<f64>,
    /// Requests for claims at once.
    pub concurrency: usize,
    /// What stood in the cluster from the start.
    #[serde(flatten)]
    pub residents: Residents,
    /// What the driver waits before it answers.
    pub driver_latency_ms: u64,
    /// How many volumes the driver works on at once, if that is limited.
    pub driver_slots: Option<usize>,
}

impl Setting {
    /// What `options` ask for, of `program` on a server.
    pub fn new(options: &Options, server: String, program: String) -> Self {
        Self {
            server,
            program,
            arguments: options.arguments.clone(),
            claims: options.claims,
            rate: options.rate,
            concurrency: options.concurrency,
            residents: options.residents,
            driver_latency_ms: options.driver_latency,
            driver_slots: options.driver_slots,
        }
    }
}

/// How long a number of claims took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pace {
    /// From the first request to the last claim's end of this half.
    pub seconds: f64,
    /// Claims a second over that time.
    pub per_second: f64,
}

impl Pace {
    fn of(progress: &Progress, from: Milestone, to: Milestone) -> Option<Self> {
        let seconds = progress.span(from, to)?.as_secs_f64();
        let claims = u32::try_from(progress.count(to)).unwrap_or(u32::MAX);
        let per_second = if seconds > 0.0 { f64::from(claims) / seconds } else { 0.0 };
        Some(Self { seconds: rounded(seconds), per_second: rounded(per_second) })
    }
}

/// What many latencies come to, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Half of them are no longer.
    pub p50_ms: f64,
    /// 99 of 100 are no longer.
    pub p99_ms: f64,
    /// None is longer.
    pub max_ms: f64,
}

impl Latency {
    /// Sums up (nearest rank); `None` where there is nothing.
    fn of(mut latencies: Vec<Duration>) -> Option<Self> {
        latencies.sort_unstable();
        let percentile = |percent: usize| {
            let rank = (latencies.len() * percent).div_ceil(100).max(1);
            latencies.get(rank - 1).map(|latency| rounded(latency.as_secs_f64() * 1e3))
        };
        Some(Self { p50_ms: percentile(50)?, p99_ms: percentile(99)?, max_ms: percentile(100)? })
    }
}

/// To the microsecond, or whatever a thousandth is: more digits say nothing.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// What one half cost.
#[derive(Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The program's processor time.
    pub cpu: Cpu,
    /// Its requests to the API server.
    pub api: Requests,
    /// Calls of the driver by method.
    pub driver_calls: BTreeMap<&'static str, usize>,
}

/// From claims to volumes.
#[derive(Debug, Serialize)]
pub struct Provision {
    /// Until the last claim was observed bound.
    pub bound: Option<Pace>,
    /// Until the last PersistentVolume was observed: the provisioner's part.
    pub saved: Option<Pace>,
    /// From the request for a claim until its PersistentVolume was observed.
    pub claim_to_saved: Option<Latency>,
    /// From the request for a claim until it was observed bound.
    pub claim_to_bound: Option<Latency>,
    /// What that cost.
    #[serde(flatten)]
    pub cost: Cost,
}

impl Provision {
    pub(super) fn of(progress: &Progress, cost: Cost) -> Self {
        use Milestone::{Asked, Bound, Saved};
        Self {
            bound: Pace::of(progress, Asked, Bound),
            saved: Pace::of(progress, Asked, Saved),
            claim_to_saved: Latency::of(progress.took(Asked, Saved)),
            claim_to_bound: Latency::of(progress.took(Asked, Bound)),
            cost,
        }
    }
}

/// From the deletion of claims until their volumes are gone.
#[derive(Debug, Serialize)]
pub struct Delete {
    /// Until the last PersistentVolume was observed to be deleted.
    pub gone: Option<Pace>,
    /// From the request to delete a claim until its PersistentVolume was observed to be deleted.
    pub claim_to_gone: Option<Latency>,
    /// From the PersistentVolume's release until it was observed to be deleted: the provisioner's part.
    pub released_to_gone: Option<Latency>,
    /// What that cost.
    #[serde(flatten)]
    pub cost: Cost,
}

impl Delete {
    pub(super) fn of(progress: &Progress, cost: Cost) -> Self {
        use Milestone::{Dropped, Gone, Released};
        Self {
            gone: Pace::of(progress, Dropped, Gone),
            claim_to_gone: Latency::of(progress.took(Dropped, Gone)),
            released_to_gone: Latency::of(progress.took(Released, Gone)),
            cost,
        }
    }
}

/// The program's memory over a run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct MemoryUse {
    /// After its first volume came and went, with nothing to do.
    pub idle: Memory,
    /// With every claim bound, and nothing to do.
    pub provisioned: Memory,
    /// After all was deleted, with nothing to do.
    pub end: Memory,
    /// The most that was resident until the first volume had come and gone.
    pub start_peak_rss_kib: u64,
    /// The most that was ever resident.
    pub peak_rss_kib: u64,
}
