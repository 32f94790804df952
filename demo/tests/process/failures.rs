//! The command `demo` with programs that are no provisioners: it fails clearly, and clears away.

use rustix::process::Signal;

use crate::command::{Running, stub};

#[tokio::test]
async fn a_program_that_ends_is_quoted_and_one_that_does_nothing_is_given_up() {
    for (name, why) in [
        ("over", "    nothing to do for --kubeconfig="),
        ("idle", "no line says \"driver GetPluginInfo\""),
    ] {
        let mut demo = Running::start(&["--program", &stub(name)]);
        let (code, errors) = demo.end().await;
        assert!(code == Some(1) && errors.contains(why), "no {why:?} in:\n{errors}");
        demo.nothing_is_left();
    }
}

#[tokio::test]
async fn what_is_not_there_is_reported() {
    let mut demo = Running::start(&["--program", "/nowhere/program"]);
    let (code, errors) = demo.end().await;
    assert!(code == Some(1) && errors.contains("there is no /nowhere/program"), "{errors}");
    let (code, errors) = Running::start(&["--scenario", "none"]).end().await;
    assert!(code == Some(2) && errors.contains("slow-driver, driver-killed"), "{errors}");
}

#[tokio::test]
async fn every_signal_that_ends_it_ends_the_program_too_and_clears_away() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut demo = Running::start(&["--program", &stub("idle")]);
        demo.line("starts the program").await;
        let program = demo.program().await;
        demo.send(signal);
        assert_eq!(demo.end().await.0, Some(130), "{signal:?}");
        demo.nothing_is_left();
        assert!(!std::path::Path::new(&program).exists(), "{signal:?}: the program still runs");
    }
}
