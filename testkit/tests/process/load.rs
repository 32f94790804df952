//! The `load` program's errors. Whole runs with a provisioner are tests of the product (`tests/process/load.rs` there).

use std::process::{Command, Output};

fn load(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_load")).args(arguments).output().unwrap()
}

#[test]
fn what_is_asked_wrong_is_reported_with_exit_code_2() {
    for wrong in
        [&["--claims", "0"][..], &["--rate", "0"], &["--markdown"], &["--driver-slots", "0"]]
    {
        assert_eq!(load(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_program_that_is_missing_or_ends_is_reported_with_exit_code_1() {
    for (program, why) in [("/no/such", "there is no program /no/such"), ("/bin/false", "ended")] {
        let output = load(&["--program", program, "--claims", "1"]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && error.contains(why), "{program}: {error}");
    }
}
