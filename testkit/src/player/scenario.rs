//! What a scenario file says, as types.
//!
//! Owns the form of scenario files; the reference player's docstrings (`play.py`, `steps.py`)
//! define it. Promises that a key nobody knows is an error, not silence.

mod note;
mod step;
mod wait;

use std::{collections::BTreeMap, fs, io, path::Path};

use regex::Regex;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

pub(super) use self::{
    note::{Note, Subject},
    step::{Launch, ProcessName, Serving, Step, Trial},
    wait::{Condition, ObjectState, Should, Wait},
};
use super::{
    expand::expand,
    yaml::{self, YamlError},
};
use crate::driver::Script;

/// One scenario: a cluster's objects, a driver, steps, and what came of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools)] // the files have as many
pub struct Scenario {
    /// Its name, that of the file.
    pub name: String,
    /// What it shows.
    #[serde(default)]
    pub about: String,
    /// Flags on top of the common ones.
    #[serde(default)]
    pub(super) flags: Vec<String>,
    /// All flags, instead of the common ones.
    pub(super) raw_flags: Option<Vec<String>>,
    /// With `raw_flags`: whether the metrics address is left out too.
    #[serde(default)]
    pub(super) no_http: bool,
    /// Additional environment; `null` takes a variable away.
    #[serde(default)]
    pub(super) env: Environment,
    /// Whose kubeconfig is used; `sa`.
    pub(super) kubeconfig: Option<String>,
    /// The host name that processes see.
    pub(super) hostname: Option<String>,
    /// How the driver behaves.
    #[serde(default)]
    pub(super) driver: Script,
    /// Whether the driver's socket is there from the start.
    #[serde(default = "yes")]
    pub(super) serve: bool,
    /// Whether the first process is started before the steps.
    #[serde(default = "yes")]
    pub(super) autostart: bool,
    /// Rights to run with less of.
    pub(super) rbac: Option<Rights>,
    /// Objects made before the start.
    #[serde(default)]
    pub(super) objects: Vec<Value>,
    /// What happens.
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
    /// The quirk of the reference it shows; for readers.
    pub quirk: Option<Value>,
    /// What the API server must have or lack; all but the snapshot kinds is for readers.
    #[serde(default)]
    pub needs: Vec<String>,
    /// The outcome of the reference.
    #[serde(default)]
    pub(super) expect: Map<String, Value>,
}

/// Environment variables; `None` takes one away.
pub(super) type Environment = BTreeMap<String, Option<String>>;

/// The rights of `cluster/rbac-full.yaml`, less some.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rights {
    /// `RESOURCE` or `RESOURCE:VERB`.
    #[serde(default)]
    pub(super) without: Vec<String>,
}

/// Why there is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// Which file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The file does not hold a scenario.
    #[error("{path}: {source}")]
    Malformed {
        /// Which file.
        path: String,
        /// Why not.
        source: YamlError,
    },
}

/// The server serves no kinds of snapshots.
const NO_SNAPSHOTS: &str = "no-snapshot-crds";

impl Scenario {
    /// Whether it plays on a server without the kinds of snapshots.
    pub(super) fn lacks_snapshots(&self) -> bool {
        self.needs.iter().any(|need| need == NO_SNAPSHOTS)
    }

    /// Reads a scenario from its file.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let shown = || path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|source| ScenarioError::Unreadable { path: shown(), source })?;
        Self::parse(&text).map_err(|source| ScenarioError::Malformed { path: shown(), source })
    }

    /// Reads a scenario from its text.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        expand(yaml::document(text)?)?.read()
    }
}

fn yes() -> bool {
    true
}

/// A regular expression, as the files write them.
fn pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Regex>, D::Error> {
    let text = String::deserialize(from)?;
    // Python writes the very end of the text in capitals.
    Regex::new(&text.replace(r"\Z", r"\z")).map(Some).map_err(D::Error::custom)
}
