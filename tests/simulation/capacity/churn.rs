//! Everything at once, by seeds.

use std::{collections::BTreeMap, time::Duration};

use csi_provisioner::runtime::{Generator, Random};
use serde_json::json;
use testkit::apiserver::{
    faults::{Effect, Rule, StreamFault},
    status::Status,
};
use tokio::time::sleep;

use support::{
    capacity::{
        FAST, Published, add_class, add_node, cluster, move_node, object, objects, published,
        remove_node, until_published, writes,
    },
    simulation::{Process, Simulation},
};

const SEEDS: u64 = 20;
const DEEDS: usize = 40;
const NODES: u64 = 6;
const ZONES: u64 = 4;
const CLASSES: u64 = 3;

/// A cluster in which things happen.
struct Churn {
    simulation: Simulation,
    chance: Generator,
    process: Process,
    /// Zones by node.
    nodes: BTreeMap<String, String>,
    classes: Vec<String>,
}

impl Churn {
    fn new(seed: u64) -> Self {
        let simulation = cluster(seed);
        let process = simulation.start_elected_with("host", &FAST);
        let chance = Generator::from_seed(seed);
        Self { simulation, chance, process, nodes: BTreeMap::new(), classes: Vec::new() }
    }

    fn pick(&self, prefix: &str, bound: u64) -> String {
        format!("{prefix}{}", self.chance.below(bound))
    }

    async fn deed(&mut self) {
        match self.chance.below(14) {
            0..=2 => self.node(),
            3 | 4 => self.relabel(),
            5 | 6 => self.class(),
            7 => self.delete_some_object(),
            8 => self.stray(),
            9 => self.lose_sight(),
            10 | 11 => self.refuse(),
            12 => self.restart(),
            _ => sleep(Duration::from_secs(self.chance.below(90))).await,
        }
        sleep(Duration::from_millis(self.chance.below(2000))).await;
    }

    /// A node comes or goes.
    fn node(&mut self) {
        let (name, zone) = (self.pick("n", NODES), self.pick("z", ZONES));
        if self.nodes.remove(&name).is_some() {
            remove_node(&self.simulation, &name);
        } else {
            add_node(&self.simulation, &name, &zone);
            self.nodes.insert(name, zone);
        }
    }

    fn relabel(&mut self) {
        let (name, zone) = (self.pick("n", NODES), self.pick("z", ZONES));
        if let Some(known) = self.nodes.get_mut(&name) {
            move_node(&self.simulation, &name, &zone);
            *known = zone;
        }
    }

    /// A class comes or goes.
    fn class(&mut self) {
        let name = self.pick("c", CLASSES);
        if let Some(place) = self.classes.iter().position(|class| *class == name) {
            self.classes.remove(place);
            self.simulation.api.delete("StorageClass", "", &name).unwrap();
        } else {
            add_class(&self.simulation, &name);
            self.classes.push(name);
        }
    }

    fn delete_some_object(&self) {
        let objects = objects(&self.simulation);
        let count = objects.len() as u64;
        if let Some(object) = objects.get(usize::try_from(self.chance.below(count)).unwrap()) {
            let name = object["metadata"]["name"].as_str().unwrap();
            self.simulation.api.delete("CSIStorageCapacity", "default", name).unwrap();
        }
    }

    /// An object as an older process, or external-provisioner, may have left it.
    fn stray(&self) {
        let [name, class, zone] = [("csisc-", 1000), ("c", CLASSES + 1), ("z", ZONES + 1)]
            .map(|(prefix, bound)| self.pick(prefix, bound));
        let _ = self.simulation.api.create(&object(&name, &class, &zone));
    }

    /// A watch breaks, and what it missed is compacted; or it goes on and leaves out events.
    fn lose_sight(&self) {
        let kinds = ["csistoragecapacities", "nodes", "csinodes", "storageclasses"];
        let kind = kinds[usize::try_from(self.chance.below(4)).unwrap()];
        if self.chance.below(2) == 0 {
            let ends = Effect::Stream(StreamFault::Cut { after: 1 });
            self.simulation.faults().add(Rule::on("watch", kind, ends).times(2));
        }
        self.simulation.api.watches().cut(Some(kind));
        if self.chance.below(2) == 0 {
            self.simulation.api.compact();
        }
    }

    fn refuse(&self) {
        let verbs = ["create", "patch", "delete"];
        let verb = verbs[usize::try_from(self.chance.below(3)).unwrap()];
        let effect = match self.chance.below(6) {
            0 => Effect::CutBefore,
            1 => Effect::CutAfter,
            2 => Effect::Answer(Status::new(409, "Conflict", "no")),
            3 => Effect::Answer(Status::too_many_requests(1)),
            4 => Effect::AnswerAfter(Status::internal("no")),
            _ => Effect::DelayAfter(Duration::from_secs(20)),
        };
        let times = usize::try_from(1 + self.chance.below(4)).unwrap();
        self.simulation.faults().add(Rule::on(verb, "csistoragecapacities", effect).times(times));
    }

    fn restart(&mut self) {
        self.process.kill();
        self.process = self.simulation.start_elected_with("host", &FAST);
    }

    /// What is to be published in the end.
    fn expected(&self) -> Published {
        let size = || vec!["2Gi".to_owned()];
        let zones = self.nodes.values();
        let pairs = zones.flat_map(|zone| self.classes.iter().map(move |class| (class, zone)));
        pairs.map(|(class, zone)| ((class.clone(), zone.clone()), size())).collect()
    }
}

/// Nodes, classes and objects come, go and change; watches break, writes fail, processes die. When
/// it is over, exactly what should be published is within two polls, and then nothing is written.
#[tokio::test(start_paused = true)]
async fn whatever_happens_the_right_objects_are_there_in_the_end() {
    for seed in 1..=SEEDS {
        let mut churn = Churn::new(seed);
        for _ in 0..DEEDS {
            churn.deed().await;
        }
        let simulation = &churn.simulation;
        simulation.faults().clear();
        simulation.script(json!({"get_capacity": [{"available_capacity": 2_u64 << 30}]}));
        let expected = churn.expected();
        let rest = Duration::from_secs(20 + 2 * 60);
        let _ = tokio::time::timeout(rest, until_published(simulation, expected.clone())).await;
        assert_eq!(published(simulation), expected, "seed {seed}\n{}", simulation.trace());
        sleep(Duration::from_secs(120)).await;
        let before = writes(simulation);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(writes(simulation), before, "seed {seed}: rest");
        assert_eq!(published(simulation), expected, "seed {seed}: rest");
        churn.process.kill();
    }
}
