//! The order of grants, and that no permit is lost.

use proptest::prelude::*;

use super::*;
use crate::controller::item::Key;

/// Requests a permit for the claim `key`.
fn enter(queue: &mut FairQueue, key: &str, class: &str) -> Option<Ticket> {
    queue.enter(&Item::claim(key), class, Line::First, Instant::now())
}

fn end(queue: &mut FairQueue, ticket: &Ticket, congestion: Congestion) -> Vec<Key> {
    queue.end(ticket, congestion, Instant::now());
    reserve_free(queue)
}

/// Reserves free permits. Returns the UIDs of their claims.
fn reserve_free(queue: &mut FairQueue) -> Vec<Key> {
    let claim = |item| match item {
        Item::Claim(uid) => uid,
        Item::Volume(name) => panic!("{name:?}"),
    };
    queue.reserve_free(Instant::now()).into_iter().map(claim).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_waiting_key_gets_the_next_permit() {
    let mut queue = FairQueue::new(1);
    let first = enter(&mut queue, "a", "fast").unwrap();
    assert!(enter(&mut queue, "b", "fast").is_none());
    assert!(enter(&mut queue, "c", "fast").is_none());
    assert!(enter(&mut queue, "b", "fast").is_none(), "a repeated request keeps its position");
    assert_eq!(end(&mut queue, &first, Congestion::Bearable), ["b"]);
    assert!(enter(&mut queue, "d", "fast").is_none(), "the permit is reserved");
    assert!(enter(&mut queue, "b", "fast").is_some());
}

#[tokio::test(start_paused = true)]
async fn the_class_with_the_fewest_calls_is_next() {
    let mut queue = FairQueue::new(3);
    let mut slow: Vec<_> =
        ["a", "b", "c"].iter().map(|key| enter(&mut queue, key, "slow").unwrap()).collect();
    for (key, class) in [("d", "slow"), ("e", "slow"), ("x", "fast"), ("y", "fast")] {
        assert!(enter(&mut queue, key, class).is_none());
    }
    assert_eq!(end(&mut queue, &slow.remove(0), Congestion::Bearable), ["x"]);
    let next = "of two classes with one call each, the one whose last grant is older";
    assert_eq!(end(&mut queue, &slow.remove(0), Congestion::Bearable), ["d"], "{next}");
    assert_eq!(end(&mut queue, &slow.remove(0), Congestion::Bearable), ["y"], "{next}");
}

#[tokio::test(start_paused = true)]
async fn a_class_that_fails_leaves_its_permits_to_others() {
    let mut queue = FairQueue::new(4);
    let mut begun: Vec<_> =
        (0..4).filter_map(|n| enter(&mut queue, &n.to_string(), "bad")).collect();
    for number in 4..100 {
        assert!(enter(&mut queue, &number.to_string(), "bad").is_none());
    }
    while queue.loads()[0].limit > 2 {
        for key in end(&mut queue, &begun.remove(0), Congestion::TimedOut) {
            begun.extend(enter(&mut queue, &key, "bad"));
        }
    }
    let good = ["e", "f", "g"].iter().filter(|key| enter(&mut queue, key, "good").is_some());
    assert_eq!(good.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn repeats_leave_an_eighth_to_first_attempts() {
    for (total, expected) in [(1, 1), (7, 7), (8, 7), (100, 88)] {
        let (mut queue, now) = (FairQueue::new(total), Instant::now());
        let repeat = |number: &usize| {
            let key = Item::claim(&number.to_string());
            queue.enter(&key, "bad", Line::Repeat, now).is_some()
        };
        assert_eq!((0..200).filter(repeat).count(), expected, "{total}");
        let first =
            (0..200).filter(|key| enter(&mut queue, &format!("new-{key}"), "good").is_some());
        assert_eq!(first.count(), total - expected, "{total}");
    }
}

/// First attempts arrive without end, and the calls of all repeats hang.
#[tokio::test(start_paused = true)]
async fn no_repeat_waits_for_ever() {
    for total in [1, 2, 8, 100] {
        let (mut queue, mut now) = (FairQueue::new(total), Instant::now());
        let mut running: Vec<_> =
            (0..total).filter_map(|n| enter(&mut queue, &n.to_string(), "a")).collect();
        let repeats: Vec<_> = (0..20).map(|n| Item::claim(&format!("repeat-{n}"))).collect();
        for repeat in &repeats {
            assert!(queue.enter(repeat, "a", Line::Repeat, now).is_none());
        }
        let (mut called, mut arrivals, start) = (0, 0, now);
        while called < repeats.len() {
            arrivals += 1;
            enter(&mut queue, &format!("later-{arrivals}"), "a");
            now += tokio::time::Duration::from_millis(10);
            let ended: Ticket = running.remove(0);
            let is_repeat = ended.call.line == Line::Repeat;
            let congestion = if is_repeat { Congestion::TimedOut } else { Congestion::Bearable };
            queue.end(&ended, congestion, now);
            for key in queue.reserve_free(now) {
                called += usize::from(repeats.contains(&key));
                let Some(Position::Reserved(ticket)) = queue.positions.remove(&key) else {
                    continue;
                };
                running.push(ticket);
            }
            // The longest rest between two calls, and the calls in between.
            let bound = tokio::time::Duration::from_secs(6) * 20;
            assert!(now - start <= bound, "{total}: {called} called after {:?}", now - start);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn leaving_releases_a_position_or_a_reserved_permit() {
    let mut queue = FairQueue::new(1);
    let first = enter(&mut queue, "a", "fast").unwrap();
    for key in ["b", "c", "d"] {
        assert!(enter(&mut queue, key, "fast").is_none());
    }
    queue.leave(&Item::claim("b"), Instant::now());
    assert_eq!(end(&mut queue, &first, Congestion::Bearable), ["c"]);
    queue.leave(&Item::claim("c"), Instant::now());
    assert_eq!(reserve_free(&mut queue), ["d"]);
    let holds = |uid| queue.holds(&Item::claim(uid));
    assert!(!holds("b") && !holds("c") && holds("d"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_and_a_volume_of_the_same_name_are_different_keys() {
    let (mut queue, now) = (FairQueue::new(2), Instant::now());
    let first = queue.enter(&Item::claim("a"), "fast", Line::First, now).unwrap();
    assert!(queue.enter(&Item::volume("a"), "fast", Line::First, now).is_some());
    assert!(queue.enter(&Item::volume("b"), "fast", Line::First, now).is_none());
    assert!(queue.enter(&Item::claim("b"), "fast", Line::First, now).is_none());
    queue.leave(&Item::claim("b"), now);
    queue.end(&first, Congestion::Bearable, now);
    assert_eq!(queue.reserve_free(now), [Item::volume("b")]);
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_class_changed_waits_in_the_new_class() {
    let mut queue = FairQueue::new(1);
    let first = enter(&mut queue, "a", "old").unwrap();
    assert!(enter(&mut queue, "b", "old").is_none());
    assert!(enter(&mut queue, "b", "new").is_none());
    assert_eq!(queue.loads().iter().map(|s| s.waiting).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(end(&mut queue, &first, Congestion::Bearable), ["b"]);
    assert!(enter(&mut queue, "b", "new").is_some());
}

#[tokio::test(start_paused = true)]
async fn an_idle_class_is_removed() {
    let mut queue = FairQueue::new(2);
    let call = enter(&mut queue, "a", "fast").unwrap();
    assert_eq!(queue.loads().len(), 1);
    end(&mut queue, &call, Congestion::Bearable);
    assert!(queue.loads().is_empty());
}

/// An operation on the key or call with this number.
#[derive(Debug, Clone)]
enum Step {
    Enter(u8, u8, Line),
    Leave(u8),
    End(usize, Congestion),
}

fn step() -> impl Strategy<Value = Step> {
    let congestion = prop_oneof![
        Just(Congestion::Unknown),
        Just(Congestion::Bearable),
        Just(Congestion::Locked),
        Just(Congestion::Refused),
        Just(Congestion::TimedOut)
    ];
    let line = prop_oneof![Just(Line::First), Just(Line::Repeat)];
    prop_oneof![
        (0_u8..12, 0_u8..3, line).prop_map(|(key, class, line)| Step::Enter(key, class, line)),
        (0_u8..12).prop_map(Step::Leave),
        (0_usize..6, congestion).prop_map(|(call, congestion)| Step::End(call, congestion)),
    ]
}

proptest! {
    #[test]
    fn no_permit_is_lost_and_no_key_waits_while_one_is_free(
        total in 1_usize..6,
        steps in prop::collection::vec((step(), 0_u64..2000), 0..300),
    ) {
        let mut queue = FairQueue::new(total);
        let (mut now, mut calls) = (Instant::now(), Vec::new());
        for (step, wait) in steps {
            now += tokio::time::Duration::from_millis(wait);
            match step {
                Step::Enter(key, class, line) => {
                    calls.extend(queue.enter(&Item::claim(&key.to_string()), &class.to_string(), line, now));
                }
                Step::Leave(key) => queue.leave(&Item::claim(&key.to_string()), now),
                Step::End(call, congestion) if call < calls.len() => {
                    let ticket = calls.remove(call);
                    queue.end(&ticket, congestion, now);
                }
                Step::End(..) => {}
            }
            queue.reserve_free(now);
            let reserved = queue.positions.values();
            let reserved = reserved.filter(|position| matches!(position, Position::Reserved(_))).count();
            prop_assert_eq!(queue.taken, calls.len() + reserved);
            prop_assert!(queue.taken <= total);
            prop_assert!(queue.next(now).is_none(), "a permit is free for a waiting key");
        }
        // All calls end: every waiting key gets a permit in time, and nothing is kept.
        for ticket in calls {
            queue.end(&ticket, Congestion::Bearable, now);
        }
        let mut served = 0;
        while !queue.positions.is_empty() {
            queue.reserve_free(now);
            let key = queue.positions.iter().find(|(_, position)| matches!(position, Position::Reserved(_)));
            let Some(key) = key.map(|(key, _)| key.clone()) else {
                now = queue.next_time(now).expect("a key waits, and no time is set");
                continue;
            };
            queue.leave(&key, now);
            served += 1;
            prop_assert!(served <= 12);
        }
        prop_assert_eq!(queue.taken, 0);
    }
}
