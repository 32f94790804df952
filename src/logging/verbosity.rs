//! The events that are logged at each `-v`.
//!
//! | `-v` | events of this program | macro or target | events of libraries |
//! |---|---|---|---|
//! | 0 | start, errors, warnings, outcomes | `error!`, `warn!`, `info!` | errors, warnings |
//! | 2 | and decisions | `debug!` | |
//! | 4 | and every attempt | `trace!` | |
//! | 5 | and every call to the driver with its answer, secrets stripped | [`CALLS`] | and information |
//! | 6 | and every request to the API server | [`REQUESTS`] | |
//! | 8 | | | and debugging |
//! | 10 | all | | all |
//!
//! Events of `kube` are never logged: it logs bodies of answers, which may hold secrets, and errors that
//! this program logs itself. `--vmodule` sets the verbosity of single source files (`claims=5,csi*=6`).

use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{Layer, layer::Context};

use crate::flags::Logging;

/// The target of events about calls to the driver: `-v=5`.
pub const CALLS: &str = "csi_provisioner::calls";
/// The target of events about requests to the API server: `-v=6`.
pub const REQUESTS: &str = "csi_provisioner::requests";

/// Crates whose events count as this program's.
const OWN: [&str; 3] = ["csi_provisioner", "cli", "testkit"];
/// A crate whose events are never logged.
const SILENT: &str = "kube";

/// The layer that decides which events are logged.
#[derive(Debug)]
pub(super) struct Filter {
    verbosity: u32,
    vmodule: Vec<(String, u32)>,
}

impl Filter {
    pub(super) fn new(settings: &Logging) -> Self {
        Self { verbosity: settings.verbosity, vmodule: settings.vmodule.concat() }
    }

    /// Whether events at the callsite `metadata` are logged. This program's spans are always enabled, since
    /// log lines have their fields.
    fn shows(&self, metadata: &Metadata<'_>) -> bool {
        if metadata.is_span() {
            return is_own(metadata);
        }
        of(metadata).is_some_and(|verbosity| verbosity <= self.limit(metadata.file()))
    }

    /// The verbosity of a source file.
    fn limit(&self, file: Option<&str>) -> u32 {
        let by_file = file.and_then(|file| {
            let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".rs");
            self.vmodule.iter().find(|(pattern, _)| matches(pattern, stem))
        });
        by_file.map_or(self.verbosity, |(_, verbosity)| *verbosity)
    }

    /// The most detailed level that may be logged.
    fn most(&self) -> LevelFilter {
        let limits = self.vmodule.iter().map(|(_, verbosity)| *verbosity);
        match limits.chain([self.verbosity]).max().unwrap_or_default() {
            0 | 1 => LevelFilter::INFO,
            2 | 3 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }
}

impl<S: Subscriber> Layer<S> for Filter {
    /// The settings never change, so the filter decides once per callsite.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.shows(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.shows(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most())
    }
}

/// The smallest `-v` at which `metadata` is logged; `None` for never.
pub(super) fn of(metadata: &Metadata<'_>) -> Option<u32> {
    let level = *metadata.level();
    if !is_own(metadata) {
        return foreign(metadata.target(), level);
    }
    Some(match (metadata.target(), level) {
        (CALLS, _) => 5,
        (REQUESTS, _) => 6,
        (_, Level::TRACE) => 4,
        (_, Level::DEBUG) => 2,
        _ => 0,
    })
}

fn is_own(metadata: &Metadata<'_>) -> bool {
    OWN.contains(&metadata.target().split("::").next().unwrap_or_default())
}

/// Whether events of `target` are never logged.
pub(crate) fn is_silent(target: &str) -> bool {
    target.starts_with(SILENT)
}

fn foreign(target: &str, level: Level) -> Option<u32> {
    match level {
        _ if is_silent(target) => None,
        Level::ERROR | Level::WARN => Some(0),
        Level::INFO => Some(5),
        Level::DEBUG => Some(8),
        Level::TRACE => Some(10),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, matched) in [
            ("claims", "claims", true),
            ("claims", "claim", false),
            ("claim", "claims", false),
            ("cl*", "claims", true),
            ("*s", "claims", true),
            ("*a*s*", "claims", true),
            ("c?aims", "claims", true),
            ("c?", "c", false),
            ("*", "", true),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, text), matched, "{pattern} {text}");
        }
    }
}
