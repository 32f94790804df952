//! What a scenario file says, as types. The reference player's docstrings (`play.py`, `steps.py`) define the form. A
//! key that nobody knows is an error, not silence.

use std::{collections::BTreeMap, fs, path::Path};

use regex::Regex;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};
use serde_yaml_ng::Mapping;

use super::{PlayError, yaml};
use crate::driver::{Script, pattern};

/// One scenario: a cluster's objects, a driver, steps, and what came of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, dead_code)] // the files have as many, and some keys are for readers
pub(super) struct Scenario {
    name: String,
    about: Option<String>,
    quirk: Option<Value>,
    /// Flags on top of the common ones.
    #[serde(default)]
    pub(super) flags: Vec<String>,
    pub(super) raw_flags: Option<Vec<String>>,
    /// With `raw_flags`: whether the metrics address is left out too.
    #[serde(default)]
    pub(super) no_http: bool,
    #[serde(default)]
    pub(super) env: Environment,
    pub(super) kubeconfig: Option<String>,
    pub(super) hostname: Option<String>,
    #[serde(default)]
    pub(super) driver: Script,
    /// Whether the driver's socket is there from the start.
    #[serde(default = "yes")]
    pub(super) serve: bool,
    /// Whether the first process is started before the steps.
    #[serde(default = "yes")]
    pub(super) autostart: bool,
    pub(super) rbac: Option<Rights>,
    /// Objects made before the start.
    #[serde(default)]
    pub(super) objects: Vec<Value>,
    pub(super) steps: Vec<Step>,
    /// Seconds of rest after the last step; 0.6.
    pub(super) settle: Option<f64>,
    /// CSI methods whose calls come in no particular order.
    #[serde(default)]
    pub(super) unordered: Vec<String>,
    /// Whether equal calls are all listed.
    #[serde(default)]
    pub(super) keep_order: bool,
    /// Parts of the outcome that are not kept.
    #[serde(default)]
    pub(super) skip: Vec<String>,
    /// What the API server must have or lack; all but the snapshot kinds is for readers.
    #[serde(default)]
    needs: Vec<String>,
    /// The outcome of the reference.
    #[serde(default)]
    pub(super) expect: Map<String, Value>,
}

/// Environment variables; `None` takes one away.
pub(super) type Environment = BTreeMap<String, Option<String>>;

/// The rights of `cluster/rbac-full.yaml`, less some: `RESOURCE` or `RESOURCE:VERB`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rights {
    #[serde(default)]
    pub(super) without: Vec<String>,
}

impl Scenario {
    /// Whether it plays on a server without the kinds of snapshots.
    pub(super) fn lacks_snapshots(&self) -> bool {
        self.needs.iter().any(|need| need == "no-snapshot-crds")
    }

    /// Reads a scenario from its file.
    pub(super) fn load(path: &Path) -> Result<Self, PlayError> {
        let failed = |why: PlayError| format!("{}: {why}", path.display());
        let text = fs::read_to_string(path).map_err(|why| failed(why.into()))?;
        let document = yaml::document(&text).map_err(failed)?;
        Ok(serde_yaml_ng::from_value(document).map_err(|why| failed(why.into()))?)
    }
}

fn yes() -> bool {
    true
}

/// A key that is there counts, even as `null`.
fn present<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(from).map(|it| Some(it.unwrap_or_default()))
}

// === Steps ===

/// One step: one of these keys, and those that go with it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) create: Option<Vec<Value>>,
    pub(super) delete: Option<Deletion>,
    pub(super) patch: Option<MergePatch>,
    pub(super) wait: Option<Wait>,
    pub(super) settle: Option<f64>,
    pub(super) driver: Option<Box<Script>>,
    /// Send a signal (`TERM`, ...) to the process `as`, and wait for its end unless `nowait`.
    pub(super) stop: Option<String>,
    #[serde(rename = "as")]
    pub(super) process: Option<String>,
    #[serde(default)]
    pub(super) nowait: bool,
    /// Start a process, with nothing special where nothing stands behind it.
    #[serde(default, deserialize_with = "present")]
    pub(super) start: Option<Launch>,
    /// `start` the driver's server, or `stop` it.
    pub(super) server: Option<String>,
    pub(super) rbac: Option<Rights>,
    /// Start a process and see what becomes of it.
    pub(super) r#try: Option<Trial>,
    pub(super) note: Option<Note>,
}

/// Which process is meant: `true` the one called `main`, or the last started while there is none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum ProcessName {
    Main(bool),
    Named(String),
}

/// `delete:`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Deletion {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    /// Whether it may be gone already.
    #[serde(default)]
    pub(super) maybe: bool,
}

/// `patch:`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MergePatch {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) subresource: Option<String>,
    pub(super) merge: Value,
}

