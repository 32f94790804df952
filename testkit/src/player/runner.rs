//! Several scenarios, several at once, and what came of them.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt, fs,
    future::pending,
    io,
    ops::Add,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    runtime,
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use super::{
    PlayError,
    rulings::{Ruled, Rulings},
    run::{self, Beside, Explained},
    scenario::Scenario,
    shadowed::SHADOW,
    verdict::Expected,
};
use crate::{control_plane::ControlPlane, ports::free_port, program::asked_to_end};

// === Where ===

/// An API server, and the port of one run.
pub(super) struct Cluster {
    pub(super) admin: kube::Client,
    /// The port that the main process serves its metrics on.
    pub(super) http: u16,
    pub(super) plane: ControlPlane,
}

impl Cluster {
    /// The API server that the environment asks for (`KUBEBUILDER_ASSETS`, `KUBECONFIG_E2E`), else an in-memory one.
    pub(super) async fn of_environment() -> Result<Self, PlayError> {
        let plane = ControlPlane::start().await?;
        Ok(Self { admin: plane.client("admin").await?, http: free_port()?, plane })
    }

    /// The kubeconfig of a user.
    pub(super) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.plane.layout().kubeconfig(user)
    }

    /// Whether another scenario may be played on it: on a real server, which takes seconds to start; an in-memory one
    /// is made anew each time.
    fn may_be_used_again(&self) -> bool {
        self.plane.embedded().is_none()
    }
}

/// All scenario files in a directory and its folders, in order of their paths.
pub fn scenario_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            // These hold something else.
            if !["cluster", "differences"].iter().any(|name| entry.file_name() == *name) {
                files.extend(scenario_files(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    Ok(files)
}

// === What ===

/// What is played, and by which rules.
#[derive(Debug, Clone)]
pub struct Options {
    /// The provisioner.
    pub binary: PathBuf,
    /// Whether that is external-provisioner itself, which no ruling applies to.
    pub recorded: bool,
    /// The directory of the scenarios, with `cluster/`, `differences/` and the table of rulings.
    pub conformance: PathBuf,
    /// How many scenarios are played at once, each on a cluster of its own.
    pub jobs: usize,
    /// The CLI, whose shadow mode runs beside each provisioner, and must find nothing.
    pub cli: Option<PathBuf>,
    /// The scenarios at whose end the CLI explains the claims that have no PersistentVolume.
    pub explained: BTreeSet<String>,
}

/// What came of a scenario.
#[derive(Debug)]
pub struct Played {
    /// Its name.
    pub name: String,
    /// What is to be held of it.
    pub verdict: Verdict,
    /// The results of shadow mode beside it other than `same`.
    pub shadow: Vec<Value>,
    /// What the CLI said about claims, if that was asked.
    pub explained: Vec<Explained>,
    /// How long it took.
    pub took: Duration,
}

/// What is to be held of a run.
#[derive(Debug)]
pub enum Verdict {
    /// As the reference did.
    Same,
    /// As the rulings in these rows ask.
    Ruled(Vec<String>),
    /// Otherwise.
    Differs {
        /// In what.
        found: Vec<Value>,
        /// The last lines that the last process printed.
        said: String,
    },
    /// It broke off.
    Broken(PlayError),
}

impl Verdict {
    /// Whether the run is as it should be.
    pub fn passed(&self) -> bool {
        matches!(self, Self::Same | Self::Ruled(_))
    }

    /// Whether another process took the port between its choice and the start: that is chance, and says nothing of
    /// the provisioner.
    fn lost_its_port(&self) -> bool {
        matches!(self, Self::Differs { said, .. } if said.contains("bind: address already in use"))
    }
}

/// How many scenarios came to which verdict.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// As the reference.
    pub same: usize,
    /// Different by ruling.
    pub ruled: usize,
    /// Anything else.
    pub failed: usize,
}

/// Plays one scenario file.
async fn play(file: &Path, cluster: &Cluster, options: &Options) -> Result<Played, PlayError> {
    let began = Instant::now();
    let scenario = Scenario::load(file)?;
    let ruled = Rulings::load(&options.conformance)?.on(file)?.filter(|_| !options.recorded);
    let Options { binary, conformance, cli, explained, .. } = options;
    let name = name_of(file);
    let explains = explained.contains(&name);
    let beside = cli.as_deref().map(|cli| Beside { cli, explains });
    let outcomes = match &ruled {
        None => vec![&scenario.expect],
        Some(Ruled { expect, or, .. }) => std::iter::once(expect).chain(or).collect(),
    };
    let expected = Expected { outcomes, is_ruled: ruled.is_some() };
    let ended = run::play(&scenario, cluster, binary, conformance, beside, &expected).await?;
    let mut found = ended.found;
    if !ended.shadow.faults.is_empty() {
        found.push(serde_json::json!([SHADOW, "values", ended.shadow.faults]));
    }
    let verdict = match (found.is_empty(), ruled) {
        (false, _) => Verdict::Differs { found, said: ended.said },
        (true, Some(ruled)) => Verdict::Ruled(ruled.rows),
        (true, None) => Verdict::Same,
    };
    let (shadow, explained) = (ended.shadow.rows, ended.explained);
    Ok(Played { name, verdict, shadow, explained, took: began.elapsed() })
}

fn name_of(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Plays all `files`, each on a cluster of its own, and reports each as it ends. Clusters that can be played
/// on again are, unless a play broke off there. SIGTERM and SIGINT end it early; what it started ends with it.
pub async fn play_all(
    files: &[PathBuf],
    options: &Options,
    mut report: impl FnMut(&Played),
) -> Summary {
    let files = Arc::new(Mutex::new(VecDeque::from(files.to_vec())));
    let (sender, mut played) = mpsc::unbounded_channel();
    let (go_on, asked) = watch::channel(());
    let mut jobs = JoinSet::new();
    for _ in 0..options.jobs.max(1) {
        let (files, played, asked) = (Arc::clone(&files), sender.clone(), asked.clone());
        let mut job = Job { options: options.clone(), idle: None };
        jobs.spawn_blocking(move || job.run(&files, &played, asked));
    }
    drop(sender);
    let mut summary = Summary::default();
    let mut ended = pin!(async {
        match asked_to_end() {
            Ok(asked) => asked.await,
            // Signals cannot be listened to.
            Err(_) => pending().await,
        }
    });
    loop {
        tokio::select! {
            biased;
            () = &mut ended => {
                // What is cut short has not passed.
                summary.failed += 1;
                break;
            }
            played = played.recv() => {
                let Some(played) = played else { break };
                summary.count(&played);
                report(&played);
            }
        }
    }
    drop(go_on);
    while let Some(job) = jobs.join_next().await {
        // It says on its own why it did not play to the end.
        summary.failed += usize::from(!matches!(job, Ok(Ok(()))));
    }
    summary
}

/// Plays one scenario after another, on a thread of its own: a busy machine gives each its share. On one thread calls
/// that come together are noted in the order in which they came.
struct Job {
    options: Options,
    /// A cluster that may be played on again.
    idle: Option<Cluster>,
}

impl Job {
    /// Plays what is left of `files`, until `asked` is closed.
    fn run(
        &mut self,
        files: &Mutex<VecDeque<PathBuf>>,
        played: &mpsc::UnboundedSender<Played>,
        mut asked: watch::Receiver<()>,
    ) -> io::Result<()> {
        let all = async {
            loop {
                let Some(file) = files.lock().pop_front() else { return };
                // Who does not listen any more has asked to end.
                let _ = played.send(self.play(&file).await);
            }
        };
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = asked.changed() => {}
                () = all => {}
            }
        });
        Ok(())
    }

    async fn play(&mut self, file: &Path) -> Played {
        let mut played = self.play_once(file).await;
        if played.as_ref().is_ok_and(|played| played.verdict.lost_its_port()) {
            played = self.play_once(file).await;
        }
        played.unwrap_or_else(|error| Played {
            name: name_of(file),
            verdict: Verdict::Broken(error),
            shadow: Vec::new(),
            explained: Vec::new(),
            took: Duration::ZERO,
        })
    }

    async fn play_once(&mut self, file: &Path) -> Result<Played, PlayError> {
        let cluster = match self.idle.take() {
            Some(cluster) => cluster,
            None => Cluster::of_environment().await?,
        };
        let played = play(file, &cluster, &self.options).await?;
        self.idle = Some(cluster).filter(Cluster::may_be_used_again);
        Ok(played)
    }
}

