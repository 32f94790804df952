//! The fuzz target of log lines: any text in a message, a field or a span.

use std::{
    io::{Result, Write},
    sync::{Arc, LazyLock},
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tracing::Dispatch;

use super::{listen_for_ever, subscriber};
use crate::{flags::Logging, fuzzing::text, runtime::Clock};

/// The longest text, escaped: up to six bytes for one, as in `\u{1b}`.
const MOST: usize = 4096 * 6;
/// The number of texts in a line, and the length of the rest.
const TEXTS: usize = 5;
const AROUND: usize = 1024;

/// Checks that a line is of bounded length and has no raw control character, except in klog's format of
/// multi-line texts, and that in JSON it is one object that contains the text.
///
/// # Panics
/// If that does not hold.
pub fn log_line(data: &[u8]) {
    let text = text(data);
    // Just beyond the bound of one text.
    let long = text.repeat(4096 / text.len().max(1) + 1);
    for text in [&*text, &*long] {
        let klog = KLOG.logged(text);
        // Each further line begins with a tab, the last one with a space and a bracket.
        check(&klog.replace("\n\t", " ").replace("\n >", " "), text);
        let json = JSON.logged(text);
        check(&json, text);
        check_object(&json, text);
    }
}

fn check(line: &str, text: &str) {
    let line = line.strip_suffix('\n').unwrap_or_default();
    assert!(!line.is_empty(), "no line, or no newline: {text:?}");
    assert!(!line.chars().any(is_odd), "{line:?}");
    assert!(line.len() <= TEXTS * MOST + AROUND, "{} bytes", line.len());
}

fn check_object(json: &str, text: &str) {
    let read: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    for name in ["field", "shown", "around", "msg"] {
        let shown = read.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
        let is_cut = shown.ends_with(&format!("(cut, {} bytes)", text.len()));
        assert!(shown.len() <= 4096 && (is_cut || shown == text), "{name}: {shown:?}");
        assert_eq!(is_cut && shown != text, text.len() > 4096, "{name}: {shown:?}");
    }
}

/// Whether a character may change how a terminal shows this line or others.
fn is_odd(c: char) -> bool {
    let directs = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    c.is_control() || directs
}

struct Fixed;

impl Clock for Fixed {
    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
    fn boot(&self) -> Duration {
        Duration::ZERO
    }
}

/// A writer whose text can be read.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A subscriber of one format, made once, because that takes longer than a thousand lines.
struct Recorder {
    dispatch: Dispatch,
    written: Written,
}

static KLOG: LazyLock<Recorder> = LazyLock::new(|| Recorder::new("text"));
static JSON: LazyLock<Recorder> = LazyLock::new(|| Recorder::new("json"));

impl Recorder {
    fn new(format: &str) -> Self {
        listen_for_ever();
        let written = Written::default();
        let settings = Logging { verbosity: 10, vmodule: vec![], format: format.to_owned() };
        let writer = written.clone();
        let subscriber = subscriber(&settings, Arc::new(Fixed), 1, move || writer.clone());
        Self { dispatch: Dispatch::new(subscriber), written }
    }

    /// A line with the text in each kind of field; of a raised verbosity, at which no line is suppressed.
    fn logged(&self, text: &str) -> String {
        tracing::dispatcher::with_default(&self.dispatch, || {
            let span = tracing::info_span!("work", around = text);
            span.in_scope(|| tracing::debug!(field = text, shown = %text, debug = ?text, "{text}"));
        });
        let bytes = std::mem::take(&mut *self.written.0.lock());
        String::from_utf8(bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_line_is_short_and_has_no_control_characters() {
        crate::fuzzing::run("log_line", 100, super::log_line);
    }
}
