//! Events and metrics of claims.
//!
//! Decides which attempts count as failed, and when something that a claim waits for is reported.
//! There is one current event for whatever that is.

use std::time::Duration;

use super::{
    super::{
        events::EVENT_LASTS,
        model::source::SourceKind,
        provisioner::{Failure, Next, NotPrepared, Outcome, ProvisionRequest, Provisioner},
    },
    index::{ClaimGuard, Entry, KnownClaim},
    worker::ClaimWorker,
};
use crate::{
    kube::objects::{Claim, View as _},
    metrics::SuspectedLeak,
    workqueue::Action,
};

/// How long something that often passes by itself may keep a claim waiting before an event says so.
/// A class may be created right after its claims, or be replaced.
pub(crate) const REPORT_AFTER: Duration = Duration::from_millis(900);

/// When to work again on a claim that waits for an object whose change queues it: right before its
/// event expires.
const RENEW_EVENT_AFTER: Duration = EVENT_LASTS;

/// When to look again at a claim with an open call, which is given up after `--claim-protection-timeout`.
const OPEN_CALL_RECHECK: Duration = Duration::from_secs(15 * 60);

/// How long a claim with a lasting failure is tried again with back-off.
pub(crate) const RETRY_LASTING_FOR: Duration = Duration::from_secs(60);

/// How long a call may be open before an event says that it still is. Until then the warning of
/// the unknown outcome is enough.
const REPORT_OPEN_AFTER: Duration = Duration::from_secs(20);

impl<P: Provisioner> ClaimWorker<P> {
    /// Notes what the claim waits for, other than the outcome of a call, and reports it once that has lasted
    /// for `patience`, and again before the event expires. `what` stays the same for as long as the claim
    /// waits for the same; `why` is the text of the event, which may differ each time. Returns the time until
    /// the report is due; zero if it is due now or was made.
    pub fn blocked(&self, claim: &Claim, what: &str, why: &str, patience: Duration) -> Duration {
        tracing::debug!(why, "the claim waits");
        let (lasted, is_due) =
            self.index.update(claim.uid(), |it| it.blocked(what, patience)).unwrap_or_default();
        if is_due {
            self.deps.events.blocked(claim, why);
        }
        patience.saturating_sub(lasted)
    }

    /// [`ClaimWorker::blocked`] for a claim that is retried with back-off. Returns the action, which comes in
    /// time for the report.
    pub(crate) fn retry_blocked(&self, claim: &Claim, what: &str, why: &str) -> Action {
        let left = self.blocked(claim, what, why, REPORT_AFTER);
        if left.is_zero() { Action::Retry } else { Action::RetryWithin(left) }
    }

    /// Reports what all claims wait for.
    pub(in super::super) fn report_waiting(&self, uid: &str, why: &str) {
        if let Some(known) = self.index.known(uid).filter(KnownClaim::is_wanted) {
            self.blocked(&known.claim, why, why, Duration::ZERO);
        }
    }

    /// Reports a suspected leak, whose text names the volume.
    pub(super) fn suspect(&self, claim: &Claim, reason: SuspectedLeak, why: &str) {
        tracing::error!(error = why, "suspected leak");
        self.deps.metrics.controller.suspected_leak(reason);
        self.deps.events.blocked(claim, why);
    }

    /// Reports the outcome of an attempt to the user and the metrics. `is_polled`: whether what the attempt lacked
    /// is polled for.
    pub(crate) fn report(&self, request: &ProvisionRequest, outcome: &Outcome, is_polled: bool) {
        if is_failed_attempt(outcome) {
            self.count_failure(&request.claim);
        }
        match outcome {
            // `save` and `discard` report what became of the volume.
            Outcome::Provisioned(_) | Outcome::Unusable(_) => {}
            Outcome::Background(failure) | Outcome::Unsent(failure)
                if !self.is_new_kind(request, failure) =>
            {
                self.report_still_open(request, failure);
            }
            Outcome::Refused(failure, _)
            | Outcome::Background(failure)
            | Outcome::Unsent(failure) => self.warn(request, failure),
            Outcome::NotPrepared(why) => self.report_not_prepared(request, why, is_polled),
        }
    }

