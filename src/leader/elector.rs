//! The loop around [`decide()`]: reads, watches and writes the Lease, and opens and shuts the gate.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::WatchEvent;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    ElectionSettings, Loss,
    decide::{Observation, ObservedLease, Step, decide},
    leases,
    record::{holder, micro_time, record_of, transitions, written},
    settings::JITTER,
};
use crate::{
    kube::{ApiError, Client},
    metrics::LeaderMetrics,
    runtime::{Clock, Gate, Random, sleep_until_boot},
};

/// The number of attempts of a failing renewal per retry period. More than in client-go, as a term ends one
/// renew deadline after the last renewal was sent, which leaves less time.
const ATTEMPTS_PER_PERIOD: u32 = 4;

/// The number of writes that are remembered: those of the last success, and later ones with unknown result. The
/// server has finished older ones.
const MAX_WRITTEN: usize = 16;

/// The records of the last success: as it was written, and as the server returned it. One of them is in the
/// Lease as long as no later write takes place.
const LAST_SUCCESS: usize = 2;

/// The dependencies of an election.
#[derive(Clone)]
pub struct ElectionDeps {
    /// The gate that is opened while this process leads.
    pub gate: Gate,
    /// The clock. Leases expire by boot time; wall-clock time is only written into records.
    pub clock: Arc<dyn Clock>,
    /// For jitter.
    pub random: Arc<dyn Random>,
    /// The metrics `leader_election_*`.
    pub metrics: LeaderMetrics,
}

/// Takes part in the election until the Lease is lost or `stop` is cancelled. The caller cancels `stop` when
/// nothing is in flight any more; the Lease is then released at once. `on_change` is called when this
/// process begins and stops leading, with whether it leads and the Lease as last observed; it must not block.
///
/// The gate is shut when this returns. If the future is dropped, the gate shuts when its time is over.
///
/// # Errors
/// This process lost the Lease, and released nothing.
pub async fn lead(
    client: Client,
    settings: ElectionSettings,
    deps: ElectionDeps,
    on_change: impl FnMut(bool, Option<&Lease>) + Send,
    stop: CancellationToken,
) -> Result<(), Loss> {
    let mut elector = Elector {
        client,
        settings,
        deps,
        on_change,
        lease: None,
        observed: ObservedLease::Absent,
        written: Vec::new(),
        term: None,
    };
    elector.deps.metrics.leads(false);
    let ended = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        loss = elector.run() => Err(loss),
    };
    elector.deps.gate.close();
    if ended.is_ok() {
        elector.release().await;
    }
    elector.end_term();
    ended
}

/// A candidate.
struct Elector<C> {
    client: Client,
    settings: ElectionSettings,
    deps: ElectionDeps,
    on_change: C,
    /// The Lease as the API server last sent it; `None` if it is gone.
    lease: Option<Lease>,
    /// What was observed of the Lease. Kept after a deletion.
    observed: ObservedLease,
    /// The record last written, and later ones whose write had an unknown result.
    written: Vec<LeaseSpec>,
    /// The current term, while leading.
    term: Option<Term>,
}

/// A period of leading.
#[derive(Debug, Clone, Copy)]
struct Term {
    /// The Lease's number of transitions.
    transitions: i32,
    /// The boot time at which the last successful write was sent.
    renewed: Duration,
}

/// The result of an attempt to acquire or renew the Lease.
enum Attempted {
    /// This process wrote and holds the Lease.
    Held,
    /// Another process holds the Lease.
    HeldByOther,
    /// This process lost the Lease.
    Lost(Loss),
}

impl<C: FnMut(bool, Option<&Lease>) + Send> Elector<C> {
    async fn run(&mut self) -> Loss {
        self.acquire().await;
        self.report_leading();
        let loss = self.hold().await;
        self.deps.gate.close();
        tracing::error!(lease = self.settings.lease_name, %loss, "Stopped leading");
        loss
    }

