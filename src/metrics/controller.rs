//! Claims and volumes.

use std::{collections::BTreeMap, time::Duration};

use prometheus::{Gauge, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::{classes::ClassLabels, families::Families, suspected_leak::SuspectedLeak};

/// `client_golang`'s default buckets, in seconds.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Up to half an hour: the time over all attempts.
const WAIT_BUCKETS: [f64; 14] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0];

/// `controller_persistentvolume*`, and metrics about claims.
#[derive(Debug, Clone)]
pub struct ControllerMetrics {
    classes: ClassLabels,
    provision_total: IntCounterVec,
    provision_failed_total: IntCounterVec,
    provision_seconds: HistogramVec,
    delete_total: IntCounterVec,
    delete_failed_total: IntCounterVec,
    delete_seconds: HistogramVec,
    wait_seconds: HistogramVec,
    claims: IntGaugeVec,
    oldest_claim: Gauge,
    overdue_claims: IntGaugeVec,
    dependencies: IntGaugeVec,
    attached: IntGauge,
    suspected_leaks: IntCounterVec,
    unfollowed_records: IntCounter,
    sources_released: IntCounterVec,
    ownership_tries: IntCounterVec,
}

/// The states by which claims in work are counted.
const STATES: [&str; 6] = ["waiting", "in_flight", "background", "saving", "unusable", "suspect"];

/// The claims in work at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// How many claims are in each state.
    pub by_state: BTreeMap<&'static str, usize>,
    /// The time since the longest waiting claim was first observed; zero if none waits.
    pub oldest: Duration,
    /// How many claims have waited for longer than [`Census::OVERDUE_AFTER`], by class.
    pub overdue: BTreeMap<String, usize>,
}

impl Default for Census {
    /// No claims.
    fn default() -> Self {
        let by_state = STATES.map(|state| (state, 0)).into();
        Self { by_state, oldest: Duration::ZERO, overdue: BTreeMap::new() }
    }
}

impl Census {
    /// After this time without a volume a claim is overdue.
    pub const OVERDUE_AFTER: Duration = Duration::from_secs(10 * 60);
}

impl ControllerMetrics {
    pub(super) fn new(families: &Families) -> Self {
        let metrics = Self::registered(families);
        // `increase()` ignores the first count of a series that begins with it.
        for SuspectedLeak(reason) in SuspectedLeak::ALL {
            metrics.suspected_leaks.with_label_values(&[reason]);
        }
        metrics
    }

    fn registered(families: &Families) -> Self {
        let by_claim = ["class", "source"];
        Self {
            classes: ClassLabels::default(),
            provision_total: families.counter(
                "controller_persistentvolumeclaim_provision_total",
                "Total number of persistent volumes provisioned succesfully. Broken down by storage class name and source of the claim.",
                &by_claim,
            ),
            provision_failed_total: families.counter(
                "controller_persistentvolumeclaim_provision_failed_total",
                "Total number of persistent volume provision failed attempts. Broken down by storage class name and source of the claim.",
                &by_claim,
            ),
            provision_seconds: families.histogram(
                "controller_persistentvolumeclaim_provision_duration_seconds",
                "Latency in seconds to provision persistent volumes. Failed provisioning attempts are ignored. Broken down by storage class name and source of the claim.",
                &by_claim,
                &DEFAULT_BUCKETS,
            ),
            delete_total: families.counter(
                "controller_persistentvolume_delete_total",
                "Total number of persistent volumes deleted succesfully. Broken down by storage class name.",
                &["class"],
            ),
            delete_failed_total: families.counter(
                "controller_persistentvolume_delete_failed_total",
                "Total number of persistent volume delete failed attempts. Broken down by storage class name.",
                &["class"],
            ),
            delete_seconds: families.histogram(
                "controller_persistentvolume_delete_duration_seconds",
                "Latency in seconds to delete persistent volumes. Failed deletion attempts are ignored. Broken down by storage class name.",
                &["class"],
                &DEFAULT_BUCKETS,
            ),
            wait_seconds: families.histogram(
                "provisioner_claim_wait_seconds",
                "Seconds from the first sight of a claim to its saved PersistentVolume, over all attempts, by class and source.",
                &by_claim,
                &WAIT_BUCKETS,
            ),
            claims: families.int_gauge(
                "provisioner_claims",
                "Claims in work, by state: waiting, in_flight (CreateVolume under way), background (its end is not known), saving, unusable (its volume is removed again), suspect (its volume may be somebody's).",
                &["state"],
            ),
            oldest_claim: oldest_claim(families),
            overdue_claims: families.int_gauge(
                "provisioner_overdue_claims",
                "Claims that have waited for their volume for more than 10 minutes since their first sight, without those that are being deleted, by class.",
                &["class"],
            ),
            dependencies: families.int_gauge(
                "provisioner_awaited_objects",
                "Objects that claims wait for beside the driver (secrets, classes and so on), by resource.",
                &["resource"],
            ),
            attached: families.single_gauge(
                "provisioner_volumes_waiting_for_detach",
                "Volumes that are to be deleted and still are attached to a node.",
            ),
            suspected_leaks: families.counter(
                "provisioner_suspected_leaks_total",
                "Volumes that may exist at the driver without a PersistentVolume, by why they are suspected.",
                &["reason"],
            ),
            unfollowed_records: families.single_counter(
                "provisioner_unfollowed_records_total",
                "Records of open calls on claims that do not fit their claim, its class and the flags, or are another driver's on a deleted claim of ours, and are not followed. Whoever may write a claim can raise it.",
            ),
            sources_released: families.counter(
                "provisioner_sources_released_total",
                "Deleted claims and snapshots from which the finalizer that protects sources was removed although pending claims name them, by reason: protection_timeout (--claim-protection-timeout is over).",
                &["reason"],
            ),
            ownership_tries: families.counter(
                "provisioner_ownership_tries_total",
                "With --node-deployment, tries to become the owner of a claim with immediate binding, by result: own, another (a node was faster), changed (the claim did; tried again), full (no free space; tried again with back-off), gone, failed.",
                &["result"],
            ),
        }
    }

