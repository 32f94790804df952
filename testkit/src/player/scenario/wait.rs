//! What a `wait` step waits for.
//!
//! Owns the keys of a `wait` and which condition they make.

use regex::Regex;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::{ProcessName, pattern};

/// `wait:`
#[derive(Debug, Clone)]
pub(in crate::player) struct Wait {
    /// What for.
    pub(in crate::player) until: Condition,
    /// Seconds until it is a problem; 15.
    pub(in crate::player) timeout: f64,
    /// As it stands in the file, for the problem's text.
    pub(in crate::player) source: Value,
}

/// What a `wait` is for.
#[derive(Debug, Clone)]
pub(in crate::player) enum Condition {
    /// A method had `n` calls.
    Calls { method: String, n: usize },
    /// At least `of` different values of a parameter or field had `n` calls.
    CallsBy { method: String, by: Option<String>, n: usize, of: usize },
    /// A process ended.
    Exit(ProcessName),
    /// There are at least so many PVs.
    Volumes(usize),
    /// There is no PV.
    NoVolumes,
    /// There are events, repeats counted.
    Event { reason: String, on: Option<String>, text: String, n: u64 },
    /// A path answers with a status.
    Http { path: String, status: u16 },
    /// A line of the metrics matches.
    Metric(Regex),
    /// An object is as described.
    Object(ObjectState),
    /// There are exactly so many `CSIStorageCapacity` objects.
    Capacities(usize),
}

/// A condition on one object.
#[derive(Debug, Clone)]
pub(in crate::player) struct ObjectState {
    /// Its kind.
    pub(in crate::player) kind: String,
    /// Its name, or `pv-of:CLAIM`.
    pub(in crate::player) name: String,
    /// Its namespace; the scenario's.
    pub(in crate::player) namespace: Option<String>,
    /// Keys that lead to the value looked at.
    pub(in crate::player) path: Vec<String>,
    /// What that should be.
    pub(in crate::player) should: Should,
}

/// What is asked of an object or of a value in it.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::player) enum Should {
    /// The object is not there.
    BeGone,
    /// The value is not there.
    BeAbsent,
    /// The value is there.
    BePresent,
    /// The value is this.
    Equal(Value),
}

/// Every key that a `wait` may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWait {
    csi: Option<String>,
    by: Option<String>,
    n: Option<u64>,
    of: Option<usize>,
    exit: Option<ProcessName>,
    pv: Option<usize>,
    no_pv: Option<bool>,
    event: Option<String>,
    on: Option<String>,
    text: Option<String>,
    http: Option<String>,
    status: Option<u16>,
    #[serde(default, deserialize_with = "pattern")]
    metric: Option<Regex>,
    kind: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    #[serde(default)]
    path: Vec<String>,
    #[serde(default)]
    gone: bool,
    #[serde(default)]
    absent: bool,
    #[serde(default, deserialize_with = "present")]
    equals: Option<Value>,
    capacities: Option<usize>,
    timeout: Option<f64>,
}

/// A key that is there counts, even as `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let source = Value::deserialize(from)?;
        let raw: RawWait = serde_json::from_value(source.clone()).map_err(D::Error::custom)?;
        let timeout = raw.timeout.unwrap_or(15.0);
        let until =
            raw.condition().ok_or_else(|| D::Error::custom(format!("no wait: {source}")))?;
        Ok(Self { until, timeout, source })
    }
}

impl RawWait {
    fn condition(self) -> Option<Condition> {
        let calls = usize::try_from(self.n.unwrap_or(1)).ok()?;
        Some(match self {
            Self { csi: Some(method), by: Some(by), of, .. } => Condition::CallsBy {
                method,
                by: Some(by).filter(|by| !by.is_empty()),
                n: calls,
                of: of?,
            },
            Self { csi: Some(method), .. } => Condition::Calls { method, n: calls },
            Self { exit: Some(process), .. } => Condition::Exit(process),
            Self { pv: Some(n), .. } => Condition::Volumes(n),
            Self { no_pv: Some(_), .. } => Condition::NoVolumes,
            Self { event: Some(reason), on, text, n, .. } => {
                Condition::Event { reason, on, text: text.unwrap_or_default(), n: n.unwrap_or(1) }
            }
            Self { http: Some(path), status, .. } => {
                Condition::Http { path, status: status.unwrap_or(200) }
            }
            Self { metric: Some(pattern), .. } => Condition::Metric(pattern),
            Self { kind: Some(kind), name, namespace, path, gone, absent, equals, .. } => {
                let should = match (gone, absent, equals) {
                    (true, ..) => Should::BeGone,
                    (_, true, _) => Should::BeAbsent,
                    (_, _, Some(value)) => Should::Equal(value),
                    _ => Should::BePresent,
                };
                Condition::Object(ObjectState { kind, name: name?, namespace, path, should })
            }
            Self { capacities: Some(n), .. } => Condition::Capacities(n),
            _ => return None,
        })
    }
}
