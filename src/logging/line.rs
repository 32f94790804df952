//! One log line, as klog's text and as JSON.

use std::fmt::{self, Write as _};

use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Map, Value};
use tracing::{
    Event, Level,
    field::{Field, Visit},
    span::Attributes,
};

use super::verbosity;
use crate::flags::LogFormat;

/// Named values, as an event or a span has them.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// What a new span says.
    pub(super) fn of(attributes: &Attributes<'_>) -> Self {
        let mut fields = Self::default();
        attributes.record(&mut fields);
        fields
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(at).1)
    }

    /// Sets a value; what a span said before under this name no longer holds.
    fn set(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            // klog's name for it.
            "error" => "err",
            name => name.strip_prefix("r#").unwrap_or(name),
        };
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }
}

/// What an event says.
pub(super) struct Line {
    level: Level,
    time: Timestamp,
    file: &'static str,
    number: u32,
    verbosity: u32,
    message: String,
    fields: Fields,
}

impl Line {
    /// Reads an event that happened at `time`.
    pub(super) fn read(event: &Event<'_>, time: Timestamp) -> Self {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = match fields.take("message") {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        Self {
            level: *metadata.level(),
            time,
            file: metadata.file().unwrap_or("?"),
            number: metadata.line().unwrap_or(0),
            verbosity: verbosity::of(metadata).unwrap_or_default(),
            message,
            fields,
        }
    }

    /// Adds what the span around says; what the line says itself, or an inner span, counts.
    pub(super) fn told_in(&mut self, span: &Fields) {
        for (name, value) in &span.0 {
            if !self.fields.0.iter().any(|(known, _)| known == name) {
                self.fields.0.push((name, value.clone()));
            }
        }
    }

    /// Whether the line is shown at `-v=0`.
    pub(super) fn is_usual(&self) -> bool {
        self.verbosity == 0
    }

    /// What makes two lines the same: all but the time and the number of the attempt.
    pub(super) fn identity(&self) -> String {
        let mut text = format!("{}:{} {}", self.file, self.number, self.message);
        for (name, value) in self.fields.0.iter().filter(|(name, _)| *name != "attempt") {
            // Writing to a text cannot fail.
            let _ = write!(text, " {name}={value}");
        }
        text
    }

    /// Adds how often the line was left out before.
    pub(super) fn count_unsaid(&mut self, unsaid: u32) {
        self.fields.0.push(("repeated", unsaid.into()));
    }

    /// The line with its end.
    pub(super) fn write(&self, format: LogFormat, process: u32) -> String {
        match format {
            LogFormat::Text => self.text(process),
            LogFormat::Json => self.json(),
        }
    }

    /// `I1121 02:03:04.000000       1 file.rs:12] "message" key="value"`
    fn text(&self, process: u32) -> String {
        let letter = match self.level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let time = self.time.to_zoned(TimeZone::UTC);
        let file = self.path(1);
        let mut text = format!(
            "{letter}{:02}{:02} {:02}:{:02}:{:02}.{:06} {process:7} {file}:{}] {:?}",
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.subsec_nanosecond() / 1000,
            self.number,
            self.message,
        );
        for (name, value) in &self.fields.0 {
            text.push_str(&field(name, value));
        }
        text.push('\n');
        text
    }

    /// The names of component-base's JSON format: `ts` in milliseconds, `v` but for errors.
    fn json(&self) -> String {
        // A double holds microseconds of the present exactly enough.
        #[allow(clippy::cast_precision_loss)]
        let milliseconds = self.time.as_microsecond() as f64 / 1000.0;
        let mut object = Map::new();
        object.insert("ts".to_owned(), milliseconds.into());
        object.insert("caller".to_owned(), format!("{}:{}", self.path(2), self.number).into());
        object.insert("msg".to_owned(), self.message.as_str().into());
        if self.level != Level::ERROR {
            object.insert("v".to_owned(), self.verbosity.into());
        }
        for (name, value) in &self.fields.0 {
            object.insert((*name).to_owned(), value.clone());
        }
        format!("{}\n", Value::Object(object))
    }

    /// The last `parts` of the source file's path.
    fn path(&self, parts: usize) -> &'static str {
        let start = self.file.rmatch_indices('/').nth(parts - 1).map_or(0, |(at, _)| at + 1);
        self.file.get(start..).unwrap_or(self.file)
    }
}

/// One field in klog's text: texts in quotes, those of many lines indented between `<` and `>`.
fn field(name: &str, value: &Value) -> String {
    let mut text = format!(" {name}=");
    match value {
        Value::String(value) if value.contains('\n') => {
            text.push('<');
            for line in value.lines() {
                text.push_str("\n\t");
                text.push_str(line);
            }
            text.push_str("\n >");
        }
        Value::String(value) => _ = write!(text, "{value:?}"),
        other => _ = write!(text, "{other}"),
    }
    text
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.set(field, value.to_string().into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }
}
