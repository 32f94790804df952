//! The results of shadow mode: on the status, and as `kubectl csi-provisioner shadow-report` prints them.
//!
//! Plain data without secrets. Texts come from objects of the cluster and are escaped by who shows them.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::judgement::{Agreement, Subject};
use csi_provisioner::plain_text::escaped;

/// The results so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShadowReport {
    /// The number of results.
    pub totals: Vec<Total>,
    /// The number of claims without a PersistentVolume.
    pub waiting_claims: usize,
    /// The number of PersistentVolumes that this program would delete.
    pub due_deletions: usize,
    /// The number of claims and deletions that were not compared, as too many were to be kept.
    pub not_kept: u64,
    /// The last results other than `same`, the newest first.
    pub rows: Vec<Row>,
}

/// The number of results of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Total {
    /// What was compared.
    pub subject: Subject,
    /// The agreement.
    pub agreement: Agreement,
    /// The number of results.
    pub count: u64,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// When it was found.
    pub time: String,
    /// The claim or PersistentVolume.
    pub object: String,
    /// What was compared.
    pub subject: Subject,
    /// The agreement.
    pub agreement: Agreement,
    /// The row of docs/differences.md, for [`Agreement::Documented`].
    pub row: Option<String>,
    /// The reasons.
    pub reasons: Vec<String>,
}

impl Subject {
    /// All of them.
    pub(super) const ALL: [Self; 4] =
        [Self::Volume, Self::ServedThere, Self::Unserved, Self::Deletion];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Volume => "PersistentVolumes",
            Self::ServedThere => "claims that only external-provisioner serves",
            Self::Unserved => "claims without a volume for an hour",
            Self::Deletion => "deletions",
        }
    }

    /// The value of the label in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::ServedThere => "served_there",
            Self::Unserved => "unserved",
            Self::Deletion => "deletion",
        }
    }
}

impl Agreement {
    /// All of them.
    pub(super) const ALL: [Self; 4] =
        [Self::Same, Self::Documented, Self::Unexplained, Self::Unknown];

    /// In words; also the value of the label in metrics.
    pub fn words(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Documented => "documented",
            Self::Unexplained => "unexplained",
            Self::Unknown => "unknown",
        }
    }
}

impl ShadowReport {
    /// The number of results with this agreement.
    pub fn count(&self, agreement: Agreement) -> u64 {
        self.totals
            .iter()
            .filter(|total| total.agreement == agreement)
            .map(|total| total.count)
            .sum()
    }

    /// The report as text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for agreement in Agreement::ALL {
            let _ = writeln!(text, "{:12} {}", agreement.words(), self.count(agreement));
        }
        let Self { waiting_claims, due_deletions, not_kept, .. } = self;
        let _ = writeln!(
            text,
            "\n{waiting_claims} claims wait for a volume, {due_deletions} PersistentVolumes for their deletion; {not_kept} could not be kept."
        );
        for row in &self.rows {
            let _ = writeln!(
                text,
                "\n{}  {}\n  {} ({})",
                escaped(&row.time),
                escaped(&row.object),
                row.agreement.words(),
                row.subject.words()
            );
            let differences = row.row.iter().map(|row| format!("docs/differences.md: {row}"));
            for reason in differences.chain(row.reasons.iter().cloned()) {
                let _ = writeln!(text, "  {}", escaped(&reason));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> ShadowReport {
        let total = |agreement, count| Total { subject: Subject::Volume, agreement, count };
        ShadowReport {
            totals: vec![total(Agreement::Same, 7), total(Agreement::Unexplained, 1)],
            rows: vec![Row {
                time: "2026-01-01T00:00:00Z".to_owned(),
                object: "PersistentVolumeClaim a/b".to_owned(),
                subject: Subject::Volume,
                agreement: Agreement::Unexplained,
                row: None,
                reasons: vec!["spec.x: \u{1b}[31m".to_owned()],
            }],
            ..ShadowReport::default()
        }
    }

    #[test]
    fn the_text_counts_verdicts_and_names_each_difference_without_control_characters() {
        let text = report().to_text();
        assert!(text.contains("same         7\n") && text.contains("unexplained  1\n"), "{text}");
        assert!(text.contains("PersistentVolumeClaim a/b\n  unexplained (PersistentVolumes)\n"));
        assert!(text.contains(r"spec.x: \u{1b}[31m"), "{text}");
    }
}
