//! Plays a scenario: acts, and waits for the signs.
//!
//! Owns the order of a scenario and what is said when it fails. Promises that [`Player::play`] succeeds
//! only if all signs were observed and nothing is lost, and that dropping a [`Player`] leaves neither
//! process nor file behind.

use std::{path::PathBuf, time::Duration};

use tokio::time::Instant;

use super::{Act, Balance, Part, Scenario, Sign};
use crate::{
    cluster::{self, Cluster},
    play::{Failure, Settings},
    program::Program,
    screen::Screen,
};

/// A scenario that is played.
pub struct Player {
    scenario: &'static Scenario,
    path: PathBuf,
    limit: Duration,
    screen: Screen,
    /// The running program.
    program: Option<Program>,
    cluster: Cluster,
}

impl Player {
    /// A cluster with what the scenario needs, in which nothing runs yet.
    ///
    /// # Errors
    /// What can't be started or created.
    pub async fn prepare(scenario: &'static Scenario, settings: Settings) -> Result<Self, Failure> {
        let Settings { program: path, limit, size, timeline } = settings;
        let cluster = Cluster::start(cluster::Settings { size, ability: scenario.ability }).await?;
        if let Some(manifest) = scenario.cluster {
            cluster.prepare_objects(manifest)?;
        }
        let mut screen = Screen::start(&cluster, timeline).await?;
        screen.say(&format!("{}: {}", scenario.name, scenario.title))?;
        Ok(Self { scenario, path, limit, screen, program: None, cluster })
    }

    /// Plays to the end.
    ///
    /// # Errors
    /// The sign that is missing, what is lost, or what is in the way.
    pub async fn play(&mut self) -> Result<(), Failure> {
        for Part { act, signs } in self.scenario.parts {
            self.screen.print(&act.says())?;
            self.act(*act).await?;
            self.wait_for(signs).await?;
        }
        let balance = Balance::read(&self.cluster, self.scenario.volumes).await?;
        if !balance.is_even() {
            return Err(Failure::Lost(balance));
        }
        Ok(self.screen.say(&format!("\n{balance}"))?)
    }

    async fn act(&mut self, act: Act) -> Result<(), Failure> {
        let cluster = &self.cluster;
        match act {
            Act::StartProgram => {
                self.program = Some(Program::start(&self.path, cluster, self.scenario.flags)?);
            }
            Act::KillProgram => {
                if let Some(program) = self.program.take() {
                    program.kill().await;
                }
            }
            Act::StartDriver => cluster.start_driver()?,
            Act::KillDriver => cluster.kill_driver(),
            Act::Silence => cluster.silence_driver(true),
            Act::Answer => cluster.silence_driver(false),
            Act::Create => cluster.create(self.scenario.objects).await?,
            Act::DeleteClaim => cluster.delete_claim().await?,
            Act::DeleteSnapshot => cluster.delete_snapshot().await?,
            Act::ChooseNode(node) => cluster.choose_node(node).await?,
            Act::WaitFor(_) => {}
        }
        Ok(())
    }

    /// Prints observations until all signs were among them.
    async fn wait_for(&mut self, signs: &[Sign]) -> Result<(), Failure> {
        let mut missing = signs.to_vec();
        let began = Instant::now();
        while let Some(sign) = missing.first().copied() {
            for observation in self.screen.observe(&self.cluster).await? {
                missing.retain(|sign| !sign.is_shown_by(&observation));
            }
            if began.elapsed() > self.limit {
                let (limit, last) = (self.limit, self.screen.last().to_owned());
                return Err(Failure::NoSign { sign, limit, last });
            }
        }
        Ok(())
    }

    /// Ends program and cluster in order. (Dropping the player ends them at once.)
    pub async fn stop(self) {
        if let Some(program) = self.program {
            program.stop().await;
        }
        self.cluster.stop().await;
    }

    /// The last lines of the program's log.
    pub fn last_words(&self) -> String {
        self.program.as_ref().map(Program::last_words).unwrap_or_default()
    }

    /// What stands around the program.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}
