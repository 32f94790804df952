//! The room as a whole against the in-memory API server: what is kept of a kind follows the
//! server through everything that can befall lists and watches.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::apiserver::{
    ApiServer, Options, User,
    faults::{Effect, Rule, StreamFault},
    resources::ServerVersion,
    status::Status,
};
use tokio::time::sleep;

use super::{
    Cache, Change, Edit, Edited, Informer, InformerEvent, LaneSettings, Lanes, Name, Scope, View,
    connection::transport::boxed,
    informer::Settings,
    objects::StorageClass,
    testing::{paused_clock, random},
};
use crate::{
    metrics::Metrics,
    runtime::{Gate, Generator, Random},
};

/// Names and versions of the classes that are kept.
type Kept = BTreeMap<String, String>;

/// Keeps the classes with the annotation, and a copy made from nothing but the changes told.
#[derive(Default)]
struct Follower {
    cache: Cache<(String, String)>,
    told: Kept,
    lists: usize,
}

impl Follower {
    fn observe(&mut self, event: InformerEvent<StorageClass>) {
        match event {
            InformerEvent::Init => self.cache.restarted(),
            InformerEvent::InitApply(class) | InformerEvent::Apply(class) => self.saw(&class),
            InformerEvent::Delete(class) => {
                if let Change::Gone((name, version)) = self.cache.deleted(class.name()) {
                    assert_eq!(self.told.remove(&name), Some(version));
                }
            }
            InformerEvent::InitDone => {
                self.lists += 1;
                for (name, version) in self.cache.complete() {
                    assert_eq!(self.told.remove(&name), Some(version));
                }
            }
            InformerEvent::Unreadable { name, .. } => panic!("{name} should be readable"),
        }
    }

    fn saw(&mut self, class: &StorageClass) {
        let version = class.metadata.resource_version.clone().unwrap();
        let item =
            (class.annotation("kept") == Some("yes")).then(|| (class.name().to_owned(), version));
        match self.cache.seen(class.name(), item) {
            Change::Entered((name, version)) => {
                assert_eq!(self.told.insert(name.clone(), version.clone()), None);
            }
            Change::Updated { old, new: (name, version) } => {
                assert_eq!(self.told.insert(name.clone(), version.clone()), Some(old.1));
            }
            Change::Left((name, version)) => assert_eq!(self.told.remove(&name), Some(version)),
            Change::Gone(_) => panic!("nothing is gone that was seen"),
            Change::Nothing => {}
        }
    }
}

struct House {
    server: ApiServer,
    lanes: Lanes,
    metrics: Metrics,
}

fn house(minor: u8) -> House {
    let server =
        ApiServer::new(Options { version: ServerVersion::minor(minor), ..Options::default() });
    let transport = boxed(server.service(User::new("provisioner")));
    let metrics = Metrics::new().unwrap();
    let gate = Gate::open(paused_clock());
    let lanes = Lanes::new(transport, LaneSettings::default(), gate, random(), &metrics);
    House { server, lanes, metrics }
}

impl House {
    /// Follows the server's classes while `script` runs.
    async fn follow(&self, script: impl AsyncFnOnce(&Mutex<Follower>)) {
        let settings = Settings { page_size: 3, first_page: None, ..Settings::default() };
        let informer = Informer::new(&self.lanes.objects, Scope::all(), random(), &self.metrics)
            .with_settings(settings);
        let follower = Mutex::new(Follower::default());
        tokio::select! {
            () = informer.run(|event| follower.lock().observe(event)) => panic!("an informer never returns"),
            () = script(&follower) => {}
        }
    }

