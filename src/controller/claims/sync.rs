//! The claim worker: brings a claim from the queue to its PersistentVolume.
//!
//! A turn has four steps: `plan` decides, `act` does what the plan says, `follow` acts on the [`Outcome`] of
//! an attempt by the next [state](super::state), and `settle` ends the turn. The claim is held for the whole turn.
//!
//! * At most one call runs for a volume.
//! * No call is made for a claim that has or had its PersistentVolume.
//! * Whatever a claim waits for, there is one current event that says so.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::{Instrument as _, field};

use super::{
    call_record::NotProtected,
    index::{ClaimGuard, Entry, KnownClaim},
    plan::{Facts, Plan, is_record_void, plan},
    reporting::{REPORT_AFTER, RETRY_LASTING_FOR, await_change},
    state::{ClaimState, Transition},
    worker::ClaimWorker,
};
use crate::{
    controller::{
        Key,
        events::{PANICKED, claim_key},
        ownership,
        provisioner::{Next, NotPrepared, Outcome, ProvisionRequest, Provisioner, ShouldProvision},
    },
    kube::objects::View as _,
    metrics::SuspectedLeak,
    runtime::Backoff,
    workqueue::{Action, Worker},
};

/// The waits before an open call is repeated.
const REPEATS: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));

/// The longest of them after calls that the driver did not answer in time: calls that wait in an overloaded
/// driver keep it from finishing others.
const LONGEST_AFTER_TIME_OUT: Duration = Duration::from_secs(60);

/// What a claim waits for while the record is refused, each time perhaps with another error.
const WAITS_FOR_RECORD: &str = "the record of its call";

/// How long to wait before the call is repeated for the `in_a_row`th time in a row: grows from half a
/// second to fifteen, after time-outs to sixty, with jitter, and never exceeds the longest retry interval.
fn repeat_delay(in_a_row: u32, timed_out: bool, unit: f64, retry_max: Duration) -> Duration {
    let polling =
        if timed_out { Backoff { max: LONGEST_AFTER_TIME_OUT, ..REPEATS } } else { REPEATS };
    let delay = polling.delay(in_a_row.saturating_sub(1));
    // Jitter only shortens, so that a volume which is ready does not wait longer than this.
    delay.mul_f64(0.75 + unit / 4.0).min(retry_max)
}

/// Whether the driver did not answer in time.
fn is_time_out(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Background(failure) if failure.kind == "DeadlineExceeded")
}

impl<P: Provisioner> Worker<Key> for Arc<ClaimWorker<P>> {
    /// Works on the claim with this UID.
    async fn sync(&self, uid: &Key) -> Action {
        let held = self.index.hold(uid).await;
        let Some(known) = held.known() else {
            self.dependencies.forget(uid);
            self.deps.peers.forget(uid);
            return Action::Done;
        };
        let span = tracing::info_span!(
            "claim",
            claim = %claim_key(&known.claim),
            uid = &**uid,
            pv = known.key(),
            driver = self.deps.identity.driver,
            code = field::Empty
        );
        let turn = async {
            let action = self.act(&held, known).await;
            self.settle(&held, action).await
        };
        turn.instrument(span).await
    }

    /// Saves what the driver has made, and leaves the claim alone until it changes or until the next resync. An
    /// event says so.
    fn after_panic(&self, uid: &Key) {
        self.index.update(uid, |it| it.advance(Transition::Interrupted));
        self.unsaved_queue.add(uid.clone());
        if let Some(known) = self.index.known(uid) {
            self.deps.events.failed(&known.claim, PANICKED);
        }
    }
}

impl<P: Provisioner> ClaimWorker<P> {
    /// Does what the plan says.
    async fn act(&self, held: &ClaimGuard, mut known: KnownClaim) -> Action {
        match self.plan(held, &mut known) {
            Plan::Drop => {
                self.deps.peers.forget(held.uid());
                self.look_for_other_driver(held, &known).await
            }
            Plan::Blocked { why, is_failure } => self.wait(held, &known, &why, is_failure),
            Plan::Provision(request) => {
                let (Ok(action) | Err(action)) = self.provision(held, &known, *request).await;
                action
            }
            Plan::Discard(request, unusable) => self.discard(held, &request, &unusable).await,
            Plan::SuspectedLeak(handle) => {
                self.suspect_gone(held, &known.claim, &handle);
                Action::Done
            }
            Plan::Elsewhere(record) => self.follow_elsewhere(held, &known, &record).await,
        }
    }

    /// Ends a turn: reports what it has found out; lets a claim with nothing left to do wait for no object;
    /// brings the record on the claim in line with the call, which the turn may have opened or closed; and
    /// only then lets go of the source, which the record keeps as well.
    async fn settle(&self, held: &ClaimGuard, action: Action) -> Action {
        self.report_void_record(held);
        self.report_superseded(held);
        if action == Action::Done {
            self.dependencies.forget(held.uid());
        }
        let is_reconciled = self.reconcile_record(held).await;
        self.release_source(held);
        match action {
            action if is_reconciled => action,
            Action::Done => Action::Retry,
            Action::RequeueAfter(delay) if delay > self.deps.settings.retry.max => Action::Retry,
            soon => soon,
        }
    }

