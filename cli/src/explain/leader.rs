//! Who leads, and what only the leader knows.
//!
//! The Lease is read from the API server. What only the leader knows is on its status, which is asked
//! over HTTP where `--status-endpoint` names an address that can be reached.

use super::report::{Cause, Explanation, State};
use csi_provisioner::{kube::Client, leader, status::Status};
use k8s_openapi::api::core::v1::Pod;

use crate::{
    fetch::fetch_status,
    objects::{current_holder, find_lease, get_opt, host_of},
};

/// A Lease has run out, by a clock that may be wrong.
pub(crate) const BY_CLOCK: &str = " by this machine's clock";

/// What is known of the leader.
#[derive(Debug)]
pub(super) struct Leader {
    /// `None` without a driver, and with node deployment.
    pub(super) lease: Option<LeaseView>,
    /// What the status says, or why it does not answer; `None` if no address was given.
    pub(super) status: Option<Result<Box<Status>, String>>,
}

impl Leader {
    /// The status of the leader, if it answered.
    pub(super) fn of_leader(&self) -> Option<&Status> {
        self.status.as_ref()?.as_deref().ok().filter(|status| status.leader.leads)
    }
}

/// What the Lease shows.
#[derive(Debug)]
pub(crate) enum LeaseView {
    /// Somebody leads.
    Held { lease: String, holder: String },
    /// Nobody leads. `pod`: what became of the last holder's pod.
    Abandoned { lease: String, last_holder: String, pod: String },
    /// There is no Lease of this name.
    Missing { name: String },
    /// The Lease cannot be read.
    Unread { name: String, why: String },
}

// === Reading ===

/// Reads the driver's Lease, in `namespace` or, if that is empty, in whichever namespace it is.
pub(crate) async fn read_lease(
    client: &Client,
    namespace: &str,
    driver: &str,
    now: jiff::Timestamp,
) -> LeaseView {
    let name = leader::lease_name(driver);
    let lease = match find_lease(client, namespace, &name).await {
        Ok(Some(lease)) => lease,
        Ok(None) => return LeaseView::Missing { name },
        Err(why) => return LeaseView::Unread { name, why },
    };
    let namespace = lease.metadata.namespace.as_deref().unwrap_or_default();
    let key = format!("{namespace}/{name}");
    if let Some(holder) = current_holder(&lease, now) {
        return LeaseView::Held { lease: key, holder: holder.to_owned() };
    }
    let last_holder = lease.spec.as_ref().map_or("", leader::holder).to_owned();
    let pod = pod_of(client, namespace, &last_holder).await;
    LeaseView::Abandoned { lease: key, last_holder, pod }
}

/// What became of the holder's pod, in words. A holder's name begins with its host name, which is the
/// pod's name unless the pod uses the host's network.
async fn pod_of(client: &Client, namespace: &str, holder: &str) -> String {
    let Some(host) = host_of(holder) else { return String::new() };
    match get_opt::<Pod>(client, namespace, host).await {
        Ok(None) => format!(
            "there is no pod {namespace}/{host} any more, or it uses the host's network and has another name"
        ),
        Err(error) => format!("its pod cannot be read: {error}"),
        Ok(Some(pod)) => {
            let status = pod.status.unwrap_or_default();
            let containers = status.container_statuses.iter().flatten();
            let stuck = containers.filter(|it| !it.ready).map(|it| {
                format!("; container {} is not ready, {} restarts", it.name, it.restart_count)
            });
            let stuck: String = stuck.collect();
            let phase = status.phase.unwrap_or_default();
            format!("its pod {namespace}/{host} is {phase}{stuck}")
        }
    }
}

/// Asks the status at this address; `query` chooses what it lists.
pub(super) async fn ask(address: Option<&str>, query: &str) -> Option<Result<Box<Status>, String>> {
    let address = address?;
    Some(fetch_status(address, query).await.map(Box::new))
}

// === Sentences ===

impl Leader {
    /// Says who leads. Without a leader nothing that waits goes on.
    pub(super) fn describe(&self, explanation: &mut Explanation) {
        match &self.lease {
            None => {}
            Some(LeaseView::Held { lease, holder }) => {
                explanation.say(format!("{holder} leads, by the Lease {lease}."));
                explanation.detail("leader", holder);
            }
            Some(LeaseView::Abandoned { .. }) if explanation.state == State::Served => {}
            Some(LeaseView::Abandoned { lease, last_holder, pod }) => {
                explanation.add(abandoned(lease, last_holder, pod));
            }
            Some(LeaseView::Missing { name }) => explanation.say(format!(
                "There is no Lease {name}: the provisioner runs without --leader-election, or it has never run."
            )),
            Some(LeaseView::Unread { name, why }) => explanation
                .say(format!("Who leads cannot be found out, as the Lease {name} cannot be read: {why}")),
        }
    }

    /// Says what cannot be known without the leader, and which command shows it.
    pub(super) fn describe_status(&self, explanation: &mut Explanation, arguments: &str) {
        match &self.status {
            Some(Err(why)) => {
                explanation.say(format!("The status does not answer, {why}"));
            }
            Some(Ok(status)) if !status.leader.leads => {
                explanation.say("The status is of a replica that does not lead.");
            }
            Some(Ok(status)) => describe_driver(status, explanation),
            None => self.describe_command(explanation, arguments),
        }
    }

    /// The command that asks the leader for what only it knows.
    fn describe_command(&self, explanation: &mut Explanation, arguments: &str) {
        let Some(LeaseView::Held { lease, holder }) = &self.lease else { return };
        let namespace = lease.split('/').next().unwrap_or_default();
        let Some(pod) = host_of(holder) else { return };
        explanation.say(format!(
            "Only the leader knows the attempt and when the next one is. If it has a --status-endpoint: kubectl --namespace {namespace} exec {pod} --container csi-provisioner -- /kubectl-csi_provisioner explain {arguments} --status-endpoint=ADDRESS"
        ));
    }
}

fn abandoned(lease: &str, last_holder: &str, pod: &str) -> Cause {
    let last = match (last_holder, pod) {
        ("", _) => "it names no holder".to_owned(),
        (holder, "") => format!("the last holder was {holder}"),
        (holder, pod) => format!("the last holder was {holder}; {pod}"),
    };
    let clock = if last_holder.is_empty() { "" } else { BY_CLOCK };
    Cause::new(State::Wrong, format!("No replica leads{clock}: by the Lease {lease} {last}."))
        .see("no-leader")
        .advise(
            "Look at the provisioner's pods and at their logs: nothing goes on until one leads.",
        )
}

/// What the leader's status says about driver, lists and rights.
fn describe_driver(status: &Status, explanation: &mut Explanation) {
    if !status.driver.is_connected {
        let text = format!("The driver {} is not connected.", status.driver.name);
        let cause = Cause::new(State::Wrong, text)
            .see("driver")
            .advise("Look at the driver's container and at its log.");
        explanation.add(cause);
    }
    if let Some(why) = &status.not_ready {
        explanation.add(Cause::event(State::Waiting, format!("The leader is not ready: {why}")));
    }
    // Whether this claim needs the right is not known.
    for permission in &status.missing_permissions {
        let cause = Cause::new(State::Waiting, format!("The provisioner: {permission}"));
        explanation.add(cause.see("rights").advise("Add the rule to the provisioner's role."));
    }
}
