//! One log line, as klog's text and as JSON.
//!
//! A busy program writes thousands, so a line of text costs two allocations: one for all its texts, one
//! for the list of fields. Texts come from users, drivers and servers: each is truncated when it is read,
//! and written without raw control characters.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{Hash, Hasher},
    io::{self, Write as _},
    ops::Range,
};

use jiff::{Timestamp, tz::Offset};
use serde::Serialize;
use serde_json::{Value, ser::Formatter};
use tracing::{
    Event, Level,
    field::{Field, Visit},
    span::Attributes,
};

use super::verbosity;
use crate::{
    flags::LogFormat,
    plain_text::{Cut, escaped, is_odd},
};

/// The longest text of a field, in bytes, before escaping, which may multiply it by six.
const MOST: usize = 4096;

/// The initial capacity for the texts of a line, in bytes.
const LINE: usize = 512;
/// The initial capacity for the texts of a span.
const SPAN: usize = 128;
/// The capacity for fields of a line's spans.
const SPAN_FIELDS: usize = 8;

/// The named values of an event or a span.
#[derive(Debug)]
pub(super) struct Fields {
    said: Vec<(&'static str, Said)>,
    /// The texts, one after the other.
    texts: String,
}

/// A stored value.
#[derive(Debug)]
enum Said {
    /// A range of the texts.
    Text(Range<usize>),
    /// A number or another value without a text.
    Other(Value),
}

/// A value to be written.
#[derive(Debug, Hash, Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Text(&'a str),
    Other(Value),
}

impl Fields {
    /// The fields of a new span.
    pub(super) fn of(attributes: &Attributes<'_>) -> Self {
        let mut fields = Self::with_room(attributes.metadata().fields().len(), SPAN);
        attributes.record(&mut fields);
        fields
    }

    fn with_room(fields: usize, texts: usize) -> Self {
        Self { said: Vec::with_capacity(fields), texts: String::with_capacity(texts) }
    }

    fn iter(&self) -> impl Iterator<Item = (&'static str, Shown<'_>)> {
        self.said.iter().map(|(name, said)| {
            // A field called so would be taken for the line's own message.
            let name = if *name == "event_message" { "message" } else { name };
            let shown = match said {
                Said::Text(range) => Shown::Text(self.text(range)),
                Said::Other(value) => Shown::Other(value.clone()),
            };
            (name, shown)
        })
    }

    fn text(&self, range: &Range<usize>) -> &str {
        self.texts.get(range.clone()).unwrap_or_default()
    }

    fn knows(&self, name: &str) -> bool {
        self.said.iter().any(|(known, _)| *known == name)
    }

    /// Removes a value from the list; its text stays.
    fn take(&mut self, name: &str) -> Option<Said> {
        let at = self.said.iter().position(|(known, _)| *known == name)?;
        Some(self.said.remove(at).1)
    }

    /// Appends a text to the others.
    fn keep(&mut self, text: fmt::Arguments<'_>) -> Said {
        let start = self.texts.len();
        let mut cut = Cut::new(&mut self.texts, MOST);
        // Writing to a text cannot fail; a value that cannot be shown is shown as far as it can.
        let _ = fmt::Write::write_fmt(&mut cut, text);
        cut.finish();
        Said::Text(start..self.texts.len())
    }

    fn set_text(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        let said = self.keep(text);
        self.set(field, said);
    }

    /// Sets a value; replaces an earlier value of the name.
    fn set(&mut self, field: &Field, said: Said) {
        let name = match field.name() {
            // klog's name for it.
            "error" => "err",
            name => name.strip_prefix("r#").unwrap_or(name),
        };
        match self.said.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => {
                if let Said::Text(gone) = std::mem::replace(old, said) {
                    self.cut(&gone);
                }
            }
            None => self.said.push((name, said)),
        }
    }

    /// Removes a text, so that a span whose values change often does not grow.
    fn cut(&mut self, gone: &Range<usize>) {
        self.texts.drain(gone.clone());
        for (_, said) in &mut self.said {
            if let Said::Text(later) = said
                && later.start >= gone.end
            {
                *later = later.start - gone.len()..later.end - gone.len();
            }
        }
    }
}

/// An event to be written.
pub(super) struct Line {
    level: Level,
    time: Timestamp,
    file: &'static str,
    number: u32,
    verbosity: u32,
    /// The range of its text.
    message: Range<usize>,
    fields: Fields,
}

/// Two lines are equal if they differ only in time and in the number of the attempt.
impl Hash for Line {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.file, self.number, self.message()).hash(hasher);
        for field in self.fields.iter().filter(|(name, _)| *name != "attempt") {
            field.hash(hasher);
        }
    }
}

