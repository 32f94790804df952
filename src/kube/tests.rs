//! Tests of the module against the in-memory API server: an informer's cache follows the server
//! through all failures of lists and watches.

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
    Cache, Change, Connections, Edit, Edited, Informer, InformerEvent, LaneSettings, Lanes, Name,
    Scope, View, objects::StorageClass, testing::random,
};
use crate::{
    metrics::Metrics,
    runtime::{Gate, Generator, Random, testing::paused_clock},
};

/// Names and versions of classes.
type Versions = BTreeMap<String, String>;

/// Caches the classes with the annotation, and builds a copy from the cache's changes alone.
#[derive(Default)]
struct Follower {
    cache: Cache<(String, String)>,
    copy: Versions,
    lists: usize,
}

impl Follower {
    fn on_event(&mut self, event: InformerEvent<StorageClass>) {
        match event {
            InformerEvent::Init => self.cache.begin_list(),
            InformerEvent::InitApply(class) | InformerEvent::Apply(class) => self.on_class(&class),
            InformerEvent::Delete(class) => {
                if let Change::Gone((name, version)) = self.cache.remove(class.name()) {
                    assert_eq!(self.copy.remove(&name), Some(version));
                }
            }
            InformerEvent::InitDone => {
                self.lists += 1;
                for (name, version) in self.cache.finish_list() {
                    assert_eq!(self.copy.remove(&name), Some(version));
                }
            }
            InformerEvent::Unreadable { name, .. } => panic!("{name} should be readable"),
        }
    }

    fn on_class(&mut self, class: &StorageClass) {
        let version = class.metadata.resource_version.clone().unwrap().into_string();
        let item =
            (class.annotation("kept") == Some("yes")).then(|| (class.name().to_owned(), version));
        match self.cache.apply(class.name(), item) {
            Change::Entered((name, version)) => {
                assert_eq!(self.copy.insert(name.clone(), version.clone()), None);
            }
            Change::Updated { old, new: (name, version) } => {
                assert_eq!(self.copy.insert(name.clone(), version.clone()), Some(old.1));
            }
            Change::Left((name, version)) => assert_eq!(self.copy.remove(&name), Some(version)),
            Change::Gone(_) => panic!("nothing is gone that was seen"),
            Change::Nothing => {}
        }
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
        let informer = Informer::new(&self.lanes.objects, Scope::all(), random(), &self.metrics)
            .with_page_size(3);
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
            let follower = follower.lock();
            let cached: Versions = follower.cache.iter().map(|(_, item)| item.clone()).collect();
            assert_eq!(cached, fixture.expected(), "seed {seed} round {round}");
            assert_eq!(follower.copy, cached, "seed {seed} round {round}");
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
async fn the_cache_follows_the_server_through_faults() {
    for seed in 0..24 {
        follow_through_faults(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_list_reports_changes_that_a_watch_missed() {
    let fixture = fixture();
    let class = |name: &str| json!({"kind": "StorageClass", "metadata": {"name": name, "annotations": {"kept": "yes"}}, "provisioner": "p"});
    fixture.server.create(&class("old")).unwrap();
    fixture.server.faults().add(
        Rule::on("watch", "storageclasses", Effect::Stream(StreamFault::Swallow { after: 0 }))
            .times(1),
    );
    let script = async |follower: &Mutex<Follower>| {
        sleep(Duration::from_secs(1)).await;
        fixture.server.delete("StorageClass", "", "old").unwrap();
        fixture.server.create(&class("new")).unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(follower.lock().copy.keys().collect::<Vec<_>>(), ["old"]);

        let forgotten = Effect::Answer(Status::expired("too old"));
        fixture.server.faults().add(Rule::on("watch", "storageclasses", forgotten).times(1));
        fixture.server.watches().cut(None);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(follower.lock().copy, fixture.expected());
        assert_eq!(follower.lock().lists, 2);
    };
    fixture.follow(script).await;
}

#[tokio::test(start_paused = true)]
async fn a_day_without_faults_takes_one_list() {
    let script = async |follower: &Mutex<Follower>| {
        sleep(Duration::from_secs(24 * 3600)).await;
        assert_eq!(follower.lock().lists, 1);
    };
    fixture().follow(script).await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_succeeds_despite_concurrent_edits() {
    let fixture = fixture();
    let class = json!({"kind": "StorageClass", "metadata": {"name": "c"}, "provisioner": "p"});
    let uid =
        fixture.server.create(&class).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let (server, mut others) = (fixture.server.clone(), 3);
    let edit = |object: &mut Value| {
        if others > 0 {
            others -= 1;
            let patch = json!({"metadata": {"annotations": {format!("other-{others}"): "x"}}});
            server.merge("StorageClass", "", "c", &patch).unwrap();
        }
        object["metadata"]["finalizers"] = json!(["example.com/ours"]);
        Edit::Write
    };
    let edited = fixture
        .lanes
        .objects
        .edit::<StorageClass>(Name::cluster("c").unwrap(), &uid, edit)
        .await
        .unwrap();
    let Edited::Written(class) = edited else { panic!("not written: {edited:?}") };
    assert!(class.has_finalizer("example.com/ours"));
    assert_eq!(class.metadata.annotations.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_delete_with_another_uid_is_refused() {
    let fixture = fixture();
    let class = json!({"kind": "StorageClass", "metadata": {"name": "c"}, "provisioner": "p"});
    let uid =
        fixture.server.create(&class).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let name = Name::cluster("c").unwrap();
    let refused =
        fixture.lanes.objects.delete::<StorageClass>(name, Some("another")).await.unwrap_err();
    assert!(refused.is_conflict(), "{refused}");
    fixture.lanes.objects.delete::<StorageClass>(name, Some(&uid)).await.unwrap();
    let missing = fixture.lanes.objects.get::<StorageClass>(name).await.unwrap_err();
    assert!(missing.is_not_found());
    assert_eq!(missing.to_string(), "storageclasses.storage.k8s.io \"c\" not found");
}
