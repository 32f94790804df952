//! What the claim's user and the metrics are told.
//!
//! Owns which attempts count as failed, and when something that a claim waits for is told. Promises
//! one current event for whatever that is. Leaves the words to `events`.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{
    super::{
        events::EVENT_LASTS,
        provisioner::{Congestion, Failure, Outcome, ProvisionRequest, Provisioner},
    },
    plan::Plan,
    sync::ClaimWorker,
};
use crate::{
    kube::objects::{Claim, View as _},
    metrics::Audited,
};

/// How long something that often passes by itself may keep a claim waiting before its user is
/// told: a class that comes right after its claims, or is being replaced, is no dead end.
pub(crate) const PATIENCE: Duration = Duration::from_millis(900);

/// When a claim is looked at again that waits for what only its user or an administrator can change,
/// and that wakes it when it changes: its event is about to be forgotten by then.
pub(crate) const AT_REST: Duration = EVENT_LASTS.saturating_add(PATIENCE);

/// For so long a claim that fails in the same way until something changes is tried again with back-off.
pub(crate) const SETTLING: Duration = Duration::from_secs(60);

/// How long an open call may take before its user is told that it still does: the warning of its
/// unknown end is news enough before.
const STILL_OPEN: Duration = Duration::from_secs(20);

impl<P: Provisioner> ClaimWorker<P> {
    /// The claim waits for something beside the driver.
    pub(crate) fn blocked(self: &Arc<Self>, uid: &str, claim: &Claim, why: &str) {
        tracing::debug!(why, "the claim waits");
        self.tell_blocked(claim, why, PATIENCE);
        self.tell_in_time(uid, why);
    }

    /// The claim waits: its user is told once this has stood for `patience`, and again once in a while.
    pub(in super::super) fn tell_blocked(&self, claim: &Claim, why: &str, patience: Duration) {
        if self.book.tells(claim.uid(), why, patience) {
            self.events.blocked(claim, why);
        }
    }

    /// The claim waits for something that keeps all claims waiting.
    pub(in super::super) fn report_waiting(&self, uid: &str, why: &str) {
        if let Some(snapshot) = self.book.snapshot(uid).filter(|_| self.book.is_wanted(uid)) {
            self.tell_blocked(&snapshot.claim, why, Duration::ZERO);
        }
    }

    /// Sees to it that the user is told as soon as this has stood for [`PATIENCE`], however long
    /// the next try takes to come.
    pub(crate) fn tell_in_time(self: &Arc<Self>, uid: &str, why: &str) {
        if !self.book.take_untold(uid) {
            return;
        }
        let (worker, uid, why) = (Arc::clone(self), uid.to_owned(), why.to_owned());
        self.tasks.spawn("telling of a claim that waits", async move {
            sleep(PATIENCE).await;
            let Some(mut snapshot) = worker.book.snapshot(&uid) else { return };
            let plan = worker.plan(&uid, &mut snapshot);
            if matches!(plan, Plan::Blocked { why: still, .. } if still == why) {
                worker.tell_blocked(&snapshot.claim, &why, PATIENCE);
            }
        });
    }

    /// Tells the claim's user and the metrics what came of an attempt.
    pub(crate) fn tell(&self, order: &ProvisionRequest, outcome: &Outcome) {
        if is_failed_attempt(outcome) {
            self.count_failure(&order.claim);
        }
        match outcome {
            // Saving and discarding tell what became of the volume.
            Outcome::Provisioned(_) | Outcome::Unusable(_) => {}
            Outcome::Infeasible(failure) => {
                tracing::info!(error = %failure, "provisioning failed");
                self.events.infeasible(&order.claim, &failure.to_string());
            }
            Outcome::Background(failure) | Outcome::Unsent(failure)
                if !self.book.warns(order.claim.uid(), failure.kind()) =>
            {
                self.tell_still_open(order, failure);
            }
            Outcome::Final(failure)
            | Outcome::Background(failure)
            | Outcome::Unsent(failure)
            | Outcome::Reschedule(failure) => self.warn(order, failure),
        }
    }

    /// Tells the claim's user and the metrics of a failed attempt.
    pub(in super::super) fn tell_failure(&self, order: &ProvisionRequest, failure: &Failure) {
        self.warn(order, failure);
        self.count_failure(&order.claim);
    }

    /// Tells the claim's user why it has no volume yet.
    pub(crate) fn warn(&self, order: &ProvisionRequest, failure: &Failure) {
        tracing::info!(error = %failure, "provisioning failed");
        self.events.failed(&order.claim, &failure.to_string());
    }

    /// Tells that the end of an open call is still unknown, in a way that was warned of before:
    /// once, and again when the way changes.
    pub(crate) fn tell_still_open(&self, order: &ProvisionRequest, failure: &Failure) {
        tracing::debug!(error = %failure, "the call is still open");
        // The driver's words may be others each time, and are no news then.
        if self.book.tells(order.claim.uid(), failure.kind(), STILL_OPEN) {
            self.events.still_provisioning(&order.claim, &still_open(failure));
        }
    }

    pub(in super::super) fn count_failure(&self, claim: &Claim) {
        let class = claim.spec.storage_class_name.as_deref().unwrap_or_default();
        self.metrics.provision_failed(class, source_label(claim));
    }

    /// Something was due for a claim that no queue held until the audit found it.
    pub(crate) fn count_resync(&self, resynced: bool) {
        if resynced {
            self.metrics.audit_found(Audited::Claims);
        }
    }
}

/// What keeps a call open, in words: the driver's own where it has any.
fn still_open(failure: &Failure) -> String {
    match failure.kind() {
        "DeadlineExceeded" => "the driver does not answer in time".to_owned(),
        _ if failure.strain() == Congestion::Locked => "the driver still works on it".to_owned(),
        _ => failure.to_string(),
    }
}

/// Whether the metrics count the end of a call as a failed attempt: as in the original one whose end
/// is unknown is, however often it is asked after. Not counted is what only needs another node, and
/// what comes of a volume that was made is counted where it is known.
pub(crate) fn is_failed_attempt(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Final(_)
        | Outcome::Infeasible(_)
        | Outcome::Background(_)
        | Outcome::Unsent(_) => true,
        Outcome::Provisioned(_) | Outcome::Unusable(_) | Outcome::Reschedule(_) => false,
    }
}

/// The label `source` of the claim's metrics: bounded, since users choose kinds freely.
pub(crate) fn source_label(claim: &Claim) -> &'static str {
    match claim.spec.data_source.as_ref().map(|source| source.kind.as_str()) {
        None => "",
        Some("VolumeSnapshot") => "VolumeSnapshot",
        Some("PersistentVolumeClaim") => "PersistentVolumeClaim",
        Some(_) => "other",
    }
}
