//! Both players must agree: what `tests/conformance/goldens.py` wrote down of the reference
//! player's answers, asked of this one.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    expand::expand,
    names::Names,
    outcome::{Outcome, Remains, ReportRules, outcome},
    python,
    scenario::{ProcessName, Scenario, Step, Wait},
    verdict::differences,
    wait::{ClusterView, met},
    yaml,
};
use crate::driver::{Chooser, Journal, Script, Subject};

#[derive(Deserialize)]
struct Goldens {
    uids: Vec<(String, String)>,
    socket: String,
    scenarios: BTreeMap<String, GoldenScenario>,
    norm: Vec<(Value, Value)>,
    diff: Vec<(Outcome, Outcome, Value)>,
    rules: Vec<(Value, Vec<Chosen>)>,
    collect: Vec<(Collected, Value)>,
    wait: Vec<(Collected, Vec<(Value, bool)>)>,
}

type StringMap = BTreeMap<String, String>;

/// A call by name, parameters and topology, and what the rule it met answers.
type Chosen = (String, StringMap, StringMap, i64);

#[derive(Deserialize)]
struct GoldenScenario {
    digest: String,
    notes: Vec<String>,
}

/// What a fake cluster holds, and how the scenario wants it reported.
#[derive(Deserialize)]
struct Collected {
    lists: BTreeMap<String, Vec<Value>>,
    calls: Vec<(String, Value)>,
    metrics: String,
    #[serde(default)]
    notes: Vec<Value>,
    #[serde(default)]
    problems: Vec<String>,
    #[serde(default)]
    unordered: Vec<String>,
    #[serde(default)]
    keep_order: bool,
    #[serde(default)]
    skip: Vec<String>,
}

fn goldens() -> Goldens {
    serde_json::from_str(include_str!("../../tests/fixtures/player_goldens.json")).unwrap()
}

fn names(goldens: &Goldens) -> Names {
    Names { uids: goldens.uids.clone(), socket: goldens.socket.clone() }
}

/// FNV-1a, which both sides can compute in a line or two.
fn digest(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[test]
fn every_scenario_is_read_as_the_reference_player_reads_it() {
    let conformance = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance");
    for (file, golden) in goldens().scenarios {
        let text = std::fs::read_to_string(conformance.join(&file)).unwrap();
        let document = expand(yaml::document(&text).unwrap()).unwrap();
        assert_eq!(digest(&python::dumps(&document.into())), golden.digest, "{file}");
        let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let titles: Vec<_> = scenario
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Note(note) => Some(note.title.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(titles, golden.notes, "{file}");
    }
}

#[test]
fn marks_are_put_where_the_reference_player_puts_them() {
    let goldens = goldens();
    let names = names(&goldens);
    for (value, normal) in goldens.norm {
        assert_eq!(names.norm(&value), normal, "{value}");
    }
}

#[test]
fn differences_are_those_of_the_reference_player() {
    for (expected, got, golden) in goldens().diff {
        let found: Value =
            differences(&expected, &got).iter().map(super::Difference::to_json).collect();
        assert!(python::equal(&found, &golden), "{expected:?} {got:?}\n{found}\n{golden}");
    }
}

#[test]
fn the_driver_chooses_the_rules_that_the_reference_driver_chooses() {
    for (spec, calls) in goldens().rules {
        let script: Script = serde_json::from_value(spec.clone()).unwrap();
        let mut chooser = Chooser::default();
        for (key, parameters, topology, chosen) in calls {
            let subject =
                Subject { key: &key, parameters: Some(&parameters), topology: Some(&topology) };
            let rule = chooser.choose(script.rules("GetCapacity"), "GetCapacity", subject);
            assert_eq!(rule.available_capacity, chosen, "{spec} {key} {parameters:?} {topology:?}");
        }
    }
}

#[test]
fn outcomes_are_put_together_as_by_the_reference_player() {
    let goldens = goldens();
    for (given, golden) in &goldens.collect {
        let remains = Remains {
            objects: given.lists.clone(),
            calls: given.calls.clone(),
            notes: given.notes.clone(),
            problems: given.problems.clone(),
            metrics: Some(given.metrics.clone()),
            exit: Value::Null,
        };
        let Collected { unordered, keep_order, skip, .. } = given;
        let rules = ReportRules { unordered, keep_order: *keep_order, skip };
        let found = outcome(remains, rules, &mut names(&goldens));
        for (part, wanted) in golden.as_object().unwrap() {
            assert_eq!(found.get(part), Some(wanted), "{part} of {}", json!(given.lists));
        }
        assert_eq!(found.len(), golden.as_object().map(Map::len).unwrap());
    }
}

// === Waits ===

/// A cluster that stands still.
struct Still {
    given: Collected,
    journal: Journal,
}

impl ClusterView for Still {
    async fn list(&self, kind: &str) -> Vec<Value> {
        self.given.lists.get(kind).cloned().unwrap_or_default()
    }

    async fn get(&self, kind: &str, _: Option<&str>, name: &str) -> (u16, Value) {
        let all = self.list(kind).await;
        let found = all.into_iter().find(|object| object["metadata"]["name"] == name);
        let missing = json!({"kind": "Status", "metadata": {}, "code": 404});
        found.map_or((404, missing), |object| (200, object))
    }

    async fn http(&self, path: &str) -> Option<(u16, String)> {
        (path == "/metrics").then(|| (200, self.given.metrics.clone()))
    }

    fn calls(&self, method: &str) -> usize {
        self.journal.count(method)
    }

    fn calls_by(&self, method: &str, by: Option<&str>) -> BTreeMap<String, usize> {
        self.journal.counts_by(method, by)
    }

    fn exit(&self, _: &ProcessName) -> Option<i32> {
        None
    }
}

#[tokio::test]
async fn waits_end_when_those_of_the_reference_player_end() {
    for (given, waits) in goldens().wait {
        let journal = Journal::default();
        for (_, request) in &given.calls {
            journal.note_json("CreateVolume", request.clone());
        }
        let view = Still { given, journal };
        for (source, golden) in waits {
            let wait: Wait = serde_json::from_value(source.clone()).unwrap();
            assert_eq!(met(&wait.until, &view).await, golden, "{source}");
        }
    }
}
