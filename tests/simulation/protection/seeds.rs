//! Users who restore, clone, and delete sources and targets at every moment, with kills, rollouts,
//! an ill API server and a driver of moods. At every moment of every call its source is there and
//! guarded; at rest nothing is guarded that nobody needs, and nothing has leaked.

use std::time::Duration;

use csi_provisioner::runtime::{Generator, Random as _};
use serde_json::{Value, json};
use support::simulation::Process;
use testkit::{
    apiserver::{
        faults::{Effect, Rule},
        status::Status,
    },
    driver::Around as _,
};
use tokio::time::sleep;

use super::{CLONE, Cluster, MINUTE, RESTORE};

/// How often something happens in a seed.
const DEEDS: u64 = 60;

/// The seeds that are played each time; `SEEDS=300` in the environment plays as many.
fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12)
}

/// One seed at work.
struct Life {
    cluster: Cluster,
    random: Generator,
    process: Process,
    flags: Vec<&'static str>,
    claims: u64,
    log: Vec<String>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let (cluster, random) = (Cluster::new(seed), Generator::from_seed(seed));
        for number in 0..2 {
            cluster.add_snapshot(&format!("snap{number}"));
            cluster.add_origin(&format!("origin{number}"));
        }
        // With `always` no kill can leak (docs/claim-protection.md).
        let sweep = ["--snapshot-orphan-sweep-interval=7s", "--snapshot-orphan-sweep-interval=5m"];
        let sweep = sweep[usize::try_from(random.below(2)).unwrap()];
        let flags = vec!["--claim-protection=always", "--retry-interval-max=20s", sweep];
        let process = cluster.simulation.start_with(&flags);
        Self { cluster, random, process, flags, claims: 0, log: Vec::new() }
    }

    fn one_of<T: Clone>(&self, choices: &[T]) -> T {
        choices[usize::try_from(self.random.below(choices.len() as u64)).unwrap()].clone()
    }

    /// Something happens.
    async fn deed(&mut self) {
        let deed = self.random.below(14);
        let now = self.cluster.simulation.api.timestamp();
        self.log.push(format!("{now} deed {deed}"));
        match deed {
            0..4 => self.make(),
            4 | 5 => self.delete_a_claim(),
            6 | 7 => self.delete_a_source(),
            8 => self.restore_sources(),
            9 | 10 => self.change_the_drivers_mood(),
            11 => self.make_the_server_ill(),
            12 => self.end_the_process().await,
            _ => self.bind(),
        }
    }

    fn make(&mut self) {
        let kind = self.one_of(&["VolumeSnapshot", "PersistentVolumeClaim"]);
        let (snapshot, number) = (kind == "VolumeSnapshot", self.random.below(2));
        let source = if snapshot { format!("snap{number}") } else { format!("origin{number}") };
        self.cluster.add_claim(&format!("claim{}", self.claims), kind, &source);
        self.claims += 1;
    }

    fn delete_a_claim(&self) {
        if self.claims > 0 {
            let name = format!("claim{}", self.random.below(self.claims));
            self.cluster.delete("PersistentVolumeClaim", &name);
        }
    }

    fn delete_a_source(&self) {
        let number = self.random.below(2);
        match self.random.below(2) {
            0 => self.cluster.delete("VolumeSnapshot", &format!("snap{number}")),
            _ => self.cluster.delete("PersistentVolumeClaim", &format!("origin{number}")),
        }
    }

    /// Sources that are gone are made again: others under the same name.
    fn restore_sources(&self) {
        for number in 0..2 {
            let (snapshot, origin) = (format!("snap{number}"), format!("origin{number}"));
            if self.cluster.get("VolumeSnapshot", &snapshot).is_none() {
                self.cluster.add_snapshot(&snapshot);
            }
            if self.cluster.get("PersistentVolumeClaim", &origin).is_none() {
                self.cluster.add_origin(&origin);
            }
        }
    }

    fn change_the_drivers_mood(&self) {
        let error = |code: &str, creates: bool| json!({"error": {"code": code, "message": "no"}, "creates": creates});
        let mood = self.one_of(&[
            json!({}),
            json!({}),
            error("ABORTED", false),
            error("DEADLINE_EXCEEDED", true),
            error("INTERNAL", false),
            error("INVALID_ARGUMENT", false),
        ]);
        self.cluster.script(json!({"create_volume": [mood]}));
        let takes = Duration::from_millis(self.one_of(&[0, 300, 3000, 8000]));
        self.cluster.driver.backend().takes(takes);
    }

    /// Some writes fail, before or after they are carried out.
    fn make_the_server_ill(&self) {
        let resource = self.one_of(&["volumesnapshots", "persistentvolumeclaims"]);
        let conflict = Status::new(409, "Conflict", "the object has been modified");
        let broken = Status::new(500, "InternalError", "broken");
        let effect = self.one_of(&[
            Effect::Answer(conflict),
            Effect::Answer(broken.clone()),
            Effect::AnswerAfter(broken),
            Effect::CutBefore,
            Effect::CutAfter,
            Effect::DelayAfter(Duration::from_secs(2)),
        ]);
        let times = usize::try_from(1 + self.random.below(6)).unwrap();
        self.cluster.simulation.faults().add(Rule::on("write", resource, effect).times(times));
    }

    /// A kill at this very moment, or a rollout; another process follows.
    async fn end_the_process(&mut self) {
        if self.random.below(2) == 0 {
            self.process.kill();
        } else {
            self.process.stop();
            let process = self.process.clone();
            self.cluster.until("the process has ended", |_| process.outcome().is_some()).await;
        }
        sleep(Duration::from_millis(self.random.below(3000))).await;
        self.process = self.cluster.simulation.start_with(&self.flags);
    }

    /// What the cluster does about PersistentVolumes: those with a claim are bound to it, the
    /// others released.
    fn bind(&self) {
        let api = &self.cluster.simulation.api;
        for volume in api.list("PersistentVolume", "") {
            let name = volume["metadata"]["name"].as_str().unwrap();
            let owner = &volume["spec"]["claimRef"];
            let claim = api.get("PersistentVolumeClaim", "sc", owner["name"].as_str().unwrap());
            let claim = claim.filter(|claim| claim["metadata"]["uid"] == owner["uid"]);
            let phase = if claim.is_some() { "Bound" } else { "Released" };
            api.merge("PersistentVolume", "", name, &json!({"status": {"phase": phase}})).unwrap();
            if let Some(claim) = claim.filter(|claim| claim["spec"]["volumeName"].is_null()) {
                let claim = claim["metadata"]["name"].as_str().unwrap();
                let bound = json!({"spec": {"volumeName": name}});
                let _ = api.merge("PersistentVolumeClaim", "sc", claim, &bound);
                let bound = json!({"status": {"phase": "Bound"}});
                let _ = api.merge("PersistentVolumeClaim", "sc", claim, &bound);
            }
        }
    }

    /// All is well again, and some time passes.
    async fn rest(&mut self) {
        self.cluster.simulation.faults().clear();
        self.cluster.succeed();
        self.cluster.driver.backend().takes(Duration::ZERO);
        for _ in 0..20 {
            sleep(MINUTE).await;
            self.bind();
        }
    }

    fn wears(object: &Value) -> bool {
        let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.iter().any(|finalizer| finalizer == RESTORE || finalizer == CLONE)
    }

    /// What should not be any more once every claim is gone.
    fn left(&self) -> Vec<String> {
        let api = &self.cluster.simulation.api;
        let snapshots = api.list("VolumeSnapshot", "sc").into_iter().filter(Self::wears);
        let claims = api.list("PersistentVolumeClaim", "sc").into_iter();
        let deleted = claims.filter(|claim| !claim["metadata"]["deletionTimestamp"].is_null());
        let mut left: Vec<String> =
            snapshots.chain(deleted).map(|object| object["metadata"].to_string()).collect();
        let volumes = self.cluster.driver.backend().inside().volumes();
        let saved: Vec<Value> = api.list("PersistentVolume", "");
        let is_saved =
            |id: &String| saved.iter().any(|pv| pv["spec"]["csi"]["volumeHandle"] == **id);
        left.extend(volumes.iter().filter(|id| !is_saved(id)).map(|id| format!("leaked {id}")));
        left
    }

    #[track_caller]
    fn nothing_is_wrong(&self, seed: u64, when: &str, wrong: &[String]) {
        assert!(
            wrong.is_empty(),
            "seed {seed}, {when}: {wrong:#?}\n{:?}\n{}",
            self.log,
            self.cluster.simulation.trace()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn sources_are_guarded_exactly_while_somebody_needs_them() {
    for seed in 0..seeds() {
        let mut life = Life::new(seed);
        for _ in 0..DEEDS {
            sleep(Duration::from_millis(life.random.below(4000))).await;
            life.deed().await;
            life.nothing_is_wrong(seed, "at work", &life.cluster.driver.backend().found());
        }
        life.rest().await;
        life.nothing_is_wrong(seed, "at rest", &life.cluster.driver.backend().found());
        for number in 0..life.claims {
            life.cluster.delete("PersistentVolumeClaim", &format!("claim{number}"));
        }
        life.rest().await;
        life.nothing_is_wrong(seed, "in the end", &life.left());
    }
}
