//! Compares the queue with a naive model, and runs the loop under paused time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use proptest::prelude::*;
use tokio::time::Instant;

use super::{
    Action, Place, Queue, Worker,
    core::{Core, Next},
    fair_queue::Flow,
    work,
};
use crate::{
    metrics::Metrics,
    runtime::{Backoff, Generator, Random as _, Tasks, TokioSpawner},
};

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const BACKOFF: Backoff = Backoff::new(secs(1), secs(8));

fn queue() -> Queue<u8> {
    Queue::new("test", BACKOFF, &Metrics::new())
}

fn tasks() -> Tasks {
    Tasks::new(Arc::new(TokioSpawner)).0
}

// === Core against a model ===

#[derive(Debug, Clone)]
enum Op {
    Add(u8),
    AddAt(u8, u64),
    Next,
    /// Ends the processing of the nth key.
    Done(usize),
    Failed(u8),
    Forget(u8),
    Pass(u64),
    ShutDown,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0_u8..6;
    prop_oneof![
        6 => key.clone().prop_map(Op::Add),
        4 => (key.clone(), 0_u64..20).prop_map(|(k, t)| Op::AddAt(k, t)),
        8 => Just(Op::Next),
        6 => (0_usize..6).prop_map(Op::Done),
        2 => key.clone().prop_map(Op::Failed),
        1 => key.prop_map(Op::Forget),
        4 => (0_u64..10).prop_map(Op::Pass),
        1 => Just(Op::ShutDown),
    ]
}

/// The expected behaviour, with plain lists.
#[derive(Default)]
struct Model {
    ready: Vec<u8>,
    again: BTreeSet<u8>,
    working: Vec<u8>,
    waiting: Vec<(u64, u8)>,
    failures: BTreeMap<u8, u32>,
    shut: bool,
}

impl Model {
    fn add(&mut self, key: u8) {
        if self.shut || self.ready.contains(&key) {
        } else if self.working.contains(&key) {
            self.again.insert(key);
        } else {
            self.ready.push(key);
        }
    }

    fn add_at(&mut self, key: u8, at: u64) {
        match self.waiting.iter().position(|(_, k)| *k == key) {
            _ if self.shut => {}
            Some(known) if self.waiting[known].0 <= at => {}
            Some(known) => {
                self.waiting.remove(known);
                self.waiting.push((at, key));
            }
            None => self.waiting.push((at, key)),
        }
    }

    fn pass(&mut self, now: u64) {
        // A stable sort: keys of the same time keep their order.
        self.waiting.sort_by_key(|(at, _)| *at);
        while let Some((at, key)) = self.waiting.first().copied().filter(|(at, _)| *at <= now) {
            assert!(at <= now);
            self.waiting.remove(0);
            self.add(key);
        }
    }

    fn next(&mut self) -> Option<u8> {
        if self.shut || self.ready.is_empty() {
            return None;
        }
        let key = self.ready.remove(0);
        self.working.push(key);
        Some(key)
    }

    fn done(&mut self, key: u8) {
        self.working.retain(|k| *k != key);
        if self.again.remove(&key) {
            self.ready.push(key);
        }
    }
}

