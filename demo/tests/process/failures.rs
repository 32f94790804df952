//! The command `demo` with programs that are no provisioners: it fails clearly, and clears away.

use std::path::Path;

use crate::command::{Running, stub};

#[tokio::test]
async fn a_program_that_ends_is_quoted() {
    let mut demo = Running::start("over", &["--program", &stub("over")]);
    let (code, errors) = demo.end().await;
    assert_eq!(code, Some(1));
    for expected in ["the program ended (exit status: 0)", "    nothing to do for --kubeconfig="] {
        assert!(errors.contains(expected), "no {expected:?} in:\n{errors}");
    }
    demo.nothing_is_left();
}

#[tokio::test]
async fn a_program_that_does_nothing_is_given_up() {
    let mut demo = Running::start("idle", &["--program", &stub("idle")]);
    let (code, errors) = demo.end().await;
    assert_eq!(code, Some(1));
    assert!(errors.contains("no line of Driver says \"GetPluginInfo\""), "{errors}");
    demo.nothing_is_left();
}

#[tokio::test]
async fn a_program_that_is_not_there_is_reported() {
    let mut demo = Running::start("none", &["--program", "/nowhere/program"]);
    let (code, errors) = demo.end().await;
    assert_eq!(code, Some(1));
    assert!(errors.starts_with("demo: there is no /nowhere/program"), "{errors}");
}

#[tokio::test]
async fn every_signal_that_ends_it_ends_the_program_too_and_clears_away() {
    for signal in ["INT", "TERM", "HUP"] {
        let mut demo = Running::start(signal, &["--program", &stub("idle")]);
        demo.line("starts the program").await;
        let program = demo.program().await;
        assert!(Path::new(&program).exists());
        demo.send(signal);
        assert_eq!(demo.end().await.0, Some(130), "{signal}");
        demo.nothing_is_left();
        assert!(!Path::new(&program).exists(), "{signal}: the program still runs");
    }
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_it() {
    let mut demo = Running::start("pipe", &["--program", &stub("idle")]);
    demo.close_output();
    let (code, errors) = demo.end().await;
    assert_eq!(code, Some(1));
    assert!(errors.contains("Broken pipe"), "{errors}");
    demo.nothing_is_left();
}

#[tokio::test]
async fn an_unknown_scenario_is_refused_with_the_names_of_all() {
    let mut demo = Running::start("scenario", &["--scenario", "none"]);
    let (code, errors) = demo.end().await;
    assert_eq!(code, Some(2));
    for scenario in &demo::scenarios::ALL {
        assert!(errors.contains(scenario.name), "no {} in:\n{errors}", scenario.name);
    }
}