    /// Lets go of the source unless the claim still needs it. The index does so as well, but not after an
    /// attempt that ended before its call. A call that is open and not repeated keeps it for the time-out only: what
    /// prevents the repeats may last for ever.
    fn release_source(&self, held: &ClaimGuard) {
        // A volume that can be neither saved nor removed keeps the source of a deleted claim no longer than an open
        // call does.
        let is_stuck = |known: &KnownClaim| {
            matches!(known.state, ClaimState::Saving(_) | ClaimState::Unusable(_))
                && self.is_overdue(known)
        };
        if !held.is(KnownClaim::needs_source) || held.is(is_stuck) {
            self.deps.protection.claim_finished(held.uid(), held.is(KnownClaim::is_served));
        } else if !held.is(KnownClaim::may_have_open_call) || self.is_unasked(held) {
            self.deps.protection.call_ended(held.uid());
        }
    }

    /// Whether the driver was not asked for the claim for `--claim-protection-timeout`.
    fn is_unasked(&self, held: &ClaimGuard) -> bool {
        let timeout = self.deps.settings.open_calls.timeout.filter(|timeout| !timeout.is_zero());
        let unasked = held.update(Entry::unasked_for);
        timeout.zip(unasked).is_some_and(|(timeout, unasked)| unasked >= timeout)
    }

    /// Decides what to do with the claim now.
    fn plan(&self, held: &ClaimGuard, known: &mut KnownClaim) -> Plan {
        let facts = Facts {
            identity: &self.deps.identity,
            class: self.deps.classes.get(ownership::class_of_claim(&known.claim)),
            fits: &|record, request| record.is_of_class(request, &self.digest(request)),
        };
        if is_record_void(known, &facts) {
            held.update(Entry::record_void);
            known.void();
        }
        plan(known, &facts)
    }

    /// Something other than the driver keeps the claim waiting.
    fn wait(&self, held: &ClaimGuard, known: &KnownClaim, why: &str, is_failure: bool) -> Action {
        if is_failure {
            self.count_failure(&known.claim);
        }
        let left = self.blocked(&known.claim, why, why, REPORT_AFTER);
        match (left.is_zero(), is_failure) {
            (true, true) => self.retry_lasting(held, why),
            (true, false) => await_change(held),
            (false, true) => Action::RetryWithin(left),
            (false, false) => Action::RequeueAfter(left),
        }
    }

    /// Provisions for the claim, or returns what to do instead if it is not this process's turn or something
    /// prevents it.
    async fn provision(
        &self,
        held: &ClaimGuard,
        known: &KnownClaim,
        mut request: ProvisionRequest,
    ) -> Result<Action, Action> {
        let repeats = known.request.is_some() || known.recorded().is_some();
        // An open call belongs to the process that made it.
        if !repeats {
            self.check_should_provision(&request).await?;
        }
        self.verify_live(held, known, &request).await?;
        self.report_void_record(held);
        if !repeats && !self.is_poll(held) {
            self.deps.events.provisioning(&request.claim);
        }
        let started = Instant::now();
        let outcome = self.attempt(held, &mut request).await?;
        Ok(self.follow(held, request, outcome, started).await)
    }

    /// Returns what to do with a claim that other processes may provision for as well, if it is not
    /// this process's turn.
    async fn check_should_provision(&self, request: &ProvisionRequest) -> Result<(), Action> {
        Err(match self.deps.provisioner.should_provision(request).await {
            ShouldProvision::Yes => return Ok(()),
            ShouldProvision::No => Action::Done,
            ShouldProvision::Later(wait) => Action::RequeueAfter(wait),
            ShouldProvision::Unable => Action::Retry,
            ShouldProvision::Failed(why) => {
                self.deps.events.provisioning(&request.claim);
                self.report_failure(request, &why);
                Action::Retry
            }
        })
    }

    /// Prepares the request and calls the driver. Returns what to do instead if the call must not be made.
    async fn attempt(
        &self,
        held: &ClaimGuard,
        request: &mut ProvisionRequest,
    ) -> Result<Outcome, Action> {
        let prepared = match self.deps.provisioner.prepare(request).await {
            Ok(prepared) => prepared,
            Err(why) => return Ok(Outcome::NotPrepared(why)),
        };
        // A request that cannot be sent opens no call, and so needs no record.
        if self.deps.provisioner.can_send(&prepared) {
            self.record_before_call(held, request).await?;
        }
        if held.update(|it| it.call_started(request)) != Some(true) {
            // Something has changed since the plan was made.
            return Err(Action::Retry);
        }
        tracing::trace!("asking the provisioner");
        Ok(self.call_driver(held, request, prepared).await)
    }

