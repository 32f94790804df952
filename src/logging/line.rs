//! One log line, as klog's text and as JSON.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::{Timestamp, tz::Offset};
use serde_json::Value;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormattedFields, format::Writer},
    registry::LookupSpan,
};

use super::{
    LogFormat,
    fields::{self, FieldFormat, JsonString, MESSAGE},
    verbosity,
};
use crate::runtime::Clock;

/// Formats events as log lines.
pub(super) struct LineFormat {
    format: LogFormat,
    clock: Arc<dyn Clock>,
    process: u32,
}

impl LineFormat {
    /// The format of the lines of the process with the ID `process`.
    pub(super) fn new(format: LogFormat, clock: Arc<dyn Clock>, process: u32) -> Self {
        Self { format, clock, process }
    }
}

impl<S> FormatEvent<S, FieldFormat> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, FieldFormat>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let line = Line::read(context, event);
        match self.format {
            LogFormat::Text => line.write_text(self.clock.wall(), self.process, &mut out),
            LogFormat::Json => line.write_json(self.clock.wall(), &mut out),
        }
    }
}

/// An event to be written.
struct Line {
    metadata: &'static Metadata<'static>,
    verbosity: u32,
    /// The list of its fields and of those of its spans, formatted.
    fields: String,
}

impl Line {
    /// Reads an event and its spans; fields of the event and of inner spans win.
    fn read<S>(context: &FmtContext<'_, S, FieldFormat>, event: &Event<'_>) -> Self
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let mut fields = context.field_format().list(event);
        for span in context.event_scope().into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<FormattedFields<FieldFormat>>() {
                fields::add_missing(&mut fields, of_span);
            }
        }
        let metadata = event.metadata();
        Self { metadata, verbosity: verbosity::of(metadata).unwrap_or_default(), fields }
    }

    /// `I1121 02:03:04.000000       1 file.rs:12] "message" key="value"`
    fn write_text(&self, time: Timestamp, process: u32, out: &mut Writer<'_>) -> fmt::Result {
        let letter = match *self.metadata.level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let time = Offset::UTC.to_datetime(time);
        write!(
            out,
            "{letter}{:02}{:02} {:02}:{:02}:{:02}.{:06} {process:7} {}:{}] {}",
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.subsec_nanosecond() / 1000,
            self.file(1),
            self.number(),
            self.message(),
        )?;
        let is_message = |field: &&str| fields::value(field, MESSAGE).is_some();
        for field in fields::iter(&self.fields).filter(|field| !is_message(field)) {
            out.write_char(' ')?;
            out.write_str(field)?;
        }
        writeln!(out)
    }

    /// The names of component-base's JSON format: `ts` in milliseconds, `v` except for errors.
    fn write_json(&self, time: Timestamp, out: &mut Writer<'_>) -> fmt::Result {
        // A double holds microseconds of the present exactly enough.
        #[allow(clippy::cast_precision_loss)]
        let milliseconds = Value::from(time.as_microsecond() as f64 / 1000.0);
        let caller = format!("{}:{}", self.file(2), self.number());
        let mut header = String::new();
        fields::push(&mut header, "ts", milliseconds);
        fields::push(&mut header, "caller", JsonString(&caller));
        fields::push(&mut header, MESSAGE, self.message());
        if *self.metadata.level() != Level::ERROR {
            fields::push(&mut header, "v", self.verbosity);
        }
        let all = fields::iter(&header).chain(fields::iter(&self.fields));
        let object: BTreeMap<_, _> = all.map(fields::split).collect();
        let mut separator = '{';
        for (name, value) in object {
            write!(out, "{separator}\"{name}\":")?;
            out.write_str(value)?;
            separator = ',';
        }
        writeln!(out, "}}")
    }

    /// The message, formatted.
    fn message(&self) -> &str {
        fields::find(&self.fields, MESSAGE).unwrap_or("\"\"")
    }

    /// The source file, with the last `parts` of its path.
    fn file(&self, parts: usize) -> &'static str {
        let file = self.metadata.file().unwrap_or("?");
        let start = file.rmatch_indices('/').nth(parts - 1).map_or(0, |(at, _)| at + 1);
        file.get(start..).unwrap_or(file)
    }

    /// The line in the source file.
    fn number(&self) -> u32 {
        self.metadata.line().unwrap_or(0)
    }
}
