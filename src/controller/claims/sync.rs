//! One claim, from its queue to its saved PersistentVolume.
//!
//! Owns the order of things for a claim: decide by what is known (`plan`), look up live what is
//! in doubt, ask the provisioner, and do what its outcome asks for. Promises one call at a time
//! for a volume, no call for a claim that has or had its PersistentVolume, and one current event
//! for whatever a claim waits for. Leaves what is known to `claim_book`, what follows from an
//! outcome to `claim_state`, and saving to `pv_store`.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, field};

pub(crate) use super::reporting::{AT_REST, PATIENCE};
use super::{
    call_record::{CallRecords, Record, Unmarked},
    index::{ClaimIndex, ClaimSnapshot},
    plan::{Ask, Plan, plan},
    reporting::{SETTLING, source_label},
    save::{PvStore, Unsaved},
    state::Next,
};
use crate::{
    controller::{
        classes::Classes,
        dependencies::index::DependencyIndex,
        events::{ClaimEvents, PANICKED, claim_key},
        item::Item,
        limiter::{Attempt, ConcurrencyLimiter, Permit},
        live::Live,
        ownership,
        ownership::ProvisionerIdentity,
        provisioner::{NotSent, Outcome, ProvisionRequest, Provisioner, Turn},
    },
    kube::{
        Client,
        objects::{Claim, StorageClass, View as _},
    },
    metrics::{ControllerMetrics, Panicked},
    runtime::{Random, Tasks},
    workqueue::{Action, KeyedMutex},
};

/// The shortest and the longest wait before an open call is asked after.
const POLL: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// Works on claims.
pub struct ClaimWorker<P> {
    /// Makes the volumes.
    pub provisioner: Arc<P>,
    /// Whose claims these are.
    pub identity: ProvisionerIdentity,
    /// What is known of the claims.
    pub book: ClaimIndex,
    /// Their classes.
    pub classes: Classes,
    /// What else they wait for.
    pub waits: DependencyIndex,
    /// Reads and writes claims and volumes.
    pub client: Client,
    /// How old what was read is.
    pub live: Live,
    /// Saves what was made.
    pub store: PvStore,
    /// Records open calls on their claims.
    pub open_calls: CallRecords,
    /// Cancelled when calls that still run are about to be cut.
    pub ending: CancellationToken,
    /// Tells users.
    pub events: ClaimEvents,
    /// Counts.
    pub metrics: ControllerMetrics,
    /// One actor a volume.
    pub exclusive: KeyedMutex,
    /// How many CreateVolume calls there may be.
    pub creates: ConcurrencyLimiter,
    /// How many DeleteVolume calls there may be, those for released volumes included.
    pub deletes: ConcurrencyLimiter,
    /// Jitter.
    pub random: Arc<dyn Random>,
    /// Tells in time.
    pub tasks: Tasks,
    /// `--retry-interval-max`: no wait is longer.
    pub retry_max: Duration,
}

/// One look at a claim, which may end in a call of either kind.
struct Looks {
    create: Attempt,
    delete: Attempt,
}

/// How long to wait before asking for the `polls`th time in a row how an open call ended: grows
/// from half a second to fifteen, jittered, and never beyond the longest retry interval.
fn poll_delay(polls: u32, unit: f64, retry_max: Duration) -> Duration {
    let (first, last) = POLL;
    let grown =
        first.saturating_mul(2_u32.saturating_pow(polls.saturating_sub(1).min(10))).min(last);
    // Never longer than the longest: a volume that is ready is not left waiting.
    grown.mul_f64(0.75 + unit / 4.0).min(retry_max)
}

impl<P: Provisioner> ClaimWorker<P> {
    /// Brings one claim a step further.
    pub async fn sync(self: &Arc<Self>, uid: &str) -> Action {
        let [create, delete] =
            [&self.creates, &self.deletes].map(|limiter| limiter.attempt(Item::claim(uid)));
        let Some(key) = self.book.key(uid) else { return self.forget(uid) };
        let _held = self.exclusive.hold(&key).await;
        let resynced = self.book.take_resynced(uid);
        // Looked at under the key: what another actor has just done is seen.
        let Some(snapshot) = self.book.snapshot(uid) else { return self.forget(uid) };
        let span = tracing::info_span!(
            "claim",
            claim = %claim_key(&snapshot.claim),
            uid,
            pv = key,
            code = field::Empty
        );
        let work = async {
            let verdict = self.step(uid, snapshot, resynced, Looks { create, delete }).await;
            self.report_unfollowed(uid);
            self.report_superseded(uid);
            if verdict == Action::Done {
                self.waits.forget(&Item::claim(uid));
            }
            // Whatever came of it: what stays open is recorded, what is closed is recorded no more.
            let settled = self.open_calls.settle(uid).await;
            // What ended before its call, or while it was prepared, nobody else tells.
            if !self.book.needs_source(uid) {
                self.provisioner.closed(uid);
            } else if !self.book.may_have_open_call(uid) {
                self.provisioner.call_ended(uid);
            }
            if settled || verdict != Action::Done { verdict } else { Action::Retry }
        };
        work.instrument(span).await
    }

