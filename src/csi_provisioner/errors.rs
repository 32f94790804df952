//! What a driver's error means for a claim.
//!
//! Owns the mapping from a CreateVolume error to an [`Outcome`] (CSI spec, CreateVolume errors;
//! reference 3.6; safety rules 2 and 3). Pure.

use tonic::Code;

use crate::{
    controller::provisioner::{Failure, Outcome, Strain},
    csi::CallError,
};

/// What follows a failed CreateVolume. `may_reschedule`: the scheduler chose a node and the
/// driver has topology, so another node could help.
pub(super) fn create_outcome(error: &CallError, may_reschedule: bool) -> Outcome {
    let failure = call_failure(error);
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
    Failure::new(error).with_strain(strain(error.code()))
}

/// What a status code says of the driver's load. Aborted is how drivers say that an operation on
/// the volume already exists (CSI spec, "Operation pending for volume").
fn strain(code: Code) -> Strain {
    match code {
        Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable => Strain::Overload,
        Code::Aborted => Strain::Locked,
        _ => Strain::Bearable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variant's name and whether it is inconclusive.
    fn kind(outcome: &Outcome) -> (&'static str, bool) {
        match outcome {
            Outcome::Background(failure) => ("background", failure.is_inconclusive()),
            Outcome::Infeasible(failure) => ("infeasible", failure.is_inconclusive()),
            Outcome::Reschedule(failure) => ("reschedule", failure.is_inconclusive()),
            Outcome::Final(failure) => ("final", failure.is_inconclusive()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_drivers_own_codes_mean_what_the_original_takes_them_for() {
        for code in (1..=16).map(Code::from) {
            let expected = match code {
                Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => {
                    ("background", false)
                }
                Code::InvalidArgument => ("infeasible", false),
                Code::AlreadyExists | Code::Unauthenticated | Code::PermissionDenied => {
                    ("final", true)
                }
                _ => ("final", false),
            };
            assert_eq!(
                kind(&create_outcome(&CallError::driver(code, "m"), false)),
                expected,
                "{code:?}"
            );
            let with_node =
                if code == Code::ResourceExhausted { ("reschedule", false) } else { expected };
            assert_eq!(
                kind(&create_outcome(&CallError::driver(code, "m"), true)),
                with_node,
                "{code:?}"
            );
        }
    }

    #[test]
    fn only_time_outs_and_locks_speak_of_load() {
        for code in (1..=16).map(Code::from) {
            let expected = match code {
                Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable => Strain::Overload,
                Code::Aborted => Strain::Locked,
                _ => Strain::Bearable,
            };
            for error in [CallError::driver(code, "m"), CallError::local(code, "m")] {
                for node in [false, true] {
                    assert_eq!(create_outcome(&error, node).strain(), expected, "{code:?}");
                }
            }
        }
    }

    #[test]
    fn what_was_made_locally_is_never_final() {
        for code in (1..=16).map(Code::from) {
            assert_eq!(
                kind(&create_outcome(&CallError::local(code, "m"), true)),
                ("background", false),
                "{code:?}"
            );
        }
    }
}
