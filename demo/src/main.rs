//! `cargo run -p demo`: the command line, Ctrl-C, and the exit code.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use demo::{
    Failure,
    play::{self, Player, Settings},
    program,
    scenarios::{self, Scenario},
    timeline::Timeline,
};
use futures::future::select_all;
use tokio::signal::unix::{SignalKind, signal};

/// How a shell reports that Ctrl-C ended a program.
const INTERRUPTED: u8 = 130;

/// Shows a claim become a volume and go again, in a cluster of one process.
///
/// Each line comes from a watch, from the driver's log or from the disk.
#[derive(Debug, Parser)]
struct Arguments {
    /// The csi-provisioner to play with; without it the workspace's own, built if need be.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Leave the claim and its volume, and the cluster running until Ctrl-C, for kubectl.
    #[arg(long)]
    keep: bool,
    /// Play a scenario in which something goes wrong, and check that nothing is lost.
    #[arg(long, value_name = "NAME", default_value = "demo", conflicts_with = "keep", value_parser = named)]
    scenario: Scenario,
}

fn named(name: &str) -> Result<Scenario, String> {
    let all = scenarios::all().map_err(|error| error.to_string())?;
    let names: Vec<_> = all.iter().map(|scenario| scenario.name.clone()).collect();
    let found = all.into_iter().find(|scenario| scenario.name == name);
    found.ok_or_else(|| format!("there are {}", names.join(", ")))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let run = run(Arguments::parse()).await;
    run.unwrap_or_else(|error| {
        eprintln!("demo: {error}");
        ExitCode::FAILURE
    })
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { program, keep, scenario } = arguments;
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals = kinds.into_iter().map(signal).collect::<Result<Vec<_>, _>>()?;
    let mut interrupted = select_all(signals.iter_mut().map(|signal| Box::pin(signal.recv())));
    let prepare = async {
        let program = program::find(program).await?;
        let settings = Settings { program, limit: play::LIMIT, timeline: Timeline::on_stdout() };
        Player::prepare(scenario, settings).await
    };
    let mut player = tokio::select! {
        player = prepare => player?,
        _ = &mut interrupted => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let outcome = tokio::select! {
        outcome = player.play(keep) => Some(outcome),
        _ = &mut interrupted => None,
    };
    let code = match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(failure)) => {
            eprintln!("\ndemo: {failure}\n{}", player.last_words());
            ExitCode::FAILURE
        }
        // That is how a kept cluster is meant to end.
        None if keep => ExitCode::SUCCESS,
        None => ExitCode::from(INTERRUPTED),
    };
    player.stop().await;
    Ok(code)
}