    /// Nothing is known of the claim any more.
    fn forget(&self, uid: &str) -> Action {
        self.waits.forget(&Item::claim(uid));
        self.provisioner.forget(uid);
        Action::Done
    }

    async fn step(
        self: &Arc<Self>,
        uid: &str,
        mut snapshot: ClaimSnapshot,
        resynced: bool,
        mut looks: Looks,
    ) -> Action {
        match self.plan(uid, &mut snapshot) {
            Plan::Drop => {
                self.provisioner.forget(uid);
                Action::Done
            }
            Plan::Blocked { why, is_failure } => {
                self.blocked(uid, &snapshot.claim, &why);
                if !is_failure {
                    return Action::RequeueAfter(AT_REST);
                }
                self.count_failure(&snapshot.claim);
                self.retry_lasting(uid, &why)
            }
            Plan::Provision(ask) => {
                let repeats = snapshot.order.is_some() || snapshot.recorded.is_some();
                let order = self.order(uid, &snapshot.claim, ask);
                // An open call is for whoever made it, so nobody is asked whose turn it is.
                if !repeats && let Some(verdict) = self.leave(&order).await {
                    return verdict;
                }
                self.count_resync(resynced);
                // The wait for it holds nothing: the claim comes again when it is its turn.
                let Some(permit) = looks.create.permit(order.class.name(), repeats) else {
                    return Action::AwaitChange;
                };
                self.take(uid, snapshot, order, permit, &mut looks.delete).await
            }
            Plan::Discard(order, leftover) => {
                self.count_resync(resynced);
                self.discard(uid, &order, &leftover, &mut looks.delete).await
            }
            Plan::Suspect(handle) => {
                self.store.suspect_bared(uid, &snapshot.claim, &handle);
                Action::Done
            }
            Plan::Elsewhere(record) => self.elsewhere(uid, &snapshot, &record).await,
            // `plan` has planned anew.
            Plan::Void => Action::Retry,
        }
    }

    /// Where others may provision for the claim as well, and it is not our turn: what becomes of it
    /// here.
    async fn leave(&self, order: &ProvisionRequest) -> Option<Action> {
        match self.provisioner.turn(order).await {
            Turn::Ours => None,
            Turn::Others => Some(Action::Done),
            Turn::Later(wait) => Some(Action::RequeueAfter(wait)),
            Turn::Unable => Some(Action::Retry),
            Turn::Failed(why) => {
                self.events.provisioning(&order.claim);
                self.tell_failure(order, &why);
                Some(Action::Retry)
            }
        }
    }

    /// Whether the claim waits for its turn to call, or has its permit reserved.
    pub fn waits_for_a_call(&self, uid: &str) -> bool {
        let claim = Item::claim(uid);
        self.creates.holds(&claim) || self.deletes.holds(&claim)
    }

    /// What to do now. A record whose class is another provisioner's does not count any longer.
    pub(super) fn plan(&self, uid: &str, snapshot: &mut ClaimSnapshot) -> Plan {
        let class = self.classes.get(ownership::class_of_claim(&snapshot.claim));
        let fits = |record: &Record, class: &Arc<StorageClass>| {
            let order = self.order(uid, &snapshot.claim, Ask::New(Arc::clone(class)));
            record.is_of_class(&order, &self.open_calls.digest(&order))
        };
        match plan(&self.identity, snapshot, class.clone(), fits) {
            Plan::Void => {
                self.book.record_is_void(uid);
                snapshot.recorded = None;
                plan(&self.identity, snapshot, class, |_, _| false)
            }
            planned => planned,
        }
    }

    /// A record on the claim that is not followed is reported once.
    fn report_unfollowed(&self, uid: &str) {
        if let Some(record) = self.book.take_unfollowed(uid)
            && let Some(standing) = self.book.standing(uid)
        {
            self.open_calls.report_unfollowed(uid, &standing.claim, &record);
        }
    }

