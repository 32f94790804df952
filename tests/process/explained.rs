//! What `kubectl csi-provisioner explain` says at the end of recorded scenarios: each claim that has no volume then
//! is explained by the cause that tests/conformance/explained.txt names.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use testkit::player::{Explained, Played, scenario_files};

/// What is expected: scenario, claim, exit code, and words of the explanation.
const TABLE: &str = include_str!("../conformance/explained.txt");

/// What is expected of a claim.
pub(crate) struct Expected {
    claim: &'static str,
    code: i32,
    words: &'static str,
}

/// The expectations by scenario.
pub(crate) type Table = BTreeMap<&'static str, Vec<Expected>>;

/// Reads the expectations.
pub(crate) fn table() -> Table {
    let mut table = Table::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let columns: Vec<_> = line.splitn(4, '\t').map(str::trim).collect();
        let [scenario, claim, code, words] = columns[..] else { panic!("four columns: {line}") };
        let expected = Expected { claim, code: code.parse().unwrap(), words };
        table.entry(scenario).or_default().push(expected);
    }
    table
}

/// What is wrong with what was said at the end of a scenario.
pub(crate) fn wrong(table: &Table, played: &Played) -> Vec<String> {
    let (scenario, said) = (played.name.as_str(), &played.explained);
    let expected = table.get(scenario).map(Vec::as_slice).unwrap_or_default();
    faults(expected, said).iter().map(|fault| format!("{scenario}: {fault}")).collect()
}

/// What is wrong with what was said.
fn faults(expected: &[Expected], said: &[Explained]) -> Vec<String> {
    let wrong = expected.iter().filter_map(|Expected { claim, code, words }| {
        let Some(found) = said.iter().find(|said| said.claim == *claim) else {
            return Some(format!("{claim} has a volume, or does not exist"));
        };
        let is_right = found.code == *code && found.text.contains(words);
        (!is_right).then(|| {
            format!("{claim}: {code} and {words:?} expected, but {}:\n{}", found.code, found.text)
        })
    });
    wrong.collect()
}

#[test]
fn each_scenario_of_the_table_exists() {
    let conformance = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let files = scenario_files(&conformance).unwrap();
    let names: BTreeSet<_> = files.iter().filter_map(|file| file.file_stem()?.to_str()).collect();
    let unknown: Vec<_> = table().into_keys().filter(|name| !names.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
