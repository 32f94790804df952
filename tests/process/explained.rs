//! What `kubectl csi-provisioner explain` says at the end of recorded scenarios: each claim that has no volume then
//! is explained by the cause that tests/conformance/explained.txt names. With `EXPLAIN_ALL` in the environment, all
//! scenarios are explained and what is said is printed.

use std::{collections::BTreeMap, env};

use testkit::player::{Explained, Played};

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

/// Whether all scenarios are explained.
pub(crate) fn is_all() -> bool {
    env::var_os("EXPLAIN_ALL").is_some()
}

/// What is wrong with what was said at the end of a scenario.
pub(crate) fn wrong(table: &Table, played: &Played) -> Vec<String> {
    let (scenario, said) = (played.name.as_str(), &played.explained);
    for Explained { claim, code, text } in said.iter().filter(|_| is_all()) {
        println!("=== {scenario}\t{claim}\t{code}\n{text}");
    }
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
