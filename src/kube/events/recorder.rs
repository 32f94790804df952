//! Records events: a bounded queue, and a task that writes its events to the API server.
//!
//! Events about different objects are written concurrently, because a write takes longer than a claim
//! needs to cause the next event. Events about one object are written one after the other. While objects
//! are written, events give way: one is written at a time, and more once many of them wait.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};

use super::{
    Event, EventName, Importance, Severity, Subject,
    busy_objects::{Attempt, BusyObjects},
    correlate::{Action, Correlator, correlate},
    lru_map::Digest,
    message::Message,
    pending::Pending,
    sink::{Failure, Sink},
};
use crate::{
    kube::{
        client::{EventLane, MAX_CONCURRENT_WRITES},
        name::{MAX_NAME, is_dns_subdomain},
    },
    metrics::{ApiMetrics, Metrics},
    runtime::{Clock, Random, Tasks},
};

/// How many events are written at once while they give way to objects. Each one more costs a server that is
/// busy, and so is slow for objects too, a tenth of the volumes that it saves (`docs/performance.md`).
const GIVE_WAY_WRITES: usize = 1;
/// How many events wait while they give way to objects: two for each claim of a burst, some four
/// megabytes. Within the last quarter, more and more events are written at once.
const GIVE_WAY_UP_TO: usize = 4000;
/// How often events that give way look whether objects are still written.
const GIVE_WAY_RECHECK: Duration = Duration::from_millis(100);
/// The most attempts to write an event, as in client-go.
const MAX_ATTEMPTS: u32 = 12;
/// The time between attempts, as in client-go; the first is shortened at random.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// The time between attempts during shutdown.
const SHUTDOWN_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The most hex digits of the nanoseconds in an event's name.
const STAMP_DIGITS: usize = 16;

/// Writes events in the background. Clones share the queue.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("waiting", &self.0.state.lock().pending.len())
            .finish_non_exhaustive()
    }
}

struct Shared {
    state: Mutex<State>,
    /// Notified when an event is added, when the writer has finished one, and at shutdown.
    changed: Notify,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: ApiMetrics,
}

#[derive(Default)]
struct State {
    pending: Pending,
    /// The number of events that the writer has taken from the queue, including those to be retried.
    in_progress: usize,
    /// Whether the process shuts down, so that there is no time for long waits.
    shutting_down: bool,
    /// The nanoseconds in the last event's name, to keep names unique if the clock does not advance.
    last_stamp: u64,
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
        Self::start_with(lane, tasks, clock, random, metrics)
    }

    fn start_with(
        sink: impl Sink,
        tasks: &Tasks,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        metrics: &Metrics,
    ) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Notify::new(),
            clock,
            random,
            metrics: metrics.api.clone(),
        });
        let writer = Arc::clone(&shared);
        tasks.spawn_critical("events", async move { writer.write_for_ever(&sink).await });
        Self(shared)
    }

    /// A source that records events of `component`.
    pub fn from(&self, component: &str) -> Source {
        Source { recorder: self.clone(), component: component.into() }
    }

    /// Waits until all events are written or given up, but at most for `limit`. Returns the number of
    /// events that are left. Shortens the time between attempts from now on, for shutdown.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.0.state.lock().shutting_down = true;
        self.0.changed.notify_waiters();
        let drained = async {
            loop {
                // Created before the check, so that a change between check and wait is not missed.
                let changed = self.0.changed.notified();
                if self.0.unwritten() == 0 {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(limit, drained).await;
        self.0.unwritten()
    }
}

/// Records events of one component.
#[derive(Debug, Clone)]
pub struct Source {
    recorder: Recorder,
    component: Arc<str>,
}

impl Source {
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
            message: Message::new(message),
            first: now,
            last: now,
            count: 1,
        });
    }
}

impl Shared {
    /// The number of events that are neither written nor given up.
    fn unwritten(&self) -> usize {
        let state = self.state.lock();
        state.pending.len() + state.in_progress
    }

    /// A name that no other event of this process has; a UUID if the object's name is no DNS subdomain.
    fn event_name(&self, object: &str, now: Timestamp) -> EventName {
        if !is_dns_subdomain(object) || object.len() + 1 + STAMP_DIGITS > MAX_NAME {
            return EventName::Uuid(self.random.uuid());
        }
        // Fits until the year 2554.
        let now = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let mut state = self.state.lock();
        state.last_stamp = now.max(state.last_stamp + 1);
        EventName::Stamp(state.last_stamp)
    }

    fn push(&self, event: Event) {
        if !self.state.lock().pending.push(event) {
            self.metrics.event_dropped("queue_full");
        }
        self.changed.notify_waiters();
    }

    async fn write_for_ever(&self, sink: &impl Sink) {
        let (mut correlator, mut busy) = (Correlator::default(), BusyObjects::default());
        let mut writes = FuturesUnordered::new();
        loop {
            let limit = self.max_writes(sink.gives_way());
            tokio::select! {
                biased;
                Some((object, retry)) = writes.next() => self.on_attempt(&mut busy, object, retry),
                attempt = self.next(&mut correlator, &mut busy), if writes.len() < limit => {
                    let object = attempt.object;
                    writes.push(async move { (object, self.try_to_write(sink, attempt).await) });
                }
                () = sleep(GIVE_WAY_RECHECK), if limit < MAX_CONCURRENT_WRITES => {}
            }
        }
    }

