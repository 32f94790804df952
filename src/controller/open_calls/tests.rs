use serde_json::json;

use super::*;
use crate::controller::source::{PinnedSource, Source, SourceKind};
use Demand::{Wanted, Withdrawn};

fn standing(open: bool, marked: bool, demand: Demand) -> Standing {
    Standing {
        claim: Arc::default(),
        open,
        unknown: open,
        marked,
        demand,
        order: None,
        volume_name: "v".into(),
        seen_deleted: Duration::ZERO,
    }
}

/// Every mode and every way in which a claim can stand.
#[test]
fn what_is_due_for_a_mark_is_what_the_table_says() {
    use Due::{GiveUp, Nothing, PutOn, TakeOff};
    let table = [
        // open, marked, demand, overdue => auto, always, off
        (true, false, Wanted, false, [PutOn, PutOn, Nothing]),
        (true, false, Withdrawn, false, [Nothing, Nothing, Nothing]),
        (true, false, Withdrawn, true, [Nothing, Nothing, Nothing]),
        (true, true, Wanted, false, [Nothing, Nothing, Nothing]),
        (true, true, Withdrawn, false, [Nothing, Nothing, Nothing]),
        (true, true, Withdrawn, true, [GiveUp, GiveUp, GiveUp]),
        (false, false, Wanted, false, [Nothing, Nothing, Nothing]),
        (false, false, Withdrawn, true, [Nothing, Nothing, Nothing]),
        (false, true, Wanted, false, [TakeOff, Nothing, TakeOff]),
        (false, true, Withdrawn, false, [TakeOff, TakeOff, TakeOff]),
        (false, true, Withdrawn, true, [TakeOff, TakeOff, TakeOff]),
    ];
    for (open, marked, demand, overdue, expected) in table {
        for (mode, expected) in [Mode::Auto, Mode::Always, Mode::Off].into_iter().zip(expected) {
            let got = due(mode, &standing(open, marked, demand), overdue);
            assert_eq!(
                got, expected,
                "{mode:?} open={open} marked={marked} {demand:?} overdue={overdue}"
            );
        }
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
    let order = Order {
        claim: Arc::default(),
        class: Arc::default(),
        volume_name: Ok("v".into()),
        selected_node: None,
        source: Some(PinnedSource::Unclaimed(source)),
        topology: None,
    };
    for (open, unknown, overdue, expected) in [
        (true, true, true, Due::GiveUp),
        (true, true, false, Due::Nothing),
        // Its volume is in hand: there is nothing to give up.
        (true, false, true, Due::Nothing),
        (false, false, true, Due::Nothing),
    ] {
        let order = Some(order.clone());
        let standing = Standing { unknown, order, ..standing(open, false, Withdrawn) };
        for mode in [Mode::Auto, Mode::Always, Mode::Off] {
            let got = due(mode, &standing, overdue);
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

#[test]
fn what_takes_the_node_off_takes_the_mark_off_with_it() {
    let mut claim =
        json!({"metadata": {"finalizers": [FINALIZER, "other"], "annotations": {RECORD: "{}"}}});
    assert_eq!(unmark(&mut claim), Edit::Write);
    assert_eq!(claim, json!({"metadata": {"finalizers": ["other"], "annotations": {}}}));
}
