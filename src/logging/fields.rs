//! The fields of events and spans, in the syntax of a log format.
//!
//! Values come from users, drivers and servers: each is truncated and escaped when it is recorded.
//! `tracing-subscriber` keeps the fields of a span as one string. Here this is a list of `name=value`, each
//! followed by [`END`], which escaped values do not contain. An event's fields are such a list as well.

use std::fmt::{self, Display, Write as _};

use serde_json::Value;
use tracing::{
    field::{Field, Visit},
    span::Record,
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FormatFields, FormattedFields, format::Writer},
};

use super::LogFormat;
use crate::plain_text::{Cut, escaped, is_odd};

/// The name of an event's message in a list, as in component-base's JSON format.
pub(super) const MESSAGE: &str = "msg";

/// Follows each field in a list.
const END: char = '\0';

/// The longest text of a value, in bytes, before it is escaped, which may multiply it by six.
const MAX_TEXT: usize = 4096;

/// Formats the fields of spans and events.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldFormat(pub(super) LogFormat);

impl FieldFormat {
    /// The list of `fields`.
    pub(super) fn list(self, fields: impl RecordFields) -> String {
        let mut visitor = Visitor { format: self.0, list: String::new() };
        fields.record(&mut visitor);
        visitor.list
    }
}

impl<'writer> FormatFields<'writer> for FieldFormat {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        writer.write_str(&self.list(fields))
    }

    /// Replaces fields of the same names in their places, and appends the others.
    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        let recorded = self.list(fields);
        let mut merged = String::new();
        for field in iter(&current.fields) {
            let (name, value) = split(field);
            push(&mut merged, name, find(&recorded, name).unwrap_or(value));
        }
        add_missing(&mut merged, &recorded);
        current.fields = merged;
        Ok(())
    }
}

/// The fields of a list, as `name=value`.
pub(super) fn iter(list: &str) -> impl Iterator<Item = &str> {
    list.split_terminator(END)
}

/// The name and the value of a field.
pub(super) fn split(field: &str) -> (&str, &str) {
    field.split_once('=').unwrap_or((field, ""))
}

/// The value of a field, if it is called `name`.
pub(super) fn value<'a>(field: &'a str, name: &str) -> Option<&'a str> {
    field.strip_prefix(name)?.strip_prefix('=')
}

/// The value of the field `name` in a list.
pub(super) fn find<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    iter(list).find_map(|field| value(field, name))
}

/// Adds those of `others` whose names are not in the list.
pub(super) fn add_missing(list: &mut String, others: &str) {
    for field in iter(others) {
        let (name, value) = split(field);
        if find(list, name).is_none() {
            push(list, name, value);
        }
    }
}

/// Adds a field.
pub(super) fn push(list: &mut String, name: &str, value: impl Display) {
    list.push_str(name);
    list.push('=');
    // Writing to a String cannot fail.
    let _ = write!(list, "{value}");
    list.push(END);
}

/// Records fields in a list.
struct Visitor {
    format: LogFormat,
    list: String,
}

impl Visitor {
    fn record(&mut self, field: &Field, value: impl Display) {
        push(&mut self.list, name(field), value);
    }

    fn record_text(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        let mut whole = String::new();
        let mut cut = Cut::new(&mut whole, MAX_TEXT);
        // A value that fails to format itself is logged as far as it was formatted.
        let _ = cut.write_fmt(text);
        cut.finish();
        let (list, name, text) = (&mut self.list, name(field), &*whole);
        match self.format {
            LogFormat::Json => push(list, name, JsonString(text)),
            LogFormat::Text if name != MESSAGE && text.contains('\n') => {
                push(list, name, Lines(text));
            }
            LogFormat::Text => push(list, name, format_args!("{text:?}")),
        }
    }
}

impl Visit for Visitor {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_text(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_text(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_text(field, format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.record(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no NaN and no infinities: they are null.
        self.record(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.record(field, value);
    }
}

/// The name under which a field is logged.
fn name(field: &Field) -> &'static str {
    match field.name() {
        "message" => MESSAGE,
        // It cannot be called `message` in the source, since that is the event's message.
        "event_message" => "message",
        // klog's name for it.
        "error" => "err",
        name => name.strip_prefix("r#").unwrap_or(name),
    }
}

/// klog's format of multi-line texts: indented between `<` and `>`.
struct Lines<'a>(&'a str);

impl Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('<')?;
        for line in self.0.strip_suffix('\n').unwrap_or(self.0).split('\n') {
            write!(f, "\n\t{}", escaped(line))?;
        }
        f.write_str("\n >")
    }
}

/// A JSON string, in which control characters that JSON allows are escaped, too.
pub(super) struct JsonString<'a>(pub(super) &'a str);

impl Display for JsonString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let mut plain = 0;
        let special = |c: char| matches!(c, '"' | '\\') || is_odd(c);
        for (at, c) in self.0.char_indices().filter(|(_, c)| special(*c)) {
            f.write_str(self.0.get(plain..at).unwrap_or_default())?;
            write_escape(c, f)?;
            plain = at + c.len_utf8();
        }
        f.write_str(self.0.get(plain..).unwrap_or_default())?;
        f.write_char('"')
    }
}

fn write_escape(c: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match c {
        '"' | '\\' => write!(f, "\\{c}"),
        '\u{8}' => f.write_str("\\b"),
        '\t' => f.write_str("\\t"),
        '\n' => f.write_str("\\n"),
        '\u{c}' => f.write_str("\\f"),
        '\r' => f.write_str("\\r"),
        c => c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(f, "\\u{unit:04x}")),
    }
}