/// `start:`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Launch {
    /// Its name; `main`.
    #[serde(rename = "as")]
    pub(super) process: Option<String>,
    pub(super) flags: Vec<String>,
    pub(super) raw_flags: Option<Vec<String>>,
    pub(super) env: Environment,
    pub(super) hostname: Option<String>,
    pub(super) http: Option<bool>,
}

/// `try:`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Trial {
    pub(super) flags: Option<Vec<String>>,
    pub(super) raw_flags: Option<Vec<String>>,
    pub(super) env: Environment,
    pub(super) hostname: Option<String>,
    pub(super) http: Option<bool>,
    /// The path that answers 200 once it runs; `/metrics`.
    pub(super) ready: Option<String>,
    pub(super) patience: Option<f64>,
    pub(super) say: Option<String>,
}

/// `wait:`
#[derive(Debug, Clone)]
pub(super) struct Wait {
    pub(super) until: Until,
    /// As it stands in the file, for the problem's text.
    pub(super) source: Value,
}

/// Every key that a `wait` may have.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Until {
    /// A method had `n` calls; with `by`, at least `of` different values of that parameter or field had.
    pub(super) csi: Option<String>,
    pub(super) by: Option<String>,
    pub(super) n: Option<u64>,
    pub(super) of: Option<usize>,
    pub(super) exit: Option<ProcessName>,
    pub(super) pv: Option<usize>,
    pub(super) no_pv: Option<bool>,
    /// There are `n` events of this reason, repeats counted, on an object, with a text.
    pub(super) event: Option<String>,
    pub(super) on: Option<String>,
    #[serde(default)]
    pub(super) text: String,
    pub(super) http: Option<String>,
    pub(super) status: Option<u16>,
    /// A line of the metrics matches.
    #[serde(default, deserialize_with = "pattern")]
    pub(super) metric: Option<Regex>,
    /// An object is gone, or the value at `path` in it is absent, equals something, or is there.
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) path: Vec<String>,
    #[serde(default)]
    pub(super) gone: bool,
    #[serde(default)]
    pub(super) absent: bool,
    #[serde(default, deserialize_with = "present")]
    pub(super) equals: Option<Value>,
    /// There are exactly so many `CSIStorageCapacity` objects.
    pub(super) capacities: Option<usize>,
    pub(super) timeout: Option<f64>,
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let source = Value::deserialize(from)?;
        let until = serde_json::from_value(source.clone()).map_err(D::Error::custom)?;
        Ok(Self { until, source })
    }
}

/// `note:`
#[derive(Debug, Clone)]
pub(super) struct Note {
    pub(super) title: String,
    pub(super) subject: Subject,
}

/// Every key that a `note` may have.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subject {
    say: Option<String>,
    /// The exit code of a process, `null` while it runs.
    pub(super) exit: Option<ProcessName>,
    /// A path's status and what matches in its body.
    pub(super) http: Option<String>,
    #[serde(default, deserialize_with = "pattern")]
    pub(super) body: Option<Regex>,
    /// Whether calls still come within some seconds.
    pub(super) grew: Option<String>,
    pub(super) during: Option<f64>,
    by: Option<String>,
    pub(super) count: Option<String>,
    pub(super) peak: Option<String>,
    /// Seconds that the first call's deadline left.
    pub(super) deadline: Option<String>,
    pub(super) events: Option<String>,
    pub(super) volumes: Option<bool>,
    /// What the last started process printed, or (`bool`) whether it matches.
    #[serde(default, deserialize_with = "pattern")]
    pub(super) log: Option<Regex>,
    #[serde(default)]
    pub(super) bool: bool,
    pub(super) file: Option<String>,
    #[serde(default)]
    pub(super) remove: bool,
    /// Matching lines of the metrics.
    #[serde(default, deserialize_with = "pattern")]
    pub(super) metrics: Option<Regex>,
    #[serde(default)]
    pub(super) values: bool,
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) path: Vec<String>,
}

impl Subject {
    /// The field of a request by which its calls are counted.
    pub(super) fn by(&self) -> Option<&str> {
        self.by.as_deref().filter(|by| !by.is_empty())
    }
}

impl<'de> Deserialize<'de> for Note {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let entries = Mapping::deserialize(from)?;
        // A note's own words, in the order of the file: `count CreateVolume by name`.
        let words =
            entries.iter().map(|(key, it)| format!("{} {}", yaml::text(key), yaml::text(it)));
        let title = words.collect::<Vec<_>>().join(" ");
        let subject: Subject =
            serde_yaml_ng::from_value(entries.into()).map_err(D::Error::custom)?;
        let title = subject.say.clone().filter(|say| !say.is_empty()).unwrap_or(title);
        Ok(Self { title, subject })
    }
}
