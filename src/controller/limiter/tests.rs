//! Permits in time: who waits is woken, and nothing is lost.

use std::time::Duration;

use super::*;
use crate::{
    metrics::Metrics,
    workqueue::{Limiter, Queue},
};

/// One call at once.
fn limiter() -> (ConcurrencyLimiter, Queue<String>) {
    let metrics = Metrics::new().unwrap();
    let limiter = Limiter::per_item(Duration::from_secs(1), Duration::from_secs(300));
    let queue = Queue::new(limiter, metrics.workqueue.queue("claims"));
    let woken = queue.clone();
    let wake = move |item| match item {
        Item::Claim(uid) => woken.add(uid),
        Item::Volume(name) => panic!("{name}"),
    };
    (ConcurrencyLimiter::new(1, wake, metrics.limiter.of("create")), queue)
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_dropped_wakes_who_waits() {
    let (limiter, queue) = limiter();
    let permit = limiter.look(Item::claim("a")).permit("fast", false).unwrap();
    assert!(limiter.look(Item::claim("b")).permit("fast", false).is_none());
    assert!(queue.is_empty());
    drop(permit);
    assert_eq!(queue.len(), 1);
    assert!(limiter.look(Item::claim("b")).permit("fast", false).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_look_without_a_wish_gives_up_the_place() {
    let (limiter, queue) = limiter();
    let permit = limiter.look(Item::claim("a")).permit("fast", false).unwrap();
    assert!(limiter.look(Item::claim("b")).permit("fast", false).is_none());
    drop(limiter.look(Item::claim("b")));
    assert!(!limiter.holds(&Item::claim("b")));
    drop(permit);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_rest_wakes_who_waits() {
    let (limiter, queue) = limiter();
    limiter.look(Item::claim("a")).permit("fast", false).unwrap().ended(Congestion::Overload);
    assert!(limiter.look(Item::claim("b")).permit("fast", false).is_none());
    let woken = tokio::time::timeout(Duration::from_millis(999), limiter.keep_time()).await;
    assert!(woken.is_err() && queue.is_empty());
    let woken = tokio::time::timeout(Duration::from_millis(2), limiter.keep_time()).await;
    assert!(woken.is_err() && queue.len() == 1);
}
