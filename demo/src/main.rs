//! `cargo run -p demo`: the command line, Ctrl-C, and the exit code.

use std::{io, path::PathBuf, process::ExitCode};

use clap::{Parser, builder::PossibleValuesParser};
use demo::{
    play::{self, Failure, Player, Settings},
    program,
    scenarios::{self, LIFE, Scenario},
    timeline::Timeline,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

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
    #[arg(long, value_name = "NAME", conflicts_with = "keep", value_parser = names())]
    scenario: Option<String>,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(scenarios::ALL.iter().map(|scenario| scenario.name))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { program, keep, scenario } = arguments;
    let mut interrupts = Interrupts::new()?;
    let scenario = scenario.and_then(|name| scenarios::find(&name)).unwrap_or(&LIFE);
    let player = tokio::select! {
        player = prepare(program, scenario) => player?,
        () = interrupts.next() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    Ok(played(player, keep, &mut interrupts).await)
}

async fn prepare(program: Option<PathBuf>, scenario: &'static Scenario) -> Result<Player, Failure> {
    let program = program::find(program).await?;
    let settings = Settings { program, limit: play::LIMIT, timeline: Timeline::on_stdout() };
    Player::prepare(scenario, settings).await
}

/// Plays to the end or to Ctrl-C, and clears away.
async fn played(mut player: Player, keep: bool, interrupts: &mut Interrupts) -> ExitCode {
    let outcome = tokio::select! {
        outcome = player.play(keep) => Some(outcome),
        () = interrupts.next() => None,
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
    code
}

/// What asks us to end: Ctrl-C, SIGTERM, a closed terminal.
struct Interrupts([Signal; 3]);

impl Interrupts {
    fn new() -> io::Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    async fn next(&mut self) {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