    /// Attempts to acquire the Lease until that succeeds.
    async fn acquire(&mut self) {
        tracing::info!(lease = self.settings.lease_name, "Attempting to acquire leader lease...");
        loop {
            let retry_at = self.now().saturating_add(self.jittered_period());
            match timeout(self.settings.flags.renew_deadline, self.attempt()).await {
                Ok(Ok(Attempted::Held)) => return,
                Ok(Ok(Attempted::HeldByOther)) => self.wait_as_standby(retry_at).await,
                Ok(Ok(Attempted::Lost(_))) | Err(_) => self.sleep_until(retry_at).await,
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.settings.lease_name, %error, "The Lease could not be acquired");
                    self.sleep_until(retry_at).await;
                }
            }
        }
    }

    /// Waits while another process holds the Lease: by a watch if possible, else until `retry_at` or the
    /// Lease expires.
    async fn wait_as_standby(&mut self, retry_at: Duration) {
        if self.watch().await {
            return;
        }
        if let Step::Wait(until) = self.step() {
            self.sleep_until(until.min(retry_at)).await;
        }
    }

    /// Watches the Lease until another step than waiting is next, or no event came for so long that a read
    /// is due. Returns `false` if the watch failed or ended before that.
    async fn watch(&mut self) -> bool {
        let Some(lease) = &self.lease else { return false };
        let ElectionSettings { namespace, lease_name, .. } = &self.settings;
        let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
        let mut watch = leases::watch(&self.client, namespace, lease_name, version);
        loop {
            let Step::Wait(until) = self.step() else { return true };
            let read_at =
                self.now().saturating_add(self.settings.flags.retry_period.mul_f64(1.0 + JITTER));
            tokio::select! {
                biased;
                event = watch.next() => match event {
                    Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                        self.on_lease(lease);
                    }
                    Some(Ok(WatchEvent::Deleted(_))) => self.on_lease_deleted(),
                    Some(Ok(WatchEvent::Bookmark(_) | WatchEvent::Error(_))) => {}
                    Some(Err(error)) => {
                        tracing::debug!(lease = self.settings.lease_name, %error, "The watch of the Lease broke");
                        return false;
                    }
                    None => return false,
                },
                () = self.sleep_until(until.min(read_at)) => return true,
            }
        }
    }

    /// Renews the Lease until that fails for too long or the Lease is lost.
    async fn hold(&mut self) -> Loss {
        let mut next = self.next_renewal();
        loop {
            self.sleep_until(next.min(self.term_end())).await;
            if self.term_end() <= self.now() {
                return Loss::Deadline;
            }
            next = match self.attempt_by(self.term_end()).await {
                Some(Ok(Attempted::Held)) => self.next_renewal(),
                Some(Ok(Attempted::Lost(loss))) => return loss,
                Some(Ok(Attempted::HeldByOther)) | None => self.next_attempt(),
                Some(Err(error)) => {
                    tracing::warn!(lease = self.settings.lease_name, %error, "The Lease could not be renewed");
                    self.next_attempt()
                }
            };
        }
    }

    /// Makes one attempt. Returns `None` if it does not end by the boot time `end`.
    async fn attempt_by(&mut self, end: Duration) -> Option<Result<Attempted, ApiError>> {
        let clock = Arc::clone(&self.deps.clock);
        tokio::select! {
            biased;
            attempted = self.attempt() => Some(attempted),
            () = sleep_until_boot(&*clock, end) => None,
        }
    }

    /// Makes one attempt. A leader writes on top of what it wrote last. Others, and a leader whose write
    /// failed, read the Lease first.
    async fn attempt(&mut self) -> Result<Attempted, ApiError> {
        if self.term.is_some() {
            match self.act().await {
                Ok(attempted) => return Ok(attempted),
                Err(error) => {
                    tracing::info!(lease = self.settings.lease_name, %error, "Writing the Lease failed; looking first");
                }
            }
        }
        self.read().await?;
        if matches!(self.step(), Step::Renew(_)) {
            self.deps.metrics.slow_path();
        }
        self.act().await
    }

    /// The next step, by what was last observed.
    fn step(&self) -> Step {
        decide(&self.observation(), self.now())
    }

    /// Takes the next step.
    async fn act(&mut self) -> Result<Attempted, ApiError> {
        let step = self.step();
        if !matches!(step, Step::Renew(_)) {
            // This process does not hold the Lease at the moment.
            self.deps.gate.close();
        }
        match step {
            Step::Wait(_) => Ok(Attempted::HeldByOther),
            Step::StopLeading(loss) => Ok(Attempted::Lost(loss)),
            Step::Create(record) => self.write(record, None).await,
            Step::TakeOver(record) | Step::Renew(record) => {
                self.write(record, self.lease.clone()).await
            }
        }
    }

    fn observation(&self) -> Observation<'_> {
        Observation {
            settings: &self.settings,
            lease: &self.observed,
            exists: self.lease.is_some(),
            written: &self.written,
            leads_at: self.term.map(|term| term.transitions),
            wall: self.deps.clock.wall(),
        }
    }

    /// Reads the Lease. A record counts as observed from the arrival of the response.
    async fn read(&mut self) -> Result<(), ApiError> {
        match leases::get(&self.client, &self.settings.namespace, &self.settings.lease_name).await {
            Ok(lease) => self.on_lease(lease),
            Err(error) if error.is_not_found() => self.on_lease_not_found(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Handles that a read found no Lease. As reads, unlike a watch, do not show what happened in between,
    /// its holder may have renewed it until just now: its duration counts from now on.
    fn on_lease_not_found(&mut self) {
        let now = self.now();
        if let (Some(_), ObservedLease::Held { since, .. }) = (&self.lease, &mut self.observed) {
            *since = now;
        }
        self.on_lease_deleted();
    }

    /// Handles that the Lease was deleted. That does not end its holder's term: the holder notices it at
    /// its next renewal, and leads until its renew deadline if it cannot reach the API server. So this
    /// candidate waits until a leader with its own settings would have stopped. The holder may create the
    /// Lease again meanwhile.
    fn on_lease_deleted(&mut self) {
        self.lease = None;
        if !self.is_held_by_other() {
            self.observed = ObservedLease::Absent;
        }
    }

    /// Whether another process may lead by the record last observed. While this process leads, none does.
    fn is_held_by_other(&self) -> bool {
        let ObservedLease::Held { record, .. } = &self.observed else { return false };
        self.term.is_none() && !holder(record).is_empty() && !self.observation().is_own(record)
    }

    fn on_lease(&mut self, lease: Lease) {
        let record = record_of(&lease);
        self.lease = Some(lease);
        let before = &self.observed;
        if !matches!(before, ObservedLease::Held { record: before, .. } if *before == record) {
            self.observed = ObservedLease::Held { record, since: self.now() };
        }
    }

    /// Writes `record` on top of `base`, or creates the Lease without one. The renewal counts from before
    /// the write was sent.
    async fn write(
        &mut self,
        record: LeaseSpec,
        base: Option<Lease>,
    ) -> Result<Attempted, ApiError> {
        let sent = self.now();
        if self.written.len() >= MAX_WRITTEN {
            self.written.remove(LAST_SUCCESS);
        }
        self.written.push(record.clone());
        let lease =
            leases::write(&self.client, &written(base, record.clone(), &self.settings)).await?;
        self.term = Some(Term { transitions: transitions(&record), renewed: sent });
        // As written, and as an admission webhook may have changed it.
        self.written = vec![record, record_of(&lease)];
        self.on_lease(lease);
        self.deps.gate.open_until(sent.saturating_add(self.settings.flags.renew_deadline));
        Ok(Attempted::Held)
    }

    /// Releases the Lease if this process holds it, or may hold it by a write with unknown result.
    async fn release(&mut self) {
        if self.written.is_empty() {
            return;
        }
        let released = timeout(self.settings.flags.renew_deadline, self.release_until_done()).await;
        if released.is_ok() && self.term.is_some() {
            tracing::info!(lease = self.settings.lease_name, "The Lease was given back");
        }
    }

    /// Retries until this process does not hold the Lease. A cancelled renewal may still be carried out
    /// meanwhile.
    async fn release_until_done(&mut self) {
        loop {
            match self.try_release().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(lease = self.settings.lease_name, %error, "The Lease could not be given back");
                }
            }
            sleep(self.settings.flags.retry_period / ATTEMPTS_PER_PERIOD).await;
        }
    }

    async fn try_release(&mut self) -> Result<(), ApiError> {
        self.read().await?;
        let (ObservedLease::Held { record, .. }, Some(lease)) = (&self.observed, &self.lease)
        else {
            return Ok(());
        };
        // Another process with the same name may be the leader.
        if !self.observation().is_own(record) {
            return Ok(());
        }
        let now = Some(micro_time(self.deps.clock.wall()));
        let empty = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: now.clone(),
            renew_time: now,
            lease_transitions: record.lease_transitions,
            ..LeaseSpec::default()
        };
        leases::write(&self.client, &written(Some(lease.clone()), empty, &self.settings))
            .await
            .map(drop)
    }

    fn report_leading(&mut self) {
        tracing::info!(lease = self.settings.lease_name, "Successfully acquired lease");
        self.deps.metrics.leads(true);
        (self.on_change)(true, self.lease.as_ref());
    }

    /// Ends the current term, if there is one.
    fn end_term(&mut self) {
        if self.term.take().is_some() {
            self.deps.metrics.leads(false);
            (self.on_change)(false, self.lease.as_ref());
        }
    }

    fn now(&self) -> Duration {
        self.deps.clock.boot()
    }

    async fn sleep_until(&self, boot: Duration) {
        sleep_until_boot(&*self.deps.clock, boot).await;
    }

    /// When the term ends.
    fn term_end(&self) -> Duration {
        self.since_renewal(self.settings.flags.renew_deadline)
    }

    /// When the next renewal is due. Counts from when the last one was sent, so that a slow server does not
    /// shorten the time for it.
    fn next_renewal(&self) -> Duration {
        self.since_renewal(self.settings.flags.retry_period)
    }

    /// When the next attempt after a failure is due.
    fn next_attempt(&self) -> Duration {
        self.now().saturating_add(self.settings.flags.retry_period / ATTEMPTS_PER_PERIOD)
    }

    /// The boot time `time` after the last successful write was sent.
    fn since_renewal(&self, time: Duration) -> Duration {
        self.term.map(|term| term.renewed.saturating_add(time)).unwrap_or_default()
    }

    fn jittered_period(&self) -> Duration {
        self.settings.flags.retry_period.mul_f64(1.0 + JITTER * self.deps.random.unit())
    }
}

#[cfg(test)]
mod tests;