    /// Reports an attempt that ended before its call.
    fn report_not_prepared(&self, request: &ProvisionRequest, why: &NotPrepared, is_polled: bool) {
        match why {
            NotPrepared::Ignored { reason, .. } => tracing::debug!(reason, "left to others"),
            // Was reported, and is again before its event expires.
            NotPrepared::Failed(failure)
                if is_polled
                    && failure.is_lasting
                    && self.is_settled(request.claim.uid(), &failure.to_string()) =>
            {
                let why = failure.to_string();
                self.blocked(&request.claim, &why, &why, RETRY_LASTING_FOR);
            }
            NotPrepared::Failed(failure) => self.report_failure(request, failure),
            NotPrepared::Unrepeatable(failure) => {
                let why = failure.to_string();
                self.blocked(&request.claim, &why, &why, REPORT_AFTER);
            }
            NotPrepared::Reschedule(failure) => self.warn(request, failure),
        }
    }

    /// Whether the claim has failed in this way for [`RETRY_LASTING_FOR`].
    pub(crate) fn is_settled(&self, uid: &str, why: &str) -> bool {
        let lasted = self.index.update(uid, |it| it.blocked_for(why));
        lasted.is_some_and(|lasted| lasted >= RETRY_LASTING_FOR)
    }

    /// Whether the user was not warned of an unknown outcome of this kind since the call was opened.
    fn is_new_kind(&self, request: &ProvisionRequest, failure: &Failure) -> bool {
        let is_new = |it: &mut Entry| it.report_unknown_outcome(failure.kind);
        self.index.update(request.claim.uid(), is_new).unwrap_or(true)
    }

    /// Reports a failed attempt to the user and the metrics.
    pub(in super::super) fn report_failure(&self, request: &ProvisionRequest, failure: &Failure) {
        self.warn(request, failure);
        self.count_failure(&request.claim);
    }

    /// Reports why the claim has no volume yet.
    pub(crate) fn warn(&self, request: &ProvisionRequest, failure: &Failure) {
        self.deps.events.failed(&request.claim, &failure.to_string());
    }

    /// Reports that the outcome of a call is still unknown for a reason of which the user was
    /// warned before: once, and again when the reason changes.
    pub(crate) fn report_still_open(&self, request: &ProvisionRequest, failure: &Failure) {
        tracing::debug!(error = %failure, "the call is still open");
        // The kind is compared, as the driver's message may differ each time.
        let report = |it: &mut Entry| it.blocked(failure.kind, REPORT_OPEN_AFTER);
        if let Some((_, true)) = self.index.update(request.claim.uid(), report) {
            self.deps.events.still_provisioning(&request.claim, &still_open(failure));
        }
    }

    pub(in super::super) fn count_failure(&self, claim: &Claim) {
        let (class, source) = labels(claim);
        self.deps.metrics.controller.provision_failed(class, source);
    }
}

/// Returns when to look again at a claim that a change queues: to renew its event, or to give up a
/// call that has been open for too long.
pub(crate) fn await_change(held: &ClaimGuard) -> Action {
    let is_open = held.is(KnownClaim::may_have_open_call);
    Action::RequeueAfter(if is_open { OPEN_CALL_RECHECK } else { RENEW_EVENT_AFTER })
}

/// Why the call is still open, in the driver's words if it has any.
fn still_open(failure: &Failure) -> String {
    match failure.kind {
        "DeadlineExceeded" => "the driver does not answer in time".to_owned(),
        // "Operation pending for volume" (CSI spec).
        "Aborted" => "the driver still works on it".to_owned(),
        _ => failure.to_string(),
    }
}

/// Whether the metrics count the outcome of a call as a failed attempt. As in external-provisioner,
/// each unknown outcome counts. A request to choose another node does not count, and an unusable
/// volume is counted by `discard`.
pub(crate) fn is_failed_attempt(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Refused(_, next) => *next != Next::GiveNodeBack,
        Outcome::Background(_) | Outcome::Unsent(_) => true,
        // `NotPrepared` is counted where it is reported.
        Outcome::Provisioned(_) | Outcome::Unusable(_) | Outcome::NotPrepared(_) => false,
    }
}

/// The labels `class` and `source` of the claim's metrics. Users choose kinds of sources freely, so others
/// share one value.
pub(crate) fn labels(claim: &Claim) -> (&str, &'static str) {
    let class = claim.spec.storage_class_name.as_deref().unwrap_or_default();
    let Some(source) = &claim.spec.data_source else { return (class, "") };
    (class, SourceKind::of_name(&source.kind).map_or("other", SourceKind::name))
}
