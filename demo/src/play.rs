//! Plays a scenario: acts, and waits for the signs.
//!
//! Owns the order of a scenario, the clock of the lines, and what is said when it fails. Promises that
//! [`Player::play`] succeeds only if all signs were observed and nothing is lost, and that dropping a
//! [`Player`] leaves neither process nor file behind.

use std::{io, path::PathBuf, process::ExitStatus, time::Duration};

use tokio::time::Instant;

use crate::{
    balance::{Balance, LookError},
    cluster::{CLAIM, Cluster, ClusterError},
    observations::{Observation, Source},
    observer::Observer,
    program::{Program, ProgramError},
    scenarios::{Act, Part, Scenario, Sign},
    timeline::Timeline,
};

/// How long a sign may take after the act, unless configured otherwise.
pub const LIMIT: Duration = Duration::from_secs(10);

/// What a scenario is played with.
pub struct Settings {
    /// The provisioner's program.
    pub program: PathBuf,
    /// How long a sign may take.
    pub limit: Duration,
    /// Where the lines go.
    pub timeline: Timeline,
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What stands around the program is not to be had.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The program can't be started.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The API server does not do what the demo asks of it.
    #[error("the API server refuses what the demo does: {0}")]
    Refused(#[from] kube::Error),
    /// What must be shown did not come.
    #[error("no line of {:?} says {:?} within {limit:?}. The last line: {last}", .sign.0, .sign.1)]
    NoSign {
        /// What did not come.
        sign: Sign,
        /// How long it was waited for.
        limit: Duration,
        /// The last line.
        last: String,
    },
    /// The program ended by itself.
    #[error("the program ended ({0})")]
    Ended(ExitStatus),
    /// The volumes at the driver are not those of the PersistentVolumes.
    #[error("{0}")]
    Lost(Balance),
    /// Nobody knows what is left.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The driver's directory can't be read, or a line can't be written.
    #[error("can't look at the disk, or write: {0}")]
    Io(#[from] io::Error),
}

/// A scenario that is played.
pub struct Player {
    scenario: &'static Scenario,
    path: PathBuf,
    limit: Duration,
    observer: Observer,
    timeline: Timeline,
    began: Instant,
    last: String,
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
        let Settings { program: path, limit, mut timeline } = settings;
        let cluster = Cluster::start(scenario.ability).await?;
        if let Some(manifest) = scenario.cluster {
            cluster.prepare_objects(manifest)?;
        }
        let observer = Observer::start(&cluster).await;
        timeline.say(&format!("{}: {}", scenario.name, scenario.title))?;
        let (began, last) = (Instant::now(), "nothing".to_owned());
        Ok(Self { scenario, path, limit, observer, timeline, began, last, program: None, cluster })
    }

    /// Plays to the end; with `keep`, only up to the first deletion, and then for ever.
    ///
    /// # Errors
    /// The sign that is missing, what is lost, or what is in the way.
    pub async fn play(&mut self, keep: bool) -> Result<(), Failure> {
        for Part { act, signs } in self.scenario.parts {
            if keep && *act == Act::DeleteClaim {
                return self.keep().await;
            }
            self.timeline.say("")?;
            self.timeline.line(self.began.elapsed(), Source::Demo, &act.says())?;
            self.act(*act).await?;
            self.wait_for(signs).await?;
        }
        let balance = Balance::read(&self.cluster, self.scenario.volumes).await?;
        if !balance.is_even() {
            return Err(Failure::Lost(balance));
        }
        Ok(self.timeline.say(&format!("\n{balance}"))?)
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
            for observation in self.observe().await? {
                missing.retain(|sign| !sign.is_shown_by(&observation));
            }
            if began.elapsed() > self.limit {
                let (limit, last) = (self.limit, self.last.clone());
                return Err(Failure::NoSign { sign, limit, last });
            }
        }
        Ok(())
    }

    /// Says how to play with the cluster, and goes on printing observations until the program ends.
    async fn keep(&mut self) -> Result<(), Failure> {
        self.timeline.say(&invitation(&self.cluster))?;
        loop {
            self.observe().await?;
        }
    }

    /// Prints what is new, and returns it.
    async fn observe(&mut self) -> Result<Vec<Observation>, Failure> {
        let observations = self.observer.next(&self.cluster).await?;
        for observation in &observations {
            self.last = observation.to_string();
            self.timeline.line(self.began.elapsed(), observation.source, &self.last)?;
        }
        let ended = self.program.as_mut().and_then(Program::ended);
        ended.map_or(Ok(observations), |status| Err(Failure::Ended(status)))
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

/// How to play with a cluster that is kept.
fn invitation(cluster: &Cluster) -> String {
    format!(
        "\nThe cluster stays until Ctrl-C, and what happens in it is shown here. \
         In another terminal:\n\n  \
         export KUBECONFIG={}\n  \
         kubectl describe pvc {CLAIM}\n  \
         ls {}\n  \
         kubectl delete pvc {CLAIM}\n",
        cluster.kubeconfig("admin").display(),
        cluster.volumes_directory().display(),
    )
}