impl Add for Summary {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            same: self.same + other.same,
            ruled: self.ruled + other.ruled,
            failed: self.failed + other.failed,
        }
    }
}

impl Summary {
    fn count(&mut self, played: &Played) {
        match played.verdict {
            Verdict::Same => self.same += 1,
            Verdict::Ruled(_) => self.ruled += 1,
            Verdict::Differs { .. } | Verdict::Broken(_) => self.failed += 1,
        }
    }
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, took) = (&self.name, self.took.as_secs_f64());
        match &self.verdict {
            Verdict::Same => write!(f, "{name}: same {took:.1}s"),
            Verdict::Ruled(rows) => {
                write!(f, "{name}: different by ruling ({}) {took:.1}s", rows.join(" | "))
            }
            Verdict::Broken(error) => write!(f, "{name}: BROKEN {error}"),
            Verdict::Differs { found, said } => {
                write!(f, "{name}: DIFFERS")?;
                // As much as the reference player prints.
                let mut found = found.iter().map(ToString::to_string);
                found.try_for_each(|it| {
                    write!(f, "\n    {}", it.chars().take(1500).collect::<String>())
                })?;
                said.lines().try_for_each(|line| write!(f, "\n    | {line}"))
            }
        }?;
        self.shadow.iter().try_for_each(|row| write!(f, "\n    shadow: {row}"))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { same, ruled, failed } = self;
        writeln!(f, "{same} same, {ruled} different by ruling, {failed} failed")?;
        write!(f, "{} passed, {failed} failed", same + ruled)
    }
}