    /// A call that a volume from elsewhere has closed is reported once.
    fn report_superseded(&self, uid: &str) {
        if let Some(order) = self.book.take_superseded(uid) {
            self.open_calls.suspect_superseded(uid, &order);
        }
    }

    /// Takes the claim in hand.
    async fn take(
        self: &Arc<Self>,
        uid: &str,
        snapshot: ClaimSnapshot,
        order: ProvisionRequest,
        permit: Permit,
        delete: &mut Attempt,
    ) -> Action {
        match self.settle_doubt(uid, &snapshot, &order).await {
            Ok(()) => {
                self.report_unfollowed(uid);
                self.provision(uid, order, permit, delete).await
            }
            Err(verdict) => verdict,
        }
    }

    /// The order to ask for.
    fn order(&self, uid: &str, claim: &Arc<Claim>, ask: Ask) -> ProvisionRequest {
        let volume_name = || self.provisioner.volume_name(claim.uid());
        ask.order(&self.identity, claim, self.book.is_leaving(uid), volume_name)
    }

    /// Asks the provisioner, and does what its outcome asks for.
    async fn provision(
        self: &Arc<Self>,
        uid: &str,
        mut order: ProvisionRequest,
        permit: Permit,
        delete: &mut Attempt,
    ) -> Action {
        if !permit.repeats() {
            self.events.provisioning(&order.claim);
        }
        let started = Instant::now();
        let request = match self.provisioner.prepare(&mut order).await {
            Ok(request) => request,
            Err(why) => return self.not_asked(uid, &order, &why).await,
        };
        // What cannot be sent opens nothing, and so needs no record.
        if self.provisioner.can_send(&request) {
            match self.open_calls.before_call(uid, &order).await {
                Ok(()) => {}
                Err(Unmarked::Unwanted) => return Action::Retry,
                Err(error) => {
                    if matches!(error, Unmarked::Elsewhere(_)) {
                        self.book.called_elsewhere(uid);
                    }
                    self.blocked(uid, &order.claim, &error.to_string());
                    return Action::Retry;
                }
            }
        }
        if !self.book.called(uid, &order) {
            // What changed since the plan was made is planned for anew.
            return Action::Retry;
        }
        tracing::trace!("asking the provisioner");
        let outcome = self.ask(uid, &order, request).await;
        permit.ended(outcome.strain());
        let (next, polls) = self.book.answered(uid, &outcome);
        self.waits.wait(&Item::claim(uid), outcome.awaited());
        self.tell(&order, &outcome);
        tracing::debug!(?next, "the provisioner answered");
        match next {
            Next::Save => self.save(order, outcome, started).await,
            Next::Discard => self.discard_made(uid, &order, &outcome, delete).await,
            Next::GiveNodeBack => self.give_node_back(&order).await,
            Next::ClosedByErrors => {
                self.open_calls.suspect_closed_by_errors(uid, &order);
                Action::Done
            }
            later => self.come_back(later, polls),
        }
    }

    /// The attempt ended before its call.
    async fn not_asked(&self, uid: &str, order: &ProvisionRequest, why: &NotSent) -> Action {
        self.give_up_unrepeatable(uid, order, why);
        let (next, polls) = self.book.not_asked(uid, why);
        self.waits.wait(&Item::claim(uid), why.awaited());
        match why {
            NotSent::Ignored { reason } => tracing::debug!(reason, "left to others"),
            NotSent::Failed(failure) => self.tell_failure(order, failure),
            NotSent::Unrepeatable(failure) => {
                self.tell_blocked(&order.claim, &failure.to_string(), PATIENCE);
            }
            NotSent::Reschedule(failure) => self.warn(order, failure),
        }
        match next {
            Next::GiveNodeBack => self.give_node_back(order).await,
            Next::Retry => match why {
                NotSent::Failed(why) if why.is_lasting() => {
                    self.retry_lasting(uid, &why.to_string())
                }
                _ => Action::Retry,
            },
            later => self.come_back(later, polls),
        }
    }

    /// When a claim is tried again that waits for what brings it back when it changes: with back-off for
    /// [`SETTLING`], as the original goes on to do, and then only to renew its event.
    fn retry_lasting(&self, uid: &str, why: &str) -> Action {
        let settled = self.book.waits_for(uid, why) >= SETTLING;
        if settled { Action::RequeueAfter(AT_REST) } else { Action::Retry }
    }

