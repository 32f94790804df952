//! From telling an event to the API server: a bounded queue and one task that writes.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::{
    Correlator, Event, Importance, Severity, Subject, Verdict, correlate,
    pending::{Entry, Pending},
    sink::{Failure, Sink},
};
use crate::{
    kube_api::Client,
    metrics::{ApiMetrics, Metrics},
    runtime::{Clock, Random, Tasks},
};

/// Tries an event gets, as in client-go.
const TRIES: u32 = 12;
/// Time between tries, as in client-go; the first is cut by chance.
const BETWEEN_TRIES: Duration = Duration::from_secs(10);
/// Time between tries once the process is about to end.
const BETWEEN_LAST_TRIES: Duration = Duration::from_millis(500);

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
    /// Told when an event comes in, and when the writer has finished one.
    changed: Notify,
    /// The process is about to end: there is no time for long pauses.
    hurry: watch::Sender<bool>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    metrics: ApiMetrics,
}

#[derive(Default)]
struct State {
    pending: Pending,
    /// The writer has an event in hand.
    writing: bool,
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
            hurry: watch::Sender::new(false),
            clock,
            random,
            metrics: metrics.api.clone(),
        });
        let writer = Arc::clone(&shared);
        tasks.vital("events", async move { writer.write_for_ever(&sink).await });
        Self(shared)
    }

    /// Tells events in the name of `component`.
    pub fn from(&self, component: &str) -> Source {
        Source { recorder: self.clone(), component: component.into() }
    }

    /// Waits until all events are written or given up, but no longer than `limit`; how many are
    /// left then. From now on tries follow one another quickly: the process is about to end.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.0.hurry.send_replace(true);
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
    pub fn event(&self, about: &Subject, severity: Severity, reason: &str, message: &str) {
        self.tell(about, severity, Importance::Repeatable, reason, message);
    }

    /// Tells the end of an object's story: it gets out however many events came before.
    pub fn last_word(&self, about: &Subject, severity: Severity, reason: &str, message: &str) {
        self.tell(about, severity, Importance::LastWord, reason, message);
    }

    fn tell(
        &self,
        about: &Subject,
        severity: Severity,
        importance: Importance,
        reason: &str,
        message: &str,
    ) {
        tracing::info!(
            object = about.to_string(),
            kind = about.kind,
            apiVersion = about.api_version,
            r#type = severity.as_str(),
            reason,
            message,
            "Event occurred"
        );
        let shared = &self.recorder.0;
        let now = shared.clock.wall();
        shared.push(Event {
            name: shared.name(&about.name, now),
            about: Arc::new(about.clone()),
            component: Arc::clone(&self.component),
            reporting_component: Arc::clone(&self.component),
            severity,
            importance,
            reason: reason.to_owned(),
            message: message.to_owned(),
            first: now,
            last: now,
            count: 1,
        });
    }
}

impl Shared {
    fn left(&self) -> usize {
        let state = self.state.lock();
        state.pending.len() + usize::from(state.writing)
    }

    /// A name no other event of this process has; a UUID where the object's is no part of one.
    fn name(&self, object: &str, now: Timestamp) -> String {
        let mut state = self.state.lock();
        state.named = now.as_nanosecond().max(state.named + 1);
        let name = format!("{object}.{:x}", state.named);
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
        let mut correlator = Correlator::default();
        loop {
            let event = self.next().await;
            match correlate(&mut correlator, event, self.clock.wall()) {
                Verdict::Drop => self.metrics.event_dropped("rate_limited"),
                Verdict::Post(event) => self.write(sink, &event, false).await,
                Verdict::Patch(event) => self.write(sink, &event, true).await,
            }
            self.state.lock().writing = false;
            self.changed.notify_waiters();
        }
    }

    /// Waits for an event and takes it in hand.
    async fn next(&self) -> Event {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state.lock();
                if let Some(event) = state.pending.pop() {
                    state.writing = true;
                    return event;
                }
            }
            changed.await;
        }
    }

    /// Writes one event, with further tries where they may help. Those behind it wait: what keeps
    /// this one from the server would keep them too.
    async fn write(&self, sink: &impl Sink, event: &Event, exists: bool) {
        for tried in 1..=TRIES {
            let failure = match once(sink, event, exists).await {
                Ok(()) => return,
                Err(failure) => failure,
            };
            match failure {
                Failure::Passing(why) if tried < TRIES => self.pause(tried, event, &why).await,
                Failure::Passing(why) => self.give_up("unreachable", event, &why),
                Failure::Gone(why) | Failure::Refused(why) => {
                    return self.give_up("refused", event, &why);
                }
                Failure::Pointless(why) => {
                    tracing::debug!(
                        event = event.name,
                        error = why,
                        "Server rejected event (will not retry!)"
                    );
                    return self.metrics.event_dropped("pointless");
                }
            }
        }
    }

    async fn pause(&self, tried: u32, event: &Event, why: &str) {
        tracing::error!(
            event = event.name,
            error = why,
            "Unable to write event (may retry after sleeping)"
        );
        // So that many clients do not come back in step after an outage.
        let share = if tried == 1 { self.random.unit() } else { 1.0 };
        let mut hurry = self.hurry.subscribe();
        let hurried = async { drop(hurry.wait_for(|hurry| *hurry).await) };
        if tokio::time::timeout(BETWEEN_TRIES.mul_f64(share), hurried).await.is_ok() {
            tokio::time::sleep(BETWEEN_LAST_TRIES).await;
        }
    }

    fn give_up(&self, reason: &str, event: &Event, why: &str) {
        tracing::error!(event = event.name, error = why, "Unable to write event (will not retry!)");
        self.metrics.event_dropped(reason);
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
