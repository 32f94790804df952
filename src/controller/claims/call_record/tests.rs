use super::*;
use crate::controller::model::source::{Source, SourceKind};
use Demand::{Wanted, Withdrawn};

fn standing(open: bool, mark: Option<RecordStatus>, demand: Demand) -> RecordView {
    RecordView {
        claim: Arc::default(),
        open,
        unknown: open,
        mark,
        is_known: true,
        is_served: false,
        demand,
        order: open.then(order),
        volume_name: "v".into(),
        seen_deleted: Duration::ZERO,
    }
}

fn order() -> ProvisionRequest {
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

/// Every mode and every way in which a claim can stand.
#[test]
fn what_is_due_for_a_mark_is_what_the_table_says() {
    use Due::{Close, GiveUp, Nothing, PutOn, TakeOff};
    let table = [
        // open, mark, demand, overdue => auto, always, off
        (true, None, Wanted, false, [PutOn, PutOn, Nothing]),
        (true, None, Withdrawn, false, [Nothing, Nothing, Nothing]),
        (true, None, Withdrawn, true, [Nothing, Nothing, Nothing]),
        (true, Some(opened()), Wanted, false, [Nothing, Nothing, Nothing]),
        (true, Some(RecordStatus::Closed), Wanted, false, [PutOn, PutOn, Nothing]),
        (true, Some(opened()), Withdrawn, false, [Nothing, Nothing, Nothing]),
        (true, Some(opened()), Withdrawn, true, [GiveUp, GiveUp, GiveUp]),
        (false, None, Wanted, false, [Nothing, Nothing, Nothing]),
        (false, None, Withdrawn, true, [Nothing, Nothing, Nothing]),
        (false, Some(opened()), Wanted, false, [TakeOff, Close, TakeOff]),
        (false, Some(RecordStatus::Closed), Wanted, false, [TakeOff, Nothing, TakeOff]),
        (false, Some(opened()), Withdrawn, false, [TakeOff, TakeOff, TakeOff]),
        (false, Some(RecordStatus::Closed), Withdrawn, true, [TakeOff, TakeOff, TakeOff]),
        (false, Some(RecordStatus::Elsewhere(Record::default())), Withdrawn, true, [Nothing; 3]),
    ];
    for (open, mark, demand, overdue, expected) in table {
        let current = mark == Some(opened());
        for (mode, expected) in [Mode::Auto, Mode::Always, Mode::Off].into_iter().zip(expected) {
            let got = due(mode, &standing(open, mark.clone(), demand), overdue, current);
            assert_eq!(got, expected, "{mode:?} open={open} {mark:?} {demand:?} overdue={overdue}");
        }
    }
}

#[test]
fn another_request_is_recorded_in_its_turn() {
    for (mode, expected) in
        [(Mode::Auto, Due::PutOn), (Mode::Always, Due::PutOn), (Mode::Off, Due::Nothing)]
    {
        let standing = standing(true, Some(opened()), Wanted);
        assert_eq!(due(mode, &standing, false, false), expected, "{mode:?}");
        let recorded = RecordView { order: None, ..standing };
        assert_eq!(due(mode, &recorded, false, false), Due::Nothing, "not asked for yet");
    }
}

#[test]
fn with_always_a_claim_stays_marked_until_it_is_bound() {
    for mark in [RecordStatus::Closed, RecordStatus::Open(Record::default())] {
        let served = RecordView { is_served: true, ..standing(false, Some(mark.clone()), Wanted) };
        assert_eq!(due(Mode::Always, &served, false, false), Due::Nothing);
        let bound = standing(false, Some(mark), Withdrawn);
        assert_eq!(due(Mode::Always, &bound, false, false), Due::TakeOff);
    }
}

#[test]
fn a_void_record_is_cleared_away_once_nobody_provisions_for_the_claim() {
    let void = || Some(RecordStatus::Void(Record::default()));
    let bound = || {
        let mut claim = Claim::default();
        claim.spec.volume_name = Some("pv".into());
        Arc::new(claim)
    };
    for mode in [Mode::Auto, Mode::Always, Mode::Off] {
        let live = RecordView { is_known: false, ..standing(false, void(), Wanted) };
        assert_eq!(due(mode, &live, false, false), Due::Nothing, "{mode:?}");
        let over = RecordView { claim: bound(), demand: Withdrawn, ..live };
        assert_eq!(due(mode, &over, false, false), Due::TakeOff, "{mode:?}");
    }
}

#[test]
fn a_call_that_keeps_what_it_copies_is_given_up_without_a_mark() {
    let source = Source {
        kind: SourceKind::Claim,
        namespace: "ns".into(),
        name: "source".into(),
        uid: "u".into(),
        handle: "h".into(),
    };
    let order = ProvisionRequest { source: Some(source), ..order() };
    for (open, unknown, overdue, expected) in [
        (true, true, true, Due::GiveUp),
        (true, true, false, Due::Nothing),
        // Its volume is in hand: there is nothing to give up.
        (true, false, true, Due::Nothing),
        (false, false, true, Due::Nothing),
    ] {
        let order = Some(order.clone());
        let standing = RecordView { unknown, order, ..standing(open, None, Withdrawn) };
        for mode in [Mode::Auto, Mode::Always, Mode::Off] {
            let got = due(mode, &standing, overdue, false);
            assert_eq!(got, expected, "{mode:?} {open} {unknown} {overdue}");
        }
    }
}

#[test]
fn a_deleted_claim_is_overdue_after_the_time_out_and_never_without_one() {
    let at = |second| jiff::Timestamp::from_second(second).unwrap();
    let secs = Duration::from_secs;
    let hour = Some(secs(3600));
    let table = [
        // deleted at, seen for, now, time-out
        (None, 0, 9999, hour, false),
        (None, 0, 9999, Some(secs(0)), false),
        // Its end alone was seen.
        (None, 3599, 9999, hour, false),
        (None, 3600, 0, hour, true),
        (Some(0), 3599, 3599, hour, false),
        (Some(0), 3600, 3600, hour, true),
        (Some(0), 1_000_000, 1_000_000, None, false),
        // Our clock is behind the server's.
        (Some(5000), 3600, 0, hour, false),
        // Far ahead of it, or nobody worked meanwhile.
        (Some(0), 299, 1_000_000, hour, false),
        (Some(0), 300, 1_000_000, hour, true),
        // Shorter than that is what was asked for.
        (Some(0), 10, 10, Some(secs(10)), true),
    ];
    for (deleted, seen, now, timeout, expected) in table {
        let got = is_overdue(deleted.map(at), secs(seen), at(now), timeout);
        assert_eq!(got, expected, "{deleted:?} {seen} {now} {timeout:?}");
    }
}
