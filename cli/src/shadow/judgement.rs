//! Decides what a claim's PersistentVolume, or the lack of one, says about the two provisioners.
//!
//! Pure functions of what this program expected and of what exists. What cannot be known is
//! [`Agreement::Unknown`], and never counts as the same.

use std::{fmt::Display, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    compare::{Difference, differences},
    prediction::Prediction,
};
use csi_provisioner::{
    controller::{
        model::finalizer::{Due, due},
        provisioner::{Failure, NotPrepared},
    },
    csi_provisioner::ProvisionerSettings,
    kube::objects::{View as _, Volume},
};

/// Whether both provisioners do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Agreement {
    /// They do.
    Same,
    /// They differ as docs/differences.md says.
    Documented,
    /// They differ, and nothing says why: to be looked at before the switch.
    Unexplained,
    /// It cannot be known.
    Unknown,
}

/// What was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// A claim's PersistentVolume with the one that this program would have saved.
    Volume,
    /// A claim that external-provisioner served, and this program would not have.
    ServedThere,
    /// A claim that external-provisioner did not serve.
    Unserved,
    /// The deletion of a PersistentVolume.
    Deletion,
}

/// What a comparison shows, with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) subject: Subject,
    pub(super) agreement: Agreement,
    /// The row of docs/differences.md, if the agreement is [`Agreement::Documented`].
    pub(super) row: Option<Documented>,
    /// The reasons, for an administrator.
    pub(super) reasons: Vec<String>,
    /// The fields that differ.
    pub(super) fields: Vec<String>,
}

/// Why a difference may say nothing about the provisioners.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Uncertainty {
    /// The class has changed since this program began to look at the claim.
    pub(super) class_changed: bool,
    /// This program looked at the claim only when its PersistentVolume was there.
    pub(super) looked_late: bool,
}

/// A row of docs/differences.md that a comparison can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Documented {
    DeletedClaims,
    HugeClaims,
    ForeignClaimKind,
    MigratedSources,
    ForeignVolumes,
}

impl Documented {
    #[cfg(test)]
    const ALL: [Self; 5] = [
        Self::DeletedClaims,
        Self::HugeClaims,
        Self::ForeignClaimKind,
        Self::MigratedSources,
        Self::ForeignVolumes,
    ];

    /// The row's first column.
    pub(super) fn row(self) -> &'static str {
        match self {
            Self::DeletedClaims => "claims that are being deleted",
            Self::HugeClaims => {
                "a claim for 2^63 bytes or more that is not written with a binary suffix (`20E`)"
            }
            Self::ForeignClaimKind => {
                "a source of kind PersistentVolumeClaim and another API group than the core's"
            }
            Self::MigratedSources => {
                "in-tree (migrated) class with a source; in-tree PersistentVolume as the source of a clone, whichever class of the driver the clone has"
            }
            Self::ForeignVolumes => {
                "PersistentVolume with our annotation but of another CSI driver, or of an in-tree plugin that ours did not take over from"
            }
        }
    }
}

/// What this program would do with a claim.
#[derive(Debug)]
pub(super) enum Expectation {
    /// Call the driver.
    Provision(Box<Prediction>),
    /// Leave the claim without a volume, until something changes.
    Refuse(String, Option<Documented>),
    /// It is not known yet, for this reason.
    Unknown(String),
}

impl Expectation {
    /// What follows from a check that failed.
    pub(super) fn of_failure(not_prepared: &NotPrepared) -> Self {
        match not_prepared {
            NotPrepared::Ignored { kind, reason } => {
                let is_claim = kind == "PersistentVolumeClaim";
                Self::Refuse(reason.clone(), is_claim.then_some(Documented::ForeignClaimKind))
            }
            NotPrepared::Failed(failure) if failure.is_lasting || failure.is_finished => {
                Self::Refuse(failure.to_string(), None)
            }
            NotPrepared::Failed(why)
            | NotPrepared::Reschedule(why)
            | NotPrepared::Unrepeatable(why) => Self::Unknown(why.to_string()),
        }
    }
}

/// What this program would do with a PersistentVolume that is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeletionPlan {
    /// Delete it.
    Delete,
    /// Refuse, for this reason.
    Refuse(String, Option<Documented>),
    /// What it was before: the volume is deleted, and others still keep the PersistentVolume.
    Unchanged,
    /// Keep it.
    Keep,
}

impl DeletionPlan {
    /// What follows from a PersistentVolume of this provisioner. `check`: whether the driver can be asked to
    /// delete it.
    pub(super) fn of(volume: &Volume, check: impl FnOnce(&Volume) -> Result<(), Failure>) -> Self {
        match due(volume) {
            Due::Delete => {
                check(volume).map_or_else(|why| Self::refusal(volume, &why), |()| Self::Delete)
            }
            Due::Nothing if volume.is_terminating() => Self::Unchanged,
            Due::Nothing | Due::Protect | Due::Unprotect | Due::UnprotectUnbound => Self::Keep,
        }
    }

