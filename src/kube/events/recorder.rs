//! Records events: a bounded queue, and a task that writes its events to the API server.
//!
//! Events about different objects are written concurrently, because a write takes longer than a claim
//! needs to cause the next event. Events about one object are written one after the other. While objects
//! are written, events give way: one is written at a time, and more once many of them wait.
//!
//! An event whose first attempt fails goes to a second queue, so that others do not wait for its further attempts:
//! a server may refuse the events of a namespace because of what a user does there.
//!
//! From [`SOFT_LIMIT`] events on, the queue accepts only final events; from [`HARD_LIMIT`] events on it accepts none.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::{SetOnce, mpsc, watch},
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    Event, Importance, Severity, Subject,
    correlate::{Correlator, correlate},
    lru_map::{Digest, digest},
    truncated,
};
use crate::{
    kube::{
        ApiError, Name, Patch,
        client::{EventLane, MAX_CONCURRENT_WRITES},
        name::{MAX_NAME, is_dns_subdomain},
        objects,
    },
    metrics::{ApiMetrics, Metrics},
    runtime::{Clock, Random, Tasks},
};

/// More than events that give way to objects fill; client-go has 1000.
const SOFT_LIMIT: usize = 5000;
/// Enough for final events of as many objects as the soft limit has events: some ten megabytes.
const HARD_LIMIT: usize = 2 * SOFT_LIMIT;
/// Of how many objects an event is retried. While the server accepts no events, those of others are kept.
const MAX_RETRIED: usize = 2 * MAX_CONCURRENT_WRITES;
/// How many events are written at once while they give way to objects. Each one more costs a server that is
/// busy, and so is slow for objects too, a tenth of the volumes that it saves (`docs/performance.md`).
const GIVE_WAY_WRITES: usize = 1;
/// How many events wait while they give way to objects: two for each claim of a burst, some four
/// megabytes. Within the last quarter, more and more events are written at once.
const GIVE_WAY_UP_TO: usize = 4000;
/// For how long no object must have been written until events give way no longer: a burst has moments without a
/// write. They look as often.
const GIVE_WAY_RECHECK: Duration = Duration::from_millis(100);
/// The most attempts to write an event, as in client-go.
const MAX_ATTEMPTS: u32 = 12;
/// The time between attempts, as in client-go; the first is shortened at random.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The time between attempts during shutdown.
const SHUTDOWN_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Why an event is dropped, as the metric says it.
const UNREACHABLE: &str = "unreachable";
const REFUSED: &str = "refused";
/// It exists already, or its namespace is being deleted.
const POINTLESS: &str = "pointless";

/// The most hex digits of the nanoseconds in an event's name.
const STAMP_DIGITS: usize = 16;

/// Writes events in the background. Clones share the queue.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    lane: EventLane,
    /// The objects of events that are in the queue or taken from it, each with the events that come after that one.
    objects: Mutex<BTreeMap<Digest, VecDeque<Event>>>,
    /// The queue: one event about each object.
    queue: mpsc::UnboundedSender<(Digest, Event)>,
    /// The events whose first attempt failed, and the time of the second one.
    failed: mpsc::UnboundedSender<(Digest, Event, Instant)>,
    /// The number of events that are neither written nor given up.
    unwritten: watch::Sender<usize>,
    correlator: Mutex<Correlator>,
    /// The number of events that are being written.
    writing: watch::Sender<usize>,
    /// Held by the event that is written next.
    next: tokio::sync::Mutex<()>,
    /// The nanoseconds in the last event's name, to keep names unique if the clock does not advance.
    last_stamp: Mutex<u64>,
    /// The process shuts down, so that there is no time for long waits.
    shutdown: SetOnce<()>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: ApiMetrics,
}

