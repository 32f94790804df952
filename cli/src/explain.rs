//! `kubectl csi-provisioner explain`: says why a claim has no volume, or why a volume is not deleted.
//!
//! | module | content |
//! |---|---|
//! | `arguments` | the subcommand's arguments |
//! | `observe` | reads the claim or volume, and what its fate depends on |
//! | `leader` | who leads, and what only the leader knows |
//! | `claim`, `volume` | decide why the object stands where it stands: pure functions of what was read |
//! | `events` | what the events about the object say |
//! | `runbook` | what docs/troubleshooting.md says about a text |
//! | `report` | the explanation and its output |
//!
//! The rules are the program's own: the plan of claims, the checks before a call, topology, and what is due
//! for a volume. Nothing is written, neither to the API server nor to the driver. A right that is missing is
//! named, and what depends on it is unknown.

mod arguments;
mod claim;
mod events;
mod leader;
mod observe;
mod report;
mod runbook;
#[cfg(test)]
mod tests;
mod volume;

pub(crate) use self::leader::{BY_CLOCK, LeaseView, read_lease};
use self::observe::Reader;
pub use self::{
    arguments::{Object, Request},
    report::{Explanation, Sentence, State},
};
use csi_provisioner::{kube::Client, runtime::Clock};

/// The exit code if nothing can be explained.
pub const UNKNOWN: u8 = 3;

/// Explains what `request` asks for. `lease_namespace`: that of the Lease; empty if unknown.
pub async fn run(
    client: &Client,
    clock: &dyn Clock,
    request: &Request,
    lease_namespace: &str,
) -> Explanation {
    let reader = Reader { client, request, lease_namespace, now: clock.wall() };
    match &request.object {
        Object::Claim(namespace, name) => match reader.claim(namespace, name).await {
            Ok(observed) => claim::explain(&observed),
            Err(unread) => unread,
        },
        Object::Volume(name) => match reader.volume(name).await {
            Ok(observed) => volume::explain(&observed),
            Err(unread) => unread,
        },
    }
}

/// The explanation if the API server cannot be reached.
pub fn unreachable(request: &Request, why: &str) -> Explanation {
    let cause = report::Cause::new(State::Unknown, why)
        .advise("Check --kubeconfig and --master, or run it in the provisioner's pod.");
    Explanation::new(&request.object.to_string(), cause)
}
