//! The scenarios of `scenarios.yaml`: what happens, and what must be observed then.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Failure, driver::Ability, observations::Observation};

/// A scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: String,
    /// What it shows, as a line above the others.
    pub title: String,
    /// Flags of the provisioner beside those for the connections.
    #[serde(default)]
    pub flags: Vec<String>,
    /// What the driver can do.
    #[serde(default)]
    pub ability: Ability,
    /// The file of `objects/` with what is there before the program starts.
    pub cluster: Option<String>,
    /// The file of `objects/` that the demo creates.
    pub objects: String,
    /// The acts in their order, each with its signs.
    pub parts: Vec<BTreeMap<String, Vec<Sign>>>,
    /// The volumes that are there at the end.
    pub volumes: usize,
}

/// A line that must appear: where it comes from, and what it contains.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Sign(pub String);

impl Sign {
    /// Whether this observation is the sign.
    pub fn is_shown_by(&self, observation: &Observation) -> bool {
        let (source, text) = self.0.split_once(' ').unwrap_or_default();
        source == observation.source && observation.to_string().contains(text)
    }
}

/// All of them; `demo` is played without `--scenario`.
pub fn all() -> Result<Vec<Scenario>, Failure> {
    Ok(serde_yaml_ng::from_str(include_str!("../scenarios.yaml"))?)
}

/// A file of `objects/`.
pub(crate) fn manifest(name: &str) -> &'static str {
    match name {
        "restore" => include_str!("../objects/restore.yaml"),
        "snapshot" => include_str!("../objects/snapshot.yaml"),
        "zones" => include_str!("../objects/zones.yaml"),
        "late-claim" => include_str!("../objects/late-claim.yaml"),
        _ => include_str!("../objects/claim.yaml"),
    }
}