    /// How many events may be written at once.
    fn max_writes(&self, gives_way: bool) -> usize {
        let state = self.state.lock();
        if gives_way && !state.shutting_down {
            max_writes_beside_objects(state.pending.len())
        } else {
            MAX_CONCURRENT_WRITES
        }
    }

    /// Handles the end of an attempt: schedules the `retry`, if there is one.
    fn on_attempt(&self, busy: &mut BusyObjects, object: Digest, retry: Option<Attempt>) {
        match retry {
            Some(attempt) => {
                let due = Instant::now() + self.retry_delay(attempt.attempts);
                busy.retry(attempt, due);
            }
            None => self.finish_one(busy, object),
        }
    }

    /// Waits for an event to write: a retry that is due, otherwise a new event. Cancel safe.
    async fn next(&self, correlator: &mut Correlator, busy: &mut BusyObjects) -> Attempt {
        loop {
            // Created before the check, so that a change between check and wait is not missed.
            let changed = self.changed.notified();
            if let Some(attempt) = busy.begin_due(Instant::now()) {
                return attempt;
            }
            if let Some((object, event)) = self.take(busy) {
                if let Some(attempt) = self.correlate(correlator, object, event) {
                    return attempt;
                }
                self.finish_one(busy, object);
            } else if let Some(due) = busy.next_due() {
                let _ = timeout_at(due, changed).await;
            } else {
                changed.await;
            }
        }
    }

    /// Takes the next event whose object is not busy from the queue.
    fn take(&self, busy: &mut BusyObjects) -> Option<(Digest, Event)> {
        let mut state = self.state.lock();
        if state.shutting_down {
            busy.advance(Instant::now() + SHUTDOWN_RETRY_INTERVAL);
        }
        if busy.is_full() {
            return None;
        }
        let taken = state.pending.pop(|object| busy.contains(object))?;
        busy.begin(taken.0);
        state.in_progress += 1;
        Some(taken)
    }

    /// Decides how a new event is written; `None` if it is dropped.
    fn correlate(
        &self,
        correlator: &mut Correlator,
        object: Digest,
        event: Event,
    ) -> Option<Attempt> {
        let attempt = |event, exists| Some(Attempt { object, event, exists, attempts: 0 });
        match correlate(correlator, event, self.clock.wall()) {
            Action::Post(event) => attempt(event, false),
            Action::Patch(event) => attempt(event, true),
            Action::Drop => {
                self.metrics.event_dropped("rate_limited");
                None
            }
        }
    }

    /// Counts the event about `object` as written or given up.
    fn finish_one(&self, busy: &mut BusyObjects, object: Digest) {
        busy.end(object);
        self.state.lock().in_progress -= 1;
        self.changed.notify_waiters();
    }

    /// Tries to write an event. Returns it if it is to be retried.
    async fn try_to_write(&self, sink: &impl Sink, attempt: Attempt) -> Option<Attempt> {
        let attempt = Attempt { attempts: attempt.attempts + 1, ..attempt };
        let event = &attempt.event;
        match write_once(sink, event, attempt.exists).await {
            Ok(()) => {}
            Err(Failure::Transient(error)) if attempt.attempts < MAX_ATTEMPTS => {
                tracing::error!(
                    event = event.name(),
                    error,
                    "Unable to write event (may retry after sleeping)"
                );
                return Some(attempt);
            }
            Err(Failure::Transient(why)) => self.give_up("unreachable", event, &why),
            Err(Failure::Gone(why) | Failure::Refused(why)) => {
                self.give_up("refused", event, &why);
            }
            Err(Failure::Obsolete(error)) => {
                tracing::debug!(
                    event = event.name(),
                    error,
                    "Server rejected event (will not retry!)"
                );
                self.metrics.event_dropped("pointless");
            }
        }
        None
    }

    /// How long an event waits after so many attempts.
    fn retry_delay(&self, attempts: u32) -> Duration {
        if self.state.lock().shutting_down {
            return SHUTDOWN_RETRY_INTERVAL;
        }
        // So that many clients do not retry at the same time after an outage.
        let share = if attempts == 1 { self.random.unit() } else { 1.0 };
        RETRY_INTERVAL.mul_f64(share)
    }

    fn give_up(&self, reason: &str, event: &Event, why: &str) {
        tracing::error!(
            event = event.name(),
            error = why,
            "Unable to write event (will not retry!)"
        );
        self.metrics.event_dropped(reason);
    }
}

/// How many events may be written at once beside writes of objects, while so many events wait.
fn max_writes_beside_objects(waiting: usize) -> usize {
    let ramp = GIVE_WAY_UP_TO / 4;
    let beyond = waiting.saturating_sub(GIVE_WAY_UP_TO - ramp).min(ramp);
    (MAX_CONCURRENT_WRITES * beyond / ramp).max(GIVE_WAY_WRITES)
}

/// Writes an event once. If the event to patch is gone, creates it with its count.
async fn write_once(sink: &impl Sink, event: &Event, exists: bool) -> Result<(), Failure> {
    if exists {
        match sink.patch(event).await {
            Err(Failure::Gone(_)) => {}
            done => return done,
        }
    }
    sink.create(event).await
}

#[cfg(test)]
mod tests;
