//! Who works when: the election, the work of the one that leads, and the end of it.
//!
//! Promises that the Lease is given back only when nothing is in flight (safety rule 1), and that
//! the gate is shut for good before it is.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{Error, Program};
use crate::{
    kube::events::{Severity, Subject},
    leader,
    leader::{ElectionSettings, Ended, Identity},
    mutations,
    mutations::Mutation,
};

/// How long before its end calls that still run are recorded on their claims.
const RECORDING: Duration = Duration::from_secs(2);

/// How long calls that were cut at the end may take to notice.
const CUT: Duration = Duration::from_secs(1);

/// How long what comes after the work may take in all: calls that are cut, the Lease, the last events.
/// With `--shutdown-timeout` and the last answers that makes 25 s of a pod's usual grace of 30 s.
const LAST_WORDS: Duration = Duration::from_secs(4);

/// The work has ended, because it was to.
struct Stopped {
    /// How many calls and writes were cut.
    in_flight: usize,
    /// When the rest must have ended, too.
    end: Instant,
}

impl Program<'_> {
    /// Works while this process leads, until `stop`. Gives until when the last events may take.
    pub(super) async fn work(&self, stop: &CancellationToken) -> Result<Instant, Error> {
        match self.election()? {
            None => Ok(self.lead_and_stop(stop).await.end),
            Some(settings) => self.elect(settings, stop).await,
        }
    }

    /// Takes part in the election, works once it is won, and gives the Lease back at the end.
    async fn elect(
        &self,
        settings: ElectionSettings,
        stop: &CancellationToken,
    ) -> Result<Instant, Error> {
        let release = CancellationToken::new();
        let election = self.election_loop(settings, release.clone());
        tokio::pin!(election);
        let Stopped { in_flight, end } = tokio::select! {
            biased;
            ended = &mut election => return lost(&ended),
            stopped = self.lead_and_stop(stop) => stopped,
        };
        // A Lease whose holder has calls in flight runs out instead (safety rule 1).
        if in_flight == 0 || mutations::is_on(Mutation::ReleaseInFlight) {
            release.cancel();
            if let Ok(ended) = timeout_at(end, election).await {
                tracing::info!(?ended, "leader election ended");
            } else {
                tracing::warn!("The Lease could not be given back in time; it runs out");
            }
        }
        Ok(end)
    }

    /// Works once this process leads; after `stop` ends what is in hand. Then the gate is shut for
    /// good.
    async fn lead_and_stop(&self, stop: &CancellationToken) -> Stopped {
        let patience = self.flags.safety.shutdown_timeout;
        let recording = RECORDING.min(patience / 2);
        let overdue = async {
            stop.cancelled().await;
            sleep(patience.saturating_sub(recording)).await;
            self.controller.record_running_calls();
            sleep(recording).await;
        };
        let work = self.lead(stop);
        tokio::pin!(work);
        tokio::select! {
            biased;
            () = &mut work => return self.stopped(),
            () = overdue => {}
        }
        let stopped = self.stopped();
        if stopped.in_flight > 0 {
            self.tell_cut(stopped.in_flight);
            // What is cut becomes an open call of its claim, as after any unclear end.
            let _ = timeout(CUT, work).await;
        }
        stopped
    }

    /// Shuts the gate for good, and says what is left undone.
    fn stopped(&self) -> Stopped {
        let in_flight = self.gate.retire();
        self.controller.tell_unsaved();
        Stopped { in_flight, end: Instant::now() + LAST_WORDS }
    }

    /// Works from the moment this process leads until `stop`, and on until nothing is in hand.
    async fn lead(&self, stop: &CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.led() => {}
        }
        let publish = async {
            if let Some(publisher) = &self.publisher {
                publisher.work(self.controller.classes_listed(), stop.clone()).await;
            }
        };
        let ended = CancellationToken::new();
        let work = async {
            self.controller.work(stop.clone()).await;
            ended.cancel();
        };
        // What the last calls were made from is given back, too.
        let protect = self.protection.work(ended.clone());
        // Boxed: all of the program's work is in there.
        Box::pin(futures::future::join3(work, protect, publish)).await;
    }

    /// DependencyIndex until this process leads. While another does, what it needs then is watched.
    async fn led(&self) {
        let mut leads = self.leads.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as `self`.
            _ = leads.wait_for(|leads| *leads) => return,
            () = self.stands_by.cancelled() => self.controller.stand_by(),
        }
        let _ = leads.wait_for(|leads| *leads).await;
    }

    fn tell_cut(&self, in_flight: usize) {
        let patience = self.flags.safety.shutdown_timeout;
        tracing::warn!(
            in_flight,
            ?patience,
            "Calls still run at the end of --shutdown-timeout and are cut; the Lease is left to run out"
        );
    }

    async fn election_loop(&self, settings: ElectionSettings, release: CancellationToken) -> Ended {
        let source =
            self.recorder.from(&leader::event_component(self.driver.name(), &self.world.host.name));
        let leads = self.leads.clone();
        let on_change = move |change: leader::Change| {
            leads.send_replace(change.leads);
            if let Some(lease) = &change.lease {
                let subject = subject(lease);
                source.event(subject, Severity::Normal, "LeaderElection", change.message());
            }
        };
        let deps = leader::ElectionDeps {
            gate: self.gate.clone(),
            clock: Arc::clone(&self.world.clock),
            random: Arc::clone(&self.world.random),
            metrics: self.metrics.leader.clone(),
            health: self.health.clone(),
            stands_by: self.stands_by.clone(),
        };
        leader::lead(self.lanes.leases.clone(), settings, deps, on_change, release).await
    }

    fn election(&self) -> Result<Option<ElectionSettings>, Error> {
        let Some(flags) = &self.flags.leader_election else { return Ok(None) };
        let host = &self.world.host;
        let settings = ElectionSettings {
            lease_name: leader::lease_name(self.driver.name()),
            namespace: self.lease_namespace(),
            identity: Identity::new(&host.name, host.pod_uid.as_deref()),
            lease_duration: flags.lease_duration,
            renew_deadline: flags.renew_deadline,
            retry_period: flags.retry_period,
            labels: flags.labels.clone(),
        };
        settings.check()?;
        Ok(Some(settings))
    }

    pub(super) fn lease_namespace(&self) -> String {
        let flag = self.flags.leader_election.as_ref().and_then(|flags| flags.namespace.as_deref());
        let host = &self.world.host;
        leader::namespace(
            flag,
            host.pod_namespace.as_deref(),
            host.service_account_namespace.as_deref(),
        )
    }
}

/// The Lease as events name it.
pub(super) fn subject(lease: &leader::Lease) -> Subject {
    Subject {
        kind: "Lease".into(),
        api_version: "coordination.k8s.io/v1".into(),
        namespace: lease.namespace().to_owned(),
        name: lease.name().to_owned(),
        uid: lease.uid().to_owned(),
        resource_version: lease.resource_version().to_owned(),
    }
}

/// The election ended by itself, which only the loss of the Lease makes it do.
fn lost(ended: &Ended) -> Result<Instant, Error> {
    match ended {
        Ended::Lost(loss) => Err(Error::LostLease(loss.clone())),
        Ended::Released | Ended::Unreleased | Ended::NeverLed => Ok(Instant::now()),
    }
}