impl Line {
    /// Reads an event of the time `time`.
    pub(super) fn read(event: &Event<'_>, time: Timestamp) -> Self {
        let metadata = event.metadata();
        let mut fields = Fields::with_room(metadata.fields().len() + SPAN_FIELDS, LINE);
        event.record(&mut fields);
        let message = match fields.take("message") {
            Some(Said::Text(range)) => range,
            _ => 0..0,
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

    /// Adds the fields of a span; fields of the event itself and of inner spans win.
    pub(super) fn add_span_fields(&mut self, span: &Fields) {
        for (name, shown) in span.iter() {
            if !self.fields.knows(name) {
                let said = match shown {
                    Shown::Text(text) => self.fields.keep(format_args!("{text}")),
                    Shown::Other(value) => Said::Other(value),
                };
                self.fields.said.push((name, said));
            }
        }
    }

    /// Whether the line is logged at `-v=0`.
    pub(super) fn is_usual(&self) -> bool {
        self.verbosity == 0
    }

    /// Adds how often the line was suppressed before.
    pub(super) fn add_suppressed_count(&mut self, suppressed: u32) {
        self.fields.said.push(("repeated", Said::Other(suppressed.into())));
    }

    /// Formats the line, including its newline.
    pub(super) fn write(
        &self,
        format: LogFormat,
        process: u32,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        match format {
            LogFormat::Text => self.write_text(process, out),
            LogFormat::Json => self.write_json(out),
        }
    }

    /// `I1121 02:03:04.000000       1 file.rs:12] "message" key="value"`
    fn write_text(&self, process: u32, out: &mut Vec<u8>) -> io::Result<()> {
        let letter = match self.level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let time = Offset::UTC.to_datetime(self.time);
        let file = self.path(1);
        write!(
            out,
            "{letter}{:02}{:02} {:02}:{:02}:{:02}.{:06} {process:7} {file}:{}] {:?}",
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.subsec_nanosecond() / 1000,
            self.number,
            self.message(),
        )?;
        for (name, value) in self.fields.iter() {
            write_field(name, &value, out)?;
        }
        writeln!(out)
    }

    /// The names of component-base's JSON format: `ts` in milliseconds, `v` except for errors.
    fn write_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        // A double holds microseconds of the present exactly enough.
        #[allow(clippy::cast_precision_loss)]
        let milliseconds = self.time.as_microsecond() as f64 / 1000.0;
        let caller = format!("{}:{}", self.path(2), self.number);
        let mut object = BTreeMap::from([
            ("ts", Shown::Other(milliseconds.into())),
            ("caller", Shown::Text(&caller)),
            ("msg", Shown::Text(self.message())),
        ]);
        if self.level != Level::ERROR {
            object.insert("v", Shown::Other(self.verbosity.into()));
        }
        object.extend(self.fields.iter());
        object.serialize(&mut serde_json::Serializer::with_formatter(&mut *out, Plain))?;
        writeln!(out)
    }

    fn message(&self) -> &str {
        self.fields.text(&self.message)
    }

    /// The last `parts` of the source file's path.
    fn path(&self, parts: usize) -> &'static str {
        let start = self.file.rmatch_indices('/').nth(parts - 1).map_or(0, |(at, _)| at + 1);
        self.file.get(start..).unwrap_or(self.file)
    }
}

/// One field in klog's format: texts in quotes, multi-line texts indented between `<` and `>`.
fn write_field(name: &str, value: &Shown<'_>, out: &mut Vec<u8>) -> io::Result<()> {
    write!(out, " {name}=")?;
    match value {
        Shown::Text(text) if text.contains('\n') => {
            write!(out, "<")?;
            for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
                write!(out, "\n\t{}", escaped(line))?;
            }
            write!(out, "\n >")
        }
        Shown::Text(text) => write!(out, "{text:?}"),
        Shown::Other(value) => write!(out, "{value}"),
    }
}

/// JSON that also escapes control characters that JSON allows.
struct Plain;

impl Formatter for Plain {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut plain = 0;
        for (at, c) in text.char_indices().filter(|(_, c)| is_odd(*c)) {
            out.write_all(text.get(plain..at).unwrap_or_default().as_bytes())?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            plain = at + c.len_utf8();
        }
        out.write_all(text.get(plain..).unwrap_or_default().as_bytes())
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set_text(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set_text(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.set_text(field, format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Said::Other(value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Said::Other(value.into()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, Said::Other(value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Said::Other(value.into()));
    }
}
