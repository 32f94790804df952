//! Tests of the module against the in-memory API server: who follows an informer's events knows what is on
//! the server, through all failures of lists and watches.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::apiserver::{
    ApiServer, Options, User,
    faults::{Effect, Rule, StreamFault},
    status::Status,
};
use tokio::time::sleep;

use super::{
    Connections, Informer, InformerEvent, LaneSettings, Lanes, Scope, View, objects::StorageClass,
    testing::random,
};
use crate::{
    metrics::Metrics,
    runtime::{Gate, Generator, Random, testing::paused_clock},
};

/// Names and versions of classes.
type Versions = BTreeMap<String, String>;

/// Knows the classes with the annotation, by name.
#[derive(Default)]
struct Follower {
    classes: BTreeMap<String, StorageClass>,
}

impl Follower {
    fn on_event(&mut self, event: InformerEvent<StorageClass>) {
        match event {
            InformerEvent::InitApply(class) | InformerEvent::Apply(class) => self.on_class(class),
            InformerEvent::Delete(class) => drop(self.classes.remove(class.name())),
            InformerEvent::InitDone(listed) => {
                self.classes.retain(|_, class| listed.contains(class.uid()));
            }
            InformerEvent::Unreadable { name, .. } => panic!("{name} should be readable"),
        }
    }

    fn on_class(&mut self, class: StorageClass) {
        let name = class.name().to_owned();
        match class.annotation("kept") {
            Some("yes") => self.classes.insert(name, class),
            _ => self.classes.remove(&name),
        };
    }

    fn versions(&self) -> Versions {
        let version = |class: &StorageClass| class.metadata.resource_version.clone().unwrap();
        let classes = self.classes.iter();
        classes.map(|(name, class)| (name.clone(), version(class).into_string())).collect()
    }
}

struct Fixture {
    server: ApiServer,
    lanes: Lanes,
    metrics: Metrics,
}

fn fixture() -> Fixture {
    let server = ApiServer::new(Options::default());
    let connections = Connections::to(server.service(User::new("provisioner")));
    let metrics = Metrics::new();
    let gate = Gate::open(paused_clock());
    let lanes = Lanes::new(connections, LaneSettings::default(), gate, random(), &metrics);
    Fixture { server, lanes, metrics }
}

impl Fixture {
    /// Follows the server's classes while `script` runs.
    async fn follow(&self, script: impl AsyncFnOnce(&Mutex<Follower>)) {
        let informer =
            Informer::with_pages(3, &self.lanes.objects, Scope::all(), random(), &self.metrics);
        let follower = Mutex::new(Follower::default());
        tokio::select! {
            () = informer.run(|event| follower.lock().on_event(event)) => panic!("an informer never returns"),
            () = script(&follower) => {}
        }
    }

    /// The classes on the server that the follower must hold.
    fn expected(&self) -> Versions {
        let classes = self.server.list("StorageClass", "").into_iter();
        classes
            .filter(|class| class["metadata"]["annotations"]["kept"] == "yes")
            .map(|class| names(&class))
            .collect()
    }
}

fn names(class: &Value) -> (String, String) {
    let text = |field: &str| class["metadata"][field].as_str().unwrap().to_owned();
    (text("name"), text("resourceVersion"))
}

/// Creates, changes or deletes a class, with or without the annotation.
fn change_class(server: &ApiServer, chance: &Generator) {
    let name = format!("class-{}", chance.below(8));
    let annotations = json!({"annotations": {"kept": if chance.below(3) > 0 { "yes" } else { "no" }, "n": chance.bits().to_string()}});
    if server.get("StorageClass", "", &name).is_none() {
        let mut metadata = annotations;
        metadata["name"] = json!(name);
        server
            .create(&json!({"kind": "StorageClass", "metadata": metadata, "provisioner": "p"}))
            .unwrap();
    } else if chance.below(3) == 0 {
        server.delete("StorageClass", "", &name).unwrap();
    } else {
        server.merge("StorageClass", "", &name, &json!({"metadata": annotations})).unwrap();
    }
}

/// Injects one fault into lists and watches.
fn inject_fault(server: &ApiServer, chance: &Generator) {
    let after = usize::try_from(chance.below(6)).unwrap();
    let answer = |status: Status| Effect::Answer(status);
    let effect = match chance.below(12) {
        0 => return server.compact(),
        1 => return server.watches().cut(None),
        2 => answer(Status::expired("too old")),
        3 => answer(Status::internal("etcd is away")),
        4 => answer(Status::too_many_requests(1)),
        5 => Effect::CutBefore,
        6 => Effect::Hang,
        7 => Effect::Stream(StreamFault::End { after }),
        8 => Effect::Stream(StreamFault::Cut { after }),
        9 => Effect::Stream(StreamFault::Stall { after }),
        10 => Effect::Stream(StreamFault::Expire { after }),
        _ => Effect::Delay(Duration::from_secs(chance.below(10))),
    };
    let verb =
        if chance.below(3) == 0 && !matches!(effect, Effect::Stream(_)) { "list" } else { "watch" };
    server.faults().add(Rule::on(verb, "storageclasses", effect).times(1));
    if chance.below(2) == 0 {
        server.watches().cut(None);
    }
}

/// Enough to recover: a stalled watch is detected after 245 s, a request without an answer after
/// 30 s, and waits after errors are up to a minute.
const RECOVERY: Duration = Duration::from_secs(600);

async fn follow_through_faults(seed: u64) {
    let fixture = fixture();
    let chance = Generator::from_seed(seed);
    (0..6).for_each(|_| change_class(&fixture.server, &chance));
    let script = async |follower: &Mutex<Follower>| {
        for round in 0..10 {
            changes_and_faults(&fixture.server, &chance).await;
            fixture.server.faults().clear();
            sleep(RECOVERY).await;
            let known = follower.lock().versions();
            assert_eq!(known, fixture.expected(), "seed {seed} round {round}");
        }
    };
    fixture.follow(script).await;
}

/// Changes classes and injects faults for up to two minutes.
async fn changes_and_faults(server: &ApiServer, chance: &Generator) {
    for _ in 0..chance.below(30) {
        change_class(server, chance);
        if chance.below(4) == 0 {
            inject_fault(server, chance);
        }
        sleep(Duration::from_millis(chance.below(4000))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_follows_an_informer_knows_the_server_through_faults() {
    for seed in 0..24 {
        follow_through_faults(seed).await;
    }
}
