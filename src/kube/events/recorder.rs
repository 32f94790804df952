//! From telling an event to the API server: a bounded queue and one task that writes.
//!
//! Events about different objects are written side by side, as the answer to one takes longer than
//! a claim needs to cause the next; those about one object go one after the other.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    Event, Importance, Severity, Subject,
    correlate::{Action, Correlator, correlate},
    digest::Digest,
    held::{Attempt, Held},
    message::Message,
    pending::{Entry, Pending},
    sink::{Failure, Sink},
};
use crate::{
    kube::Client,
    metrics::{ApiMetrics, Metrics},
    runtime::{Clock, Random, Tasks},
};

/// How many events are written at once: as many as objects by default, so that a backlog's events, two
/// for each PersistentVolume, don't fall behind it.
pub(in crate::kube) const AT_ONCE: usize = 32;
/// Tries an event gets, as in client-go.
const TRIES: u32 = 12;
/// Time between tries, as in client-go; the first is cut by chance.
const BETWEEN_TRIES: Duration = Duration::from_secs(10);
/// Time between tries once the process is about to end.
const BETWEEN_LAST_TRIES: Duration = Duration::from_millis(500);

/// Letters of the nanoseconds in an event's name, until the year 2554.
const STAMP: usize = 16;

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
    /// Told when an event comes in, when the writer has finished one, and of the hurry.
    changed: Notify,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: ApiMetrics,
}

#[derive(Default)]
struct State {
    pending: Pending,
    /// How many events the writer has in hand, between two tries included.
    in_hand: usize,
    /// The process is about to end: there is no time for long pauses.
    hurry: bool,
    /// The nanoseconds in the last event's name: no two are alike, even where the clock stands.
    named: i128,
}

impl Recorder {
    /// A recorder whose events go out through `client`, the events lane.
    pub fn start(
        client: Client,
        tasks: &Tasks,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        metrics: &Metrics,
    ) -> Self {
        Self::start_with(client, tasks, clock, random, metrics)
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

    /// Tells events in the name of `component`.
    pub fn from(&self, component: &str) -> Source {
        Source { recorder: self.clone(), component: component.into() }
    }

    /// DependencyIndex until all events are written or given up, but no longer than `limit`; how many are
    /// left then. From now on tries follow one another quickly: the process is about to end.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.0.state.lock().hurry = true;
        self.0.changed.notify_waiters();
        let drained = async {
            loop {
                // Made before looking, so that a change between looking and waiting is not missed.
                let changed = self.0.changed.notified();
                if self.0.left() == 0 {
                    return;
                }
                changed.await;
            }
        };
        // Out of time or done: what is left tells.
        let _ = tokio::time::timeout(limit, drained).await;
        self.0.left()
    }
}

/// Tells events as one component.
#[derive(Debug, Clone)]
pub struct Source {
    recorder: Recorder,
    component: Arc<str>,
}

impl Source {
    /// Tells an event that may be left out when there are many.
    pub fn event(
        &self,
        about: Subject,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.tell(about, severity, Importance::Repeatable, reason, message.into());
    }

    /// Tells the last there is to say of an object until something changes, be it served or
    /// blocked: it gets out however many events came before. The caller sees to it that it is rare.
    pub fn last_word(
        &self,
        about: Subject,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.tell(about, severity, Importance::LastWord, reason, message.into());
    }

