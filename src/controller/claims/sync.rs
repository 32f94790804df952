//! The claim worker: brings a claim from the queue to its PersistentVolume.
//!
//! A sync takes a snapshot of the claim, decides what to do (`plan`), reads live what must be
//! verified, calls the provisioner, and acts on the outcome.
//!
//! * At most one call runs for a volume.
//! * No call is made for a claim that has or had its PersistentVolume.
//! * Whatever a claim waits for, there is one current event that says so.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::{Instrument as _, field};

use super::{
    call_record::NotProtected,
    index::{Change, ClaimSnapshot, Effects, Topic},
    plan::{Ask, Plan, plan},
    reporting::{PATIENCE, SETTLING, source_label},
    save::Unsaved,
    state::{ClaimState, Next},
    worker::ClaimWorker,
};
use crate::{
    controller::{
        events::{PANICKED, claim_key},
        item::{Item, Key},
        model::record::Record,
        ownership,
        provisioner::{NotSent, Outcome, ProvisionRequest, Provisioner, Turn},
    },
    kube::objects::{Claim, StorageClass, View as _},
    metrics::Panicked,
    runtime::Backoff,
    workqueue::Action,
};

/// The waits before an open call is repeated.
const POLLS: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));

/// The longest of them after calls that the driver did not answer in time: calls that wait in an overloaded
/// driver keep it from finishing others.
const LONGEST_AFTER_TIME_OUT: Duration = Duration::from_secs(60);

/// What a claim waits for while the record is refused, each time perhaps with another error.
const RECORD: &str = "the record of its call";

/// How long to wait before the call is repeated for the `polls`th time in a row: grows from half a
/// second to fifteen, after time-outs to sixty, with jitter, and never exceeds the longest retry interval.
fn poll_delay(polls: u32, timed_out: bool, unit: f64, retry_max: Duration) -> Duration {
    let polling = if timed_out { Backoff { max: LONGEST_AFTER_TIME_OUT, ..POLLS } } else { POLLS };
    let delay = polling.delay(polls.saturating_sub(1));
    // Jitter only shortens, so that a volume which is ready does not wait longer than this.
    delay.mul_f64(0.75 + unit / 4.0).min(retry_max)
}

/// Whether the driver did not answer in time.
fn is_time_out(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Background(failure) if failure.kind() == "DeadlineExceeded")
}

impl<P: Provisioner> ClaimWorker<P> {
    /// Works on the claim with this UID. Returns when to work on it again.
    pub async fn sync(&self, uid: &Key) -> Action {
        let Some(queued) = self.index.snapshot(uid) else { return self.forget(uid) };
        let _held = self.exclusive.hold(queued.key()).await;
        // Taken under the lock, so that the snapshot contains what the previous holder did.
        let Some(snapshot) = self.index.snapshot(uid) else { return self.forget(uid) };
        self.index.update(uid, Change::WorkStarted);
        let span = tracing::info_span!(
            "claim",
            claim = %claim_key(&snapshot.claim),
            uid = &**uid,
            pv = snapshot.key(),
            code = field::Empty
        );
        let work = async {
            let action = self.step(uid, snapshot).await;
            self.report_void_record(uid);
            self.report_superseded(uid);
            if action == Action::Done {
                self.dependencies.forget(&Item::Claim(uid.clone()));
            }
            // The outcome may have opened or closed a call.
            let is_reconciled = self.call_records.reconcile(uid).await;
            self.release_source(uid);
            if is_reconciled { action } else { self.retry_soon(action) }
        };
        work.instrument(span).await
    }

    /// The action for a claim whose record could not be reconciled: it is retried soon in any case.
    fn retry_soon(&self, action: Action) -> Action {
        match action {
            Action::Done => Action::Retry,
            Action::RequeueAfter(delay) if delay > self.retry_max => Action::Retry,
            soon => soon,
        }
    }

    /// The claim is not in the index any more.
    fn forget(&self, uid: &Key) -> Action {
        self.dependencies.forget(&Item::Claim(uid.clone()));
        self.provisioner.forget(uid);
        Action::Done
    }

    /// Reports to the provisioner what the claim still needs: the index does not report attempts that
    /// ended before their call.
    fn release_source(&self, uid: &Key) {
        let claim = self.index.snapshot(uid).filter(ClaimSnapshot::needs_source);
        match claim {
            None => self.provisioner.release_source(uid),
            Some(claim) if !claim.may_have_open_call() => self.provisioner.call_ended(uid),
            Some(_) => {}
        }
    }

