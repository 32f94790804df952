//! The rules of a scripted driver: what a scenario's `driver:` says, and which rule a call meets.
//!
//! Everything here is data and pure decisions; [`super::Scripted`] carries them out.

use std::collections::BTreeMap;

use regex::Regex;
use serde::{Deserialize, Deserializer, de};
pub use tonic::Code;

/// How a driver presents itself and answers. What is `None` takes the default named there.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Driver name; `rbd.csi.ceph.com`.
    pub name: Option<String>,
    /// Names of `PluginCapability.Service.Type`; `CONTROLLER_SERVICE`.
    pub plugin_capabilities: Option<Vec<String>>,
    /// Names of `ControllerServiceCapability.RPC.Type`; what ceph-csi's rbd driver has.
    pub controller_capabilities: Option<Vec<String>>,
    /// What `NodeGetInfo` returns; node ID `n`.
    pub node: Option<NodeSpec>,
    /// Rules of `GetPluginInfo`.
    pub get_plugin_info: Option<Vec<Rule>>,
    /// Rules of `GetPluginCapabilities`.
    pub get_plugin_capabilities: Option<Vec<Rule>>,
    /// Rules of `Probe`.
    pub probe: Option<Vec<Rule>>,
    /// Rules of `ControllerGetCapabilities`.
    pub controller_get_capabilities: Option<Vec<Rule>>,
    /// Rules of `CreateVolume`, used in order per volume name.
    pub create_volume: Option<Vec<Rule>>,
    /// Rules of `DeleteVolume`, used in order per volume id.
    pub delete_volume: Option<Vec<Rule>>,
    /// Rules of `GetCapacity`.
    pub get_capacity: Option<Vec<Rule>>,
    /// Rules of `NodeGetInfo`.
    pub node_get_info: Option<Vec<Rule>>,
}

/// What `NodeGetInfo` returns.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// The node's id.
    pub node_id: String,
    /// Its topology segments.
    pub topology: Option<BTreeMap<String, String>>,
}

/// What one or more calls meet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// Which calls it is for; all, if there is none.
    #[serde(rename = "match")]
    pub matching: Match,
    /// How many calls (of one volume) it serves before the next rule takes over; the last rule
    /// goes on beyond its number.
    pub times: Option<u32>,
    /// Milliseconds of waiting before the answer.
    pub delay_ms: Option<u64>,
    /// The answer is this error.
    pub error: Option<Failure>,
    /// `CreateVolume`: what the volume is like.
    pub volume: VolumeSpec,
    /// `CreateVolume`: whether a volume is left behind at the driver; it is, unless the answer is
    /// an error.
    pub creates: Option<bool>,
    /// `GetCapacity`: bytes; 0.
    pub available_capacity: i64,
    /// `GetCapacity`: bytes.
    pub maximum_volume_size: Option<i64>,
    /// `Probe`: whether the driver says it is ready.
    pub ready: Ready,
}

/// What `Probe` says of readiness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ready {
    /// `ready: true`, the default.
    #[default]
    Yes,
    /// `ready: false`.
    No,
    /// The field is left out (`ready: null`).
    Unsaid,
}

/// Which calls a rule is for; what is `None` is not looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    /// A pattern found somewhere in the volume's name (or, for deletions, id).
    #[serde(deserialize_with = "pattern")]
    pub name: Option<Regex>,
    /// Request parameters that have these values, among others.
    pub parameters: Option<BTreeMap<String, String>>,
    /// `GetCapacity`: exactly these topology segments.
    pub topology: Option<BTreeMap<String, String>>,
}

/// An error as an answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Its code by gRPC's name, such as `DEADLINE_EXCEEDED`.
    #[serde(deserialize_with = "code")]
    pub code: Code,
    /// Its text; `scripted`.
    #[serde(default = "scripted")]
    pub message: String,
}

impl Failure {
    /// The error `code` with the text `message`.
    pub fn new(code: Code, message: &str) -> Self {
        Self { code, message: message.to_owned() }
    }
}

/// A volume as `CreateVolume` answers it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeSpec {
    /// Bytes; what the request requires.
    pub capacity_bytes: Option<i64>,
    /// Its id; `vol-` and the name.
    pub volume_id: Option<String>,
    /// Its context.
    pub volume_context: BTreeMap<String, String>,
    /// Segments of the places it can be reached from.
    pub accessible_topology: Vec<BTreeMap<String, String>>,
    /// `none` leaves out the content source, which else is the request's.
    pub content_source: Option<String>,
}

// === impl Script ===

