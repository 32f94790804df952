//! Leader election, the leader's work, and its shutdown. The Lease is released only when nothing is in
//! flight, and after the gate is shut for good (safety rule 1).

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{AppError, Base, Program};
use crate::{
    kube::events::{Severity, Subject},
    leader,
    leader::{CandidateIdentity, ElectionSettings, Loss},
};

/// How long before the end of `--shutdown-timeout` running calls are recorded on their claims.
const RECORDING_TIME: Duration = Duration::from_secs(2);

/// The time for cancelled calls to end.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// The time for everything after `--shutdown-timeout`: cancelled calls, the Lease, the remaining events.
/// With the HTTP server's time that makes 25 s of a pod's default grace period of 30 s.
const CLEANUP_TIME: Duration = Duration::from_secs(4);

/// The work was stopped.
struct Stopped {
    /// The number of cancelled calls and writes.
    in_flight: usize,
    /// When the cleanup must end.
    end: Instant,
}

impl Program<'_> {
    /// Works while this process is the leader, until `stop` is cancelled. Returns when the cleanup must end.
    pub(super) async fn work(&self, stop: &CancellationToken) -> Result<Instant, AppError> {
        match self.base.election_settings() {
            None => Ok(self.lead_and_stop(stop).await.end),
            Some(settings) => self.elect(settings, stop).await,
        }
    }

    /// Takes part in the election, works as the leader, and releases the Lease at the end.
    async fn elect(
        &self,
        settings: ElectionSettings,
        stop: &CancellationToken,
    ) -> Result<Instant, AppError> {
        let release = CancellationToken::new();
        let election = self.election_loop(settings, release.clone());
        tokio::pin!(election);
        let Stopped { in_flight, end } = tokio::select! {
            biased;
            // It ends by itself only if the Lease is lost.
            ended = &mut election => {
                return ended.map(|()| Instant::now()).map_err(AppError::LostLease);
            }
            stopped = self.lead_and_stop(stop) => stopped,
        };
        // With calls in flight the Lease expires instead (safety rule 1).
        if in_flight == 0 {
            release.cancel();
            if timeout_at(end, election).await.is_err() {
                tracing::warn!("The Lease could not be given back in time; it runs out");
            }
        }
        Ok(end)
    }

    /// Works as the leader. After `stop` waits for work in progress, up to `--shutdown-timeout`, and shuts
    /// the gate for good.
    async fn lead_and_stop(&self, stop: &CancellationToken) -> Stopped {
        let timeout = self.base.flags.safety.shutdown_timeout;
        let recording = RECORDING_TIME.min(timeout / 2);
        let overdue = async {
            stop.cancelled().await;
            sleep(timeout.saturating_sub(recording)).await;
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
            self.log_cancelled(stopped.in_flight);
            // A cancelled call becomes an open call of its claim, as after any unknown result.
            let _ = tokio::time::timeout(CANCEL_TIME, work).await;
        }
        stopped
    }

    /// Shuts the gate for good, and logs what is unfinished.
    fn stopped(&self) -> Stopped {
        let in_flight = self.base.gate.retire();
        self.controller.log_unfinished();
        Stopped { in_flight, end: Instant::now() + CLEANUP_TIME }
    }

    /// Works from the moment this process is the leader until `stop`, and until no work is in progress.
    async fn lead(&self, stop: &CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.wait_until_leading() => {}
        }
        self.watch();
        let publish = async {
            if let Some(publisher) = &self.publisher {
                let classes = self.controller.class_list();
                publisher.work(classes.whole(), stop.clone()).await;
            }
        };
        let ended = CancellationToken::new();
        let work = async {
            self.controller.work(stop.clone()).await;
            ended.cancel();
        };
        // Ends after the controller, to release the sources of the last calls.
        let protect = self.protection.work(ended.clone());
        // Boxed, as this future contains all of the program's work.
        let work = Box::pin(futures::future::join3(work, protect, publish));
        tokio::select! {
            biased;
            _ = work => {}
            never = self.check_permissions() => match never {},
        }
    }

    /// Waits until this process is the leader. Until then it does nothing else.
    async fn wait_until_leading(&self) {
        // The sender lives as long as `self`.
        let _ = self.is_leader.subscribe().wait_for(|is_leader| *is_leader).await;
    }

    fn log_cancelled(&self, in_flight: usize) {
        let patience = self.base.flags.safety.shutdown_timeout;
        tracing::warn!(
            in_flight,
            ?patience,
            "Calls still run at the end of --shutdown-timeout and are cut; the Lease is left to run out"
        );
    }

    async fn election_loop(
        &self,
        settings: ElectionSettings,
        release: CancellationToken,
    ) -> Result<(), Loss> {
        let Base { env, driver, gate, lanes, .. } = &self.base;
        let component = leader::event_component(driver.name(), &env.host.name);
        let recorder = self.recorder.for_component(&component);
        let (is_leader, identity) = (self.is_leader.clone(), settings.identity.name().to_owned());
        let on_change = move |leads, lease: Option<&Lease>| {
            is_leader.send_replace(leads);
            if let Some(lease) = lease {
                let what = if leads { "became leader" } else { "stopped leading" };
                let message = format!("{identity} {what}");
                recorder.event(subject(lease), Severity::Normal, "LeaderElection", message);
            }
        };
        let deps = leader::ElectionDeps {
            gate: gate.clone(),
            clock: Arc::clone(&env.clock),
            random: Arc::clone(&env.random),
            metrics: env.metrics.leader.clone(),
        };
        leader::lead(lanes.leases.clone(), settings, deps, on_change, release).await
    }
}

impl Base<'_> {
    /// The settings of the election, if the flags ask for one.
    fn election_settings(&self) -> Option<ElectionSettings> {
        let flags = self.flags.leader_election()?.clone();
        let host = &self.env.host;
        Some(ElectionSettings {
            lease_name: leader::lease_name(self.driver.name()),
            namespace: self.lease_namespace(),
            identity: CandidateIdentity::new(&host.name, host.pod_uid.as_deref()),
            flags,
        })
    }

    pub(super) fn lease_namespace(&self) -> String {
        let flag = self.flags.leader_election().and_then(|flags| flags.namespace.as_deref());
        let host = &self.env.host;
        leader::namespace(
            flag,
            host.pod_namespace.as_deref(),
            host.service_account_namespace.as_deref(),
        )
    }
}

/// The reference to the Lease in its events.
pub(super) fn subject(lease: &Lease) -> Subject {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let ObjectMeta { namespace, name, uid, resource_version, .. } = &lease.metadata;
    Subject {
        kind: "Lease".into(),
        api_version: "coordination.k8s.io/v1".into(),
        namespace: text(namespace),
        name: text(name),
        uid: text(uid),
        resource_version: text(resource_version),
    }
}