    async fn step(&self, uid: &Key, mut snapshot: ClaimSnapshot) -> Action {
        match self.plan(uid, &mut snapshot) {
            Plan::Drop => {
                self.provisioner.forget(uid);
                self.look_for_other_driver(uid, &snapshot).await
            }
            Plan::Blocked { why, is_failure } => {
                if is_failure {
                    self.count_failure(&snapshot.claim);
                }
                let left = self.on_blocked(&snapshot.claim, &why, &why);
                match (left.is_zero(), is_failure) {
                    (true, true) => self.retry_lasting(uid, &why),
                    (true, false) => self.await_change(uid),
                    (false, true) => Action::RetryWithin(left),
                    (false, false) => Action::RequeueAfter(left),
                }
            }
            Plan::Provision(ask) => {
                let request = self.request(uid, &snapshot.claim, ask);
                self.provision_in_turn(uid, snapshot, request).await
            }
            Plan::Discard(request, unusable) => {
                self.count_resync(&snapshot);
                self.discard(uid, &request, &unusable).await
            }
            Plan::SuspectedLeak(handle) => {
                self.store.suspect_leak(uid, &snapshot.claim, &handle);
                Action::Done
            }
            Plan::Elsewhere(record) => self.follow_elsewhere(uid, &snapshot, &record).await,
            // `self.plan` has replaced this plan.
            Plan::Void => Action::Retry,
        }
    }

    /// Provisions for the claim if it is this process's turn: reads live what must be verified first.
    async fn provision_in_turn(
        &self,
        uid: &Key,
        snapshot: ClaimSnapshot,
        request: ProvisionRequest,
    ) -> Action {
        let repeats = snapshot.request.is_some() || snapshot.recorded().is_some();
        // An open call belongs to the process that made it.
        if !repeats && let Some(action) = self.check_turn(&request).await {
            return action;
        }
        self.count_resync(&snapshot);
        match self.verify_live(uid, &snapshot, &request).await {
            Ok(()) => {
                self.report_void_record(uid);
                self.provision(uid, request, repeats).await
            }
            Err(action) => action,
        }
    }

    /// Returns what to do with a claim that other processes may provision for as well, if it is not
    /// this process's turn.
    async fn check_turn(&self, request: &ProvisionRequest) -> Option<Action> {
        match self.provisioner.turn(request).await {
            Turn::Ours => None,
            Turn::Others => Some(Action::Done),
            Turn::Later(wait) => Some(Action::RequeueAfter(wait)),
            Turn::Unable => Some(Action::Retry),
            Turn::Failed(why) => {
                self.events.provisioning(&request.claim);
                self.report_failure(request, &why);
                Some(Action::Retry)
            }
        }
    }

    /// Decides what to do with the claim now. If the class of a recorded call is another
    /// provisioner's, marks the record as void and plans without it.
    pub(super) fn plan(&self, uid: &Key, snapshot: &mut ClaimSnapshot) -> Plan {
        let class = self.classes.get(ownership::class_of_claim(&snapshot.claim));
        let fits = |record: &Record, class: &Arc<StorageClass>| {
            let request = self.request(uid, &snapshot.claim, Ask::New(Arc::clone(class)));
            record.is_of_class(&request, &self.call_records.digest(&request))
        };
        match plan(&self.identity, snapshot, class.clone(), fits) {
            Plan::Void => {
                self.index.update(uid, Change::RecordVoid);
                snapshot.void();
                plan(&self.identity, snapshot, class, |_, _| false)
            }
            planned => planned,
        }
    }

    /// Reports, once, a record on the claim that is void.
    fn report_void_record(&self, uid: &Key) {
        if let Some(claim) = self.index.snapshot(uid)
            && let Some(record) = claim.void_record()
            && self.index.report(uid, Topic::VoidRecord)
        {
            self.call_records.report_unfollowed(uid, &claim.claim, record);
        }
    }

    /// Reports, once, a call of unknown outcome that another volume has closed.
    fn report_superseded(&self, uid: &Key) {
        if let Some(request) = self.index.snapshot(uid).and_then(|claim| claim.superseded)
            && self.index.report(uid, Topic::Superseded)
        {
            self.call_records.suspect_superseded(uid, &request);
        }
    }

