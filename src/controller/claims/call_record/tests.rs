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

const MODES: [ClaimProtection; 3] =
    [ClaimProtection::Auto, ClaimProtection::Always, ClaimProtection::Off];

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
        let view = view(open, record_status, demand);
        let got = MODES.map(|mode| due(mode, &view, overdue, current));
        assert_eq!(got, expected, "open={open} {:?} {demand:?} {overdue}", view.record_status);
    }
}

#[test]
fn a_changed_request_is_recorded_again() {
    let view = view(true, Some(opened()), Wanted);
    let due = |view: &KnownClaim| MODES.map(|mode| due(mode, view, false, false));
    assert_eq!(due(&view), [Due::Write, Due::Write, Due::Nothing]);
    let recorded = KnownClaim { request: None, ..view };
    assert_eq!(due(&recorded), [Due::Nothing; 3], "the call is not repeated yet");
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
        let got = MODES.map(|mode| due(mode, &view, overdue, false));
        assert_eq!(got, [expected; 3], "{open} {unknown} {overdue}");
    }
}
