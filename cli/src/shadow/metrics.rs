//! The metrics of shadow mode, beside those of every process of the library.

use prometheus::{IntCounterVec, IntGaugeVec};

use csi_provisioner::metrics::Metrics;

use super::judgement::{Agreement, Subject};

/// The results of comparisons, and what is kept for others.
#[derive(Debug, Clone)]
pub struct ShadowMetrics {
    results: IntCounterVec,
    differences: IntCounterVec,
    kept: IntGaugeVec,
}

/// The label of all other fields.
const OTHER: &str = "other";

/// The fields that the label `field` names.
const FIELDS: [&str; 13] = [
    "metadata.annotations",
    "metadata.finalizers",
    "metadata.labels",
    "metadata.name",
    "spec.accessModes",
    "spec.capacity",
    "spec.claimRef",
    "spec.csi",
    "spec.mountOptions",
    "spec.nodeAffinity",
    "spec.persistentVolumeReclaimPolicy",
    "spec.storageClassName",
    "spec.volumeMode",
];

impl ShadowMetrics {
    /// Adds them.
    ///
    /// # Panics
    /// If called twice with the same metrics.
    pub fn new(metrics: &Metrics) -> Self {
        let families = metrics.families();
        let metrics = Self {
            results: families.counter(
                "provisioner_shadow_results_total",
                "In shadow mode, what was compared with external-provisioner: PersistentVolumes (volume), claims that only it serves (served_there), claims without a volume for an hour (unserved), and deletions; by agreement: same, documented, unexplained, unknown.",
                &["subject", "agreement"],
            ),
            differences: families.counter(
                "provisioner_shadow_differences_total",
                "In shadow mode, the fields in which PersistentVolumes differed from those that this program would have saved.",
                &["field"],
            ),
            kept: families.int_gauge(
                "provisioner_shadow_kept",
                "In shadow mode, what is kept to be compared: claims without a PersistentVolume (claims), and PersistentVolumes that are to be deleted (deletions).",
                &["kind"],
            ),
        };
        metrics.begin();
        metrics
    }

    /// Serves each value from now on: `increase()` ignores the first count of a series that begins with it.
    fn begin(&self) {
        for subject in Subject::ALL {
            for agreement in Agreement::ALL {
                self.results.with_label_values(&[subject.label(), agreement.words()]);
            }
        }
        for field in FIELDS.into_iter().chain([OTHER]) {
            self.differences.with_label_values(&[field]);
        }
    }

    /// There was a result.
    pub(super) fn result(&self, subject: Subject, agreement: Agreement) {
        self.results.with_label_values(&[subject.label(), agreement.words()]).inc();
    }

    /// Sets how many claims and deletions are kept.
    #[allow(clippy::cast_possible_wrap)] // counts of things in memory
    pub(super) fn kept(&self, claims: usize, deletions: usize) {
        self.kept.with_label_values(&["claims"]).set(claims as i64);
        self.kept.with_label_values(&["deletions"]).set(deletions as i64);
    }

    /// Two PersistentVolumes differed in the field at this path.
    pub(super) fn difference(&self, path: &str) {
        let field = FIELDS.into_iter().find(|field| {
            path.strip_prefix(field)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        self.differences.with_label_values(&[field.unwrap_or(OTHER)]).inc();
    }
}