    /// Makes the request for the claim.
    fn request(&self, uid: &Key, claim: &Arc<Claim>, ask: Ask) -> ProvisionRequest {
        let volume_name = || self.provisioner.volume_name(claim.uid());
        let now = self.index.snapshot(uid);
        let withdrawn = now.is_none_or(|now| now.is_gone_or_terminating());
        ask.request(&self.identity, claim, withdrawn, volume_name)
    }

    /// Prepares the request, calls the driver, and acts on the outcome. `repeats`: an earlier call may
    /// still be open.
    async fn provision(&self, uid: &Key, mut request: ProvisionRequest, repeats: bool) -> Action {
        if !repeats && !self.is_poll(uid) {
            self.events.provisioning(&request.claim);
        }
        let started = Instant::now();
        let prepared = match self.provisioner.prepare(&mut request).await {
            Ok(prepared) => prepared,
            Err(why) => return self.on_not_sent(uid, &request, &why).await,
        };
        // A request that cannot be sent opens no call, and so needs no record.
        if self.provisioner.can_send(&prepared)
            && let Err(action) = self.record_before_call(uid, &request).await
        {
            return action;
        }
        if !self.index.update(uid, Change::CallStarted(&request)).is_made {
            // Something has changed since the plan was made.
            return Action::Retry;
        }
        tracing::trace!("asking the provisioner");
        let outcome = self.call_driver(uid, &request, prepared).await;
        let Effects { next, polls, .. } = self.index.update(uid, Change::CallEnded(&outcome));
        self.dependencies.forget(&Item::Claim(uid.clone()));
        self.report(&request, &outcome);
        tracing::debug!(?next, "the provisioner answered");
        match next {
            Next::Save => self.save(request, outcome, started).await,
            Next::Discard => self.discard_unusable(uid, &request, &outcome).await,
            Next::GiveNodeBack => self.give_node_back(&request).await,
            Next::ClosedByErrors => {
                self.call_records.suspect_closed_by_errors(uid, &request);
                Action::Done
            }
            later => self.action_after(later, polls, is_time_out(&outcome)),
        }
    }

    /// Records the call where that comes first. Returns what to do instead if the call must not be
    /// made.
    async fn record_before_call(
        &self,
        uid: &Key,
        request: &ProvisionRequest,
    ) -> Result<(), Action> {
        match self.call_records.before_call(uid, request).await {
            Ok(()) => Ok(()),
            Err(NotProtected::Unwanted) => Err(Action::Retry),
            Err(error) => {
                if matches!(error, NotProtected::Elsewhere(_)) {
                    self.index.update(uid, Change::CallElsewhere);
                }
                let why = error.to_string();
                let is_refused = matches!(error, NotProtected::Refused(_));
                let what = if is_refused { RECORD } else { &why };
                Err(self.retry_blocked(&request.claim, what, &why))
            }
        }
    }

    /// Reports an attempt that ended before its call. Returns when to try again.
    async fn on_not_sent(&self, uid: &Key, request: &ProvisionRequest, why: &NotSent) -> Action {
        self.give_up_unrepeatable(uid, request, why);
        let Effects { next, polls, .. } = self.index.update(uid, Change::NotSent(why));
        let item = Item::Claim(uid.clone());
        self.dependencies.wait(&item, request.claim.namespace(), why.dependencies());
        let poll = self.dependencies.poll_within(&item);
        match why {
            NotSent::Ignored { reason, .. } => tracing::debug!(reason, "left to others"),
            // Was reported, and is again before its event expires.
            NotSent::Failed(failure)
                if poll.is_some()
                    && failure.is_lasting()
                    && self.is_settled(uid, &failure.to_string()) =>
            {
                self.report_blocked(&request.claim, &failure.to_string(), SETTLING);
            }
            NotSent::Failed(failure) => self.report_failure(request, failure),
            NotSent::Unrepeatable(failure) => {
                self.report_blocked(&request.claim, &failure.to_string(), PATIENCE);
            }
            NotSent::Reschedule(failure) => self.warn(request, failure),
        }
        match next {
            Next::GiveNodeBack => self.give_node_back(request).await,
            Next::Retry => match (why, poll) {
                (_, Some(poll)) => Action::RetryWithin(poll),
                (NotSent::Failed(why), None) if why.is_lasting() => {
                    self.retry_lasting(uid, &why.to_string())
                }
                _ => Action::Retry,
            },
            later => self.action_after(later, polls, false),
        }
    }

