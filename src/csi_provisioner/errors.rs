//! What a driver's error means for a claim.
//!
//! Maps a CreateVolume error to an [`Outcome`] (CSI spec, CreateVolume errors; safety rules 2 and
//! 3). Pure.

use tonic::Code;

use crate::{
    controller::provisioner::{Failure, Outcome},
    csi::CallError,
};

/// The name of the code of [`Outcome::Infeasible`].
const INFEASIBLE: &str = "InvalidArgument";

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
        Code::InvalidArgument => Outcome::Infeasible(failure),
        Code::ResourceExhausted if may_reschedule => Outcome::Reschedule(failure),
        // The volume exists with other parameters, or the driver refused to answer: neither proves
        // that an earlier call left nothing behind.
        Code::AlreadyExists | Code::Unauthenticated | Code::PermissionDenied => {
            Outcome::Terminal(failure.inconclusive())
        }
        _ => Outcome::Terminal(failure),
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