impl Script {
    /// Takes over what `newer` says; what it does not speak of stays.
    pub fn amend(&mut self, newer: Self) {
        fn over<T>(old: &mut Option<T>, new: Option<T>) {
            if new.is_some() {
                *old = new;
            }
        }
        over(&mut self.name, newer.name);
        over(&mut self.plugin_capabilities, newer.plugin_capabilities);
        over(&mut self.controller_capabilities, newer.controller_capabilities);
        over(&mut self.node, newer.node);
        over(&mut self.get_plugin_info, newer.get_plugin_info);
        over(&mut self.get_plugin_capabilities, newer.get_plugin_capabilities);
        over(&mut self.probe, newer.probe);
        over(&mut self.controller_get_capabilities, newer.controller_get_capabilities);
        over(&mut self.create_volume, newer.create_volume);
        over(&mut self.delete_volume, newer.delete_volume);
        over(&mut self.get_capacity, newer.get_capacity);
        over(&mut self.node_get_info, newer.node_get_info);
    }

    /// The rules of a method.
    pub fn rules(&self, method: &str) -> &[Rule] {
        match method {
            "GetPluginInfo" => &self.get_plugin_info,
            "GetPluginCapabilities" => &self.get_plugin_capabilities,
            "Probe" => &self.probe,
            "ControllerGetCapabilities" => &self.controller_get_capabilities,
            "CreateVolume" => &self.create_volume,
            "DeleteVolume" => &self.delete_volume,
            "GetCapacity" => &self.get_capacity,
            "NodeGetInfo" => &self.node_get_info,
            _ => &None,
        }
        .as_deref()
        .unwrap_or_default()
    }
}

// === Choosing ===

/// What a rule's `match` compares.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Subject<'a> {
    /// The volume's name or id; empty where a call has neither.
    pub(crate) key: &'a str,
    pub(crate) parameters: Option<&'a BTreeMap<String, String>>,
    pub(crate) topology: Option<&'a BTreeMap<String, String>>,
}

impl Match {
    fn fits(&self, subject: Subject<'_>) -> bool {
        let name = self.name.as_ref().is_none_or(|pattern| pattern.is_match(subject.key));
        let parameters =
            self.parameters.iter().flatten().all(|(key, value)| {
                subject.parameters.and_then(|given| given.get(key)) == Some(value)
            });
        let topology = self.topology.as_ref().is_none_or(|wanted| match subject.topology {
            Some(given) => given == wanted,
            None => wanted.is_empty(),
        });
        name && parameters && topology
    }
}

/// Chooses rules, and remembers how often each served each volume.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chooser {
    /// (method, rule's place, volume's name or id) to calls.
    used: BTreeMap<(&'static str, usize, String), u32>,
}

impl Chooser {
    /// The rule a call meets: the first fitting one that has calls left, else the last fitting.
    pub(crate) fn choose(
        &mut self,
        rules: &[Rule],
        method: &'static str,
        subject: Subject<'_>,
    ) -> Rule {
        let mut last = None;
        for (place, rule) in rules.iter().enumerate() {
            if !rule.matching.fits(subject) {
                continue;
            }
            let served = self.used.entry((method, place, subject.key.to_owned())).or_default();
            if rule.times.is_none_or(|times| *served < times) {
                *served += 1;
                return rule.clone();
            }
            last = Some(rule);
        }
        last.cloned().unwrap_or_default()
    }
}

// === Reading ===

fn scripted() -> String {
    "scripted".to_owned()
}

/// A regular expression, as scenarios write them.
pub(crate) fn pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Regex>, D::Error> {
    let text = String::deserialize(from)?;
    // Python writes the very end of the text in capitals.
    Regex::new(&text.replace(r"\Z", r"\z")).map(Some).map_err(de::Error::custom)
}

impl<'de> Deserialize<'de> for Ready {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match Option::<bool>::deserialize(from)? {
            Some(true) => Self::Yes,
            Some(false) => Self::No,
            None => Self::Unsaid,
        })
    }
}

/// A code by gRPC's name of it, which is tonic's in capitals.
fn code<'de, D: Deserializer<'de>>(from: D) -> Result<Code, D::Error> {
    let name = String::deserialize(from)?;
    let word = name.replace('_', "");
    let mut codes = (0..=16).map(Code::from_i32);
    let found = codes.find(|code| format!("{code:?}").to_uppercase() == word);
    found.ok_or_else(|| {
        de::Error::custom(format!("{name:?} is no gRPC code; write it as in DEADLINE_EXCEEDED"))
    })
}