impl Recorder {
    /// Starts a recorder that writes events on `lane`.
    pub fn start(
        lane: EventLane,
        tasks: &Tasks,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        metrics: &Metrics,
    ) -> Self {
        let (queue, mut queued) = mpsc::unbounded_channel();
        let (failed, mut retried) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            lane,
            objects: Mutex::default(),
            queue,
            failed,
            unwritten: watch::Sender::default(),
            correlator: Mutex::default(),
            writing: watch::Sender::default(),
            next: tokio::sync::Mutex::default(),
            last_stamp: Mutex::default(),
            shutdown: SetOnce::new(),
            clock,
            random,
            metrics: metrics.api.clone(),
        });
        let writer = Arc::clone(&shared);
        tasks.spawn_critical("events", async move {
            let queued = stream::poll_fn(|cx| queued.poll_recv(cx));
            queued
                .for_each_concurrent(MAX_CONCURRENT_WRITES, |(object, event)| {
                    writer.begin(object, event)
                })
                .await;
        });
        let writer = Arc::clone(&shared);
        tasks.spawn_critical("failed events", async move {
            let retried = stream::poll_fn(|cx| retried.poll_recv(cx));
            retried
                .for_each_concurrent(MAX_RETRIED, |(object, event, due)| {
                    writer.retry(object, event, due)
                })
                .await;
        });
        Self(shared)
    }

    /// Records events of `component`.
    pub fn for_component(&self, component: &str) -> ComponentRecorder {
        ComponentRecorder { recorder: self.clone(), component: component.into() }
    }

    /// Waits until all events are written or given up, but at most for `limit`. Returns the number of
    /// events that are left. Shortens the time between attempts from now on, for shutdown.
    pub async fn drain(&self, limit: Duration) -> usize {
        let _ = self.0.shutdown.set(());
        let mut unwritten = self.0.unwritten.subscribe();
        let _ = timeout(limit, unwritten.wait_for(|left| *left == 0)).await;
        self.0.unwritten()
    }
}

/// Records events of one component.
#[derive(Clone)]
pub struct ComponentRecorder {
    recorder: Recorder,
    component: Arc<str>,
}

impl ComponentRecorder {
    /// Records an event that may be dropped when there are many.
    pub fn event(
        &self,
        about: Subject,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.record(about, severity, Importance::Repeatable, reason, message.into());
    }

    /// Records the last event about an object until something changes, for example that it is
    /// provisioned or blocked. It is not dropped however many events came before, so callers must
    /// record few of them.
    pub fn final_event(
        &self,
        about: Subject,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.record(about, severity, Importance::Final, reason, message.into());
    }

    fn record(
        &self,
        about: Subject,
        severity: Severity,
        importance: Importance,
        reason: &'static str,
        message: String,
    ) {
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    object = %about,
                    fieldPath = "",
                    kind = &*about.kind,
                    apiVersion = &*about.api_version,
                    r#type = severity.as_str(),
                    reason,
                    event_message = message,
                    "Event occurred"
                )
            };
        }
        match severity {
            Severity::Normal => log!(info),
            // As external-provisioner logs failures: alerts on `^E` find them.
            Severity::Warning => log!(error),
        }
        let shared = &self.recorder.0;
        let now = shared.clock.wall();
        shared.push(Event {
            name: shared.event_name(&about.name, now),
            about: Arc::new(about),
            component: Arc::clone(&self.component),
            reporting_component: Arc::clone(&self.component),
            severity,
            importance,
            reason,
            full_length: message.len(),
            message: truncated(message.len(), message),
            first: now,
            last: now,
            count: 1,
        });
    }
}

impl Shared {
    /// The number of events that are neither written nor given up.
    fn unwritten(&self) -> usize {
        *self.unwritten.borrow()
    }

    /// A name that no other event of this process has: `<object>.<hex nanoseconds>`, or a UUID if the object's
    /// name cannot be a part of it.
    fn event_name(&self, object: &str, now: Timestamp) -> String {
        if !is_dns_subdomain(object) || object.len() + 1 + STAMP_DIGITS > MAX_NAME {
            return self.random.uuid();
        }
        // Fits until the year 2554.
        let now = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let mut last_stamp = self.last_stamp.lock();
        *last_stamp = now.max(*last_stamp + 1);
        format!("{object}.{:x}", *last_stamp)
    }

    fn push(&self, event: Event) {
        let limit = match event.importance {
            Importance::Repeatable => SOFT_LIMIT,
            Importance::Final => HARD_LIMIT,
        };
        if self.unwritten() >= limit {
            return self.metrics.event_dropped("queue_full");
        }
        self.unwritten.send_modify(|left| *left += 1);
        let about = &event.about;
        let object = digest(&[&about.kind, &about.namespace, &about.name, &about.uid]);
        match self.objects.lock().entry(object) {
            Entry::Occupied(busy) => busy.into_mut().push_back(event),
            Entry::Vacant(idle) => {
                idle.insert(VecDeque::new());
                self.enqueue(object, event);
            }
        }
    }

    fn enqueue(&self, object: Digest, event: Event) {
        // Fails only once the writer has ended, and so the process.
        let _ = self.queue.send((object, event));
    }

    /// Writes an event, drops it, or leaves it to [`Self::retry`].
    async fn begin(&self, object: Digest, event: Event) {
        let correlated = correlate(&mut self.correlator.lock(), event, self.clock.wall());
        match correlated {
            Some(mut event) => {
                if self.attempt(&mut event, 1).await {
                    // So that many clients do not retry at the same time after an outage.
                    let due = Instant::now() + RETRY_INTERVAL.mul_f64(self.random.unit());
                    // Fails only once the writer has ended, and so the process.
                    let _ = self.failed.send((object, event, due));
                    return;
                }
            }
            None => self.metrics.event_dropped("rate_limited"),
        }
        self.advance(object);
    }

