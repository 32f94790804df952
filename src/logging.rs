//! Writes logs to stderr, as klog's lines or JSON objects.
//!
//! `verbosity` decides which events are logged, `repeats` limits equal lines, `panics` formats panics.
//! Each event is one line in the format of external-provisioner, written at once without a buffer.
//! Texts are truncated and have no control characters, except klog's own format of multi-line texts.
//! A line has the fields of its spans, such as the claim and the attempt. An event that is not logged
//! is not formatted. Callers keep secrets out of their events.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod line;
mod panics;
mod repeats;
mod verbosity;

use std::{collections::BTreeMap, io::Write, sync::Arc};

use parking_lot::Mutex;
use tracing::{
    Event, Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};
use tracing_subscriber::{
    Layer, Registry,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
};

use self::{
    line::{Fields, Line},
    repeats::{Decision, Repeats},
    verbosity::Filter,
};
pub use self::{
    panics::escape_panics,
    verbosity::{BODIES, CALLS, REQUESTS},
};
use crate::{
    flags::{LogFormat, Logging},
    runtime::Clock,
};

/// The capacity of the line buffer, in bytes; it shrinks to this after a longer line.
const LINE_CAPACITY: usize = 4096;

/// Logging was set up before in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("logging is set up already")]
pub struct SetUpAlready;

/// Sets up logging of the process to stderr.
///
/// # Errors
/// [`SetUpAlready`] if it was called before.
pub fn init(settings: &Logging, clock: Arc<dyn Clock>) -> Result<(), SetUpAlready> {
    let logger = Logger::new(settings, clock, std::io::stderr());
    let subscriber = Registry::default().with(logger);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| SetUpAlready)
}

/// Writes log lines to `W`.
struct Logger<W> {
    format: LogFormat,
    filter: Filter,
    clock: Arc<dyn Clock>,
    process: u32,
    /// The fields of open spans. Not in the spans' extensions, because the registry never frees those.
    spans: Mutex<BTreeMap<u64, Fields>>,
    out: Mutex<Out<W>>,
}

/// The output, and the lines that were written lately.
struct Out<W> {
    writer: W,
    repeats: Repeats,
    /// The buffer for the current line.
    text: Vec<u8>,
}

impl<W: Write + Send + 'static> Logger<W> {
    /// A logger that writes to `writer`.
    fn new(settings: &Logging, clock: Arc<dyn Clock>, writer: W) -> Self {
        Self {
            format: settings.format,
            filter: Filter::new(settings),
            clock,
            process: std::process::id(),
            spans: Mutex::default(),
            out: Mutex::new(Out {
                writer,
                repeats: Repeats::default(),
                text: Vec::with_capacity(LINE_CAPACITY),
            }),
        }
    }

    fn write(&self, mut line: Line) {
        let out = &mut *self.out.lock();
        // Events of a raised verbosity are not limited.
        if line.is_usual() {
            match out.repeats.decide(&line, self.clock.boot()) {
                Decision::Suppress => return,
                Decision::Log => {}
                Decision::LogWithCount { suppressed } => line.add_suppressed_count(suppressed),
            }
        }
        let written = line.write(self.format, self.process, &mut out.text);
        // Errors are ignored: there is nowhere to report them.
        let _ = written.and_then(|()| out.writer.write_all(&out.text));
        out.text.clear();
        out.text.shrink_to(LINE_CAPACITY);
    }
}

impl<S, W> Layer<S> for Logger<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Write + Send + 'static,
{
    /// The settings never change, so the filter decides once per callsite.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.filter.shows(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.filter.shows(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter.most())
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        self.spans.lock().insert(id.into_u64(), Fields::of(attributes));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(fields) = self.spans.lock().get_mut(&id.into_u64()) {
            values.record(fields);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.spans.lock().remove(&id.into_u64());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Line::read(event, self.clock.wall());
        let spans = self.spans.lock();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = spans.get(&span.id().into_u64()) {
                line.add_span_fields(fields);
            }
        }
        drop(spans);
        self.write(line);
    }
}

/// Installs a global subscriber that drops all events, so that concurrent tests can read their own log
/// lines: tracing caches per callsite whether any subscriber is interested, and a subscriber of another
/// test that comes or goes could turn a callsite off.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn listen_for_ever() {
    static LISTENER: std::sync::Once = std::sync::Once::new();
    LISTENER.call_once(|| {
        drop(tracing::subscriber::set_global_default(tracing_subscriber::registry()));
    });
}

#[cfg(test)]
mod tests;
