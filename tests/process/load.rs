//! The load bench with the real program: what its line says is what happened.

use std::env;

use clap::Parser as _;
use serde_json::{Value, json};
use testkit::load::{self, options::Options, pairs};

const CLAIMS: u64 = 20;

/// What to run on this package's program.
fn options(arguments: &[&str]) -> Options {
    let program = ["load", "--program", env!("CARGO_BIN_EXE_csi-provisioner")];
    let few = ["--claims", "20", "--settle", "1"];
    Options::try_parse_from([&program[..], &few, arguments].concat()).unwrap()
}

/// Runs the bench on this package's program; its line.
async fn line(arguments: &[&str]) -> Value {
    load::run(options(arguments)).await.unwrap_or_else(|error| panic!("{error}"))
}

fn number(line: &Value, path: &str) -> f64 {
    let value = line.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number {path} in {line}"))
}

fn is_latency(line: &Value, path: &str) {
    let [p50, p99, max] =
        ["p50_ms", "p99_ms", "max_ms"].map(|field| number(line, &format!("{path}/{field}")));
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{path}: {p50} {p99} {max}");
}

fn is_pace(line: &Value, path: &str) {
    let [seconds, rate] =
        ["seconds", "per_second"].map(|field| number(line, &format!("{path}/{field}")));
    let claims = seconds * rate;
    assert!((claims - 20.0).abs() < 0.5, "{path}: {seconds} s at {rate}");
}

/// Whether the machine kept up: a volume is read before it is deleted unless the watch has shown a
/// write that was sent less than two seconds before, and where all is slow none is that young.
fn kept_up(line: &Value) -> bool {
    number(line, "/delete/released_to_gone/max_ms") < 1000.0
}

/// A claim costs one call, one PersistentVolume and two events; a deletion one call, one DELETE
/// and one PATCH. Whatever else was asked for is not the ordinary path's.
fn costs_what_it_must(line: &Value) {
    let calls = |half: &str| line.pointer(&format!("/{half}/driver_calls")).cloned();
    assert_eq!(calls("provision"), Some(json!({"CreateVolume": CLAIMS})));
    assert_eq!(calls("delete"), Some(json!({"DeleteVolume": CLAIMS})));
    let requests = |half: &str| line.pointer(&format!("/{half}/api/calls")).cloned();
    let created = json!({"create persistentvolumes": CLAIMS, "create events": 2 * CLAIMS});
    assert_eq!(requests("provision"), Some(created));
    let mut deleted =
        json!({"delete persistentvolumes": CLAIMS, "patch persistentvolumes": CLAIMS});
    // One read right before each DeleteVolume, and another if that took too long.
    let reads = line.pointer("/delete/api/calls/get persistentvolumes").and_then(Value::as_u64);
    let most = if kept_up(line) { CLAIMS } else { 3 * CLAIMS };
    assert!(reads.is_some_and(|reads| (CLAIMS..=most).contains(&reads)), "{line}");
    deleted.as_object_mut().unwrap().insert("get persistentvolumes".into(), json!(reads));
    assert_eq!(requests("delete"), Some(deleted));
    assert_eq!(line.pointer("/volumes_left_at_driver"), Some(&json!(0)));
}

#[tokio::test]
async fn the_line_of_a_run_on_the_embedded_server_is_whole_and_true() {
    let line = line(&["--bound", "10"]).await;
    assert_eq!(line.pointer("/setting/claims"), Some(&json!(CLAIMS)));
    assert_eq!(line.pointer("/setting/bound"), Some(&json!(10)));
    costs_what_it_must(&line);
    for pace in ["/provision/bound", "/provision/saved", "/delete/gone"] {
        is_pace(&line, pace);
    }
    for latency in [
        "/provision/claim_to_saved",
        "/provision/claim_to_bound",
        "/delete/claim_to_gone",
        "/delete/released_to_gone",
    ] {
        is_latency(&line, latency);
    }
    assert!(number(&line, "/first_volume_seconds") > 0.0);
    assert!(number(&line, "/first_new_volume_seconds") > 0.0);
    for half in ["provision", "delete"] {
        let cpu = number(&line, &format!("/{half}/cpu/user_seconds"));
        assert!((0.0..60.0).contains(&cpu), "{half}: {cpu} s");
        // Bodies of a claim's requests; the watches show at least each volume.
        assert!(number(&line, &format!("/{half}/api/bytes_written")) > 20.0 * 100.0);
        assert!(number(&line, &format!("/{half}/api/bytes_read")) > 20.0 * 500.0);
    }
    let memory = |field: &str| number(&line, &format!("/memory/{field}"));
    assert!(memory("idle/anonymous_kib") < memory("idle/rss_kib"));
    assert!(memory("peak_rss_kib") >= memory("end/rss_kib").max(memory("start_peak_rss_kib")));
    assert!(memory("start_peak_rss_kib") >= memory("idle/rss_kib"));
}

#[tokio::test]
async fn two_programs_do_the_same_work_in_turn() {
    let other = ["--against", env!("CARGO_BIN_EXE_csi-provisioner"), "--rounds", "2"];
    let arguments = ["--against-argument", "--worker-threads=50"];
    let options = options(&[&other[..], &arguments].concat());
    let pairs = pairs::run(options).await.unwrap_or_else(|error| panic!("{error}"));
    let table = pairs::markdown(&pairs);
    assert!(table.starts_with("| 20 claims at once, rounds: 2, server: "), "{table}");
    assert!(table.lines().skip(2).take(9).all(|row| !row.contains("| - |")), "{table}");
    let line = pairs;
    for round in [0, 1] {
        for side in [0, 1] {
            let run = line.pointer(&format!("/rounds/{round}/{side}")).unwrap();
            costs_what_it_must(run);
            let arguments = if side == 1 { json!(["--worker-threads=50"]) } else { json!([]) };
            assert_eq!(run.pointer("/setting/arguments"), Some(&arguments));
        }
    }
    for side in ["program", "against"] {
        assert!(number(&line, &format!("/{side}/provision_ms")) > 0.0);
    }
    assert!(number(&line, "/ratio/provision_ms") > 0.0);
}
