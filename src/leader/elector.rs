//! The loop around [`decide()`]: looks, writes, opens and shuts the gate.

use std::{fmt, sync::Arc, time::Duration};

use futures::StreamExt as _;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    ElectionSettings, Health, Lease, LeaseError, Leases, Loss, Sight,
    decide::{Observation, Seen, Step, decide},
    record::{Record, micro_time},
    settings::JITTER,
};
use crate::{
    metrics::LeaderMetrics,
    runtime::{Clock, Gate, Random, until_boot},
};

/// How many tries a failing renewal gets in one retry period. A term ends a renew deadline after
/// the last renewal was sent, which leaves less time than client-go's leaders allow themselves.
const TRIES_PER_PERIOD: u32 = 4;

/// How many writes that ended unclearly are remembered. Older ones were answered, or given up by
/// the server, long ago.
const WRITTEN: usize = 16;

/// What an election needs of the process.
#[derive(Clone)]
pub struct ElectionDeps {
    /// Opened while this process leads.
    pub gate: Gate,
    /// Boot time runs Leases out; the wall clock is only written down.
    pub clock: Arc<dyn Clock>,
    /// Jitter.
    pub random: Arc<dyn Random>,
    /// `leader_election_*`.
    pub metrics: LeaderMetrics,
    /// For the health check.
    pub health: Health,
    /// Cancelled once this process has tried in vain, and stands by.
    pub stands_by: CancellationToken,
}

impl fmt::Debug for ElectionDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionDeps").field("gate", &self.gate).finish_non_exhaustive()
    }
}

/// This process began or ceased to lead: the event to write about the Lease, reason
/// `LeaderElection`, type Normal.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Whether it leads now.
    pub leads: bool,
    /// Who.
    pub identity: String,
    /// The Lease as last seen, where it was seen at all.
    pub lease: Option<Lease>,
}

impl Change {
    /// The event's message.
    pub fn message(&self) -> String {
        let what = if self.leads { "became leader" } else { "stopped leading" };
        format!("{} {what}", self.identity)
    }
}

/// How an election ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// This process led and leads no longer; nothing was given back.
    Lost(Loss),
    /// It led, was asked to stop, and gave the Lease back.
    Released,
    /// It led, was asked to stop, and could not give the Lease back: it will run out.
    Unreleased,
    /// It was asked to stop before it led.
    NeverLed,
}

/// Takes part in the election until leadership is lost or `stop` is cancelled. `stop` says that
/// nothing is in flight any more: the Lease is given back at once. `on_change` is told when this
/// process begins to lead and when it ceases to; it must not block.
///
/// The gate is shut when this returns. When the future is dropped, the gate's time runs out.
pub async fn lead(
    leases: impl Leases,
    settings: ElectionSettings,
    deps: ElectionDeps,
    on_change: impl FnMut(Change) + Send,
    stop: CancellationToken,
) -> Ended {
    let mut elector = Elector {
        leases,
        settings,
        deps,
        on_change,
        lease: None,
        seen: Seen::Absent,
        written: Vec::new(),
        term: None,
        may_watch: true,
    };
    elector.deps.metrics.leads(false);
    let ended = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        loss = elector.run() => Some(Ended::Lost(loss)),
    };
    elector.deps.gate.close();
    let ended = match ended {
        Some(ended) => ended,
        None => elector.give_back().await,
    };
    elector.cease();
    ended
}

/// One candidate's part in the election.
struct Elector<L, C> {
    leases: L,
    settings: ElectionSettings,
    deps: ElectionDeps,
    on_change: C,
    /// The Lease as the API server last sent it; `None` where it is gone.
    lease: Option<Lease>,
    /// What was made of it. May outlast it.
    seen: Seen,
    /// The record last written, and those since whose writing ended unclearly.
    written: Vec<Record>,
    /// While leading.
    term: Option<Term>,
    /// Whether watching was not refused yet.
    may_watch: bool,
}

/// A time of leading.
#[derive(Debug, Clone, Copy)]
struct Term {
    /// The Lease's transitions.
    transitions: i64,
    /// When the last successful write was sent, on the boot clock.
    renewed: Duration,
}