    /// Without a source of either kind, external-provisioner refuses, too.
    fn refusal(volume: &Volume, why: &Failure) -> Self {
        let has_source = volume.spec.csi.is_some() || volume.spec.in_tree.is_some();
        Self::Refuse(why.to_string(), has_source.then_some(Documented::ForeignVolumes))
    }
}

// === impl Judgement ===

impl Judgement {
    fn new(subject: Subject, agreement: Agreement) -> Self {
        Self { subject, agreement, row: None, reasons: Vec::new(), fields: Vec::new() }
    }

    fn because(self, reason: impl Into<String>) -> Self {
        let mut reasons = self.reasons;
        reasons.push(reason.into());
        Self { reasons, ..self }
    }

    fn documented(self, row: Option<Documented>) -> Self {
        match row {
            Some(_) => Self { row, agreement: Agreement::Documented, ..self },
            None => self,
        }
    }

    /// The claim has the PersistentVolume `found`.
    pub(super) fn of_volume(
        settings: &ProvisionerSettings,
        expectation: &Expectation,
        found: &Value,
        uncertain: Uncertainty,
    ) -> Self {
        let judged = match expectation {
            Expectation::Provision(prediction) => Self::of_prediction(settings, prediction, found),
            Expectation::Refuse(why, row) => Self::of_refusal(why, *row, uncertain),
            Expectation::Unknown(why) => Self::new(Subject::Volume, Agreement::Unknown)
                .because(format!("this program's request is not known: {why}")),
        };
        if uncertain.class_changed && judged.agreement == Agreement::Unexplained {
            let judged = Self { agreement: Agreement::Unknown, ..judged };
            return judged.because("the class was changed meanwhile");
        }
        judged
    }

    fn of_refusal(why: &str, row: Option<Documented>, uncertain: Uncertainty) -> Self {
        let judged = |agreement| {
            Self::new(Subject::ServedThere, agreement)
                .because(format!("this program would have left the claim without a volume: {why}"))
        };
        if uncertain.looked_late {
            return judged(Agreement::Unknown).because(
                "it looked at the claim only after its PersistentVolume was saved: that may have come since",
            );
        }
        judged(Agreement::Unexplained).documented(row)
    }

    fn of_prediction(
        settings: &ProvisionerSettings,
        prediction: &Prediction,
        found: &Value,
    ) -> Self {
        let expected = match prediction.persistent_volume(settings, found) {
            Ok(expected) => serde_json::to_value(expected).unwrap_or_default(),
            Err(judged) => return judged,
        };
        Self::of_differences(&differences(&expected, found))
    }

    /// The PersistentVolume cannot be read as one of the driver.
    pub(super) fn of_unreadable(why: impl Display) -> Self {
        Self::new(Subject::Volume, Agreement::Unexplained)
            .because(format!("the PersistentVolume cannot be read as one of the driver: {why}"))
    }

    /// This program would have refused the volume.
    pub(super) fn of_refused(why: impl Display, row: Option<Documented>) -> Self {
        Self::new(Subject::ServedThere, Agreement::Unexplained)
            .because(format!("this program would have refused the volume: {why}"))
            .documented(row)
    }

    fn of_differences(differences: &[Difference]) -> Self {
        let agreement = match differences {
            [] => Agreement::Same,
            all if all.iter().all(|it| it.is_foreign) => Agreement::Unknown,
            _ => Agreement::Unexplained,
        };
        let reason = |it: &Difference| {
            let Difference { field, expected, found, .. } = it;
            format!("{field}: this program's is {expected:?}, it is {found:?}")
        };
        Self {
            reasons: differences.iter().map(reason).collect(),
            fields: differences.iter().map(|it| it.field.clone()).collect(),
            ..Self::new(Subject::Volume, agreement)
        }
    }

    /// The PersistentVolume was gone before it could be compared.
    pub(super) fn of_vanished() -> Self {
        Self::new(Subject::Volume, Agreement::Unknown)
            .because("it was gone before it could be read")
    }

    /// The claim has had no volume for as long as claims are kept.
    pub(super) fn of_unserved(expectation: &Expectation) -> Self {
        match expectation {
            Expectation::Provision(prediction) => {
                let is_migrated = prediction.is_migrated() && prediction.has_source();
                Self::new(Subject::Unserved, Agreement::Unknown)
                    .because("this program would have called the driver, which may have refused")
                    .documented(is_migrated.then_some(Documented::MigratedSources))
            }
            Expectation::Refuse(why, _) => {
                Self::new(Subject::Unserved, Agreement::Same).because(why)
            }
            Expectation::Unknown(why) => {
                Self::new(Subject::Unserved, Agreement::Unknown).because(why)
            }
        }
    }

