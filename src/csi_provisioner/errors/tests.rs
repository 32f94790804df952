use super::*;

/// The variant's name and whether it is inconclusive.
fn kind(outcome: &Outcome) -> (&'static str, bool) {
    match outcome {
        Outcome::Background(failure) => ("background", failure.is_inconclusive()),
        Outcome::Infeasible(failure) => ("infeasible", failure.is_inconclusive()),
        Outcome::Reschedule(failure) => ("reschedule", failure.is_inconclusive()),
        Outcome::Terminal(failure) => ("final", failure.is_inconclusive()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn driver_codes_have_external_provisioners_outcomes() {
    for code in (1..=16).map(Code::from) {
        let expected = match code {
            Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => {
                ("background", false)
            }
            Code::InvalidArgument => ("infeasible", false),
            Code::AlreadyExists | Code::Unauthenticated | Code::PermissionDenied => ("final", true),
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
fn a_call_of_which_nothing_was_sent_opens_nothing() {
    for code in (1..=16).map(Code::from) {
        let outcome = create_outcome(&CallError::local(code, "m").unsent(), true);
        assert!(matches!(outcome, Outcome::Unsent(_)), "{code:?}: {outcome:?}");
    }
}

#[test]
fn local_errors_are_never_final() {
    for code in (1..=16).map(Code::from) {
        assert_eq!(
            kind(&create_outcome(&CallError::local(code, "m"), true)),
            ("background", false),
            "{code:?}"
        );
    }
}
