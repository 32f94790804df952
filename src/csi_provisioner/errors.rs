//! What a driver's error means for a claim.
//!
//! Maps a CreateVolume error to an [`Outcome`] (CSI spec, CreateVolume errors; safety rules 2 and
//! 3). Pure.

use tonic::Code;

use crate::{
    controller::provisioner::{Failure, Next, Outcome},
    csi::CallError,
};

/// The name of the code with which a driver says that it will never make such a volume.
const INFEASIBLE: &str = "InvalidArgument";

/// What the claim's user reads before the driver's words then, as with external-provisioner.
const DELAYED: &str = "Volume provisioning failed with infeasible error. Retries will be delayed. ";

/// The outcome of a failed CreateVolume. `may_reschedule`: the scheduler selected a node and the
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
        Code::InvalidArgument => Outcome::Refused(failure.prefixed(DELAYED), Next::Rest),
        Code::ResourceExhausted if may_reschedule => Outcome::Refused(failure, Next::GiveNodeBack),
        // The volume exists with other parameters, or the driver refused to answer: neither proves
        // that an earlier call left nothing behind.
        Code::AlreadyExists | Code::Unauthenticated | Code::PermissionDenied => {
            Outcome::Refused(failure.inconclusive(), Next::Retry)
        }
        _ => Outcome::Refused(failure, Next::Retry),
    }
}

/// Whether the driver will never make a volume for such a request, given the name of its code.
pub fn is_infeasible(code: &str) -> bool {
    code == INFEASIBLE
}

/// The error for the claim's user.
pub(super) fn call_failure(error: &CallError) -> Failure {
    Failure::new(error).of_kind(error.code_name())
}

#[cfg(test)]
mod tests;
