//! What shadow mode keeps: claims without a PersistentVolume, due deletions, and the results.
//!
//! Bounded: claims by number and by time, due deletions and results by number. The caller passes the time.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    judgement::{Agreement, DeletionPlan, Expectation, Judgement, Subject},
    report::{Row, ShadowReport, Total},
};
use csi_provisioner::{
    controller::ownership::{ProvisionerIdentity, class_of_claim},
    kube::{
        Listed,
        objects::{Claim, View as _, Volume},
        take_vanished,
    },
    plain_text::cut,
};

/// The most claims that are kept; also the most deletions.
pub(super) const MAX_KEPT: usize = 10_000;

/// How long a claim is kept, and after which time a due deletion is reported.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

/// How long a deleted claim is kept, as its PersistentVolume may appear.
const GONE_FOR: Duration = Duration::from_secs(60);

/// The most results that are kept beside their number.
const MAX_ROWS: usize = 200;

/// The longest reason that is kept, in bytes.
const MAX_REASON: usize = 1 << 10;

/// What shadow mode keeps.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    /// By UID.
    claims: BTreeMap<String, KeptClaim>,
    /// PersistentVolumes to be deleted, by name.
    deletions: BTreeMap<String, DueDeletion>,
    totals: BTreeMap<(Subject, Agreement), u64>,
    rows: VecDeque<Row>,
    /// Claims and deletions that were not kept, as there were too many.
    not_kept: u64,
}

#[derive(Debug)]
struct KeptClaim {
    task: Task,
    since: Instant,
    deleted: Option<Instant>,
    stage: Stage,
}

/// Where a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is not compared yet, and was not seen bound.
    Unbound,
    /// It is not compared yet, and was seen bound.
    Bound,
    /// It is compared. Kept until it is bound, so that it is not compared again.
    Done,
}

#[derive(Debug)]
struct DueDeletion {
    /// The PersistentVolume's UID.
    uid: String,
    plan: DeletionPlan,
    since: Instant,
    /// Whether it was reported as overdue.
    is_overdue: bool,
}

/// What to do for a claim.
#[derive(Debug, Clone)]
pub(super) struct Task {
    /// Its newest version without a volume.
    pub(super) claim: Arc<Claim>,
    /// What this program would do with this version.
    pub(super) expectation: Option<Arc<Expectation>>,
    /// The name of its PersistentVolume.
    pub(super) volume: Option<String>,
    pub(super) class_changed: bool,
}

impl Tracker {
    // === claims ===

    /// All claims are listed: the others were deleted.
    pub(super) fn claims_listed(&mut self, listed: &Listed, now: Instant) {
        for (_, kept) in self.claims.iter_mut().filter(|(uid, _)| !listed.contains(uid)) {
            kept.deleted.get_or_insert(now);
        }
    }

    /// A claim was created or changed. Returns whether there is something to do for it.
    pub(super) fn claim_applied(
        &mut self,
        identity: &ProvisionerIdentity,
        claim: Claim,
        now: Instant,
    ) -> bool {
        let uid = claim.uid().to_owned();
        let Some(kept) = self.claims.get_mut(&uid) else {
            return identity.owns_claim(&claim) && claim.is_unbound() && self.keep(uid, claim, now);
        };
        if kept.is_done() {
            if !claim.is_unbound() {
                self.claims.remove(&uid);
            }
            return false;
        }
        match claim.spec.volume_name.clone().filter(|name| !name.is_empty()) {
            Some(volume) => (kept.task.volume, kept.stage) = (Some(volume.into()), Stage::Bound),
            // A call that may run is not ended by the deletion of its claim.
            None if claim.is_terminating() && kept.would_be_provisioned() => {}
            None if kept.task.volume.is_none() => {
                kept.task.claim = Arc::new(claim);
                kept.task.expectation = None;
            }
            // Later than its PersistentVolume.
            None => {}
        }
        true
    }

