//! Who leads, and what only the leader knows.
//!
//! The Lease is read from the API server. What only the leader knows is on its status, which is asked
//! over HTTP where `--status-endpoint` names an address that can be reached.

use std::ops::ControlFlow;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::report::{Cause, Explanation, State};
use csi_provisioner::{
    kube::{ApiError, Client, Name, Scope, objects::View as _},
    leader,
    status::Status,
};

use crate::{
    fetch::fetch_status,
    objects::{Lease, Pod, host_of},
};

/// What is known of the leader.
#[derive(Debug)]
pub(super) struct Leader {
    pub(super) lease: LeaseView,
    pub(super) status: StatusView,
}

/// What the Lease shows.
#[derive(Debug)]
pub(crate) enum LeaseView {
    /// The driver is not known, and so the Lease is not.
    Unnamed,
    /// With node deployment there is a process on each node, and no Lease.
    NodeDeployment,
    /// Somebody leads.
    Held { lease: String, holder: String },
    /// Nobody leads. `pod`: what became of the last holder's pod.
    Abandoned { lease: String, last_holder: String, pod: String },
    /// There is no Lease of this name.
    Missing { name: String },
    /// The Lease cannot be read.
    Unread { name: String, why: String },
}

/// What the status says.
#[derive(Debug)]
pub(super) enum StatusView {
    /// No address was given.
    NotRequested,
    /// It did not answer, for this reason.
    Failed(String),
    /// Its answer.
    Answered(Box<Status>),
}

impl StatusView {
    /// The status of the leader, if it answered.
    pub(super) fn of_leader(&self) -> Option<&Status> {
        match self {
            Self::Answered(status) if status.leader.leads => Some(status),
            _ => None,
        }
    }
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
        Err(why) => return LeaseView::Unread { name, why: why.to_string() },
    };
    let namespace = lease.namespace();
    let key = format!("{namespace}/{name}");
    if let Some(holder) = lease.current_holder(now) {
        return LeaseView::Held { lease: key, holder: holder.to_owned() };
    }
    let last_holder = leader::holder(&lease.spec).to_owned();
    let pod = pod_of(client, namespace, &last_holder).await;
    LeaseView::Abandoned { lease: key, last_holder, pod }
}

/// The Lease of this name, in `namespace` or, if that is empty, in any.
async fn find_lease(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Lease>, ApiError> {
    if !namespace.is_empty() {
        return client.get_opt(Name::namespaced(namespace, name)?).await;
    }
    let mut found = None;
    let visit = |lease| {
        found = Some(lease);
        ControlFlow::Break(())
    };
    client.list(&Scope::all().named(name), visit).await?;
    Ok(found)
}

/// What became of the holder's pod, in words. A holder's name begins with its host name, which is the
/// pod's name unless the pod uses the host's network.
async fn pod_of(client: &Client, namespace: &str, holder: &str) -> String {
    let host = host_of(holder);
    let Ok(name) = Name::namespaced(namespace, host) else { return String::new() };
    match client.get_opt::<Pod>(name).await {
        Ok(None) => format!("there is no pod {namespace}/{host} any more"),
        Err(error) => format!("its pod cannot be read: {error}"),
        Ok(Some(pod)) => {
            let containers = pod.status.container_statuses.iter();
            let stuck = containers.filter(|it| !it.ready).map(|it| {
                format!("; container {} is not ready, {} restarts", it.name, it.restart_count)
            });
            let stuck: String = stuck.collect();
            format!("its pod {namespace}/{host} is {}{stuck}", pod.status.phase)
        }
    }
}

/// Asks the status at this address; `query` chooses what it lists.
pub(super) async fn ask(address: Option<&str>, query: &[(&str, &str)]) -> StatusView {
    let Some(address) = address else { return StatusView::NotRequested };
    let parameters = query
        .iter()
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
    match fetch_status(address, &parameters.collect::<Vec<_>>().join("&")).await {
        Ok(status) => StatusView::Answered(Box::new(status)),
        Err(why) => StatusView::Failed(why),
    }
}

// === Sentences ===

impl Leader {
    /// Says who leads. Without a leader nothing that waits goes on.
    pub(super) fn describe(&self, explanation: &mut Explanation) {
        match &self.lease {
            LeaseView::Unnamed | LeaseView::NodeDeployment => {}
            LeaseView::Held { lease, holder } => {
                explanation.say(format!("{holder} leads, by the Lease {lease}."));
                explanation.detail("leader", holder);
            }
            LeaseView::Abandoned { .. } if explanation.state == State::Served => {}
            LeaseView::Abandoned { lease, last_holder, pod } => {
                explanation.add(abandoned(lease, last_holder, pod));
            }
            LeaseView::Missing { name } => explanation.say(format!(
                "There is no Lease {name}: the provisioner runs without --leader-election, or it has never run."
            )),
            LeaseView::Unread { name, why } => explanation
                .say(format!("Who leads cannot be found out, as the Lease {name} cannot be read: {why}")),
        }
    }

    /// Says what cannot be known without the leader, and which command shows it.
    pub(super) fn describe_status(&self, explanation: &mut Explanation, arguments: &str) {
        match &self.status {
            StatusView::Failed(why) => {
                explanation.say(format!("The status does not answer, {why}"));
            }
            StatusView::Answered(status) if !status.leader.leads => {
                explanation.say("The status is of a replica that does not lead.");
            }
            StatusView::Answered(status) => describe_driver(status, explanation),
            StatusView::NotRequested => self.describe_command(explanation, arguments),
        }
    }

    /// The command that asks the leader for what only it knows.
    fn describe_command(&self, explanation: &mut Explanation, arguments: &str) {
        let LeaseView::Held { lease, holder } = &self.lease else { return };
        let namespace = lease.split('/').next().unwrap_or_default();
        let pod = host_of(holder);
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
    Cause::new(State::Wrong, format!("No replica leads: by the Lease {lease} {last}."))
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
    for lack in &status.missing_rights {
        let cause = Cause::new(State::Waiting, format!("The provisioner: {lack}"));
        explanation.add(cause.see("rights").advise("Add the rule to the provisioner's role."));
    }
}