/// Applies one operation to both and compares the results.
fn play(op: &Op, core: &mut Core<u8>, model: &mut Model, now: &mut u64) {
    match *op {
        Op::Add(key) => {
            core.add(key, Flow::default(), secs(*now));
            model.add(key);
        }
        Op::AddAt(key, delay) => {
            core.add_at(key, secs(*now + delay));
            model.add_at(key, *now + delay);
        }
        Op::Next => {
            while let Some(key) = core.retried.pop_due(secs(*now)) {
                core.add(key, Flow::default(), secs(*now));
            }
            model.pass(*now);
            let expected = model.next();
            match core.next(secs(*now)) {
                Next::Key(key, _) => assert_eq!(Some(key), expected),
                Next::Wait(at) => {
                    assert_eq!(expected, None);
                    assert_eq!(at, model.waiting.iter().map(|(at, _)| secs(*at)).min());
                }
                Next::Shut => assert!(model.shut),
            }
        }
        Op::Done(nth) => {
            if let Some(key) = model.working.get(nth).copied() {
                assert!(core.done(&key, Flow::default(), secs(*now)).is_some());
                model.done(key);
            }
        }
        Op::Failed(key) => {
            let failures = model.failures.entry(key).or_default();
            let expected = secs(1 << (*failures).min(3));
            *failures += 1;
            assert_eq!(core.failed(&key), expected);
        }
        Op::Forget(key) => {
            core.retried.forget_failures(&key);
            model.failures.remove(&key);
        }
        Op::Pass(by) => *now += by,
        Op::ShutDown => {
            core.shut_down();
            *model = Model {
                shut: true,
                working: model.working.clone(),
                failures: model.failures.clone(),
                ..Model::default()
            };
        }
    }
    assert_eq!(core.ready(), model.ready.len());
    assert_eq!(core.depth(), model.ready.len() + model.again.len());
    for key in 0..6 {
        assert_eq!(core.retried.failures(&key), model.failures.get(&key).copied().unwrap_or(0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn the_core_does_what_the_model_does(ops in prop::collection::vec(op(), 0..80)) {
        let (mut core, mut model) = (Core::new(BACKOFF, usize::MAX), Model::default());
        let mut now = 0;
        for op in &ops {
            play(op, &mut core, &mut model, &mut now);
        }
    }
}

// === Queue ===

#[tokio::test(start_paused = true)]
async fn a_key_that_is_cancelled_leaves_nothing() {
    let queue = queue();
    queue.add_rate_limited(1);
    queue.add_after(2, secs(5));
    queue.cancel(&1);
    assert_eq!((queue.holds(&1), queue.failures(&1)), (false, 0));
    assert_eq!(*queue.get().await.unwrap(), 2);
    let next = tokio::time::timeout(secs(1000), queue.get()).await;
    assert!(next.is_err(), "the first is not handed out");
}

#[tokio::test(start_paused = true)]
async fn metrics_count_as_client_go_does() {
    let all = Metrics::new();
    let (queue, metrics) = (Queue::new("test", BACKOFF, &all), all.workqueue.queue("test"));
    queue.add(1);
    queue.add(1);
    queue.add_rate_limited(2);
    assert_eq!((metrics.adds.get(), metrics.depth.get(), metrics.retries.get()), (1, 1, 1));
    queue.add_rate_limited_within(2, secs(9));
    assert_eq!(metrics.retries.get(), 2);
    let item = queue.get().await.unwrap();
    queue.add(1);
    assert_eq!((metrics.adds.get(), metrics.depth.get()), (2, 1), "dirty again: it counts already");
    tokio::time::sleep(secs(3)).await;
    all.text();
    assert!((metrics.unfinished_seconds.get() - 3.0).abs() < 0.01);
    drop(item);
    assert!((metrics.work_seconds.get_sample_sum() - 3.0).abs() < 0.01);
    drop(queue.get().await);
    drop(queue.get().await);
    assert_eq!((metrics.adds.get(), metrics.depth.get()), (3, 0));
    assert_eq!(metrics.queue_seconds.get_sample_count(), 3);
}

/// Random schedules: adders, cancelled getters and workers that add keys of their own at random
/// times. Whatever the order, after the last add of a key there is a piece of work for it.
async fn no_wake_up_is_lost(seed: u64) {
    let random = Arc::new(Generator::from_seed(seed));
    let queue = queue();
    let added = Arc::new(parking_lot::Mutex::new(BTreeMap::<u8, Instant>::new()));
    let worked = Arc::new(parking_lot::Mutex::new(BTreeMap::<u8, Instant>::new()));
    let tasks = tasks();
    for _ in 0..4 {
        let (queue, random, worked) = (queue.clone(), Arc::clone(&random), Arc::clone(&worked));
        tasks.spawn("worker", async move {
            loop {
                // For every second seed getters are given up now and then, and try again; for the
                // others, who is not woken sleeps for ever.
                let patience =
                    if seed.is_multiple_of(2) { 1_000_000 } else { 1 + random.below(40) };
                let patience = Duration::from_millis(patience);
                let Ok(got) = tokio::time::timeout(patience, queue.get()).await else { continue };
                let Some(item) = got else { return };
                worked.lock().insert(*item, Instant::now());
                tokio::time::sleep(Duration::from_millis(random.below(30))).await;
            }
        });
    }
    for _ in 0..60 {
        let key = u8::try_from(random.below(5)).unwrap();
        let delay = Duration::from_millis(random.below(3) * random.below(50));
        // Longer delays than a known earlier one are dropped, so the time asked for is a bound.
        added.lock().insert(key, Instant::now());
        queue.add_after(key, delay);
        tokio::time::sleep(Duration::from_millis(random.below(20))).await;
    }
    tokio::time::sleep(secs(1)).await;
    assert!(queue.is_empty());
    let (added, worked) = (added.lock().clone(), worked.lock().clone());
    for (key, at) in added {
        assert!(
            worked.get(&key).is_some_and(|worked| *worked >= at),
            "seed {seed}: key {key} was forgotten"
        );
    }
    queue.shut_down();
}

#[tokio::test(start_paused = true)]
async fn random_schedules_lose_no_wake_up() {
    for seed in 0..300 {
        no_wake_up_is_lost(seed).await;
    }
}

// === work ===

#[derive(Default)]
struct Processed {
    running: BTreeSet<u8>,
    pieces: Vec<(u8, u64)>,
}

type Journal = Arc<parking_lot::Mutex<Processed>>;

/// Works for `took` on each key and answers as `action` says.
fn start(queue: &Queue<u8>, limit: usize, took: Duration, action: fn(u8) -> Action) -> Journal {
    let seen = Journal::default();
    let worker = Recording { began: Instant::now(), took, action, journal: Arc::clone(&seen) };
    let tasks = tasks();
    let (queue, own) = (queue.clone(), tasks.clone());
    tasks.spawn("work", async move { work(&queue, limit, &own, worker).await });
    seen
}

struct Recording {
    began: Instant,
    took: Duration,
    action: fn(u8) -> Action,
    journal: Journal,
}

impl Worker<u8> for Recording {
    async fn sync(&self, key: &u8) -> Action {
        {
            let mut seen = self.journal.lock();
            assert!(seen.running.insert(*key), "two pieces for one key");
            seen.pieces.push((*key, self.began.elapsed().as_secs()));
        }
        tokio::time::sleep(self.took).await;
        self.journal.lock().running.remove(key);
        (self.action)(*key)
    }

    fn after_panic(&self, _key: &u8) {}
}

#[tokio::test(start_paused = true)]
async fn gauges_of_unfinished_work_are_right_at_each_scrape() {
    let all = Metrics::new();
    let (queue, metrics) = (Queue::new("test", BACKOFF, &all), all.workqueue.queue("test"));
    start(&queue, 2, secs(3), |_| Action::Done);
    for (wait, sum, longest, added) in [
        (0, 0.0, 0.0, Some(0)),
        (1200, 1.2, 1.2, Some(1)),
        (1000, 3.2, 2.2, None),
        (1500, 2.5, 2.5, None),
        (1000, 0.0, 0.0, None),
    ] {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        all.text();
        assert!((metrics.unfinished_seconds.get() - sum).abs() < 0.01, "{sum}");
        assert!((metrics.longest_running_seconds.get() - longest).abs() < 0.01, "{longest}");
        if let Some(key) = added {
            queue.add(key);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn actions_decide_when_a_key_is_processed_again() {
    let queue = queue();
    (0..4).for_each(|key| queue.add(key));
    let seen = start(&queue, 10, Duration::ZERO, |key| match key {
        0 => Action::Done,
        1 => Action::Retry,
        2 => Action::RequeueAfter(secs(6)),
        _ => Action::RetryWithin(secs(3)),
    });
    tokio::time::sleep(secs(14)).await;
    let of = |key| {
        seen.lock().pieces.iter().filter(|(k, _)| *k == key).map(|(_, at)| *at).collect::<Vec<_>>()
    };
    assert_eq!((of(0), of(1), of(2)), (vec![0], vec![0, 1, 3, 7], vec![0, 6, 12]));
    assert_eq!(of(3), [0, 1, 3, 6, 9, 12]);
    assert_eq!([1, 2, 3].map(|key| queue.failures(&key)), [4, 0, 6]);
}

#[tokio::test(start_paused = true)]
async fn a_key_has_a_place_while_the_queue_has_it() {
    let queue = queue();
    assert!(queue.place(&1) == Place::Absent && !queue.holds(&1));
    queue.add_after(1, Duration::from_millis(4200));
    assert_eq!(queue.place(&1), Place::Delayed { seconds: 5 });
    assert!(queue.holds(&1));
    queue.add(1);
    queue.add(2);
    assert_eq!(queue.place(&1), Place::Ready);
    let item = queue.get().await.unwrap();
    tokio::time::advance(secs(1)).await;
    assert_eq!(queue.place(&1), Place::Processing { seconds: 1 });
    assert!(queue.holds(&1) && queue.holds(&2));
    drop(item);
    assert_eq!(queue.place(&1), Place::Delayed { seconds: 4 });
}