    fn keep(&mut self, uid: String, claim: Claim, now: Instant) -> bool {
        if self.claims.len() >= MAX_KEPT {
            self.not_kept += 1;
            return false;
        }
        let claim = Arc::new(claim);
        let task = Task { claim, expectation: None, volume: None, class_changed: false };
        let kept = KeptClaim { task, since: now, deleted: None, stage: Stage::Unbound };
        self.claims.insert(uid, kept);
        true
    }

    /// A claim was deleted.
    pub(super) fn claim_deleted(&mut self, uid: &str, now: Instant) {
        if let Some(kept) = self.claims.get_mut(uid) {
            kept.deleted.get_or_insert(now);
        }
    }

    /// A class was created, changed or deleted. Returns the claims of that class.
    pub(super) fn class_changed(&mut self, class: &str, was_listed: bool) -> Vec<String> {
        let of_class = |(_, kept): &(&String, &mut KeptClaim)| {
            !kept.is_done() && class_of_claim(&kept.task.claim) == class
        };
        let claims = self.claims.iter_mut().filter(of_class);
        let change = |(uid, kept): (&String, &mut KeptClaim)| {
            kept.task.class_changed |= was_listed;
            // With a volume, only what was expected before counts.
            if kept.task.volume.is_none() {
                kept.task.expectation = None;
            }
            uid.clone()
        };
        claims.map(change).collect()
    }

    /// What to do for the claim; `None` if there is nothing.
    pub(super) fn task(&self, uid: &str) -> Option<Task> {
        let kept = self.claims.get(uid).filter(|kept| !kept.is_done())?;
        Some(kept.task.clone())
    }

    /// This program would do this with this version of the claim.
    pub(super) fn expect(&mut self, claim: &Arc<Claim>, expectation: Arc<Expectation>) {
        if let Some(kept) = self.claims.get_mut(claim.uid())
            && Arc::ptr_eq(&kept.task.claim, claim)
        {
            kept.task.expectation = Some(expectation);
        }
    }

    /// The claim's volume was not provisioned by external-provisioner: there is nothing to compare.
    pub(super) fn ignore(&mut self, uid: &str) {
        self.claims.remove(uid);
    }

    /// The claim was compared. Returns whether that is new.
    pub(super) fn finish(&mut self, uid: &str) -> bool {
        let Some(kept) = self.claims.get_mut(uid).filter(|kept| !kept.is_done()) else {
            return false;
        };
        if kept.stage == Stage::Bound {
            self.claims.remove(uid);
        } else {
            (kept.stage, kept.task.expectation) = (Stage::Done, None);
        }
        true
    }

    // === PersistentVolumes ===

    /// All PersistentVolumes are listed. Returns the results for those that are gone.
    pub(super) fn volumes_listed(
        &mut self,
        listed: &Listed,
        now: Instant,
    ) -> Vec<(String, Judgement)> {
        let gone = take_vanished(&mut self.deletions, |_, due| listed.contains(&due.uid));
        gone.iter().map(|(name, due)| (volume_name(name), due.judgement(now))).collect()
    }

    /// A PersistentVolume was created or changed. Returns the claim for which there is something to do.
    pub(super) fn volume_applied(
        &mut self,
        volume: &Volume,
        plan: DeletionPlan,
        now: Instant,
    ) -> Option<String> {
        self.note_due(volume, plan, now);
        let uid = &volume.spec.claim_ref.as_ref()?.uid;
        let kept = self.claims.get_mut(uid).filter(|kept| !kept.is_done())?;
        kept.task.volume = Some(volume.name().to_owned());
        Some(uid.clone())
    }

    fn note_due(&mut self, volume: &Volume, plan: DeletionPlan, now: Instant) {
        let (name, uid) = (volume.name(), volume.uid());
        let is_full = self.deletions.len() >= MAX_KEPT;
        match (plan, self.deletions.get_mut(name)) {
            (DeletionPlan::Keep, _) => {
                self.deletions.remove(name);
            }
            (DeletionPlan::Unchanged, _) => {}
            (plan, Some(due)) => (due.plan, due.uid) = (plan, uid.to_owned()),
            (_, None) if is_full => self.not_kept += 1,
            (plan, None) => {
                let due = DueDeletion { uid: uid.to_owned(), plan, since: now, is_overdue: false };
                self.deletions.insert(name.to_owned(), due);
            }
        }
    }

