//! Plays a scenario: acts, and waits for the signs. It succeeds only if all signs were observed and nothing is lost.

use std::{path::PathBuf, time::Duration};

use testkit::program::Program;
use tokio::time::Instant;

use crate::{
    Failure,
    cluster::Cluster,
    observations::{Observation, Observer},
    program::{self, GRACE},
    scenarios::{Scenario, Sign, manifest},
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

/// A scenario that is played; dropping it leaves neither process nor file behind.
pub struct Player {
    scenario: Scenario,
    settings: Settings,
    observer: Observer,
    began: Instant,
    last: String,
    program: Option<Program>,
    cluster: Cluster,
}

impl Player {
    /// A cluster with what the scenario needs, in which nothing runs yet.
    pub async fn prepare(scenario: Scenario, mut settings: Settings) -> Result<Self, Failure> {
        let cluster = Cluster::start(scenario.ability).await?;
        if let Some(objects) = &scenario.cluster {
            cluster.prepare_objects(manifest(objects))?;
        }
        let observer = Observer::start(&cluster).await;
        settings.timeline.say(&format!("{}: {}", scenario.name, scenario.title))?;
        let (began, last) = (Instant::now(), "nothing".to_owned());
        Ok(Self { scenario, settings, observer, began, last, program: None, cluster })
    }

    /// Plays to the end; with `keep`, only up to the first deletion, and then for ever.
    pub async fn play(&mut self, keep: bool) -> Result<(), Failure> {
        for (act, signs) in self.scenario.parts.clone().into_iter().flatten() {
            if keep && act == "deletes the claim" {
                self.settings.timeline.say(&invitation(&self.cluster))?;
                loop {
                    self.observe().await?;
                }
            }
            self.settings.timeline.say("")?;
            self.settings.timeline.line(self.began.elapsed(), "demo", &act)?;
            self.act(&act).await?;
            self.wait_for(signs).await?;
        }
        let balance = self.cluster.balance(self.scenario.volumes).await?;
        Ok(self.settings.timeline.say(&format!("\n{balance}"))?)
    }

    /// Does what a line of the screen says.
    async fn act(&mut self, act: &str) -> Result<(), Failure> {
        let cluster = &self.cluster;
        match act.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["starts", "the", "program"] => {
                let (path, flags) = (&self.settings.program, &self.scenario.flags);
                self.program = Some(program::start(path, cluster, flags)?);
            }
            ["kills", "the", "program", ..] => {
                if let Some(program) = self.program.take() {
                    program.kill().await;
                }
            }
            ["starts", "the", "driver", "again"] => cluster.start_driver()?,
            ["kills", "the", "driver"] => cluster.driver.stop(),
            ["lets", "the", "driver", "make", ..] => {
                cluster.driver.backend().silent.send_replace(true);
            }
            ["lets", "the", "driver", "answer", "again"] => {
                cluster.driver.backend().silent.send_replace(false);
            }
            ["creates", ..] => cluster.create(manifest(&self.scenario.objects)).await?,
            ["deletes", "the", "claim"] => cluster.delete("PersistentVolumeClaim", "data")?,
            ["deletes", "the", "snapshot"] => cluster.delete("VolumeSnapshot", "monday")?,
            ["chooses", node, ..] => cluster.choose_node(node)?,
            ["waits", ..] => {}
            _ => return Err(format!("nobody knows how the demo {act}").into()),
        }
        Ok(())
    }

    /// Prints observations until all signs were among them.
    async fn wait_for(&mut self, mut missing: Vec<Sign>) -> Result<(), Failure> {
        let (began, limit) = (Instant::now(), self.settings.limit);
        while let Some(Sign(sign)) = missing.first().cloned() {
            for observation in self.observe().await? {
                missing.retain(|sign| !sign.is_shown_by(&observation));
            }
            if began.elapsed() > limit {
                let (what, last) = ("no line says", &self.last);
                return Err(
                    format!("{what} {sign:?} within {limit:?}. The last line: {last}").into()
                );
            }
        }
        Ok(())
    }

    /// Prints what is new, and returns it.
    async fn observe(&mut self) -> Result<Vec<Observation>, Failure> {
        let observations = self.observer.next(&self.cluster).await?;
        for observation in &observations {
            self.last = observation.to_string();
            self.settings.timeline.line(self.began.elapsed(), observation.source, &self.last)?;
        }
        match self.program.as_ref().and_then(Program::ended) {
            Some(status) => Err(format!("the program ended ({status})").into()),
            None => Ok(observations),
        }
    }

    /// Ends program and cluster in order. (Dropping the player ends them at once.)
    pub async fn stop(self) {
        if let Some(program) = self.program {
            program.end(GRACE).await;
        }
        self.cluster.stop().await;
    }

    /// The last lines of the program's log.
    pub fn last_words(&self) -> String {
        self.program.as_ref().map(program::last_words).unwrap_or_default()
    }

    /// What stands around the program.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

fn invitation(cluster: &Cluster) -> String {
    format!(
        "\nThe cluster stays until Ctrl-C, and what happens in it is shown here. In another terminal:\n\n  \
         export KUBECONFIG={}\n  kubectl describe pvc data\n  ls {}\n  kubectl delete pvc data\n",
        cluster.kubeconfig("admin").display(),
        cluster.volumes_directory().display(),
    )
}
