//! One claim, from its queue to its saved PersistentVolume.
//!
//! Owns the order of things for a claim: decide by what is known (`plan`), look up live what is
//! in doubt, ask the provisioner, and do what its outcome asks for. Promises one call at a time
//! for a volume, no call for a claim that has or had its PersistentVolume, and one current event
//! for whatever a claim waits for. Leaves what is known to `claim_book`, what follows from an
//! outcome to `claim_state`, and saving to `pv_store`.

mod elsewhere;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod node;
mod plan;
mod telling;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, field};

use self::telling::SETTLING;
pub(super) use self::telling::{AT_REST, PATIENCE};
use self::{
    plan::{Ask, Plan, plan},
    telling::source_label,
};
use super::{
    awaited::Waits,
    claim_book::{ClaimBook, Glance},
    claim_state::Next,
    classes::Classes,
    events::{ClaimEvents, PANICKED, claim_key},
    item::Item,
    live::Live,
    open_calls::{OpenCalls, Record, Unmarked},
    ownership::{self, Identity},
    pace::{Look, Pace, Permit},
    provisioner::{NotAsked, Order, Outcome, Provisioner, Turn},
    pv_store::{PvStore, Unsaved},
};
use crate::{
    kube_api::{
        Client,
        views::{Claim, StorageClass, View as _},
    },
    metrics::{ControllerMetrics, Panicked},
    runtime::{Random, Tasks},
    workqueue::{Exclusive, Verdict},
};

/// The shortest and the longest wait before an open call is asked after.
const POLL: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// Works on claims.
pub struct ClaimWorker<P> {
    /// Makes the volumes.
    pub provisioner: Arc<P>,
    /// Whose claims these are.
    pub identity: Identity,
    /// What is known of the claims.
    pub book: ClaimBook,
    /// Their classes.
    pub classes: Classes,
    /// What else they wait for.
    pub waits: Waits,
    /// Reads and writes claims and volumes.
    pub client: Client,
    /// How old what was read is.
    pub live: Live,
    /// Saves what was made.
    pub store: PvStore,
    /// Records open calls on their claims.
    pub open_calls: OpenCalls,
    /// Cancelled when calls that still run are about to be cut.
    pub ending: CancellationToken,
    /// Tells users.
    pub events: ClaimEvents,
    /// Counts.
    pub metrics: ControllerMetrics,
    /// One actor a volume.
    pub exclusive: Exclusive,
    /// How many CreateVolume calls there may be.
    pub creates: Pace,
    /// How many DeleteVolume calls there may be, those for released volumes included.
    pub deletes: Pace,
    /// Jitter.
    pub random: Arc<dyn Random>,
    /// Tells in time.
    pub tasks: Tasks,
    /// `--retry-interval-max`: no wait is longer.
    pub retry_max: Duration,
}

