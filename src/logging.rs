//! Writes logs to stderr, as klog's lines or JSON objects.
//!
//! `verbosity` decides which events are logged, `format` formats an event with the fields of its spans,
//! `panics` formats panics. Registry and layers are those of
//! `tracing-subscriber`. Each event is one line in the format of external-provisioner, written at once
//! without a buffer. Texts are truncated and have no control characters, except klog's own format of
//! multi-line texts. A line has the fields of its spans, such as the claim and the attempt. An event that
//! is not logged is not formatted. Callers keep secrets out of their events.

mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../fuzz/bodies/log_line.rs"]
pub mod fuzz;
mod panics;
mod verbosity;

use std::sync::Arc;

use tracing::Subscriber;
use tracing_subscriber::{
    Registry,
    fmt::{MakeWriter, format::debug_fn},
    layer::SubscriberExt as _,
};

use self::{
    format::{LineFormat, SpanFields},
    verbosity::filter,
};
pub use self::{
    panics::escape_panics,
    verbosity::{CALLS, REQUESTS},
};
use crate::{flags::Logging, runtime::Clock};

/// Logging was set up before in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("logging is set up already")]
pub struct SetUpAlready;

/// Sets up logging of the process to stderr.
///
/// # Errors
/// [`SetUpAlready`] if it was called before.
pub fn init(settings: &Logging, clock: Arc<dyn Clock>) -> Result<(), SetUpAlready> {
    let subscriber = subscriber(settings, clock, std::process::id(), std::io::stderr);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| SetUpAlready)
}

/// A subscriber that writes the log lines of the process with the ID `process` to `writer`.
fn subscriber<W>(
    settings: &Logging,
    clock: Arc<dyn Clock>,
    process: u32,
    writer: W,
) -> impl Subscriber + Send + Sync + use<W>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let is_json = settings.format == "json";
    let lines = tracing_subscriber::fmt::layer()
        // `SpanFields` keeps them.
        .fmt_fields(debug_fn(|_, _, _| Ok(())))
        .event_format(LineFormat { is_json, clock, process })
        .with_writer(writer)
        // There is nowhere to report an error, and stderr may be closed.
        .log_internal_errors(false);
    Registry::default().with(filter(settings)).with(SpanFields).with(lines)
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
pub(crate) use self::verbosity::is_silent;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