    /// Records the call where that comes first. Returns what to do instead if the call must not be
    /// made.
    async fn record_before_call(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
    ) -> Result<(), Action> {
        match self.protect_before_call(held, request).await {
            Ok(()) => Ok(()),
            Err(NotProtected::Unwanted) => Err(Action::Retry),
            Err(error) => {
                if matches!(error, NotProtected::Elsewhere(_)) {
                    held.update(Entry::require_reads);
                }
                let why = error.to_string();
                let is_refused = matches!(error, NotProtected::Refused(_));
                let what = if is_refused { WAITS_FOR_RECORD } else { &why };
                Err(self.retry_blocked(&request.claim, what, &why))
            }
        }
    }

    /// Calls the driver. If the process is about to exit first, records the call before it is cut.
    async fn call_driver(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
        prepared: P::Prepared,
    ) -> Outcome {
        let call = self.deps.provisioner.create(request, prepared);
        tokio::pin!(call);
        tokio::select! {
            biased;
            outcome = &mut call => outcome,
            () = self.ending.cancelled() => {
                tracing::warn!("CreateVolume still runs shortly before the end of --shutdown-timeout, which cuts it");
                futures::future::join(call, self.protect_before_exit(held, request)).await.0
            }
        }
    }

    /// Acts on what came of the attempt.
    async fn follow(
        &self,
        held: &ClaimGuard,
        request: ProvisionRequest,
        outcome: Outcome,
        started: Instant,
    ) -> Action {
        if let Outcome::NotPrepared(why) = &outcome {
            self.give_up_unrepeatable(held, &request, why);
        }
        let ended = held.update(|it| it.ended(&outcome, started, &self.deps.identity));
        let (next, in_a_row) = ended.unwrap_or((Next::Drop, 0));
        // The event below may make a user delete the claim: so first the record, which keeps it.
        if held.is(|known| known.state.is_outcome_unknown()) {
            self.reconcile_record(held).await;
        }
        let poll = self.await_dependencies(held, &request, &outcome);
        self.report(&request, &outcome, poll.is_some());
        tracing::debug!(?next, "the attempt has ended");
        match next {
            Next::Save => {
                self.save(held).await;
                Action::Done
            }
            Next::Discard => match outcome {
                Outcome::Unusable(unusable) => self.discard(held, &request, &unusable).await,
                _ => Action::Done,
            },
            Next::GiveNodeBack => self.give_node_back(held, &request).await,
            Next::ClosedByErrors => self.suspect_closed(&request),
            Next::Retry => match poll {
                Some(poll) => Action::RetryWithin(poll),
                None => self.retry(held, &outcome),
            },
            Next::Repeat => {
                let (unit, max) = (self.deps.random.unit(), self.deps.settings.retry.max);
                let delay = repeat_delay(in_a_row, is_time_out(&outcome), unit, max);
                Action::RequeueAfter(delay)
            }
            Next::Rest => Action::RequeueAfter(self.deps.settings.retry.max),
            Next::Drop => Action::Done,
        }
    }

    /// Reports the call that terminal errors have closed, and that nobody waits for.
    fn suspect_closed(&self, request: &ProvisionRequest) -> Action {
        let why = format!(
            "nobody waits for the claim's volume any more, and the driver refused to make it again after a CreateVolume whose outcome is unknown: should that have made the volume {:?}, it is left at the driver",
            request.name()
        );
        self.suspect(&request.claim, SuspectedLeak::CLOSED_BY_ERRORS, &why);
        Action::Done
    }

    /// When to try again after an attempt that failed before its call or by a terminal error.
    fn retry(&self, held: &ClaimGuard, outcome: &Outcome) -> Action {
        match outcome {
            Outcome::NotPrepared(NotPrepared::Failed(why)) if why.is_lasting => {
                self.retry_lasting(held, &why.to_string())
            }
            _ => Action::Retry,
        }
    }

    /// Lets the claim wait for the objects that the attempt lacked. Returns when to look for them again, if they
    /// must be polled.
    fn await_dependencies(
        &self,
        held: &ClaimGuard,
        request: &ProvisionRequest,
        outcome: &Outcome,
    ) -> Option<Duration> {
        let Outcome::NotPrepared(why) = outcome else {
            self.dependencies.forget(held.uid());
            return None;
        };
        self.dependencies.wait(held.uid(), request.claim.namespace(), why.dependencies());
        self.dependencies.poll_within(held.uid())
    }

    /// Whether an attempt for the claim only looks whether what it waits for has come.
    fn is_poll(&self, held: &ClaimGuard) -> bool {
        self.dependencies.has_waited(held.uid(), RETRY_LASTING_FOR)
    }

    /// Returns when to try again for a claim whose failure lasts until an object changes that
    /// queues the claim: with back-off for [`RETRY_LASTING_FOR`], as external-provisioner does, and later
    /// only to renew its event, or to give up a call that has been open for too long.
    fn retry_lasting(&self, held: &ClaimGuard, why: &str) -> Action {
        if self.is_settled(held.uid(), why) { await_change(held) } else { Action::Retry }
    }
}

#[cfg(test)]
mod tests;
