//! Logs: klog's lines or JSON objects on stderr.
//!
//! Owns what a log line looks like, which ones are shown (`verbosity`), and how often the same one
//! is (`repeats`), and what a panic prints (`panics`). Promises one whole line an event, written at once (nothing is held back, so
//! nothing is lost at the end), in the shapes that tools made for the original read; that no text makes
//! it long or brings a control character into it, but for klog's own form of texts of many lines; that every
//! line bears the fields of the spans it was told in (whose claim, which attempt); and that a line
//! which is not shown costs no formatting. Leaves what is told, and keeping secrets out of it, to
//! those who tell; of other libraries it shows what is worth it only.

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
    repeats::{Repeats, Say},
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

/// Room for a line, in bytes; what a longer one needed is given back.
const ROOM: usize = 4096;

/// Logging was set up before in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("logging is set up already")]
pub struct SetUpAlready;

/// Sends all logs of the process to stderr from now on.
///
/// # Errors
/// [`SetUpAlready`] the second time.
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
    /// What open spans say. Not with the spans themselves: the registry would keep a small piece of
    /// memory for each of the most that were ever open at once.
    spans: Mutex<BTreeMap<u64, Fields>>,
    out: Mutex<Out<W>>,
}

/// Where lines go, and which ones went there lately.
struct Out<W> {
    writer: W,
    repeats: Repeats,
    /// Holds the line that is being written, and has its place from the start.
    text: Vec<u8>,
}

impl<W: Write + Send + 'static> Logger<W> {
    /// A logger; [`init`] makes the process's own, tests make theirs.
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
                text: Vec::with_capacity(ROOM),
            }),
        }
    }

    fn write(&self, mut line: Line) {
        let out = &mut *self.out.lock();
        // Who asks for more than the usual wants to see all of it.
        if line.is_usual() {
            match out.repeats.judge(&line, self.clock.boot()) {
                Say::Nothing => return,
                Say::It => {}
                Say::After { unsaid } => line.count_unsaid(unsaid),
            }
        }
        let written = line.write(self.format, self.process, &mut out.text);
        // Nobody is left to tell that nothing can be told.
        let _ = written.and_then(|()| out.writer.write_all(&out.text));
        out.text.clear();
        out.text.shrink_to(ROOM);
    }
}

impl<S, W> Layer<S> for Logger<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Write + Send + 'static,
{
    /// The settings never change: each place that tells something is judged once.
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
                line.told_in(fields);
            }
        }
        drop(spans);
        self.write(line);
    }
}

/// Lets tests that run side by side read their own log lines. tracing remembers for the whole
/// process whether anybody listens to a line; a listener that comes or goes in another test could
/// make it forget. One that never goes, and keeps nothing, settles that.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn listen_for_ever() {
    static LISTENER: std::sync::Once = std::sync::Once::new();
    LISTENER.call_once(|| {
        drop(tracing::subscriber::set_global_default(tracing_subscriber::registry()));
    });
}

#[cfg(test)]
mod tests;
