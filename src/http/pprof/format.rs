//! pprof's file format: <https://github.com/google/pprof/blob/main/proto/profile.proto>.
//!
//! Contains the messages that this program writes. `go tool pprof` and `pprof` read the files; they are
//! not compressed, which both allow.

use std::{collections::BTreeMap, fmt::Write as _};

use prost::Message;

/// A profile to which samples are added.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    file: File,
    /// The index of each text in the table of texts.
    texts: BTreeMap<String, i64>,
    /// The location of each function, by name.
    locations: BTreeMap<String, u64>,
    /// The stacks, innermost function first, with their values.
    stacks: Vec<(Vec<String>, Vec<i64>)>,
}

impl Profile {
    /// An empty profile whose samples have values of these types and units.
    pub(super) fn new(kinds: &[(&str, &str)], comment: &str) -> Self {
        let mut profile = Self {
            file: File::default(),
            texts: BTreeMap::new(),
            locations: BTreeMap::new(),
            stacks: Vec::new(),
        };
        // The format requires the empty text first.
        profile.text_index("");
        profile.file.sample_type =
            kinds.iter().map(|(kind, unit)| profile.value_type(kind, unit)).collect();
        profile.file.comment = vec![profile.text_index(comment)];
        profile
    }

    #[cfg(feature = "cpu-profiles")]
    /// Sets the sampling period, when the profile began (since 1970) and its duration.
    pub(super) fn timed(&mut self, kind: &str, unit: &str, period: i64, times: [i64; 2]) {
        self.file.period_type = Some(self.value_type(kind, unit));
        self.file.period = period;
        [self.file.time_nanos, self.file.duration_nanos] = times;
    }

    /// Adds a stack, the innermost function first, with one value of each kind.
    pub(super) fn sample(&mut self, stack: &[String], values: &[i64]) {
        let location_id = stack.iter().map(|name| self.location(name)).collect();
        self.file.sample.push(Sample { location_id, value: values.to_vec() });
        self.stacks.push((stack.to_vec(), values.to_vec()));
    }

    /// The file.
    pub(super) fn encode(&self) -> Vec<u8> {
        self.file.encode_to_vec()
    }

    /// The profile as text, in the format of Go's `?debug=1`.
    pub(super) fn text(&self, name: &str) -> String {
        let first = |values: &[i64]| values.first().copied().unwrap_or(0);
        let total: i64 = self.stacks.iter().map(|(_, values)| first(values)).sum();
        let mut text = format!("{name} profile: total {total}\n");
        for (stack, values) in &self.stacks {
            let _ = writeln!(text, "{} @ {}", first(values), stack.join(" < "));
        }
        text
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { r#type: self.text_index(kind), unit: self.text_index(unit) }
    }

    fn text_index(&mut self, text: &str) -> i64 {
        let next = i64::try_from(self.texts.len()).unwrap_or(i64::MAX);
        *self.texts.entry(text.to_owned()).or_insert_with(|| {
            self.file.string_table.push(text.to_owned());
            next
        })
    }

    /// The location of a function, without a line, as the binary contains no lines.
    fn location(&mut self, name: &str) -> u64 {
        if let Some(known) = self.locations.get(name) {
            return *known;
        }
        // Zero means none in the format.
        let id = self.locations.len() as u64 + 1;
        let text = self.text_index(name);
        self.file.function.push(Function { id, name: text, system_name: text });
        self.file.location.push(Location { id, line: vec![Line { function_id: id }] });
        self.locations.insert(name.to_owned(), id);
        id
    }
}

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
}
