//! Shadow mode.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::families::Families;

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
    pub(super) fn new(families: &Families, subjects: &[&str], agreements: &[&str]) -> Self {
        let metrics = Self {
            results: families.counter(
                "provisioner_shadow_results_total",
                "With --shadow, what was compared with external-provisioner: PersistentVolumes (volume), claims that only it serves (served_there), claims without a volume for an hour (unserved), and deletions; by agreement: same, documented, unexplained, unknown.",
                &["subject", "agreement"],
            ),
            differences: families.counter(
                "provisioner_shadow_differences_total",
                "With --shadow, the fields in which PersistentVolumes differed from those that this program would have saved.",
                &["field"],
            ),
            kept: families.int_gauge(
                "provisioner_shadow_kept",
                "With --shadow, what is kept to be compared: claims without a PersistentVolume (claims), and PersistentVolumes that are to be deleted (deletions).",
                &["kind"],
            ),
        };
        metrics.begin(subjects, agreements);
        metrics
    }

    /// Serves each value from now on: `increase()` ignores the first count of a series that begins with it.
    fn begin(&self, subjects: &[&str], agreements: &[&str]) {
        for subject in subjects {
            for agreement in agreements {
                self.results.with_label_values(&[subject, agreement]);
            }
        }
        for field in FIELDS.into_iter().chain([OTHER]) {
            self.differences.with_label_values(&[field]);
        }
    }

    /// There was a result.
    pub fn result(&self, subject: &str, agreement: &str) {
        self.results.with_label_values(&[subject, agreement]).inc();
    }

    /// Sets how many claims and deletions are kept.
    #[allow(clippy::cast_possible_wrap)] // counts of things in memory
    pub fn kept(&self, claims: usize, deletions: usize) {
        self.kept.with_label_values(&["claims"]).set(claims as i64);
        self.kept.with_label_values(&["deletions"]).set(deletions as i64);
    }

    /// Two PersistentVolumes differed in the field at this path.
    pub fn difference(&self, path: &str) {
        let field = FIELDS.into_iter().find(|field| {
            path.strip_prefix(field)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        self.differences.with_label_values(&[field.unwrap_or(OTHER)]).inc();
    }
}