/// One look at a claim, which may end in a call of either kind.
struct Looks {
    create: Look,
    delete: Look,
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
    pub async fn sync(self: &Arc<Self>, uid: &str) -> Verdict {
        let [create, delete] =
            [&self.creates, &self.deletes].map(|pace| pace.look(Item::claim(uid)));
        let Some(key) = self.book.key(uid) else { return self.forget(uid) };
        let _held = self.exclusive.hold(&key).await;
        let audited = self.book.take_audited(uid);
        // Looked at under the key: what another actor has just done is seen.
        let Some(glance) = self.book.glance(uid) else { return self.forget(uid) };
        let span = tracing::info_span!(
            "claim",
            claim = %claim_key(&glance.claim),
            uid,
            pv = key,
            code = field::Empty
        );
        let work = async {
            let verdict = self.step(uid, glance, audited, Looks { create, delete }).await;
            self.report_unfollowed(uid);
            self.report_superseded(uid);
            if verdict == Verdict::Done {
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
            if settled || verdict != Verdict::Done { verdict } else { Verdict::Retry }
        };
        work.instrument(span).await
    }

    /// Nothing is known of the claim any more.
    fn forget(&self, uid: &str) -> Verdict {
        self.waits.forget(&Item::claim(uid));
        self.provisioner.forget(uid);
        Verdict::Done
    }

    async fn step(
        self: &Arc<Self>,
        uid: &str,
        mut glance: Glance,
        audited: bool,
        mut looks: Looks,
    ) -> Verdict {
        match self.plan(uid, &mut glance) {
            Plan::Drop => {
                self.provisioner.forget(uid);
                Verdict::Done
            }
            Plan::Blocked { why, is_failure } => {
                self.blocked(uid, &glance.claim, &why);
                if !is_failure {
                    return Verdict::RetryAfter(AT_REST);
                }
                self.count_failure(&glance.claim);
                self.retry_lasting(uid, &why)
            }
            Plan::Provision(ask) => {
                let repeats = glance.order.is_some() || glance.recorded.is_some();
                let order = self.order(uid, &glance.claim, ask);
                // An open call is for whoever made it, so nobody is asked whose turn it is.
                if !repeats && let Some(verdict) = self.leave(&order).await {
                    return verdict;
                }
                self.count_audit(audited);
                // The wait for it holds nothing: the claim comes again when it is its turn.
                let Some(permit) = looks.create.permit(order.class.name(), repeats) else {
                    return Verdict::Wait;
                };
                self.take(uid, glance, order, permit, &mut looks.delete).await
            }
            Plan::Discard(order, leftover) => {
                self.count_audit(audited);
                self.discard(uid, &order, &leftover, &mut looks.delete).await
            }
            Plan::Suspect(handle) => {
                self.store.suspect_bared(uid, &glance.claim, &handle);
                Verdict::Done
            }
            Plan::Elsewhere(record) => self.elsewhere(uid, &glance, &record).await,
            // `plan` has planned anew.
            Plan::Void => Verdict::Retry,
        }
    }

    /// Where others may provision for the claim as well, and it is not our turn: what becomes of it
    /// here.
    async fn leave(&self, order: &Order) -> Option<Verdict> {
        match self.provisioner.turn(order).await {
            Turn::Ours => None,
            Turn::Others => Some(Verdict::Done),
            Turn::Later(wait) => Some(Verdict::RetryAfter(wait)),
            Turn::Unable => Some(Verdict::Retry),
            Turn::Failed(why) => {
                self.events.provisioning(&order.claim);
                self.tell_failure(order, &why);
                Some(Verdict::Retry)
            }
        }
    }

    /// Whether the claim waits for its turn to call, or has its permit reserved.
    pub fn waits_for_a_call(&self, uid: &str) -> bool {
        let claim = Item::claim(uid);
        self.creates.holds(&claim) || self.deletes.holds(&claim)
    }

    /// What to do now. A record whose class is another provisioner's does not count any longer.
    fn plan(&self, uid: &str, glance: &mut Glance) -> Plan {
        let class = self.classes.get(ownership::class_of_claim(&glance.claim));
        let fits = |record: &Record, class: &Arc<StorageClass>| {
            let order = self.order(uid, &glance.claim, Ask::New(Arc::clone(class)));
            record.is_of_class(&order, &self.open_calls.digest(&order))
        };
        match plan(&self.identity, glance, class.clone(), fits) {
            Plan::Void => {
                self.book.record_is_void(uid);
                glance.recorded = None;
                plan(&self.identity, glance, class, |_, _| false)
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
        glance: Glance,
        order: Order,
        permit: Permit,
        delete: &mut Look,
    ) -> Verdict {
        match self.settle_doubt(uid, &glance, &order).await {
            Ok(()) => {
                self.report_unfollowed(uid);
                self.provision(uid, order, permit, delete).await
            }
            Err(verdict) => verdict,
        }
    }

    /// The order to ask for.
    fn order(&self, uid: &str, claim: &Arc<Claim>, ask: Ask) -> Order {
        let volume_name = || self.provisioner.volume_name(claim.uid());
        ask.order(&self.identity, claim, self.book.is_leaving(uid), volume_name)
    }

    /// Asks the provisioner, and does what its outcome asks for.
    async fn provision(
        self: &Arc<Self>,
        uid: &str,
        mut order: Order,
        permit: Permit,
        delete: &mut Look,
    ) -> Verdict {
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
                Err(Unmarked::Unwanted) => return Verdict::Retry,
                Err(error) => {
                    if matches!(error, Unmarked::Elsewhere(_)) {
                        self.book.called_elsewhere(uid);
                    }
                    self.blocked(uid, &order.claim, &error.to_string());
                    return Verdict::Retry;
                }
            }
        }
        if !self.book.called(uid, &order) {
            // What changed since the plan was made is planned for anew.
            return Verdict::Retry;
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
                Verdict::Done
            }
            later => self.come_back(later, polls),
        }
    }

