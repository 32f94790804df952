//! The load bench with the real program against itself: what its lines say is what happened.

use clap::Parser as _;
use serde_json::{Value, json};
use testkit::load::{options::Options, pairs};

const PROGRAM: &str = env!("CARGO_BIN_EXE_csi-provisioner");
const CLAIMS: u64 = 20;

/// A claim costs one call, one PersistentVolume and two events; a deletion one call, one DELETE
/// and one PATCH. Whatever else was asked for is not the ordinary path's.
fn costs_what_it_must(line: &Value) {
    let calls = |half: &str| line.pointer(&format!("/{half}/driver_calls")).cloned();
    assert_eq!(calls("provision"), Some(json!({"CreateVolume": CLAIMS})));
    assert_eq!(calls("delete"), Some(json!({"DeleteVolume": CLAIMS})));
    let requests = |half: &str| line.pointer(&format!("/{half}/api/calls")).cloned();
    let created = json!({"create persistentvolumes": CLAIMS, "create events": 2 * CLAIMS});
    assert_eq!(requests("provision"), Some(created));
    // One read right before each DeleteVolume, and more where that took too long.
    let reads = line.pointer("/delete/api/calls/get persistentvolumes").and_then(Value::as_u64);
    let seconds = line.pointer("/delete/gone/seconds").and_then(Value::as_f64).unwrap();
    let most = if seconds < 1.0 { CLAIMS } else { 3 * CLAIMS };
    assert!(reads.is_some_and(|reads| (CLAIMS..=most).contains(&reads)), "{line}");
    let deleted = json!({
        "delete persistentvolumes": CLAIMS, "get persistentvolumes": reads, "patch persistentvolumes": CLAIMS,
    });
    assert_eq!(requests("delete"), Some(deleted));
    assert_eq!(line.pointer("/volumes_left_at_driver"), Some(&json!(0)));
}

#[tokio::test]
async fn two_programs_do_the_same_work_in_turn() {
    let programs = ["load", "--program", PROGRAM, "--against", PROGRAM, "--rounds", "2"];
    let few = ["--claims", "20", "--bound", "10", "--settle", "4"];
    let more = ["--against-argument", "--worker-threads=50"];
    let options = Options::try_parse_from([&programs[..], &few, &more].concat()).unwrap();
    let pairs = pairs::run(options).await.unwrap_or_else(|error| panic!("{error}"));
    let table = pairs::markdown(&pairs);
    assert!(table.starts_with("| 20 claims at once, rounds: 2, server: "), "{table}");
    assert!(table.lines().skip(2).take(9).all(|row| !row.contains("| - |")), "{table}");
    for round in [0, 1] {
        for (side, arguments) in [json!([]), json!(["--worker-threads=50"])].iter().enumerate() {
            let run = pairs.pointer(&format!("/rounds/{round}/{side}")).unwrap();
            costs_what_it_must(run);
            assert_eq!(run.pointer("/setting/arguments"), Some(arguments));
            assert_eq!(run.pointer("/setting/bound"), Some(&json!(10)));
        }
    }
}
