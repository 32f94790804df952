//! What a test's thread logs.

use std::{
    io::{Result, Write},
    sync::Arc,
};

use parking_lot::Mutex;
use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::{filter::filter_fn, fmt, layer::SubscriberExt as _};

use super::{is_silent, listen_for_ever};

/// A writer whose text can be read.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> Result<usize> {
        self.0.lock().write(text)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Collects what this thread logs at INFO and above while the guard lives.
pub(crate) fn logged() -> (Log, DefaultGuard) {
    logged_down_to(Level::INFO)
}

/// Collects what this thread logs at `level` and above while the guard lives, without what is never logged.
pub(crate) fn logged_down_to(level: Level) -> (Log, DefaultGuard) {
    logged_by(level, |target| !is_silent(target))
}

/// Collects what this thread logs at `level` and above while the guard lives, of the targets that are wanted.
pub(crate) fn logged_by(level: Level, wanted: fn(&str) -> bool) -> (Log, DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let lines = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    let is_logged = filter_fn(move |event| *event.level() <= level && wanted(event.target()));
    let subscriber = tracing_subscriber::registry().with(is_logged).with(lines);
    listen_for_ever();
    (log, tracing::subscriber::set_default(subscriber))
}
