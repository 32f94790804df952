//! The demo itself: starts, creates, deletes, and waits until each step is observed.
//!
//! Owns the order of acts and what is said when one fails. Promises that an act which returns
//! without an error was observed to the end, and that dropping a [`Demo`] leaves neither process nor
//! file behind. Leaves the verdict to `steps`.

use std::{
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use crate::{
    cluster::{self, CLAIM, Cluster, ClusterError},
    leftovers::{Leftovers, LookError},
    program::{Program, ProgramError},
    scenarios::{Balance, Sign},
    screen::Screen,
    steps::{Act, Progress, Step, Verdict},
    timeline::Timeline,
};
use testkit::apiserver::serve::manifests::ManifestError;

/// How long a step may take after what causes it, unless configured otherwise.
pub const LIMIT: Duration = Duration::from_secs(10);

/// What the demo is played with.
pub struct Settings {
    /// The provisioner's program.
    pub program: PathBuf,
    /// How long a step may take after what causes it.
    pub limit: Duration,
    /// Bytes that the driver gives out; what the disk has, if `None`.
    pub size: Option<i64>,
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
    /// The demo's own objects are wrong.
    #[error(transparent)]
    Objects(#[from] ManifestError),
    /// The API server does not do what the demo asks of it.
    #[error("the API server refuses what the demo does: {0}")]
    Refused(#[from] kube::Error),
    /// A step did not come.
    #[error("a step is missing: {step}.\nIt was waited for {limit:?}. Last seen: {last}")]
    Missing {
        /// Which.
        step: Step,
        /// How long it was waited for.
        limit: Duration,
        /// The last line.
        last: String,
    },
    /// What a scenario must show did not come.
    #[error("no line of {:?} says {:?} within {limit:?}. The last line: {last}", .sign.0, .sign.1)]
    NoSign {
        /// What did not come.
        sign: Sign,
        /// How long it was waited for.
        limit: Duration,
        /// The last line.
        last: String,
    },
    /// The volumes at the driver are not those of the PersistentVolumes.
    #[error("{0}")]
    Lost(Balance),
    /// A step came without its cause.
    #[error("a step is missing: {cause}.\nYet what should come after it was seen: {step}.")]
    Causeless {
        /// The observed step.
        step: Step,
        /// What was not.
        cause: Step,
    },
    /// A step came that nobody asked for.
    #[error("a step came unasked: {0}.")]
    Unasked(Step),
    /// The program ended by itself.
    #[error("the program ended ({status}). The next step is missing: {step}.")]
    Ended {
        /// How.
        status: ExitStatus,
        /// What was waited for.
        step: Step,
    },
    /// Something is left at the end.
    #[error("{0}")]
    LeftBehind(Leftovers),
    /// Nobody knows what is left.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The driver's directory can't be read, or a line can't be written.
    #[error("can't look at the disk, or write: {0}")]
    Io(#[from] io::Error),
}

/// A running demo.
pub struct Demo {
    program: Program,
    screen: Screen,
    cluster: Cluster,
    progress: Progress,
    limit: Duration,
}

impl Demo {
    /// A cluster that is watched, with the program just started in it.
    ///
    /// # Errors
    /// What can't be started.
    pub async fn prepare(settings: Settings) -> Result<Self, Failure> {
        let Settings { program, limit, size, timeline } = settings;
        let settings = cluster::Settings { size, ..cluster::Settings::default() };
        let cluster = Cluster::start(settings).await?;
        let screen = Screen::start(&cluster, timeline).await?;
        let program = Program::start(&program, &cluster, &[])?;
        Ok(Self { program, screen, cluster, progress: Progress::new(), limit })
    }

    /// Does what the act says, and waits until its steps are observed.
    ///
    /// # Errors
    /// The step that is missing, or whatever else is in the way.
    pub async fn play(&mut self, act: Act) -> Result<(), Failure> {
        self.progress.begin(act, self.screen.now());
        self.set_off(act).await?;
        loop {
            self.observe().await?;
            let now = self.screen.now();
            match self.progress.verdict(now, self.limit) {
                Verdict::Complete => return Ok(()),
                Verdict::Waiting(step) => self.still_running(step)?,
                Verdict::Missing(step) => {
                    let (limit, last) = (self.limit, self.screen.last().to_owned());
                    return Err(Failure::Missing { step, limit, last });
                }
                Verdict::Causeless(step, cause) => return Err(Failure::Causeless { step, cause }),
                Verdict::Unasked(step) => return Err(Failure::Unasked(step)),
            }
        }
    }

    async fn set_off(&mut self, act: Act) -> Result<(), Failure> {
        match act {
            Act::Start => self.screen.print("starts the program")?,
            Act::Create => {
                self.screen.print("creates StorageClass, Secret and claim")?;
                self.cluster.create_objects().await?;
            }
            Act::Delete => {
                self.screen.print("deletes the claim")?;
                self.cluster.delete_claim().await?;
            }
        }
        Ok(())
    }

    /// Says that nothing is left.
    ///
    /// # Errors
    /// What is left.
    pub async fn close(&mut self) -> Result<(), Failure> {
        let left = Leftovers::look(&self.cluster).await?;
        if !left.is_empty() {
            return Err(Failure::LeftBehind(left));
        }
        Ok(self.screen.say(&format!("\n{left}"))?)
    }

    /// Says how to play with the cluster, and goes on printing observations until the program ends.
    ///
    /// # Errors
    /// Why it can't go on.
    pub async fn keep(&mut self) -> Result<Infallible, Failure> {
        let kubeconfig = self.cluster.kubeconfig("admin");
        self.screen.say(&invitation(&kubeconfig, &self.cluster.volumes_directory()))?;
        loop {
            self.observe().await?;
            self.still_running(Step::ClaimGone)?;
        }
    }

    /// Ends program and cluster in order. (Dropping the demo ends them at once.)
    pub async fn stop(self) {
        self.program.stop().await;
        self.cluster.stop().await;
    }

    /// The last lines of the program's log.
    pub fn last_words(&self) -> String {
        self.program.last_words()
    }

    /// What stands around the program.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Prints what is new.
    async fn observe(&mut self) -> io::Result<()> {
        for observation in self.screen.observe(&self.cluster).await? {
            let now = self.screen.now();
            observation.steps.into_iter().for_each(|step| self.progress.saw(step, now));
        }
        Ok(())
    }

    fn still_running(&mut self, step: Step) -> Result<(), Failure> {
        self.program.ended().map_or(Ok(()), |status| Err(Failure::Ended { status, step }))
    }
}

/// How to play with a cluster that is kept.
fn invitation(kubeconfig: &Path, volumes: &Path) -> String {
    format!(
        "\nThe cluster stays until Ctrl-C, and what happens in it is shown here. \
         In another terminal:\n\n  \
         export KUBECONFIG={}\n  \
         kubectl describe pvc {CLAIM}\n  \
         ls {}\n  \
         kubectl delete pvc {CLAIM}\n",
        kubeconfig.display(),
        volumes.display(),
    )
}
