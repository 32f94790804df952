//! The recorded scenarios, all of them, played on the real binary: each with an API server over
//! HTTPS, a scripted driver on a unix socket and a process of its own. Where `KUBEBUILDER_ASSETS`
//! or `KUBECONFIG_E2E` is set, on that control plane. Beside each runs a process in shadow mode, which must
//! find nothing that it cannot explain. At the end of some, `kubectl csi-provisioner explain` is asked
//! ([`explained`](crate::explained)).
//!
//! Where `EXTERNAL_PROVISIONER` names the file of external-provisioner v6.3.0, that is played instead, and must do
//! what was recorded, and shadow mode beside it must find what [`DOCUMENTED`] lists and nothing that it cannot
//! explain.
//!
//! `SCENARIO` in the environment chooses scenarios by a part of their name.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use futures::future::join;
use support::process::beside;
use testkit::player::{Options, Played, Summary, play_all, scenario_files};

use crate::explained::{self, Table};

/// Scenarios wait more than they compute: more at once than there are cores, but no more than two cores serve in time
/// beside the other tests.
const JOBS: usize = 4;

/// Beside those so many of the scenarios that spend their time waiting in vain.
const JOBS_IN_VAIN: usize = 4;

/// A kube-apiserver does compute, and each job has one.
const JOBS_ON_BINARIES: usize = 2;

/// What shadow mode must say of external-provisioner's PersistentVolumes where this program's would be others: the
/// scenario, and the row of docs/differences.md.
const DOCUMENTED: [(&str, &str); 3] = [
    ("lifecycle-claim-selection", "claims that are being deleted"),
    (
        "lifecycle-delete-whose",
        "PersistentVolume with our annotation but of another CSI driver, or of an in-tree plugin that ours did not take over from",
    ),
    (
        "sources-foreign-claim-kind",
        "a source of kind PersistentVolumeClaim and another API group than the core's",
    ),
];

#[test]
fn every_scenario_ends_as_it_was_recorded() {
    let conformance = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let files = chosen(&conformance);
    let jobs = match (is_set("KUBEBUILDER_ASSETS"), is_set("KUBECONFIG_E2E")) {
        (true, _) => JOBS_ON_BINARIES,
        // One cluster holds one scenario at a time.
        (false, true) => 1,
        (false, false) => JOBS,
    };
    let this = env!("CARGO_BIN_EXE_csi-provisioner");
    let recorded = env::var_os("EXTERNAL_PROVISIONER").map(PathBuf::from);
    let table = explained::table();
    let asked = table.keys().filter(|_| recorded.is_none()).map(|&name| name.to_owned());
    let options = Options {
        recorded: recorded.is_some(),
        explained: asked.collect(),
        binary: recorded.unwrap_or_else(|| this.into()),
        conformance,
        jobs,
        cli: Some(beside(this, "kubectl-csi_provisioner")),
    };
    let (summary, failed) = play(&files, &options, &table);
    println!("\n{summary}\n");
    let alone = "one alone: SCENARIO=NAME cargo test --test process conformance";
    // Once more at the end, where it is not between hundreds of lines.
    assert!(summary.failed == 0 && failed.is_empty(), "{}\n{alone}", failed.join("\n"));
}

/// Whether the environment names a path here.
fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|path| !path.is_empty())
}

/// The files to play.
fn chosen(conformance: &Path) -> Vec<PathBuf> {
    let mut files = scenario_files(conformance).unwrap();
    let part = env::var("SCENARIO").unwrap_or_default();
    files.retain(|file| file.to_string_lossy().contains(&part));
    // What no recording of external-provisioner shows.
    let ours = conformance.join("ours");
    files.retain(|file| !is_set("EXTERNAL_PROVISIONER") || !file.starts_with(&ours));
    files
}

/// What came of it, and in what the failed scenarios differ.
fn play(files: &[PathBuf], options: &Options, table: &Table) -> (Summary, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let failed = RefCell::new(Vec::new());
    let report = |played: &Played| {
        println!("{played}");
        let mut failed = failed.borrow_mut();
        if !played.verdict.passed() {
            failed.push(played.to_string());
        } else if options.recorded && documented(played) != expected_rows(&played.name) {
            failed.push(format!("{} (shadow mode)", played.name));
        } else if options.explained.contains(&played.name) {
            failed.extend(explained::wrong(table, played));
        }
    };
    if is_set("KUBEBUILDER_ASSETS") || is_set("KUBECONFIG_E2E") {
        return (runtime.block_on(play_all(files, options, report)), failed.into_inner());
    }
    let in_vain = Options { jobs: JOBS_IN_VAIN, ..options.clone() };
    let (waiting, others): (Vec<_>, Vec<_>) =
        files.iter().cloned().partition(|file| waits_in_vain(file, &options.conformance));
    let (waiting, others) = runtime
        .block_on(join(play_all(&waiting, &in_vain, report), play_all(&others, options, report)));
    (waiting + others, failed.into_inner())
}

/// Whether a step is expected to wait for what never comes.
fn waits_in_vain(file: &Path, conformance: &Path) -> bool {
    let ruled = conformance.join("differences").join(file.file_name().unwrap_or_default());
    [file, &ruled]
        .iter()
        .any(|file| fs::read_to_string(file).is_ok_and(|text| text.contains("timed out")))
}

/// The rows of docs/differences.md that shadow mode named, each once.
fn documented(played: &Played) -> BTreeSet<&str> {
    played.shadow.iter().filter_map(|result| result.get("row")?.as_str()).collect()
}

fn expected_rows(scenario: &str) -> BTreeSet<&'static str> {
    DOCUMENTED.iter().filter(|(name, _)| *name == scenario).map(|(_, row)| *row).collect()
}