    /// What an earlier process recorded, and cannot be asked for now, is waited for as long as a deleted
    /// claim is kept.
    fn give_up_unrepeatable(&self, uid: &str, order: &ProvisionRequest, why: &NotSent) {
        let is_stuck = matches!(why, NotSent::Unrepeatable(_) | NotSent::Reschedule(_));
        if !is_stuck || !self.book.is_recorded_alone(uid) {
            return;
        }
        let waited = self.book.unrepeatable(uid);
        if self.book.is_wanted(uid) && self.open_calls.is_too_long(waited) {
            self.open_calls.give_up_record(uid, order);
        }
    }

    /// When the claim is worked on again, where nothing is to be done for it now.
    fn come_back(&self, next: Next, polls: u32) -> Action {
        match next {
            Next::Retry => Action::Retry,
            Next::Poll => {
                Action::RequeueAfter(poll_delay(polls, self.random.unit(), self.retry_max))
            }
            Next::Rest => Action::RequeueAfter(self.retry_max),
            Next::Drop | Next::Save | Next::Discard | Next::GiveNodeBack | Next::ClosedByErrors => {
                Action::Done
            }
        }
    }

    /// Asks the provisioner. Where the process's end comes first, the call is recorded before it
    /// is cut.
    async fn ask(&self, uid: &str, order: &ProvisionRequest, request: P::Request) -> Outcome {
        let call = self.provisioner.create(order, request);
        tokio::pin!(call);
        tokio::select! {
            biased;
            outcome = &mut call => outcome,
            () = self.ending.cancelled() => {
                tracing::warn!("CreateVolume still runs shortly before the end of --shutdown-timeout, which cuts it");
                futures::future::join(call, self.open_calls.protect_at_last(uid, order)).await.0
            }
        }
    }

    async fn discard_made(
        &self,
        uid: &str,
        order: &ProvisionRequest,
        outcome: &Outcome,
        look: &mut Attempt,
    ) -> Action {
        match outcome {
            Outcome::Unusable(leftover) => self.discard(uid, order, leftover, look).await,
            _ => Action::Done,
        }
    }

    async fn save(&self, order: ProvisionRequest, outcome: Outcome, started: Instant) -> Action {
        if let Outcome::Provisioned(made) = outcome {
            let source = source_label(&order.claim);
            let existence = self.book.existence(order.claim.uid());
            self.store.save(Unsaved::new(order, *made, source, started, existence)).await;
        }
        Action::Done
    }

    /// The task that worked on the claim died: what the driver has made is saved, and the claim is
    /// set aside until it changes or the next audit; its user is told.
    pub fn panicked(&self, uid: &str, panic: &str) {
        tracing::error!(uid, panic, "working on a claim panicked; this is a bug");
        self.metrics.panicked(Panicked::Claims);
        self.book.interrupted(uid);
        self.store.queue.add(uid.to_owned());
        if let Some(snapshot) = self.book.snapshot(uid) {
            self.events.failed(&snapshot.claim, PANICKED);
        }
    }
}

/// Defects on purpose.
#[cfg(feature = "mutations")]
pub(super) mod seeded {
    use super::{ProvisionRequest, Record};
    use crate::{
        controller::{
            claims::call_record::RECORD,
            model::source::{Source, SourceKind},
        },
        kube::objects::View as _,
        mutations::{Mutation, is_on},
    };

    /// Believes what a record must not say.
    pub(crate) fn believe(order: &mut ProvisionRequest, record: &Record) {
        if is_on(Mutation::RecordedNameBelieved) && !record.volume.is_empty() {
            order.volume_name = Ok(record.volume.clone());
        }
        if is_on(Mutation::RecordedSourceBelieved) && !record.volume.is_empty() {
            order.source = source(order);
        }
    }

    fn source(order: &ProvisionRequest) -> Option<Source> {
        let text = order.claim.annotation(RECORD)?;
        let written: serde_json::Value = serde_json::from_str(text).ok()?;
        let source = written.get("source")?;
        let text = |field| source.get(field)?.as_str().map(str::to_owned);
        let kind = match text("kind")?.as_str() {
            "snapshot" => SourceKind::Snapshot,
            _ => SourceKind::Claim,
        };
        Some(Source {
            kind,
            namespace: text("namespace")?,
            name: text("name")?,
            uid: text("uid")?,
            handle: text("handle")?,
        })
    }
}

/// Defects on purpose: none in a shipped build.
#[cfg(not(feature = "mutations"))]
pub(super) mod seeded {
    pub(crate) const fn believe(_: &mut super::ProvisionRequest, _: &super::Record) {}
}

#[cfg(test)]
mod tests;