    /// Whether an attempt for the claim only looks whether what it waits for has come.
    fn is_poll(&self, uid: &Key) -> bool {
        self.dependencies.has_waited(&Item::Claim(uid.clone()), SETTLING)
    }

    /// Whether the claim has failed in this way for [`SETTLING`].
    fn is_settled(&self, uid: &Key, why: &str) -> bool {
        self.index.update(uid, Change::Blocked(why)).lasted >= SETTLING
    }

    /// Returns when to try again for a claim whose failure lasts until an object changes that
    /// queues the claim: with back-off for [`SETTLING`], as external-provisioner does, and later
    /// only to renew its event, or to give up a call that has been open for too long.
    fn retry_lasting(&self, uid: &Key, why: &str) -> Action {
        if self.is_settled(uid, why) { self.await_change(uid) } else { Action::Retry }
    }

    /// Gives up a recorded call that cannot be repeated, once that has lasted for
    /// `--claim-protection-timeout`.
    fn give_up_unrepeatable(&self, uid: &Key, request: &ProvisionRequest, why: &NotSent) {
        let is_stuck = matches!(why, NotSent::Unrepeatable(_) | NotSent::Reschedule(_));
        let Some(now) = self.index.snapshot(uid) else { return };
        if !is_stuck || now.state != ClaimState::Recorded {
            return;
        }
        let waited = self.index.update(uid, Change::Unrepeatable).lasted;
        if now.is_wanted() && self.call_records.is_too_long(waited) {
            self.call_records.give_up_record(uid, request);
        }
    }

    /// When to work on the claim again, given what to do next, and whether the driver did not answer in
    /// time.
    fn action_after(&self, next: Next, polls: u32, timed_out: bool) -> Action {
        match next {
            Next::Retry => Action::Retry,
            Next::Poll => {
                let unit = self.random.unit();
                Action::RequeueAfter(poll_delay(polls, timed_out, unit, self.retry_max))
            }
            Next::Rest => Action::RequeueAfter(self.retry_max),
            Next::Drop | Next::Save | Next::Discard | Next::GiveNodeBack | Next::ClosedByErrors => {
                Action::Done
            }
        }
    }

    /// Calls the driver. If the process is about to exit first, records the call before it is cut.
    async fn call_driver(
        &self,
        uid: &Key,
        request: &ProvisionRequest,
        prepared: P::Request,
    ) -> Outcome {
        let call = self.provisioner.create(request, prepared);
        tokio::pin!(call);
        tokio::select! {
            biased;
            outcome = &mut call => outcome,
            () = self.ending.cancelled() => {
                tracing::warn!("CreateVolume still runs shortly before the end of --shutdown-timeout, which cuts it");
                futures::future::join(call, self.call_records.protect_before_exit(uid, request)).await.0
            }
        }
    }

    async fn discard_unusable(
        &self,
        uid: &Key,
        request: &ProvisionRequest,
        outcome: &Outcome,
    ) -> Action {
        match outcome {
            Outcome::Unusable(unusable) => self.discard(uid, request, unusable).await,
            _ => Action::Done,
        }
    }

    async fn save(&self, request: ProvisionRequest, outcome: Outcome, started: Instant) -> Action {
        if let Outcome::Provisioned(provisioned) = outcome {
            let source = source_label(&request.claim);
            let now = self.index.snapshot(request.claim.uid());
            let existence = now.unwrap_or_default().existence;
            self.store.save(Unsaved::new(request, *provisioned, source, started, existence)).await;
        }
        Action::Done
    }

    /// The task that worked on the claim has panicked. Saves what the driver has made, and leaves
    /// the claim alone until it changes or until the next resync. An event says so.
    pub fn panicked(&self, uid: &Key, panic: &str) {
        tracing::error!(uid = &**uid, panic, "working on a claim panicked; this is a bug");
        self.metrics.panicked(Panicked::Claims);
        self.index.update(uid, Change::WorkerPanicked);
        self.store.queue.add(uid.clone());
        if let Some(snapshot) = self.index.snapshot(uid) {
            self.events.failed(&snapshot.claim, PANICKED);
        }
    }
}

#[cfg(test)]
mod tests;
