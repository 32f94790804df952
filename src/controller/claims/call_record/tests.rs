use std::sync::Arc;

use tokio::time::Instant;

use super::*;
use crate::controller::{
    claims::{
        index::Interest,
        state::{Demand, OpenCall},
    },
    model::{
        source::{NamedSource, Source, SourceKind},
        unsaved_volume::UnsavedVolume,
    },
    provisioner::ProvisionedVolume,
};
use Demand::{Wanted, Withdrawn};

fn view(open: bool, record_status: Option<RecordStatus>, demand: Demand) -> KnownClaim {
    let background = ClaimState::Background(OpenCall::default());
    KnownClaim {
        interest: if demand == Wanted { Interest::Unbound } else { Interest::None },
        state: if open { background } else { ClaimState::Waiting },
        record_status: record_status.map(Arc::new),
        is_record_known: true,
        request: open.then(|| Arc::new(request())),
        volume_name: Some("v".into()),
        ..KnownClaim::default()
    }
}

fn request() -> ProvisionRequest {
    ProvisionRequest {
        claim: Arc::default(),
        class: Arc::default(),
        volume_name: Ok("v".into()),
        selected_node: None,
        withdrawn: false,
        source: None,
        topology: None,
    }
}

fn opened() -> RecordStatus {
    RecordStatus::Open(Record::default())
}

/// Every mode with every state of a claim.
#[test]
fn the_table_of_due_record_writes() {
    use Due::{GiveUp, Nothing, Remove, Write};
    let table = [
        // open, record, demand, overdue => auto, always, off
        (true, None, Wanted, false, [Write, Write, Nothing]),
        (true, None, Withdrawn, false, [Nothing, Nothing, Nothing]),
        (true, None, Withdrawn, true, [Nothing, Nothing, Nothing]),
        (true, Some(opened()), Wanted, false, [Nothing, Nothing, Nothing]),
        (true, Some(RecordStatus::Closed), Wanted, false, [Write, Write, Nothing]),
        (true, Some(opened()), Withdrawn, false, [Nothing, Nothing, Nothing]),
        (true, Some(opened()), Withdrawn, true, [GiveUp, GiveUp, GiveUp]),
        (false, None, Wanted, false, [Nothing, Nothing, Nothing]),
        (false, None, Withdrawn, true, [Nothing, Nothing, Nothing]),
        (false, Some(opened()), Wanted, false, [Remove, Remove, Remove]),
        (false, Some(RecordStatus::Closed), Wanted, false, [Remove, Remove, Remove]),
        (false, Some(opened()), Withdrawn, false, [Remove, Remove, Remove]),
        (false, Some(RecordStatus::Closed), Withdrawn, true, [Remove, Remove, Remove]),
        (false, Some(RecordStatus::Elsewhere(Record::default())), Withdrawn, true, [Nothing; 3]),
    ];
    for (open, record_status, demand, overdue, expected) in table {
        let current = record_status == Some(opened());
        for (mode, expected) in
            [ClaimProtection::Auto, ClaimProtection::Always, ClaimProtection::Off]
                .into_iter()
                .zip(expected)
        {
            let got = due(mode, &view(open, record_status.clone(), demand), overdue, current);
            assert_eq!(
                got, expected,
                "{mode:?} open={open} {record_status:?} {demand:?} overdue={overdue}"
            );
        }
    }
}

#[test]
fn a_changed_request_is_recorded_again() {
    for (mode, expected) in [
        (ClaimProtection::Auto, Due::Write),
        (ClaimProtection::Always, Due::Write),
        (ClaimProtection::Off, Due::Nothing),
    ] {
        let view = view(true, Some(opened()), Wanted);
        assert_eq!(due(mode, &view, false, false), expected, "{mode:?}");
        let recorded = KnownClaim { request: None, ..view };
        assert_eq!(
            due(mode, &recorded, false, false),
            Due::Nothing,
            "the call is not repeated yet"
        );
    }
}

#[test]
fn with_always_the_finalizer_of_a_saved_claim_stays_until_the_claim_is_bound() {
    for record_status in [RecordStatus::Closed, RecordStatus::Open(Record::default())] {
        let waiting = view(false, Some(record_status.clone()), Wanted);
        let served = KnownClaim { state: ClaimState::Done, ..waiting };
        assert_eq!(due(ClaimProtection::Always, &served, false, false), Due::Nothing);
        let bound = view(false, Some(record_status), Withdrawn);
        assert_eq!(due(ClaimProtection::Always, &bound, false, false), Due::Remove);
    }
}

#[test]
fn a_void_record_is_removed_once_nobody_provisions_for_the_claim() {
    let void = || Some(RecordStatus::Void(Record::default()));
    let bound = || {
        let mut claim = Claim::default();
        claim.spec.volume_name = Some("pv".into());
        Arc::new(claim)
    };
    for mode in [ClaimProtection::Auto, ClaimProtection::Always, ClaimProtection::Off] {
        let live = KnownClaim { is_record_known: false, ..view(false, void(), Wanted) };
        assert_eq!(due(mode, &live, false, false), Due::Nothing, "{mode:?}");
        let over = KnownClaim { claim: bound(), interest: Interest::None, ..live };
        assert_eq!(due(mode, &over, false, false), Due::Remove, "{mode:?}");
    }
}

#[test]
fn a_call_with_a_source_is_given_up_even_without_a_record() {
    let named =
        NamedSource { kind: SourceKind::Claim, namespace: "ns".into(), name: "source".into() };
    let source = Source { named, uid: "u".into(), handle: "h".into() };
    let request = ProvisionRequest { source: Some(source), ..request() };
    let saving = Arc::new(UnsavedVolume::new(&ProvisionedVolume::default(), Instant::now()));
    for (open, unknown, overdue, expected) in [
        (true, true, true, Due::GiveUp),
        (true, true, false, Due::Nothing),
        // This process has the volume, so there is nothing to give up.
        (true, false, true, Due::Nothing),
        (false, false, true, Due::Nothing),
    ] {
        let view = KnownClaim {
            request: Some(Arc::new(request.clone())),
            state: match (open, unknown) {
                (true, true) => ClaimState::Background(OpenCall::default()),
                (true, false) => ClaimState::Saving(saving.clone()),
                (false, _) => ClaimState::Done,
            },
            ..view(open, None, Withdrawn)
        };
        for mode in [ClaimProtection::Auto, ClaimProtection::Always, ClaimProtection::Off] {
            let got = due(mode, &view, overdue, false);
            assert_eq!(got, expected, "{mode:?} {open} {unknown} {overdue}");
        }
    }
}
