//! One log line, as klog's text or as JSON.
//!
//! Values come from users, drivers and servers: each is truncated when it is recorded, and escaped when it
//! is written.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    io,
    sync::Arc,
};

use jiff::tz::Offset;
use serde::Serialize as _;
use serde_json::{Value, ser};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::Context,
    registry::LookupSpan,
};

use super::verbosity;
use crate::{
    plain_text::{Cut, escaped, is_odd},
    runtime::Clock,
};

/// The longest text of a value, in bytes, before it is escaped, which may multiply it by six.
const MAX_TEXT: usize = 4096;

/// As many fields as a line usually has, with those of its spans.
const USUAL_FIELDS: usize = 8;

/// The name of an event's message, as in component-base's JSON format.
const MESSAGE: &str = "msg";

/// Formats events as log lines.
pub(super) struct LineFormat {
    pub(super) is_json: bool,
    pub(super) clock: Arc<dyn Clock>,
    /// The process's ID.
    pub(super) process: u32,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields(Vec::with_capacity(USUAL_FIELDS));
        event.record(&mut fields);
        for span in context.event_scope().into_iter().flatten() {
            if let Some(of_span) = span.extensions().get() {
                fields.add_missing(of_span);
            }
        }
        if self.is_json {
            self.write_json(event.metadata(), fields, &mut out)
        } else {
            self.write_text(event.metadata(), &fields, &mut out)
        }
    }
}

impl LineFormat {
    /// `I1121 02:03:04.000000       1 file.rs:12] "message" key="value"`
    fn write_text(
        &self,
        metadata: &Metadata<'_>,
        Fields(fields): &Fields,
        out: &mut Writer<'_>,
    ) -> fmt::Result {
        let letter = match *metadata.level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let time = Offset::UTC.to_datetime(self.clock.wall());
        let time = time.strftime("%m%d %H:%M:%S%.6f");
        write!(out, "{letter}{time} {:7} {}] ", self.process, place(metadata, 1))?;
        let message = fields.iter().find(|(name, _)| *name == MESSAGE);
        write!(out, "{:?}", message.and_then(|(_, it)| it.as_str()).unwrap_or_default())?;
        for (name, value) in fields.iter().filter(|(name, _)| *name != MESSAGE) {
            write!(out, " {name}=")?;
            match value {
                Value::String(text) if text.contains('\n') => write_lines(text, out)?,
                Value::String(text) => write!(out, "{text:?}")?,
                value => write!(out, "{value}")?,
            }
        }
        writeln!(out)
    }

    /// The names of component-base's JSON format: `ts` in milliseconds, `v` except for errors.
    fn write_json(
        &self,
        metadata: &Metadata<'_>,
        Fields(fields): Fields,
        out: &mut Writer<'_>,
    ) -> fmt::Result {
        // A double holds microseconds of the present exactly enough.
        #[allow(clippy::cast_precision_loss)]
        let milliseconds = self.clock.wall().as_microsecond() as f64 / 1000.0;
        let mut object = BTreeMap::from([
            ("ts", milliseconds.into()),
            ("caller", place(metadata, 2).into()),
            (MESSAGE, "".into()),
        ]);
        if *metadata.level() != Level::ERROR {
            object.insert("v", verbosity::of(metadata).unwrap_or_default().into());
        }
        object.extend(fields);
        let mut json = Vec::new();
        let mut serializer = serde_json::Serializer::with_formatter(&mut json, Escaping);
        object.serialize(&mut serializer).map_err(|_| fmt::Error)?;
        writeln!(out, "{}", String::from_utf8_lossy(&json))
    }
}

/// Source file and line, with the last `parts` of the file's path.
fn place(metadata: &Metadata<'_>, parts: usize) -> String {
    let file = metadata.file().unwrap_or("?");
    let start = file.rmatch_indices('/').nth(parts - 1).map_or(0, |(at, _)| at + 1);
    format!("{}:{}", file.get(start..).unwrap_or(file), metadata.line().unwrap_or(0))
}

/// klog's format of multi-line texts: indented between `<` and `>`.
fn write_lines(text: &str, out: &mut Writer<'_>) -> fmt::Result {
    out.write_char('<')?;
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        write!(out, "\n\t{}", escaped(line))?;
    }
    out.write_str("\n >")
}

/// JSON, in which control characters that JSON allows are escaped, too.
struct Escaping;

impl ser::Formatter for Escaping {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: io::Write + ?Sized,
    {
        for piece in fragment.split_inclusive(is_odd) {
            let odd = piece.chars().next_back().filter(|c| is_odd(*c));
            let plain = odd.and_then(|c| piece.strip_suffix(c)).unwrap_or(piece);
            writer.write_all(plain.as_bytes())?;
            if let Some(c) = odd {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

/// The fields of an event or a span, each name once, in the order in which they were recorded.
#[derive(Debug, Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Adds those of `others` whose names are not there.
    fn add_missing(&mut self, Self(others): &Self) {
        for (name, value) in others {
            if self.get_mut(name).is_none() {
                self.0.push((name, value.clone()));
            }
        }
    }

    fn record(&mut self, field: &Field, value: impl Into<Value>) {
        let (name, value) = (name(field), value.into());
        match self.get_mut(name) {
            Some(known) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    fn record_text(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        let mut whole = String::new();
        let mut cut = Cut::new(&mut whole, MAX_TEXT);
        // A value that fails to format itself is logged as far as it was formatted.
        let _ = cut.write_fmt(text);
        cut.finish();
        self.record(field, whole);
    }
}

impl Visit for Fields {
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
        self.record(field, value);
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

/// Keeps the fields of spans for the lines of their events.
pub(super) struct SpanFields;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanFields {
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        span.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }
}
