//! Leader election with a Lease (`coordination.k8s.io/v1`), by client-go's rules.
//!
//! `decide` is a pure function that says what a candidate does next; `elector` is the loop that reads,
//! watches and writes the Lease, and opens and shuts the [`Gate`](crate::runtime::Gate). It guarantees, by a
//! clock that includes suspension, that:
//!
//! - the gate is open only until one renew deadline after the last successful renewal was sent;
//! - the gate shuts at once when the Lease shows another holder or none, or is gone;
//! - a Lease is taken from another holder only after its record has not changed for the whole lease
//!   duration as observed by this process, even if the Lease was deleted meanwhile.
//!
//! A candidate watches the Lease. If it may not, or the watch breaks, it reads the Lease as often as
//! client-go's candidates do.

mod decide;
mod elector;
mod identity;
pub(crate) mod leases;
mod record;
mod settings;

pub use self::{
    decide::Loss,
    elector::{ElectionDeps, lead},
    identity::{CandidateIdentity, event_component, lease_name, namespace, pod_uid_from_token},
    record::holder,
    settings::ElectionSettings,
};
