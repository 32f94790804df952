//! `kubectl csi-provisioner explain` at the end of recorded scenarios: each claim that has no volume then is
//! explained by the cause that tests/conformance/explained.txt names. With `EXPLAIN_ALL` in the environment,
//! all scenarios are played and what is said is printed.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};

use futures::{StreamExt as _, stream};
use support::process::beside;
use testkit::player::{Cluster, Explained, play_and_explain, scenario_files};

/// Scenarios wait more than they compute.
const JOBS: usize = 10;

/// What is expected: scenario, claim, exit code, and words of the explanation.
const TABLE: &str = include_str!("../../../tests/conformance/explained.txt");

/// What is expected of a claim.
struct Expected {
    claim: &'static str,
    code: i32,
    words: &'static str,
}

/// The expectations by scenario.
fn table() -> BTreeMap<&'static str, Vec<Expected>> {
    let mut table: BTreeMap<_, Vec<Expected>> = BTreeMap::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let columns: Vec<_> = line.splitn(4, '\t').map(str::trim).collect();
        let [scenario, claim, code, words] = columns[..] else { panic!("four columns: {line}") };
        let expected = Expected { claim, code: code.parse().unwrap(), words };
        table.entry(scenario).or_default().push(expected);
    }
    table
}

fn conformance() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance")
}

fn name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

async fn explained(file: PathBuf) -> (String, Vec<Explained>) {
    let cluster = Cluster::of_environment().await.unwrap();
    let cli = Path::new(env!("CARGO_BIN_EXE_kubectl-csi_provisioner"));
    let sidecar = beside(env!("CARGO_BIN_EXE_kubectl-csi_provisioner"), "csi-provisioner");
    let said = play_and_explain(&file, &cluster, &sidecar, cli, &conformance()).await;
    (name(&file), said.unwrap_or_else(|error| panic!("{}: {error}", file.display())))
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

#[tokio::test]
async fn the_cause_is_found_at_the_end_of_each_scenario() {
    let table = table();
    let all = env::var_os("EXPLAIN_ALL").is_some();
    let mut files = scenario_files(&conformance()).unwrap();
    files.retain(|file| all || table.contains_key(name(file).as_str()));
    assert!(files.len() >= table.len(), "a scenario of the table does not exist");
    let mut wrong = Vec::new();
    let mut played = stream::iter(files.into_iter().map(explained)).buffer_unordered(JOBS);
    while let Some((scenario, said)) = played.next().await {
        for Explained { claim, code, text } in said.iter().filter(|_| all) {
            println!("=== {scenario}\t{claim}\t{code}\n{text}");
        }
        let expected = table.get(scenario.as_str()).map(Vec::as_slice).unwrap_or_default();
        wrong.extend(faults(expected, &said).iter().map(|fault| format!("{scenario}: {fault}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
