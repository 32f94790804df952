//! What a driver's error means for a claim.
//!
//! Owns the mapping from a CreateVolume error to an [`Outcome`] (CSI spec, CreateVolume errors;
//! reference 3.6; safety rules 2 and 3). Pure.

use tonic::Code;

use crate::{
    controller::provisioner::{Congestion, Failure, Outcome},
    csi::CallError,
};

/// What follows a failed CreateVolume. `may_reschedule`: the scheduler chose a node and the
/// driver has topology, so another node could help.
pub(super) fn create_outcome(error: &CallError, may_reschedule: bool) -> Outcome {
    let failure = call_failure(error);
    if error.is_unsent() {
        return Outcome::Unsent(failure);
    }
    if !error.is_final() {
        return Outcome::Background(failure);
    }
    match error.code() {
        Code::InvalidArgument => Outcome::Infeasible(failure),
        Code::ResourceExhausted if may_reschedule => Outcome::Reschedule(failure),
        // The volume exists under other terms, or the driver would not say: neither tells that
        // an earlier call left nothing behind.
        Code::AlreadyExists | Code::Unauthenticated | Code::PermissionDenied => {
            Outcome::Final(failure.inconclusive())
        }
        _ => Outcome::Final(failure),
    }
}

/// A call's error in its user's words, with what it says of the driver's load.
pub(super) fn call_failure(error: &CallError) -> Failure {
    Failure::new(error).with_congestion(strain(error.code())).of_kind(error.code_name())
}

/// What a status code says of the driver's load. Aborted is how drivers say that an operation on
/// the volume already exists (CSI spec, "Operation pending for volume").
fn strain(code: Code) -> Congestion {
    match code {
        Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable => Congestion::Overload,
        Code::Aborted => Congestion::Locked,
        _ => Congestion::Bearable,
    }
}

#[cfg(test)]
mod tests;
