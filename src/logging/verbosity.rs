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

use tracing::{Level, Metadata, level_filters::LevelFilter};
use tracing_subscriber::filter::{FilterFn, filter_fn};

use crate::flags::Logging;

/// The target of events about calls to the driver: `-v=5`.
pub const CALLS: &str = "csi_provisioner::calls";
/// The target of events about requests to the API server: `-v=6`.
pub const REQUESTS: &str = "csi_provisioner::requests";

/// Crates whose events count as this program's.
const OWN: [&str; 3] = ["csi_provisioner", "cli", "testkit"];
/// A crate whose events are never logged.
const SILENT: &str = "kube";

/// The layer that decides which events are logged, once per callsite. This program's spans are always enabled,
/// since log lines have their fields.
pub(super) fn filter(settings: &Logging) -> FilterFn<impl Fn(&Metadata<'_>) -> bool + use<>> {
    let (verbosity, vmodule) = (settings.verbosity, settings.vmodule.concat());
    let most = vmodule.iter().map(|(_, of_file)| *of_file).fold(verbosity, u32::max);
    let shows = move |metadata: &Metadata<'_>| {
        if metadata.is_span() {
            return is_own(metadata);
        }
        let of_file = metadata.file().and_then(|file| of_file(&vmodule, file));
        of(metadata).is_some_and(|least| least <= of_file.unwrap_or(verbosity))
    };
    filter_fn(shows).with_max_level_hint(most_detailed(most))
}

/// The verbosity that `--vmodule` sets for a source file.
fn of_file(vmodule: &[(String, u32)], file: &str) -> Option<u32> {
    let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".rs");
    let found = vmodule.iter().find(|(pattern, _)| matches(pattern, stem));
    found.map(|(_, verbosity)| *verbosity)
}

/// The most detailed level of which anything is logged.
fn most_detailed(verbosity: u32) -> LevelFilter {
    match verbosity {
        0 | 1 => LevelFilter::INFO,
        2 | 3 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
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