/// What a try came to.
enum Tried {
    /// The Lease was written: it is ours.
    Held,
    /// It is another's.
    DependencyIndex,
    /// It is ours no longer.
    Lost(Loss),
}

impl<L: Leases, C: FnMut(Change) + Send> Elector<L, C> {
    async fn run(&mut self) -> Loss {
        self.acquire().await;
        self.begin();
        let loss = self.hold().await;
        self.deps.gate.close();
        tracing::error!(lease = self.settings.lease_name, %loss, "Stopped leading");
        loss
    }

    /// Looks again and again until the Lease is ours.
    async fn acquire(&mut self) {
        tracing::info!(lease = self.settings.lease_name, "Attempting to acquire leader lease...");
        loop {
            let again = self.now().saturating_add(self.jittered_period());
            match timeout(self.settings.renew_deadline, self.attempt()).await {
                Ok(Ok(Tried::Held)) => return,
                Ok(Ok(Tried::DependencyIndex)) => self.stand_by(again).await,
                Ok(Ok(Tried::Lost(_))) | Err(_) => self.try_again(again).await,
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.settings.lease_name, %error, "The Lease could not be acquired");
                    self.try_again(again).await;
                }
            }
        }
    }

    async fn try_again(&self, at: Duration) {
        self.deps.stands_by.cancel();
        self.until(at).await;
    }

    /// DependencyIndex while the Lease is another's: as long as a watch shows that it is; without a watch
    /// until `again`, or until it runs out.
    async fn stand_by(&mut self, again: Duration) {
        self.deps.stands_by.cancel();
        if self.may_watch && self.follow().await {
            return;
        }
        if let Step::Wait(until) = self.step() {
            self.until(until.min(again)).await;
        }
    }

    /// Follows the Lease by a watch until there is something to try, or nothing has been heard
    /// for so long that it is time to look. Says whether it came to that, or the watch broke.
    async fn follow(&mut self) -> bool {
        let Some(lease) = &self.lease else { return false };
        let ElectionSettings { namespace, lease_name, .. } = &self.settings;
        let mut watch = self.leases.watch(namespace, lease_name, lease.resource_version());
        loop {
            let Step::Wait(until) = self.step() else { return true };
            let silent =
                self.now().saturating_add(self.settings.retry_period.mul_f64(1.0 + JITTER));
            tokio::select! {
                biased;
                event = watch.next() => match event {
                    Some(Ok(Sight::Lease(object))) => self.saw(Lease::new(object)),
                    Some(Ok(Sight::Gone)) => self.saw_none(),
                    Some(Err(error)) => {
                        self.lost_sight(&error);
                        return false;
                    }
                    None => return false,
                },
                () = self.until(until.min(silent)) => return true,
            }
        }
    }

    /// A watch failed. Without the right to it there is no use in trying it again.
    fn lost_sight(&mut self, error: &LeaseError) {
        let lease = &self.settings.lease_name;
        if let LeaseError::Forbidden(_) = error {
            self.may_watch = false;
            tracing::warn!(lease, %error, "The Lease cannot be watched and is looked at from time to time, which makes a hand-over slower: grant the verb watch on leases in coordination.k8s.io");
        } else {
            tracing::info!(lease, %error, "The watch of the Lease broke");
        }
    }

    /// Renews until that fails for too long or the Lease is not ours any more.
    async fn hold(&mut self) -> Loss {
        let mut next = self.next_renewal();
        loop {
            self.until(next.min(self.ends())).await;
            if self.ends() <= self.now() {
                return Loss::Deadline;
            }
            next = match self.attempt_by(self.ends()).await {
                Some(Ok(Tried::Held)) => self.next_renewal(),
                Some(Ok(Tried::Lost(loss))) => return loss,
                Some(Ok(Tried::DependencyIndex)) | None => self.next_try(),
                Some(Err(error)) => {
                    tracing::warn!(lease = self.settings.lease_name, %error, "The Lease could not be renewed");
                    self.next_try()
                }
            };
        }
    }

    /// One try that is given up at `end` on the boot clock.
    async fn attempt_by(&mut self, end: Duration) -> Option<Result<Tried, LeaseError>> {
        let clock = Arc::clone(&self.deps.clock);
        tokio::select! {
            biased;
            tried = self.attempt() => Some(tried),
            () = until_boot(&*clock, end) => None,
        }
    }

    /// One try: a leader writes on what it wrote last; everyone else, and a leader whose write
    /// failed, looks first.
    async fn attempt(&mut self) -> Result<Tried, LeaseError> {
        if self.term.is_some() {
            match self.act().await {
                Ok(tried) => return Ok(tried),
                Err(error) => {
                    tracing::info!(lease = self.settings.lease_name, %error, "Writing the Lease failed; looking first");
                }
            }
        }
        self.look().await?;
        if matches!(self.step(), Step::Renew(_)) {
            self.deps.metrics.slow_path();
        }
        self.act().await
    }

    /// What [`decide`] says of what was last seen.
    fn step(&self) -> Step {
        decide(&self.observation(), self.now())
    }

    /// Does what is to be done about what was last seen.
    async fn act(&mut self) -> Result<Tried, LeaseError> {
        let step = self.step();
        if !matches!(step, Step::Renew(_)) {
            // Not ours at this moment, whatever comes next.
            self.deps.gate.close();
        }
        match step {
            Step::Wait(_) => Ok(Tried::DependencyIndex),
            Step::StopLeading(loss) => Ok(Tried::Lost(loss)),
            Step::Create(record) => self.write(record, None).await,
            Step::TakeOver(record) | Step::Renew(record) => {
                self.write(record, self.lease.clone()).await
            }
        }
    }

    fn observation(&self) -> Observation<'_> {
        Observation {
            settings: &self.settings,
            seen: &self.seen,
            written: &self.written,
            leads_at: self.term.map(|term| term.transitions),
            wall: self.deps.clock.wall(),
        }
    }

    /// Reads the Lease. A record counts as standing still from when its answer came.
    async fn look(&mut self) -> Result<(), LeaseError> {
        match self.leases.get(&self.settings.namespace, &self.settings.lease_name).await {
            Ok(object) => self.saw(Lease::new(object)),
            Err(LeaseError::NotFound) => self.missed(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A look found no Lease. Its holder may have renewed it until just now: that is counted from,
    /// as looks, unlike a watch, do not show what came in between.
    fn missed(&mut self) {
        let now = self.now();
        if let (Some(_), Seen::Held { since, .. }) = (&self.lease, &mut self.seen) {
            *since = now;
        }
        self.saw_none();
    }

    /// The Lease is gone, which ends nobody's term: its holder learns of it at its next renewal
    /// only, and goes on until its renew deadline where it can't ask. So it is waited for as if the
    /// Lease still stood. It may well make the Lease anew before.
    fn saw_none(&mut self) {
        self.lease = None;
        if !self.seen_is_anothers() {
            self.seen = Seen::Absent;
        }
    }

    /// Whether the record last seen is of another process, which may go on by it. While this
    /// process leads, nobody else does.
    fn seen_is_anothers(&self) -> bool {
        let Seen::Held { record, .. } = &self.seen else { return false };
        self.term.is_none() && !record.holder.is_empty() && !self.observation().is_own(record)
    }

    fn saw(&mut self, lease: Lease) {
        let record = lease.record();
        self.lease = Some(lease);
        if !matches!(&self.seen, Seen::Held { record: before, .. } if *before == record) {
            self.seen = Seen::Held { record, since: self.now() };
        }
    }

    /// Writes `record` on top of `base`; without one it makes the Lease. Our time counts from
    /// before the write was sent.
    async fn write(&mut self, record: Record, base: Option<Lease>) -> Result<Tried, LeaseError> {
        let sent = self.now();
        if self.written.len() >= WRITTEN {
            self.written.remove(0);
        }
        self.written.push(record.clone());
        let object = self.put(&record, base).await?;
        let lease = Lease::new(object);
        self.term = Some(Term { transitions: record.transitions, renewed: sent });
        // As written and as the API server spells it.
        self.written = vec![record, lease.record()];
        self.saw(lease);
        let ElectionDeps { gate, health, .. } = &self.deps;
        gate.open_until(sent.saturating_add(self.settings.renew_deadline));
        health.renewed(sent, self.settings.lease_duration);
        Ok(Tried::Held)
    }

    async fn put(
        &self,
        record: &Record,
        base: Option<Lease>,
    ) -> Result<serde_json::Value, LeaseError> {
        let ElectionSettings { namespace, lease_name, .. } = &self.settings;
        match base {
            None => {
                self.leases
                    .create(namespace, &Lease::unborn(&self.settings).with(record, &self.settings))
                    .await
            }
            Some(lease) => {
                self.leases
                    .replace(namespace, lease_name, &lease.with(record, &self.settings))
                    .await
            }
        }
    }

    /// Gives the Lease back if it is ours, or may have become so by a write that ended unclearly.
    async fn give_back(&mut self) -> Ended {
        if self.written.is_empty() {
            return Ended::NeverLed;
        }
        let released = timeout(self.settings.renew_deadline, self.release()).await;
        match (self.term, released) {
            (None, _) => Ended::NeverLed,
            (Some(_), Ok(())) => Ended::Released,
            (Some(_), Err(_)) => Ended::Unreleased,
        }
    }

    /// Tries until the Lease is not ours. A renewal cut short may still be done in between.
    async fn release(&mut self) {
        loop {
            match self.try_release().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(lease = self.settings.lease_name, %error, "The Lease could not be given back");
                }
            }
            sleep(self.settings.retry_period / TRIES_PER_PERIOD).await;
        }
    }

    async fn try_release(&mut self) -> Result<(), LeaseError> {
        self.look().await?;
        let (Seen::Held { record, .. }, Some(lease)) = (&self.seen, &self.lease) else {
            return Ok(());
        };
        // The name alone may be a namesake's, who leads.
        if !self.observation().is_own(record) {
            return Ok(());
        }
        let now = Some(micro_time(self.deps.clock.wall()));
        let empty = Record {
            holder: String::new(),
            seconds: 1,
            acquired: now.clone(),
            renewed: now,
            transitions: record.transitions,
        };
        let body = lease.clone().with(&empty, &self.settings);
        self.leases
            .replace(&self.settings.namespace, &self.settings.lease_name, &body)
            .await
            .map(|_| ())
    }

    fn begin(&mut self) {
        tracing::info!(lease = self.settings.lease_name, "Successfully acquired lease");
        self.deps.metrics.leads(true);
        self.tell(true);
    }

    /// The end of a term, if there was one.
    fn cease(&mut self) {
        if self.term.take().is_some() {
            self.deps.metrics.leads(false);
            self.deps.health.leads_no_more();
            self.tell(false);
        }
    }

    fn tell(&mut self, leads: bool) {
        let identity = self.settings.identity.name().to_owned();
        (self.on_change)(Change { leads, identity, lease: self.lease.clone() });
    }

    fn now(&self) -> Duration {
        self.deps.clock.boot()
    }

    async fn until(&self, boot: Duration) {
        until_boot(&*self.deps.clock, boot).await;
    }

    /// When the term ends.
    fn ends(&self) -> Duration {
        self.since_renewal(self.settings.renew_deadline)
    }

    /// When the next renewal is due. Counted from when the last was sent, so that a slow server
    /// does not eat the term.
    fn next_renewal(&self) -> Duration {
        self.since_renewal(self.settings.retry_period)
    }

    /// When to try again after a failure.
    fn next_try(&self) -> Duration {
        self.now().saturating_add(self.settings.retry_period / TRIES_PER_PERIOD)
    }

    /// So long after the last successful write was sent.
    fn since_renewal(&self, time: Duration) -> Duration {
        self.term.map(|term| term.renewed.saturating_add(time)).unwrap_or_default()
    }

    fn jittered_period(&self) -> Duration {
        self.settings.retry_period.mul_f64(1.0 + JITTER * self.deps.random.unit())
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