    fn tell(
        &self,
        about: Subject,
        severity: Severity,
        importance: Importance,
        reason: &'static str,
        message: String,
    ) {
        tracing::info!(
            object = %about,
            fieldPath = "",
            kind = &*about.kind,
            apiVersion = &*about.api_version,
            r#type = severity.as_str(),
            reason,
            event_message = message,
            "Event occurred"
        );
        let shared = &self.recorder.0;
        let now = shared.clock.wall();
        shared.push(Event {
            name: shared.name(&about.name, now),
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
    fn left(&self) -> usize {
        let state = self.state.lock();
        state.pending.len() + state.in_hand
    }

    /// A name no other event of this process has; a UUID where the object's is no part of one.
    fn name(&self, object: &str, now: Timestamp) -> String {
        let mut state = self.state.lock();
        state.named = now.as_nanosecond().max(state.named + 1);
        let mut name = String::with_capacity(object.len() + 1 + STAMP);
        // Writing to a text cannot fail.
        let _ = write!(name, "{object}.{:x}", state.named);
        if is_dns_subdomain(&name) { name } else { self.random.uuid() }
    }

    fn push(&self, event: Event) {
        let entry = self.state.lock().pending.push(event);
        if entry != Entry::Taken {
            self.metrics.event_dropped("queue_full");
        }
        self.changed.notify_waiters();
    }

    async fn write_for_ever(&self, sink: &impl Sink) {
        let (mut correlator, mut waits) = (Correlator::default(), DependencyIndex::default());
        let mut writing = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some((object, again)) = writing.next() => {
                    waits.written(object);
                    self.settle(&mut waits, again);
                }
                attempt = self.next(&mut correlator, &mut waits), if writing.len() < AT_ONCE => {
                    let object = attempt.object;
                    writing.push(async move { (object, self.try_to_write(sink, attempt).await) });
                }
            }
        }
    }

    /// An event was tried: it is done, or waits to be tried `again`.
    fn settle(&self, waits: &mut DependencyIndex, again: Option<Attempt>) {
        match again {
            Some(attempt) => {
                let due = Instant::now() + self.pause(attempt.tried);
                waits.held.hold(attempt, due);
            }
            None => self.finished(),
        }
    }

    /// DependencyIndex for an event that is to be tried: one whose next try is due, else a new one.
    /// Whoever gives up waiting loses nothing.
    async fn next(&self, correlator: &mut Correlator, waits: &mut DependencyIndex) -> Attempt {
        loop {
            // Made before looking, so that a change between looking and waiting is not missed.
            let changed = self.changed.notified();
            if let Some(attempt) = waits.take_due(Instant::now()) {
                return attempt;
            }
            if let Some((object, event)) = self.take(waits) {
                if let Some(attempt) = self.judge(correlator, object, event) {
                    return attempt;
                }
                waits.written(object);
                self.finished();
            } else if let Some(due) = waits.held.next_due() {
                // Out of time or told: either way it looks again.
                let _ = timeout_at(due, changed).await;
            } else {
                changed.await;
            }
        }
    }

    /// Takes the next new event in hand, where one may be.
    fn take(&self, waits: &mut DependencyIndex) -> Option<(Digest, Event)> {
        let mut state = self.state.lock();
        if state.hurry {
            waits.held.hurry(Instant::now() + BETWEEN_LAST_TRIES);
        }
        if waits.is_full() {
            return None;
        }
        let taken = state.pending.pop(|object| waits.holds(object))?;
        waits.writing.insert(taken.0);
        state.in_hand += 1;
        Some(taken)
    }

    /// How a new event is to be written, if it is.
    fn judge(&self, correlator: &mut Correlator, object: Digest, event: Event) -> Option<Attempt> {
        let attempt = |event, exists| Some(Attempt { object, event, exists, tried: 0 });
        match correlate(correlator, event, self.clock.wall()) {
            Action::Post(event) => attempt(event, false),
            Action::Patch(event) => attempt(event, true),
            Action::Drop => {
                self.metrics.event_dropped("rate_limited");
                None
            }
        }
    }

    /// The writer has one event less in hand.
    fn finished(&self) {
        self.state.lock().in_hand -= 1;
        self.changed.notify_waiters();
    }

    /// Tries once. Gives back what another try may help.
    async fn try_to_write(&self, sink: &impl Sink, attempt: Attempt) -> Option<Attempt> {
        let attempt = Attempt { tried: attempt.tried + 1, ..attempt };
        let event = &attempt.event;
        match once(sink, event, attempt.exists).await {
            Ok(()) => {}
            Err(Failure::Passing(error)) if attempt.tried < TRIES => {
                tracing::error!(
                    event = event.name,
                    error,
                    "Unable to write event (may retry after sleeping)"
                );
                return Some(attempt);
            }
            Err(Failure::Passing(why)) => self.give_up("unreachable", event, &why),
            Err(Failure::Gone(why) | Failure::Refused(why)) => {
                self.give_up("refused", event, &why);
            }
            Err(Failure::Pointless(error)) => {
                tracing::debug!(
                    event = event.name,
                    error,
                    "Server rejected event (will not retry!)"
                );
                self.metrics.event_dropped("pointless");
            }
        }
        None
    }

    /// How long an event waits that was tried so often.
    fn pause(&self, tried: u32) -> Duration {
        if self.state.lock().hurry {
            return BETWEEN_LAST_TRIES;
        }
        // So that many clients do not come back in step after an outage.
        let share = if tried == 1 { self.random.unit() } else { 1.0 };
        BETWEEN_TRIES.mul_f64(share)
    }

    fn give_up(&self, reason: &str, event: &Event, why: &str) {
        tracing::error!(event = event.name, error = why, "Unable to write event (will not retry!)");
        self.metrics.event_dropped(reason);
    }
}

/// What the writer has in hand, by object: nothing else is written about one of those.
#[derive(Default)]
struct DependencyIndex {
    /// Events on their way.
    writing: BTreeSet<Digest>,
    /// Events whose next try is to come.
    held: Held,
}

impl DependencyIndex {
    /// The event about the object has its answer.
    fn written(&mut self, object: Digest) {
        self.writing.remove(&object);
    }

    fn take_due(&mut self, now: Instant) -> Option<Attempt> {
        let attempt = self.held.take_due(now)?;
        self.writing.insert(attempt.object);
        Some(attempt)
    }

    fn holds(&self, object: Digest) -> bool {
        self.writing.contains(&object) || self.held.holds(object)
    }

    /// Whether so many wait, or may come to wait, that no more may be begun.
    fn is_full(&self) -> bool {
        self.held.is_full(self.writing.len())
    }
}

/// One try: an event that is gone is made anew, with its count.
async fn once(sink: &impl Sink, event: &Event, exists: bool) -> Result<(), Failure> {
    if exists {
        match sink.patch(event).await {
            Err(Failure::Gone(_)) => {}
            done => return done,
        }
    }
    sink.create(event).await
}

/// What Kubernetes takes as a name: at most 253 characters, labels of small letters, digits and
/// dashes between dots, dashes only inside.
fn is_dns_subdomain(name: &str) -> bool {
    let inside = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.split('.').all(|label| {
            let edges = label.bytes().next().is_some_and(inside)
                && label.bytes().last().is_some_and(inside);
            edges && label.bytes().all(|c| inside(c) || c == b'-')
        })
}

#[cfg(test)]
mod tests;