    /// Writes an event whose second attempt is due at this time, or gives it up.
    async fn retry(&self, object: Digest, mut event: Event, mut due: Instant) {
        for attempt in 2.. {
            if timeout_at(due, self.shutdown.wait()).await.is_ok() && attempt > 2 {
                sleep(SHUTDOWN_RETRY_INTERVAL).await;
            }
            if !self.attempt(&mut event, attempt).await {
                break;
            }
            due = Instant::now() + RETRY_INTERVAL;
        }
        self.advance(object);
    }

    /// Puts the next event about the object at the end of the queue.
    fn advance(&self, object: Digest) {
        self.unwritten.send_modify(|left| *left -= 1);
        let mut objects = self.objects.lock();
        match objects.get_mut(&object).and_then(VecDeque::pop_front) {
            Some(next) => self.enqueue(object, next),
            None => _ = objects.remove(&object),
        }
    }

    /// Tries to write an event. Returns whether that is to be tried again.
    async fn attempt(&self, event: &mut Event, attempt: u32) -> bool {
        self.turn().await;
        let written = self.write(event).await;
        self.writing.send_modify(|writing| *writing -= 1);
        let Err(error) = written else { return false };
        let name = &*event.name;
        let why = why_dropped(&error);
        if why == UNREACHABLE && attempt < MAX_ATTEMPTS {
            tracing::error!(event = name, %error, "Unable to write event (may retry after sleeping)");
            return true;
        }
        if why == POINTLESS {
            tracing::debug!(event = name, %error, "Server rejected event (will not retry!)");
        } else {
            tracing::error!(event = name, %error, "Unable to write event (will not retry!)");
        }
        self.metrics.event_dropped(why);
        false
    }

    /// Creates an event, or updates an earlier one to it. Creates this one with its count if that is gone or cannot be
    /// stored: whoever may update events can make it too large for that.
    async fn write(&self, event: &mut Event) -> Result<(), ApiError> {
        let client = &self.lane.client;
        if event.count > 1 {
            let patch = Patch::Strategic(event.to_patch());
            let name = Name::namespaced(event.namespace(), &event.name)?;
            match client.patch_unread::<objects::Event>(name, &patch).await {
                Err(error) if error.is_not_found() => {}
                Err(error) if error.code() == Some(500) => {
                    let name = self.event_name(&event.about.name, self.clock.wall());
                    self.correlator.lock().rename(&event.name, &name);
                    event.name = name;
                }
                answer => return answer,
            }
        }
        client.create_unread::<objects::Event>(Some(event.namespace()), event).await
    }

    /// Waits until one more event may be written, and counts it.
    async fn turn(&self) {
        let _next = self.next.lock().await;
        let mut writing = self.writing.subscribe();
        let has_room = |writing: &usize| *writing < self.max_writes();
        while timeout(GIVE_WAY_RECHECK, writing.wait_for(has_room)).await.is_err() {}
        self.writing.send_modify(|writing| *writing += 1);
    }

    /// How many events may be written at once.
    fn max_writes(&self) -> usize {
        if self.lane.object_writes.is_quiet(GIVE_WAY_RECHECK) || self.shutdown.initialized() {
            MAX_CONCURRENT_WRITES
        } else {
            max_writes_beside_objects(self.unwritten())
        }
    }
}

/// How many events may be written at once beside writes of objects, by the number of events that wait.
fn max_writes_beside_objects(waiting: usize) -> usize {
    let ramp = GIVE_WAY_UP_TO / 4;
    let beyond = waiting.saturating_sub(GIVE_WAY_UP_TO - ramp).min(ramp);
    (MAX_CONCURRENT_WRITES * beyond / ramp).max(GIVE_WAY_WRITES)
}

/// Why an event is dropped after its last attempt failed with `error`. [`UNREACHABLE`] may become better. client-go
/// does not retry after any answer of the server; here 429 and 5xx are retried, so that no event is lost.
fn why_dropped(error: &ApiError) -> &'static str {
    let is_terminating = || error.is_forbidden() && error.to_string().contains("being terminated");
    match error {
        ApiError::NoAnswer(_) | ApiError::DeadlineExceeded(_) | ApiError::GateShut(_) => {
            UNREACHABLE
        }
        _ if error.code().is_some_and(|code| code == 429 || code >= 500) => UNREACHABLE,
        _ if error.is_already_exists() || is_terminating() => POINTLESS,
        _ => REFUSED,
    }
}

#[cfg(test)]
mod tests;
