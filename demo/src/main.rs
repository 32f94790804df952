//! `cargo run -p demo`: the command line, Ctrl-C, and the exit code.

use std::{io, path::PathBuf, process::ExitCode};

use clap::{Parser, builder::PossibleValuesParser};
use demo::{
    play::{self, Demo, Failure, Settings},
    program,
    scenarios::{self, Scenario, player::Player},
    steps::Act,
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
    let scenario = scenario.and_then(|name| scenarios::find(&name));
    let running = tokio::select! {
        running = prepare(program, scenario) => running?,
        () = interrupts.next() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    Ok(played(running, keep, &mut interrupts).await)
}

/// What is played.
enum Running {
    /// A claim comes and goes.
    Demo(Box<Demo>),
    /// A scenario.
    Scenario(Box<Player>),
}

impl Running {
    async fn play(&mut self, keep: bool) -> Result<(), Failure> {
        match self {
            Self::Demo(demo) => play(demo, keep).await,
            Self::Scenario(player) => player.play().await,
        }
    }

    fn last_words(&self) -> String {
        match self {
            Self::Demo(demo) => demo.last_words(),
            Self::Scenario(player) => player.last_words(),
        }
    }

    async fn stop(self) {
        match self {
            Self::Demo(demo) => demo.stop().await,
            Self::Scenario(player) => player.stop().await,
        }
    }
}

async fn prepare(
    program: Option<PathBuf>,
    scenario: Option<&'static Scenario>,
) -> Result<Running, Failure> {
    let program = program::find(program).await?;
    let timeline = Timeline::on_stdout();
    let settings = Settings { program, limit: play::LIMIT, size: None, timeline };
    Ok(match scenario {
        Some(scenario) => Running::Scenario(Box::new(Player::prepare(scenario, settings).await?)),
        None => Running::Demo(Box::new(Demo::prepare(settings).await?)),
    })
}

/// Plays to the end or to Ctrl-C, and clears away.
async fn played(mut running: Running, keep: bool, interrupts: &mut Interrupts) -> ExitCode {
    let outcome = tokio::select! {
        outcome = running.play(keep) => Some(outcome),
        () = interrupts.next() => None,
    };
    let code = match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(failure)) => {
            eprintln!("\ndemo: {failure}\n{}", running.last_words());
            ExitCode::FAILURE
        }
        // That is how a kept cluster is meant to end.
        None if keep => ExitCode::SUCCESS,
        None => ExitCode::from(INTERRUPTED),
    };
    running.stop().await;
    code
}

async fn play(demo: &mut Demo, keep: bool) -> Result<(), Failure> {
    demo.play(Act::Start).await?;
    demo.play(Act::Create).await?;
    if keep {
        match demo.keep().await? {}
    }
    demo.play(Act::Delete).await?;
    demo.close().await
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
