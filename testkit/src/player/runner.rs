//! Several scenarios, several at once, and what came of them.

use std::{
    fmt,
    future::Future,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use super::{
    cluster::{Cluster, ClusterError},
    outcome::Outcome,
    rulings::{Ruled, RulingError, Rulings},
    run::{self, Beside, Ended, RunError},
    scenario::{Scenario, ScenarioError},
    shadowed,
    verdict::{
        Difference, Tries, differences, metric_differences, ruled_differences, without_late_events,
    },
};

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
    /// The program with the command `shadow`, which runs beside each provisioner, and must find nothing.
    pub shadow: Option<PathBuf>,
}

/// What came of a scenario.
#[derive(Debug)]
pub struct Played {
    /// Its name.
    pub name: String,
    /// What is to be held of it.
    pub verdict: Verdict,
    /// What it left behind; `None` when it broke off.
    pub outcome: Option<Outcome>,
    /// The results of shadow mode beside it other than `same`.
    pub shadow: Vec<Value>,
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
        found: Vec<Difference>,
        /// The last lines that the last process printed.
        said: String,
    },
    /// It broke off.
    Broken(PlayError),
}

/// Why a scenario was not played to its end.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The scenario cannot be read.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Its difference is not allowed.
    #[error(transparent)]
    Ruling(#[from] RulingError),
    /// There is no cluster for it.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A step failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Verdict {
    /// Whether the run is as it should be.
    pub fn passed(&self) -> bool {
        matches!(self, Self::Same | Self::Ruled(_))
    }

    /// Whether another process took the port between its choice and the start: that is chance, and says
    /// nothing of the provisioner.
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

impl Summary {
    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Same => self.same += 1,
            Verdict::Ruled(_) => self.ruled += 1,
            Verdict::Differs { .. } | Verdict::Broken(_) => self.failed += 1,
        }
    }
}

/// What a scenario came to, and what is to be held of it.
#[derive(Debug)]
pub struct Judged {
    /// What is to be held of it.
    pub verdict: Verdict,
    /// What it left behind.
    pub outcome: Outcome,
    /// The results of shadow mode beside it other than `same`.
    pub shadow: Vec<Value>,
}

/// Plays one scenario file.
pub async fn play(file: &Path, cluster: &Cluster, options: &Options) -> Result<Judged, PlayError> {
    let scenario = Scenario::load(file)?;
    let ruled = Rulings::load(&options.conformance)?.on(file)?;
    let Options { binary, conformance, shadow, .. } = options;
    let beside = shadow.as_deref().map_or(Beside::Nothing, Beside::Shadow);
    let ended = run::play(&scenario, cluster, binary, conformance, beside).await?;
    let Ended { outcome, slowness, said, shadow, .. } = ended;
    let ruled = ruled.filter(|_| !options.recorded);
    let mut found = match &ruled {
        None => deviations(&scenario.expect, &outcome, Tries::Often(slowness)),
        Some(Ruled { expect, or, .. }) => {
            let or = or.as_ref().is_some_and(|or| ruled_deviations(or, &outcome).is_empty());
            if or { Vec::new() } else { ruled_deviations(expect, &outcome) }
        }
    };
    found.extend(shadowed::difference(shadow.faults));
    let verdict = match (found.is_empty(), ruled) {
        (false, _) => Verdict::Differs { found, said },
        (true, Some(ruled)) => Verdict::Ruled(ruled.rows),
        (true, None) => Verdict::Same,
    };
    Ok(Judged { verdict, outcome, shadow: shadow.rows })
}

fn deviations(expect: &Outcome, outcome: &Outcome, tries: Tries) -> Vec<Difference> {
    let metrics = metric_differences(expect, outcome, tries);
    differences(expect, outcome).into_iter().chain(metrics).collect()
}

fn ruled_deviations(expect: &Outcome, outcome: &Outcome) -> Vec<Difference> {
    let ruled = ruled_differences(expect, outcome);
    deviations(expect, &without_late_events(expect, outcome), Tries::Ruled)
        .into_iter()
        .chain(ruled)
        .collect()
}

/// Plays all `files`, each on a cluster that `cluster` makes, and reports each as it ends. Clusters
/// that can be played on again are. SIGTERM and SIGINT end it early; what it started ends with it.
pub async fn play_all<F>(
    files: &[PathBuf],
    options: &Options,
    cluster: impl Fn() -> F,
    mut report: impl FnMut(&Played),
) -> Summary
where
    F: Future<Output = Result<Cluster, ClusterError>>,
{
    let clusters = &Clusters { make: cluster, idle: Mutex::default() };
    let plays = files.iter().map(|file| async move {
        let began = Instant::now();
        let mut judged = clusters.play(file, options).await;
        if judged.as_ref().is_ok_and(|judged| judged.verdict.lost_its_port()) {
            judged = clusters.play(file, options).await;
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let took = began.elapsed();
        match judged {
            Ok(Judged { verdict, outcome, shadow }) => {
                Played { name, verdict, outcome: Some(outcome), shadow, took }
            }
            Err(error) => {
                let verdict = Verdict::Broken(error);
                Played { name, verdict, outcome: None, shadow: Vec::new(), took }
            }
        }
    });
    let mut summary = Summary::default();
    let mut ended = pin!(asked_to_end());
    let mut plays = stream::iter(plays).buffer_unordered(options.jobs.max(1));
    loop {
        tokio::select! {
            biased;
            () = &mut ended => {
                // What is cut short has not passed.
                summary.failed += 1;
                break;
            }
            played = plays.next() => {
                let Some(played) = played else { break };
                summary.count(&played.verdict);
                report(&played);
            }
        }
    }
    summary
}

/// Waits for a signal to end; for ever where signals cannot be listened to.
async fn asked_to_end() {
    let (terminate, interrupt) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    match (terminate, interrupt) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        _ => std::future::pending().await,
    }
}

/// Where scenarios are played.
struct Clusters<M> {
    make: M,
    /// Those that a scenario was played on and that can be played on again.
    idle: Mutex<Vec<Cluster>>,
}

impl<M, F> Clusters<M>
where
    M: Fn() -> F,
    F: Future<Output = Result<Cluster, ClusterError>>,
{
    /// Plays on an idle cluster, else on a new one, which is made when its turn has come. One that
    /// a play broke off on is not used again.
    async fn play(&self, file: &Path, options: &Options) -> Result<Judged, PlayError> {
        let idle = self.idle.lock().pop();
        let cluster = match idle {
            Some(cluster) => cluster,
            None => (self.make)().await?,
        };
        let played = play(file, &cluster, options).await?;
        if cluster.serves_again() {
            self.idle.lock().push(cluster);
        }
        Ok(played)
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
                found.iter().try_for_each(|difference| write!(f, "\n    {difference}"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_run_that_ends_by_itself_was_not_cut_short() {
        let (binary, conformance) = (PathBuf::new(), PathBuf::new());
        let options = Options { binary, recorded: false, conformance, jobs: 1, shadow: None };
        for files in [&[][..], &["a.yaml".into(), "b.yaml".into()]] {
            let summary = play_all(files, &options, || async { nowhere() }, |_| {}).await;
            assert_eq!(summary, Summary { failed: files.len(), ..Summary::default() });
        }
    }

    fn nowhere() -> Result<Cluster, ClusterError> {
        let what = "no cluster".to_owned();
        Err(ClusterError::Io { what, source: std::io::Error::other("none") })
    }
}
