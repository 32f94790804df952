//! Which line is next, and which failures lower which limit.

use tokio::time::Duration;

use super::*;
use Congestion::{Bearable, Locked, Refused, TimedOut};
use Line::{First, Repeat};

/// A class with keys in both lines, in the order of `lines`.
fn class(max: usize, lines: &[Line]) -> Class {
    let mut class = Class::new(max);
    for (arrival, line) in (1..).zip(lines) {
        class.enqueue(*line, arrival, Item::claim(&arrival.to_string()), Instant::now());
    }
    class
}

/// Begins as many calls as may run. Returns them.
fn fill(class: &mut Class) -> Vec<Call> {
    let mut begun = Vec::new();
    while let Some(line) = class.next_line(true, Instant::now()) {
        begun.push(class.begin(line, 0, Instant::now()).unwrap().1);
    }
    begun
}

fn lines(calls: &[Call]) -> Vec<Line> {
    calls.iter().map(|call| call.line).collect()
}

fn count(calls: &[Call], line: Line) -> usize {
    calls.iter().filter(|call| call.line == line).count()
}

#[tokio::test(start_paused = true)]
async fn the_lines_take_turns_by_arrival_and_repeats_have_a_quarter() {
    let table: [(usize, &[Line], &[Line]); 6] = [
        // Older first attempts come first.
        (8, &[First, First, Repeat], &[First, First, Repeat]),
        // Older repeats come first, but not two in a row.
        (8, &[Repeat, Repeat, First, First], &[Repeat, First, Repeat, First]),
        // No more than a quarter while first attempts wait.
        (4, &[Repeat, Repeat, First, First, First], &[Repeat, First, First, First]),
        (8, &[Repeat, Repeat, Repeat, First, First], &[Repeat, First, Repeat, First, Repeat]),
        // At least one.
        (1, &[Repeat, First], &[Repeat]),
        // All of them when nobody else waits.
        (3, &[Repeat, Repeat, Repeat], &[Repeat, Repeat, Repeat]),
    ];
    for (max, waiting, expected) in table {
        assert_eq!(lines(&fill(&mut class(max, waiting))), expected, "{max} for {waiting:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn repeats_leave_the_permits_that_are_kept() {
    let class = class(8, &[Repeat]);
    assert_eq!(class.next_line(false, Instant::now()), None);
    assert_eq!(class.next_line(true, Instant::now()), Some(Repeat));
}

#[tokio::test(start_paused = true)]
async fn with_one_permit_the_lines_alternate() {
    let mut class = class(1, &[&[Repeat; 3][..], &[First; 3]].concat());
    let mut order = Vec::new();
    while class.waiting() > 0 {
        let calls = fill(&mut class);
        order.extend(lines(&calls));
        for call in calls {
            _ = class.end(call, Bearable, Instant::now());
        }
    }
    assert_eq!(order, [Repeat, First, Repeat, First, Repeat, First]);
}

/// Lets all keys call until none waits. Every call ends with this congestion.
fn drain(class: &mut Class, congestion: Congestion) {
    while class.waiting() > 0 {
        let calls = fill(class);
        assert!(!calls.is_empty());
        for call in calls {
            _ = class.end(call, congestion, Instant::now());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failing_repeats_lower_their_own_limit_only() {
    for (congestion, lowers) in [(TimedOut, true), (Refused, true), (Locked, false)] {
        let mut class = class(16, &[Repeat; 64]);
        drain(&mut class, congestion);
        assert_eq!(class.limit(), 16, "{congestion:?}");
        assert_eq!(class.repeats_limit.is_lowered(), lowers, "{congestion:?}");
        // First attempts have all that are left.
        for arrival in 100..200 {
            let line = if arrival % 2 == 0 { First } else { Repeat };
            class.enqueue(line, arrival, Item::claim(&arrival.to_string()), Instant::now());
        }
        assert!(count(&fill(&mut class), First) >= 12, "{congestion:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_first_attempts_lower_the_limit_of_all() {
    let mut class = class(16, &[First; 60]);
    drain(&mut class, TimedOut);
    assert!(class.limit() < 16);
    assert!(!class.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_repeat_of_a_lowered_class_need_not_wait_for_older_first_attempts() {
    let mut class = class(16, &[First; 60]);
    drain(&mut class, TimedOut);
    for (arrival, line) in [(200, First), (201, First), (202, Repeat)] {
        class.enqueue(line, arrival, Item::claim(&arrival.to_string()), Instant::now());
    }
    assert_eq!(class.next_line(true, Instant::now()), Some(Repeat));
}

#[tokio::test(start_paused = true)]
async fn a_class_whose_repeats_rest_still_admits_first_attempts() {
    let mut class = class(2, &[Repeat; 20]);
    loop {
        let calls = fill(&mut class);
        if calls.is_empty() {
            break;
        }
        for call in calls {
            _ = class.end(call, TimedOut, Instant::now());
        }
    }
    let rest = class.next_time(Instant::now()).unwrap() - Instant::now();
    assert_eq!(rest, Duration::from_secs(1));
    class.enqueue(First, 100, Item::claim("new"), Instant::now());
    assert_eq!(class.next_line(true, Instant::now()), Some(First));
    class.remove(First, 100);
    tokio::time::advance(rest).await;
    assert_eq!(class.next_time(Instant::now()), None, "it is over");
    assert_eq!(class.next_line(true, Instant::now()), Some(Repeat));
}
