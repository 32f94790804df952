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
    sync::{Notify, SetOnce},
    time::{sleep, timeout},
};

use super::{
    Event, Importance, Severity, Subject,
    correlate::{Correlator, correlate},
    lru_map::Digest,
    pending::Pending,
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
    state: Mutex<State>,
    /// Notified when an event is added, and when the writer has finished one.
    changed: Notify,
    /// The process shuts down, so that there is no time for long waits.
    shutdown: SetOnce<()>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: ApiMetrics,
}

#[derive(Default)]
struct State {
    pending: Pending,
    /// The nanoseconds in the last event's name, to keep names unique if the clock does not advance.
    last_stamp: u64,
}

/// An event that the writer has taken from the queue.
#[derive(Debug)]
struct Attempt {
    /// The digest of the event's object.
    object: Digest,
    event: Event,
    /// The number of attempts so far.
    attempts: u32,
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
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Notify::new(),
            shutdown: SetOnce::new(),
            clock,
            random,
            metrics: metrics.api.clone(),
        });
        let writer = Arc::clone(&shared);
        tasks.spawn_critical("events", async move { writer.write_for_ever(&lane).await });
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
        self.state.lock().pending.unwritten()
    }

    /// A name that no other event of this process has: `<object>.<hex nanoseconds>`, or a UUID if the object's
    /// name cannot be a part of it.
    fn event_name(&self, object: &str, now: Timestamp) -> String {
        if !is_dns_subdomain(object) || object.len() + 1 + STAMP_DIGITS > MAX_NAME {
            return self.random.uuid();
        }
        // Fits until the year 2554.
        let now = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let mut state = self.state.lock();
        state.last_stamp = now.max(state.last_stamp + 1);
        format!("{object}.{:x}", state.last_stamp)
    }

    fn push(&self, event: Event) {
        if !self.state.lock().pending.push(event) {
            self.metrics.event_dropped("queue_full");
        }
        self.changed.notify_waiters();
    }

    async fn write_for_ever(&self, lane: &EventLane) {
        let mut correlator = Correlator::default();
        let (mut writes, mut retries) = (FuturesUnordered::new(), FuturesUnordered::new());
        loop {
            let limit = self.max_writes(lane);
            let has_room = writes.len() < limit;
            tokio::select! {
                biased;
                Some((object, failed)) = writes.next() => match failed {
                    Some(attempt) => retries.push(self.retry(attempt)),
                    None => self.finish(object),
                },
                Some(attempt) = retries.next(), if has_room => writes.push(self.write(lane, attempt)),
                attempt = self.next(&mut correlator), if has_room => writes.push(self.write(lane, attempt)),
                () = sleep(GIVE_WAY_RECHECK), if limit < MAX_CONCURRENT_WRITES => {}
            }
        }
    }

    /// How many events may be written at once.
    fn max_writes(&self, lane: &EventLane) -> usize {
        if lane.object_writes.is_quiet(GIVE_WAY_RECHECK) || self.shutdown.initialized() {
            MAX_CONCURRENT_WRITES
        } else {
            max_writes_beside_objects(self.state.lock().pending.waiting())
        }
    }

    /// Waits for a new event about an object that is not busy. Cancel safe.
    async fn next(&self, correlator: &mut Correlator) -> Attempt {
        loop {
            // Created before the check, so that a change between check and wait is not missed.
            let changed = self.changed.notified();
            let taken = self.state.lock().pending.take();
            let Some((object, event)) = taken else {
                changed.await;
                continue;
            };
            if let Some(event) = correlate(correlator, event, self.clock.wall()) {
                return Attempt { object, event, attempts: 0 };
            }
            self.metrics.event_dropped("rate_limited");
            self.finish(object);
        }
    }

    /// The event about `object` that was taken is written or given up.
    fn finish(&self, object: Digest) {
        self.state.lock().pending.finish(object);
        self.changed.notify_waiters();
    }

    /// Returns the attempt again once it is due.
    fn retry(&self, attempt: Attempt) -> impl Future<Output = Attempt> {
        // So that many clients do not retry at the same time after an outage.
        let share = if attempt.attempts == 1 { self.random.unit() } else { 1.0 };
        let shut_down = timeout(RETRY_INTERVAL.mul_f64(share), self.shutdown.wait());
        async move {
            if shut_down.await.is_ok() {
                sleep(SHUTDOWN_RETRY_INTERVAL).await;
            }
            attempt
        }
    }

    /// Tries to write an event. Returns it if it is to be retried.
    async fn write(&self, lane: &EventLane, attempt: Attempt) -> (Digest, Option<Attempt>) {
        let attempt = Attempt { attempts: attempt.attempts + 1, ..attempt };
        let Attempt { object, event, attempts } = &attempt;
        let name = &*event.name;
        let failure = write_once(lane, event)
            .await
            .err()
            .and_then(|error| Some((why_dropped(&error)?, error)));
        match failure {
            None => {}
            Some((UNREACHABLE, error)) if *attempts < MAX_ATTEMPTS => {
                tracing::error!(event = name, %error, "Unable to write event (may retry after sleeping)");
                return (*object, Some(attempt));
            }
            Some((reason, error)) => {
                if reason == POINTLESS {
                    tracing::debug!(event = name, %error, "Server rejected event (will not retry!)");
                } else {
                    tracing::error!(event = name, %error, "Unable to write event (will not retry!)");
                }
                self.metrics.event_dropped(reason);
            }
        }
        (*object, None)
    }
}

/// How many events may be written at once beside writes of objects, by the number of events that wait.
fn max_writes_beside_objects(waiting: usize) -> usize {
    let ramp = GIVE_WAY_UP_TO / 4;
    let beyond = waiting.saturating_sub(GIVE_WAY_UP_TO - ramp).min(ramp);
    (MAX_CONCURRENT_WRITES * beyond / ramp).max(GIVE_WAY_WRITES)
}

/// Creates an event, or updates an earlier one to it. If that is gone, creates this one with its count.
async fn write_once(lane: &EventLane, event: &Event) -> Result<(), ApiError> {
    if event.count > 1 {
        let patch = Patch::Strategic(event.to_patch());
        let name = Name::namespaced(event.namespace(), &event.name)?;
        match lane.client.patch::<objects::Event>(name, &patch).await {
            Err(error) if error.is_not_found() => {}
            answer => return answer.map(drop),
        }
    }
    lane.client.create_unread::<objects::Event>(Some(event.namespace()), event).await
}

/// Why an event is dropped after its last attempt failed with `error`; none if it was written after all.
/// [`UNREACHABLE`] may become better. client-go does not retry after any answer of the server; here 429 and
/// 5xx are retried, so that no event is lost.
fn why_dropped(error: &ApiError) -> Option<&'static str> {
    let is_terminating = || error.is_forbidden() && error.to_string().contains("being terminated");
    match error {
        ApiError::Unreadable { .. } | ApiError::TooLarge { .. } => None,
        ApiError::NoAnswer(_) | ApiError::DeadlineExceeded(_) | ApiError::GateShut(_) => {
            Some(UNREACHABLE)
        }
        _ if error.code().is_some_and(|code| code == 429 || code >= 500) => Some(UNREACHABLE),
        _ if error.is_already_exists() || is_terminating() => Some(POINTLESS),
        _ => Some(REFUSED),
    }
}

#[cfg(test)]
mod tests;