    fn truth(&self) -> Kept {
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

/// One deed of a user: a class made, changed in or out of interest, or deleted.
fn user(server: &ApiServer, chance: &Generator) {
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

/// One blow to lists and watches.
fn blow(server: &ApiServer, chance: &Generator) {
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

/// A stalled watch is found dead after 245 s, a request without an answer after 30 s, and waits
/// after errors are up to a minute.
const HEALED: Duration = Duration::from_secs(600);

async fn follow_through_everything(seed: u64, minor: u8) {
    let house = house(minor);
    let chance = Generator::from_seed(seed);
    (0..6).for_each(|_| user(&house.server, &chance));
    let script = async |follower: &Mutex<Follower>| {
        for round in 0..10 {
            havoc(&house.server, &chance).await;
            house.server.faults().clear();
            sleep(HEALED).await;
            let follower = follower.lock();
            let kept: Kept = follower.cache.iter().map(|(_, item)| item.clone()).collect();
            assert_eq!(kept, house.truth(), "seed {seed} minor {minor} round {round}");
            assert_eq!(follower.told, kept, "seed {seed} minor {minor} round {round}");
        }
    };
    house.follow(script).await;
}

/// Up to two minutes of deeds and blows.
async fn havoc(server: &ApiServer, chance: &Generator) {
    for _ in 0..chance.below(30) {
        user(server, chance);
        if chance.below(4) == 0 {
            blow(server, chance);
        }
        sleep(Duration::from_millis(chance.below(4000))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_follows_the_server_through_everything() {
    for seed in 0..8 {
        for minor in [20, 30, 36] {
            follow_through_everything(seed, minor).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_gap_that_swallowed_changes_is_told_by_the_next_list() {
    let house = house(36);
    let class = |name: &str| json!({"kind": "StorageClass", "metadata": {"name": name, "annotations": {"kept": "yes"}}, "provisioner": "p"});
    house.server.create(&class("old")).unwrap();
    house.server.faults().add(
        Rule::on("watch", "storageclasses", Effect::Stream(StreamFault::Swallow { after: 0 }))
            .times(1),
    );
    let script = async |follower: &Mutex<Follower>| {
        sleep(Duration::from_secs(1)).await;
        house.server.delete("StorageClass", "", "old").unwrap();
        house.server.create(&class("new")).unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(follower.lock().told.keys().collect::<Vec<_>>(), ["old"]);

        let forgotten = Effect::Answer(Status::expired("too old"));
        house.server.faults().add(Rule::on("watch", "storageclasses", forgotten).times(1));
        house.server.watches().cut(None);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(follower.lock().told, house.truth());
        assert_eq!(follower.lock().lists, 2);
    };
    house.follow(script).await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_day_costs_one_list() {
    for minor in [20, 30, 36] {
        let script = async |follower: &Mutex<Follower>| {
            sleep(Duration::from_secs(24 * 3600)).await;
            assert_eq!(follower.lock().lists, 1, "minor {minor}");
        };
        house(minor).follow(script).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_wins_through_the_edits_of_others() {
    let house = house(36);
    let class = json!({"kind": "StorageClass", "metadata": {"name": "c"}, "provisioner": "p"});
    let uid = house.server.create(&class).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let (server, mut others) = (house.server.clone(), 3);
    let edit = |object: &mut Value| {
        if others > 0 {
            others -= 1;
            let patch = json!({"metadata": {"annotations": {format!("other-{others}"): "x"}}});
            server.merge("StorageClass", "", "c", &patch).unwrap();
        }
        object["metadata"]["finalizers"] = json!(["example.com/ours"]);
        Edit::Write
    };
    let edited = house
        .lanes
        .objects
        .edit::<StorageClass>(Name::cluster("c").unwrap(), &uid, edit)
        .await
        .unwrap();
    let Edited::Written(class) = edited else { panic!("not written: {edited:?}") };
    assert!(class.has_finalizer("example.com/ours"));
    assert_eq!(class.metadata.annotations.map(|annotations| annotations.len()), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_delete_spares_a_successor_of_the_name() {
    let house = house(36);
    let class = json!({"kind": "StorageClass", "metadata": {"name": "c"}, "provisioner": "p"});
    let uid = house.server.create(&class).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let name = Name::cluster("c").unwrap();
    let refused =
        house.lanes.objects.delete::<StorageClass>(name, Some("another")).await.unwrap_err();
    assert!(refused.is_conflict(), "{refused}");
    house.lanes.objects.delete::<StorageClass>(name, Some(&uid)).await.unwrap();
    let missing = house.lanes.objects.get::<StorageClass>(name).await.unwrap_err();
    assert!(missing.is_not_found());
    assert_eq!(missing.to_string(), "storageclasses.storage.k8s.io \"c\" not found");
}
