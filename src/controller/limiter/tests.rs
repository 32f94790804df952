//! Waiting keys are woken when permits become free.

use std::time::Duration;

use super::*;
use crate::controller::item::Key;
use crate::{
    metrics::Metrics,
    runtime::Backoff,
    workqueue::{Limiter, Queue},
};

/// A limiter with one permit, and the queue that it wakes.
fn limiter() -> (ConcurrencyLimiter, Queue<Key>) {
    let metrics = Metrics::new();
    let limiter = Limiter::per_item(Backoff::new(Duration::from_secs(1), Duration::from_secs(300)));
    let queue = Queue::new(limiter, metrics.workqueue.queue("claims"));
    let woken = queue.clone();
    let wake = move |item| match item {
        Item::Claim(uid) => woken.add(uid),
        Item::Volume(name) => panic!("{name:?}"),
    };
    (ConcurrencyLimiter::new(1, wake, metrics.limiter.of("create")), queue)
}

#[tokio::test(start_paused = true)]
async fn dropping_a_permit_wakes_a_waiting_key() {
    let (limiter, queue) = limiter();
    let permit = limiter.attempt(Item::claim("a")).permit("fast", false).unwrap();
    assert!(limiter.attempt(Item::claim("b")).permit("fast", false).is_none());
    assert!(queue.is_empty());
    drop(permit);
    assert_eq!(queue.len(), 1);
    assert!(limiter.attempt(Item::claim("b")).permit("fast", false).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_a_permit_request_loses_the_position() {
    let (limiter, queue) = limiter();
    let permit = limiter.attempt(Item::claim("a")).permit("fast", false).unwrap();
    assert!(limiter.attempt(Item::claim("b")).permit("fast", false).is_none());
    drop(limiter.attempt(Item::claim("b")));
    assert!(!limiter.holds(&Item::claim("b")));
    drop(permit);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_rest_wakes_a_waiting_key() {
    let (limiter, queue) = limiter();
    let permit = limiter.attempt(Item::claim("a")).permit("fast", false).unwrap();
    assert!(limiter.attempt(Item::claim("b")).permit("fast", false).is_none());
    // The first failure proves nothing: the claim may be bad.
    permit.ended(Congestion::TimedOut);
    let permit = limiter.attempt(Item::claim("b")).permit("fast", false).unwrap();
    assert!(limiter.attempt(Item::claim("c")).permit("fast", false).is_none());
    permit.ended(Congestion::TimedOut);
    let woken = tokio::time::timeout(Duration::from_millis(999), limiter.run_timers()).await;
    assert!(woken.is_err());
    assert_eq!(queue.len(), 1, "b, which has called already");
    let woken = tokio::time::timeout(Duration::from_millis(2), limiter.run_timers()).await;
    assert!(woken.is_err());
    assert_eq!(queue.len(), 2);
}
