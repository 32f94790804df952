//! Who works when: the election, the work of the one that leads, and the end of it.
//!
//! Promises that the Lease is given back only when nothing is in flight (safety rule 1), and that
//! the gate is shut for good before it is.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Error, Program};
use crate::{
    kube_api::events::{Severity, Subject},
    leader::{self, ElectionSettings, Ended, Identity},
    mutations::{self, Mutation},
};

/// How long before its end calls that still run are recorded on their claims.
const RECORDING: Duration = Duration::from_secs(2);

/// How long calls that were cut at the end may take to notice.
const CUT: Duration = Duration::from_secs(1);

/// How long giving the Lease back may take. With `--shutdown-timeout`, the last events and the last
/// answers it stays within a pod's usual grace of 30 s.
const RELEASE: Duration = Duration::from_secs(4);

impl Program<'_> {
    /// Works while this process leads, until `stop`.
    pub(super) async fn work(&self, stop: &CancellationToken) -> Result<(), Error> {
        match self.election()? {
            None => {
                self.lead_and_stop(stop).await;
                Ok(())
            }
            Some(settings) => self.elect(settings, stop).await,
        }
    }

    /// Takes part in the election, works once it is won, and gives the Lease back at the end.
    async fn elect(
        &self,
        settings: ElectionSettings,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let release = CancellationToken::new();
        let election = self.election_loop(settings, release.clone());
        tokio::pin!(election);
        let in_flight = tokio::select! {
            biased;
            ended = &mut election => return lost(&ended),
            in_flight = self.lead_and_stop(stop) => in_flight,
        };
        // A Lease whose holder has calls in flight runs out instead (safety rule 1).
        if in_flight == 0 || mutations::is_on(Mutation::ReleaseInFlight) {
            release.cancel();
            if let Ok(ended) = timeout(RELEASE, election).await {
                tracing::info!(?ended, "leader election ended");
            } else {
                tracing::warn!("The Lease could not be given back in time; it runs out");
            }
        }
        Ok(())
    }

    /// Works once this process leads; after `stop` ends what is in hand. Then the gate is shut for
    /// good. Gives how many calls and writes were still in flight.
    async fn lead_and_stop(&self, stop: &CancellationToken) -> usize {
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
            () = &mut work => {
                self.tell_unsaved();
                return self.gate.retire();
            }
            () = overdue => {}
        }
        let in_flight = self.gate.retire();
        self.tell_unfinished(in_flight);
        if in_flight > 0 {
            // What is cut becomes an open call of its claim, as after any unclear end.
            let _ = timeout(CUT, work).await;
        }
        in_flight
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

    /// Waits until this process leads. While another does, what it needs then is watched.
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

    /// Says what the end of `--shutdown-timeout` leaves undone.
    fn tell_unfinished(&self, in_flight: usize) {
        let patience = self.flags.safety.shutdown_timeout;
        if in_flight > 0 {
            tracing::warn!(
                in_flight,
                ?patience,
                "Calls still run at the end of --shutdown-timeout and are cut; the Lease is left to run out"
            );
        }
        self.tell_unsaved();
    }

    fn tell_unsaved(&self) {
        let unsaved = self.controller.unsaved();
        if !unsaved.is_empty() {
            tracing::warn!(
                claims = ?unsaved,
                "PersistentVolumes could not be saved; the next leader asks the driver for them again"
            );
        }
    }

    async fn election_loop(&self, settings: ElectionSettings, release: CancellationToken) -> Ended {
        let source =
            self.recorder.from(&leader::event_component(self.driver.name(), &self.world.host.name));
        let leads = self.leads.clone();
        let on_change = move |change: leader::Change| {
            leads.send_replace(change.leads);
            if let Some(lease) = &change.lease {
                let subject = subject(lease);
                source.event(&subject, Severity::Normal, "LeaderElection", &change.message());
            }
        };
        let surroundings = leader::Surroundings {
            gate: self.gate.clone(),
            clock: Arc::clone(&self.world.clock),
            random: Arc::clone(&self.world.random),
            metrics: self.metrics.leader.clone(),
            health: self.health.clone(),
            stands_by: self.stands_by.clone(),
        };
        leader::lead(self.lanes.leases.clone(), settings, surroundings, on_change, release).await
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
fn subject(lease: &leader::Lease) -> Subject {
    Subject {
        kind: "Lease".to_owned(),
        api_version: "coordination.k8s.io/v1".to_owned(),
        namespace: lease.namespace().to_owned(),
        name: lease.name().to_owned(),
        uid: lease.uid().to_owned(),
        resource_version: lease.resource_version().to_owned(),
    }
}

/// The election ended by itself, which only the loss of the Lease makes it do.
fn lost(ended: &Ended) -> Result<(), Error> {
    match ended {
        Ended::Lost(loss) => Err(Error::LostLease(loss.clone())),
        Ended::Released | Ended::Unreleased | Ended::NeverLed => Ok(()),
    }
}
