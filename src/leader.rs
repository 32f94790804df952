//! Leader election by a Lease (`coordination.k8s.io/v1`), with client-go's rules.
//!
//! Owns the Lease: who may write it when (`decide`), under which name and identity, and the
//! [`Gate`](crate::runtime::Gate) that everyone who acts asks first. Promises that the gate is
//! open only while a renewal sent less than the renew deadline ago succeeded, by a clock that
//! counts suspended time; that it shuts at once when the Lease shows another holder, nobody, or
//! is gone; and that the Lease is taken from a silent holder only after its record stood still
//! for its whole duration by this process's own clock, also where it was deleted meanwhile. A
//! candidate watches the Lease, and where that is not granted or breaks, looks at it as often as
//! client-go's do. Leaves to others what a leader does, when nothing is in flight any more, and
//! where events are written.

mod decide;
mod elector;
mod health;
mod identity;
mod leases;
mod record;
mod settings;

pub use self::{
    decide::Loss,
    elector::{Change, ElectionDeps, Ended, lead},
    health::{Health, Unhealthy},
    identity::{
        Identity, event_component, lease_name, namespace, pod_uid_from_mountinfo,
        pod_uid_from_token,
    },
    leases::{LeaseError, Leases, Sight, read_lease},
    record::Lease,
    settings::{ElectionSettings, SettingsError},
};