    /// A class of this name came, or went.
    pub fn class_exists(&self, class: &str, exists: bool) {
        self.classes.set_exists(class, exists);
    }

    /// A claim's volume was provisioned after `took`, measured over the last attempt.
    pub fn provisioned(&self, class: &str, source: &str, took: Duration) {
        let class = self.classes.label(class);
        self.provision_total.with_label_values(&[class, source]).inc();
        self.provision_seconds.with_label_values(&[class, source]).observe(took.as_secs_f64());
    }

    /// An attempt to provision failed.
    pub fn provision_failed(&self, class: &str, source: &str) {
        let class = self.classes.label(class);
        self.provision_failed_total.with_label_values(&[class, source]).inc();
    }

    /// A volume was deleted after `took`, measured over the last attempt.
    pub fn deleted(&self, class: &str, took: Duration) {
        self.delete_total.with_label_values(&[class]).inc();
        self.delete_seconds.with_label_values(&[class]).observe(took.as_secs_f64());
    }

    /// An attempt to delete failed.
    pub fn delete_failed(&self, class: &str) {
        self.delete_failed_total.with_label_values(&[class]).inc();
    }

    /// A claim has its PersistentVolume, `waited` after it was first observed.
    pub fn served(&self, class: &str, source: &str, waited: Duration) {
        let class = self.classes.label(class);
        self.wait_seconds.with_label_values(&[class, source]).observe(waited.as_secs_f64());
    }

    /// The claims in work now.
    pub fn in_work(&self, census: &Census) {
        for (state, count) in &census.by_state {
            self.claims.with_label_values(&[state]).set(gauged(*count));
        }
        self.oldest_claim.set(census.oldest.as_secs_f64());
        self.overdue_claims.reset();
        for (class, count) in &census.overdue {
            // Unknown classes share one value.
            self.overdue_claims.with_label_values(&[self.classes.label(class)]).add(gauged(*count));
        }
    }

    /// A volume may exist without a PersistentVolume (safety rule 14).
    pub fn suspected_leak(&self, SuspectedLeak(reason): SuspectedLeak) {
        self.suspected_leaks.with_label_values(&[reason]).inc();
    }

    /// A claim has a call record that is ignored because it does not fit.
    pub fn unfollowed_record(&self) {
        self.unfollowed_records.inc();
    }

    /// An attempt to own a claim had this result.
    pub fn ownership_tried(&self, result: &'static str) {
        self.ownership_tries.with_label_values(&[result]).inc();
    }

    /// A deleted source was released although pending claims name it.
    pub fn source_released(&self, reason: &str) {
        self.sources_released.with_label_values(&[reason]).inc();
    }

    /// Sets how many volumes wait to be detached.
    pub fn attached(&self, volumes: usize) {
        self.attached.set(gauged(volumes));
    }

    /// Sets how many objects of each resource claims wait for.
    pub fn dependencies(&self, objects: &BTreeMap<String, usize>) {
        self.dependencies.reset();
        for (resource, count) in objects {
            self.dependencies.with_label_values(&[resource]).set(gauged(*count));
        }
    }
}

/// A count of things in memory, as gauges have it.
fn gauged(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn oldest_claim(families: &Families) -> Gauge {
    let gauge = Gauge::new(
        "provisioner_oldest_claim_age_seconds",
        "Seconds since the first sight of the claim that has waited longest for its volume; 0 when none waits.",
    );
    families.register("gauge", gauge)
}