    /// A PersistentVolume of this provisioner is gone. `plan`: what this program would have done, for this
    /// long.
    pub(super) fn of_deletion(plan: &DeletionPlan, due: Duration) -> Self {
        let judged = |agreement| Self::new(Subject::Deletion, agreement);
        match plan {
            DeletionPlan::Delete => {
                judged(Agreement::Same).because(format!("it was due for {due:.1?}"))
            }
            DeletionPlan::Refuse(why, row) => judged(Agreement::Unknown)
                .because(format!("this program would not have deleted it: {why}"))
                .documented(*row),
            DeletionPlan::Unchanged | DeletionPlan::Keep => judged(Agreement::Unknown).because(
                "this program would not have deleted it, as nothing was due for it: somebody else may have",
            ),
        }
    }

    /// The deletion of a PersistentVolume has been due for as long as such are kept.
    pub(super) fn of_overdue(plan: &DeletionPlan) -> Self {
        let judged = |agreement| Self::new(Subject::Deletion, agreement);
        match plan {
            DeletionPlan::Delete => judged(Agreement::Unknown).because(
                "this program would have deleted it, unless it is attached or the driver refuses",
            ),
            DeletionPlan::Refuse(why, _) => judged(Agreement::Same).because(why),
            DeletionPlan::Unchanged | DeletionPlan::Keep => judged(Agreement::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_row_is_on_the_page() {
        let page = include_str!("../../../docs/differences.md");
        for documented in Documented::ALL {
            let line = format!("\n| {} |", documented.row());
            assert!(page.contains(&line), "not on the page: {line}");
        }
    }

    #[test]
    fn a_check_that_will_fail_again_is_a_refusal_and_others_are_unknown() {
        let is_refusal = |not_prepared: NotPrepared| match Expectation::of_failure(&not_prepared) {
            Expectation::Refuse(_, row) => Some(row),
            _ => None,
        };
        let ignored = |kind: &str| NotPrepared::Ignored {
            kind: kind.to_owned(),
            reason: "populator".to_owned(),
        };
        for (not_prepared, expected) in [
            (NotPrepared::Failed(Failure::new("x").lasting()), Some(None)),
            (NotPrepared::Failed(Failure::new("x").finished()), Some(None)),
            (NotPrepared::Failed(Failure::new("x")), None),
            (NotPrepared::Reschedule(Failure::new("x")), None),
            (NotPrepared::Unrepeatable(Failure::new("x")), None),
            (ignored("Book"), Some(None)),
            (ignored("PersistentVolumeClaim"), Some(Some(Documented::ForeignClaimKind))),
        ] {
            assert_eq!(is_refusal(not_prepared.clone()), expected, "{not_prepared:?}");
        }
    }

    fn difference(is_foreign: bool) -> Difference {
        let (expected, found) = ("a".to_owned(), "b".to_owned());
        Difference { field: "spec.x".to_owned(), expected, found, is_foreign }
    }

    #[test]
    fn one_field_of_the_provisioner_that_differs_is_unexplained() {
        for (foreign, agreement) in [
            (&[][..], Agreement::Same),
            (&[true], Agreement::Unknown),
            (&[false], Agreement::Unexplained),
            (&[true, false], Agreement::Unexplained),
        ] {
            let all: Vec<_> = foreign.iter().copied().map(difference).collect();
            assert_eq!(Judgement::of_differences(&all).agreement, agreement, "{foreign:?}");
        }
        let judged = Judgement::of_differences(&[difference(false)]);
        assert_eq!(judged.reasons, ["spec.x: this program's is \"a\", it is \"b\""]);
    }

    #[test]
    fn a_refusal_after_the_claim_was_served_is_unknown() {
        let deleted = Some(Documented::DeletedClaims);
        for (row, looked_late, agreement) in [
            (None, false, Agreement::Unexplained),
            (deleted, false, Agreement::Documented),
            (None, true, Agreement::Unknown),
            (deleted, true, Agreement::Unknown),
        ] {
            let uncertain = Uncertainty { looked_late, ..Uncertainty::default() };
            let judged = Judgement::of_refusal("no snapshot", row, uncertain);
            assert_eq!(judged.agreement, agreement, "{row:?} {looked_late}");
        }
    }

    #[test]
    fn a_refused_volume_is_unexplained_but_for_a_documented_row() {
        let refused = |row| Judgement::of_refused("small", row).agreement;
        assert_eq!(refused(None), Agreement::Unexplained);
        assert_eq!(refused(Some(Documented::HugeClaims)), Agreement::Documented);
    }

    #[test]
    fn a_deletion_that_both_refuse_is_the_same() {
        let refused = DeletionPlan::Refuse("another driver's".into(), None);
        assert_eq!(Judgement::of_deletion(&refused, Duration::ZERO).agreement, Agreement::Unknown);
        assert_eq!(Judgement::of_overdue(&refused).agreement, Agreement::Same);
        let delete = Judgement::of_overdue(&DeletionPlan::Delete);
        assert_eq!(delete.agreement, Agreement::Unknown);
    }
}
