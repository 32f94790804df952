//! Logs: klog's lines or JSON objects on stderr.
//!
//! Owns what a log line looks like and which ones are shown. Promises one whole line an event,
//! written at once (nothing is held back, so nothing is lost at the end), in the shapes that tools
//! made for the original read. Leaves what is told, and keeping secrets out of it, to those who
//! tell; of other libraries it shows what is worth it only.
//!
//! | `-v` | shown of this program | shown of libraries |
//! |---|---|---|
//! | 0 to 2 | errors, warnings, information | errors, warnings |
//! | 3 and 4 | and debugging | errors, warnings |
//! | 5 to 7 | and traces: every call to the driver | and information |
//! | 8 and 9 | all | and debugging |
//! | 10 | all | all |
//!
//! Nothing is ever shown of `kube`, which logs bodies of answers (they may hold secrets) and
//! complains of failures that are told by this program itself. `--vmodule` sets the number for
//! single source files (`claims=5,csi*=6`). Spans are not shown.

mod line;

use std::{io::Write, sync::Arc};

use parking_lot::Mutex;
use tracing::{
    Event, Level, Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};

use crate::{flags::Logging, runtime::Clock};

/// Crates whose events count as this program's.
const OWN: [&str; 2] = ["csi_provisioner", "testkit"];
/// Crates of which nothing is shown.
const SILENT: &str = "kube";

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
    tracing::subscriber::set_global_default(logger).map_err(|_| SetUpAlready)
}

/// Writes log lines to `W`.
pub(crate) struct Logger<W> {
    settings: Logging,
    clock: Arc<dyn Clock>,
    process: u32,
    writer: Mutex<W>,
}

impl<W> std::fmt::Debug for Logger<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logger").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<W: Write + Send + 'static> Logger<W> {
    /// A logger; [`init`] makes the process's own, tests and simulations make theirs.
    pub(crate) fn new(settings: &Logging, clock: Arc<dyn Clock>, writer: W) -> Self {
        Self {
            settings: settings.clone(),
            clock,
            process: std::process::id(),
            writer: Mutex::new(writer),
        }
    }

    /// The most that is shown of what `metadata` describes.
    fn limit(&self, metadata: &Metadata<'_>) -> LevelFilter {
        let by_file = metadata.file().and_then(|file| {
            let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".rs");
            self.settings.vmodule.iter().find(|(pattern, _)| matches(pattern, stem))
        });
        let verbosity = by_file.map_or(self.settings.verbosity, |(_, verbosity)| *verbosity);
        let name = metadata.target().split("::").next().unwrap_or_default();
        if OWN.contains(&name) { own(verbosity) } else { foreign(name, verbosity) }
    }
}

fn own(verbosity: u32) -> LevelFilter {
    match verbosity {
        0..=2 => LevelFilter::INFO,
        3 | 4 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

fn foreign(name: &str, verbosity: u32) -> LevelFilter {
    match verbosity {
        _ if name.starts_with(SILENT) => LevelFilter::OFF,
        0..=4 => LevelFilter::WARN,
        5..=7 => LevelFilter::INFO,
        8 | 9 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Whether `text` matches a pattern with `*` (any text) and `?` (any letter).
fn matches(pattern: &str, text: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return text.is_empty() };
    let rest = pattern.get(first.len_utf8()..).unwrap_or_default();
    let mut letters = text.chars();
    match (first, letters.next()) {
        ('*', letter) => {
            matches(rest, text) || letter.is_some() && matches(pattern, letters.as_str())
        }
        ('?', Some(_)) => matches(rest, letters.as_str()),
        (first, Some(letter)) => first == letter && matches(rest, letters.as_str()),
        (_, None) => false,
    }
}

impl<W: Write + Send + 'static> Subscriber for Logger<W> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.limit(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let verbosities = self.settings.vmodule.iter().map(|(_, verbosity)| *verbosity);
        verbosities.chain([self.settings.verbosity]).map(own).max()
    }

    fn event(&self, event: &Event<'_>) {
        let line = line::Line::read(event, self.clock.wall());
        let text = line.write(self.settings.format, self.process);
        // Nobody is left to tell that nothing can be told.
        let _ = self.writer.lock().write_all(text.as_bytes());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// klog's level of information that is shown from `-v` on.
fn verbosity_of(level: Level) -> u8 {
    match level {
        Level::DEBUG => 3,
        Level::TRACE => 5,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