    /// A PersistentVolume of this provisioner is gone. `plan`: what follows from its last state.
    pub(super) fn volume_deleted(
        &mut self,
        name: &str,
        plan: &DeletionPlan,
        now: Instant,
    ) -> Judgement {
        // The last state, without the finalizer, does not show that it was due.
        let was_due = self.deletions.remove(name);
        let at_once = || Judgement::of_deletion(plan, Duration::ZERO);
        was_due.map_or_else(at_once, |due| due.judgement(now))
    }

    // === time ===

    /// Forgets what was kept for long enough. Returns the results.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<(String, Judgement)> {
        let is_over = |kept: &KeptClaim| match kept.deleted {
            Some(deleted) => now >= deleted + GONE_FOR,
            None => now >= kept.since + KEPT_FOR,
        };
        let over = self.claims.values().filter(|kept| is_over(kept));
        let mut results: Vec<_> = over.filter_map(KeptClaim::unserved).collect();
        self.claims.retain(|_, kept| !is_over(kept));
        for (name, due) in &mut self.deletions {
            if !due.is_overdue && now >= due.since + KEPT_FOR {
                due.is_overdue = true;
                results.push((volume_name(name), Judgement::of_overdue(&due.plan)));
            }
        }
        results
    }

    // === results ===

    /// Counts a result, and keeps it unless both do the same.
    pub(super) fn record(&mut self, object: String, judgement: &Judgement, time: String) {
        let Judgement { subject, agreement, row, reasons, .. } = judgement;
        *self.totals.entry((*subject, *agreement)).or_default() += 1;
        if *agreement == Agreement::Same {
            return;
        }
        self.rows.truncate(MAX_ROWS - 1);
        self.rows.push_front(Row {
            time,
            object,
            subject: *subject,
            agreement: *agreement,
            row: row.map(|row| row.row().to_owned()),
            reasons: reasons.iter().map(|reason| cut(reason, MAX_REASON)).collect(),
        });
    }

    /// How many claims and due deletions are kept.
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.claims.len(), self.deletions.len())
    }

    /// The report.
    pub(super) fn report(&self) -> ShadowReport {
        let total = |(&(subject, agreement), &count): (&(Subject, Agreement), &u64)| Total {
            subject,
            agreement,
            count,
        };
        ShadowReport {
            totals: self.totals.iter().map(total).collect(),
            waiting_claims: self.claims.values().filter(|kept| !kept.is_done()).count(),
            due_deletions: self.deletions.len(),
            not_kept: self.not_kept,
            rows: self.rows.iter().cloned().collect(),
        }
    }
}

impl DueDeletion {
    /// The result now that the PersistentVolume is gone.
    fn judgement(&self, now: Instant) -> Judgement {
        Judgement::of_deletion(&self.plan, now - self.since)
    }
}

impl KeptClaim {
    fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    fn would_be_provisioned(&self) -> bool {
        matches!(self.task.expectation.as_deref(), Some(Expectation::Provision(_)))
    }

    /// The result if the claim got no volume. A deleted claim says nothing.
    fn unserved(&self) -> Option<(String, Judgement)> {
        let is_open = !self.is_done() && self.deleted.is_none() && self.task.volume.is_none();
        let expectation = self.task.expectation.as_deref().filter(|_| is_open)?;
        Some((claim_name(&self.task.claim), Judgement::of_unserved(expectation)))
    }
}

/// The claim's name in results.
pub(super) fn claim_name(claim: &Claim) -> String {
    format!("PersistentVolumeClaim {}/{}", claim.namespace(), claim.name())
}

/// A PersistentVolume's name in results.
pub(super) fn volume_name(name: &str) -> String {
    format!("PersistentVolume {name}")
}

#[cfg(test)]
mod tests;