    /// The attempt ended before its call.
    async fn not_asked(&self, uid: &str, order: &Order, why: &NotAsked) -> Verdict {
        self.give_up_unrepeatable(uid, order, why);
        let (next, polls) = self.book.not_asked(uid, why);
        self.waits.wait(&Item::claim(uid), why.awaited());
        match why {
            NotAsked::Ignored { reason } => tracing::debug!(reason, "left to others"),
            NotAsked::Failed(failure) => self.tell_failure(order, failure),
            NotAsked::Unrepeatable(failure) => {
                self.tell_blocked(&order.claim, &failure.to_string(), PATIENCE);
            }
            NotAsked::Reschedule(failure) => self.warn(order, failure),
        }
        match next {
            Next::GiveNodeBack => self.give_node_back(order).await,
            Next::Retry => match why {
                NotAsked::Failed(why) if why.is_lasting() => {
                    self.retry_lasting(uid, &why.to_string())
                }
                _ => Verdict::Retry,
            },
            later => self.come_back(later, polls),
        }
    }

    /// When a claim is tried again that waits for what brings it back when it changes: with back-off for
    /// [`SETTLING`], as the original goes on to do, and then only to renew its event.
    fn retry_lasting(&self, uid: &str, why: &str) -> Verdict {
        let settled = self.book.waits_for(uid, why) >= SETTLING;
        if settled { Verdict::RetryAfter(AT_REST) } else { Verdict::Retry }
    }

    /// What an earlier process recorded, and cannot be asked for now, is waited for as long as a deleted
    /// claim is kept.
    fn give_up_unrepeatable(&self, uid: &str, order: &Order, why: &NotAsked) {
        let is_stuck = matches!(why, NotAsked::Unrepeatable(_) | NotAsked::Reschedule(_));
        if !is_stuck || !self.book.is_recorded_alone(uid) {
            return;
        }
        let waited = self.book.unrepeatable(uid);
        if self.book.is_wanted(uid) && self.open_calls.is_too_long(waited) {
            self.open_calls.give_up_record(uid, order);
        }
    }

    /// When the claim is worked on again, where nothing is to be done for it now.
    fn come_back(&self, next: Next, polls: u32) -> Verdict {
        match next {
            Next::Retry => Verdict::Retry,
            Next::Poll => {
                Verdict::RetryAfter(poll_delay(polls, self.random.unit(), self.retry_max))
            }
            Next::Rest => Verdict::RetryAfter(self.retry_max),
            Next::Drop | Next::Save | Next::Discard | Next::GiveNodeBack | Next::ClosedByErrors => {
                Verdict::Done
            }
        }
    }

    /// Asks the provisioner. Where the process's end comes first, the call is recorded before it
    /// is cut.
    async fn ask(&self, uid: &str, order: &Order, request: P::Request) -> Outcome {
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
        order: &Order,
        outcome: &Outcome,
        look: &mut Look,
    ) -> Verdict {
        match outcome {
            Outcome::Unusable(leftover) => self.discard(uid, order, leftover, look).await,
            _ => Verdict::Done,
        }
    }

    async fn save(&self, order: Order, outcome: Outcome, started: Instant) -> Verdict {
        if let Outcome::Provisioned(made) = outcome {
            let source = source_label(&order.claim);
            let existence = self.book.existence(order.claim.uid());
            self.store.save(Unsaved::new(order, *made, source, started, existence)).await;
        }
        Verdict::Done
    }

    /// The task that worked on the claim died: what the driver has made is saved, and the claim is
    /// set aside until it changes or the next audit; its user is told.
    pub fn panicked(&self, uid: &str, panic: &str) {
        tracing::error!(uid, panic, "working on a claim panicked; this is a bug");
        self.metrics.panicked(Panicked::Claims);
        self.book.interrupted(uid);
        self.store.queue.add(uid.to_owned());
        if let Some(glance) = self.book.glance(uid) {
            self.events.failed(&glance.claim, PANICKED);
        }
    }
}

/// Defects on purpose.
#[cfg(feature = "mutations")]
mod seeded {
    use super::{Order, Record};
    use crate::{
        controller::{
            open_calls::RECORD,
            source::{Source, SourceKind},
        },
        kube_api::views::View as _,
        mutations::{Mutation, is_on},
    };

    /// Believes what a record must not say.
    pub(super) fn believe(order: &mut Order, record: &Record) {
        if is_on(Mutation::RecordedNameBelieved) && !record.volume.is_empty() {
            order.volume_name = Ok(record.volume.clone());
        }
        if is_on(Mutation::RecordedSourceBelieved) && !record.volume.is_empty() {
            order.source = source(order);
        }
    }

    fn source(order: &Order) -> Option<Source> {
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
mod seeded {
    pub(super) const fn believe(_: &mut super::Order, _: &super::Record) {}
}

#[cfg(test)]
mod tests;
