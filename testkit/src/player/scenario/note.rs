//! What a `note` step looks at.
//!
//! Owns the keys of a `note`, what they make it look at, and the title they give it.

use std::fmt;

use regex::Regex;
use serde::{Deserialize, Deserializer, de, de::Error as _};
use serde_json::{Map, Value};

use super::{super::python, ProcessName, pattern};

/// `note:`
#[derive(Debug, Clone)]
pub(in crate::player) struct Note {
    /// What it is called in the outcome.
    pub(in crate::player) title: String,
    /// What is looked at.
    pub(in crate::player) subject: Subject,
}

/// What a `note` looks at.
#[derive(Debug, Clone)]
pub(in crate::player) enum Subject {
    /// The exit code of a process, `null` while it runs.
    Exit(ProcessName),
    /// A path's status and what matches in its body.
    Http { path: String, body: Option<Regex> },
    /// Whether calls still come.
    Grew { method: String, by: Option<String>, during: f64 },
    /// How many calls there were.
    Count { method: String, by: Option<String> },
    /// The most calls at once.
    Peak(String),
    /// Seconds that the first call's deadline left.
    Deadline(String),
    /// An object's events.
    Events(String),
    /// The driver's volumes.
    Volumes,
    /// What the last started process printed, or whether it matches.
    Log { pattern: Regex, only_whether: bool },
    /// A file's contents.
    File { path: String, remove: bool },
    /// Matching lines of the metrics.
    Metrics { pattern: Regex, values: bool },
    /// An object or a value in it.
    Object { kind: String, name: String, namespace: Option<String>, path: Vec<String> },
}

/// Every key that a `note` may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNote {
    say: Option<String>,
    exit: Option<ProcessName>,
    http: Option<String>,
    #[serde(default, deserialize_with = "pattern")]
    body: Option<Regex>,
    grew: Option<String>,
    during: Option<f64>,
    by: Option<String>,
    count: Option<String>,
    peak: Option<String>,
    deadline: Option<String>,
    events: Option<String>,
    volumes: Option<bool>,
    #[serde(default, deserialize_with = "pattern")]
    log: Option<Regex>,
    #[serde(default)]
    bool: bool,
    file: Option<String>,
    #[serde(default)]
    remove: bool,
    #[serde(default, deserialize_with = "pattern")]
    metrics: Option<Regex>,
    #[serde(default)]
    values: bool,
    kind: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    #[serde(default)]
    path: Vec<String>,
}

impl<'de> Deserialize<'de> for Note {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Ordered(entries) = Ordered::deserialize(from)?;
        let title = title(&entries);
        let whole: Value = entries.into_iter().collect::<Map<_, _>>().into();
        let raw: RawNote = serde_json::from_value(whole.clone()).map_err(D::Error::custom)?;
        let title = raw.say.clone().filter(|say| !say.is_empty()).unwrap_or(title);
        let subject = raw.subject().ok_or_else(|| D::Error::custom(format!("no note: {whole}")))?;
        Ok(Self { title, subject })
    }
}

/// A note's own words, in the order of the file: `count CreateVolume by name`.
fn title(entries: &[(String, Value)]) -> String {
    let words = entries.iter().map(|(key, value)| match value {
        Value::Array(parts) => {
            let parts: Vec<_> = parts.iter().map(python::text).collect();
            format!("{key} {}", parts.join("."))
        }
        plain => format!("{key} {}", python::text(plain)),
    });
    words.collect::<Vec<_>>().join(" ")
}

impl RawNote {
    fn subject(self) -> Option<Subject> {
        let by = self.by.filter(|by| !by.is_empty());
        Some(match (self.exit, self.http, self.grew, self.count, self.peak, self.deadline) {
            (Some(process), ..) => Subject::Exit(process),
            (_, Some(path), ..) => Subject::Http { path, body: self.body },
            (_, _, Some(method), ..) => {
                Subject::Grew { method, by, during: self.during.unwrap_or(1.0) }
            }
            (_, _, _, Some(method), ..) => Subject::Count { method, by },
            (_, _, _, _, Some(method), _) => Subject::Peak(method),
            (_, _, _, _, _, Some(method)) => Subject::Deadline(method),
            _ => match (self.events, self.volumes, self.log, self.file, self.metrics) {
                (Some(name), ..) => Subject::Events(name),
                (_, Some(_), ..) => Subject::Volumes,
                (_, _, Some(pattern), ..) => Subject::Log { pattern, only_whether: self.bool },
                (_, _, _, Some(path), _) => Subject::File { path, remove: self.remove },
                (_, _, _, _, Some(pattern)) => Subject::Metrics { pattern, values: self.values },
                _ => Subject::Object {
                    kind: self.kind?,
                    name: self.name?,
                    namespace: self.namespace,
                    path: self.path,
                },
            },
        })
    }
}

/// A mapping in the order of the file.
struct Ordered(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }
        from.deserialize_map(Visitor)
    }
}
