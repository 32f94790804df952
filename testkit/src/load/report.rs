//! The line that a run prints.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    backlog::Drain,
    latency::{Latency, rounded},
    options::Options,
    progress::{Milestone, Progress},
    requests::Requests,
    residents::Residents,
    usage::{Cpu, Memory},
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
    /// How fast claims were served that stood before the program's start (`--backlog`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// From claims to volumes.
    pub provision: Provision,
    /// And back.
    pub delete: Delete,
    /// The program's memory.
    pub memory: Option<MemoryUse>,
    /// Volumes that the driver still holds at the end.
    pub volumes_left_at_driver: Option<usize>,
}

/// What was asked for.
#[derive(Debug, Serialize)]
pub struct Setting {
    /// The server's version; with ` (embedded)` where it is this crate's.
    pub server: String,
    /// The measured program.
    pub program: Option<String>,
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
    /// Where the driver keeps volumes.
    pub driver: Option<&'static str>,
    /// What the driver waits before it answers.
    pub driver_latency_ms: Option<u64>,
    /// How many volumes the driver works on at once, if that is limited.
    pub driver_slots: Option<usize>,
    /// Claims beside the others that are never served.
    pub hanging: usize,
}

impl Setting {
    /// What `options` ask for, of `program` on a server.
    pub fn new(options: &Options, server: String, program: Option<String>) -> Self {
        let ours = program.is_some();
        Self {
            server,
            program,
            arguments: options.arguments.clone(),
            claims: options.claims,
            rate: options.rate,
            concurrency: options.concurrency,
            residents: options.residents,
            driver: ours.then(|| options.driver.name()),
            driver_latency_ms: ours.then_some(options.driver_latency),
            driver_slots: options.driver_slots,
            hanging: options.hanging,
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
        Some(Self::new(progress.count(to), progress.span(from, to)?))
    }

    /// So many claims in this time.
    pub fn new(claims: usize, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        let claims = u32::try_from(claims).unwrap_or(u32::MAX);
        let per_second = if seconds > 0.0 { f64::from(claims) / seconds } else { 0.0 };
        Self { seconds: rounded(seconds), per_second: rounded(per_second) }
    }
}

/// What one half cost.
#[derive(Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The program's processor time.
    pub cpu: Option<Cpu>,
    /// Its requests to the API server.
    pub api: Option<Requests>,
    /// Calls of the driver by method.
    pub driver_calls: Option<BTreeMap<&'static str, usize>>,
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
    /// What `progress` shows.
    pub fn of(progress: &Progress, cost: Cost) -> Self {
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
    /// What `progress` shows.
    pub fn of(progress: &Progress, cost: Cost) -> Self {
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

impl MemoryUse {
    /// From what was read three times in a run.
    pub fn of(
        idle: Option<Memory>,
        provisioned: Option<Memory>,
        end: Option<Memory>,
    ) -> Option<Self> {
        let (idle, provisioned, end) = (idle?, provisioned?, end?);
        let (start_peak_rss_kib, peak_rss_kib) = (idle.peak_kib, end.peak_kib);
        Some(Self { idle, provisioned, end, start_peak_rss_kib, peak_rss_kib })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn the_pace_is_of_those_who_arrived() {
        let (mut progress, start) = (Progress::default(), Instant::now());
        assert_eq!(Pace::of(&progress, Milestone::Asked, Milestone::Bound), None);
        for (name, bound) in [("a", Some(1000)), ("b", Some(2000)), ("c", None)] {
            progress.asked(name, start);
            if let Some(after) = bound {
                let at = start + Duration::from_millis(after);
                progress.reached(name, Milestone::Bound, at);
            }
        }
        let pace = Pace::of(&progress, Milestone::Asked, Milestone::Bound);
        assert_eq!(pace, Some(Pace { seconds: 2.0, per_second: 1.0 }));
    }
}
