//! CSIStorageCapacity objects in simulated time: one for each class and segment, whatever comes,
//! goes, fails or is started twice.

mod churn;

use std::time::Duration;

use serde_json::{Value, json};
use support::{
    capacity::{
        FAST, Published, ZONE, add_claim, add_class, add_node, all, cluster, move_node, object,
        object_of, objects, prepared, published, remove_node, set_capacity, start, until_published,
        writes,
    },
    simulation::{DRIVER, Process, Simulation, claim, class, provisioned_volume},
};
use testkit::apiserver::{
    faults::{Effect, Rule, StreamFault},
    status::Status,
};
use tokio::time::{Instant, sleep};

const MINUTE: Duration = Duration::from_secs(60);

/// A class of the driver that binds late.
fn late(name: &str, parameters: &Value) -> Value {
    class(name, &json!({"volumeBindingMode": "WaitForFirstConsumer", "parameters": parameters}))
}

/// A cluster with a class and two zones, published.
async fn running() -> Simulation {
    let simulation = cluster(1);
    add_class(&simulation, "fast");
    add_node(&simulation, "n1", "a");
    add_node(&simulation, "n2", "b");
    start(&simulation);
    until_published(&simulation, all(&["fast"], &["a", "b"], "1Gi")).await;
    simulation
}

mod follows {
    use super::*;

    /// As in external-provisioner, also where the driver was not asked: what a claim or its class say is
    /// refused for good, and the capacity is read again. A call that failed for another reason changes nothing.
    #[tokio::test(start_paused = true)]
    async fn claims_that_are_refused() {
        let simulation = running().await;
        add_class(&simulation, "slow");
        let class = |name: &str, parameters: Value| {
            simulation.create(&late(name, &parameters));
        };
        class("odd", json!({"csi.storage.k8s.io/unheard-of": "x"}));
        let secret = "csi.storage.k8s.io/provisioner-secret";
        class(
            "locked",
            json!({format!("{secret}-name"): "none", format!("{secret}-namespace"): "sc"}),
        );
        let classes = ["fast", "locked", "odd", "slow"];
        until_published(&simulation, all(&classes, &["a", "b"], "1Gi")).await;
        set_capacity(&simulation, 2);
        let add = |name: &str, class: &str, key: &str, value: Value| {
            let mut claim = claim(name);
            claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("n1");
            claim["spec"]["storageClassName"] = json!(class);
            claim["spec"][key] = value;
            simulation.api.create(&claim).unwrap();
        };
        add("locked", "locked", "volumeMode", json!("Filesystem"));
        add("odd", "odd", "volumeMode", json!("Filesystem"));
        add("picky", "slow", "selector", json!({"matchLabels": {"tier": "gold"}}));
        sleep(Duration::from_secs(10)).await;
        let mut expected = all(&["odd", "slow"], &["a", "b"], "2Gi");
        expected.extend(all(&["fast", "locked"], &["a", "b"], "1Gi"));
        assert_eq!(published(&simulation), expected);
        assert_eq!(simulation.calls("CreateVolume"), 0);
    }

    /// The driver has no topology keys: its capacity is the same everywhere. external-provisioner makes such objects
    /// and deletes them again with every poll.
    #[tokio::test(start_paused = true)]
    async fn a_driver_without_keys_without_churn() {
        let simulation = cluster(1);
        add_class(&simulation, "fast");
        for name in ["n1", "n2"] {
            add_node(&simulation, name, "a");
            let none = json!({"spec": {"drivers": [{"name": DRIVER, "nodeID": name}]}});
            simulation.api.merge("CSINode", "", name, &none).unwrap();
        }
        start(&simulation);
        until_published(&simulation, all(&["fast"], &[""], "1Gi")).await;
        sleep(10 * MINUTE).await;
        assert_eq!(writes(&simulation), [1, 0, 0]);
        assert_eq!(objects(&simulation)[0]["nodeTopology"], json!({}));
        let asked = simulation.requests("GetCapacity");
        assert!(
            asked.iter().all(|request| request["accessible_topology"] == json!({})),
            "{asked:?}"
        );
    }

    /// A class's parameters are sent unchanged, including the keys that are meant for this program.
    #[tokio::test(start_paused = true)]
    async fn parameters_as_they_stand() {
        let simulation = cluster(1);
        let class = late("fast", &json!({"pool": "p", "csi.storage.k8s.io/fstype": "xfs"}));
        simulation.api.create(&class).unwrap();
        add_node(&simulation, "n1", "a");
        start(&simulation);
        until_published(&simulation, all(&["fast"], &["a"], "1Gi")).await;
        let asked = simulation.requests("GetCapacity").remove(0);
        assert_eq!(asked["parameters"], class["parameters"]);
        assert_eq!(asked["volume_capabilities"], Value::Null);
    }
}

mod volumes {
    use super::*;

    /// The class `slow` with capacity for claims, published; then the capacity shrinks.
    async fn shrinking() -> Simulation {
        let simulation = running().await;
        add_class(&simulation, "slow");
        until_published(&simulation, all(&["fast", "slow"], &["a", "b"], "1Gi")).await;
        sleep(Duration::from_secs(1)).await;
        set_capacity(&simulation, 0);
        simulation
    }

    fn sizes_of(simulation: &Simulation, class: &str) -> Vec<String> {
        let published = published(simulation).into_iter();
        published.filter(|((of, _), _)| of == class).flat_map(|(_, sizes)| sizes).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_could_not_be_made_has_its_class_asked_about() {
        let simulation = shrinking().await;
        simulation.script(json!({"create_volume": [{"error": {"code": "RESOURCE_EXHAUSTED"}}]}));
        add_claim(&simulation, "data", "n1");
        simulation.until("it is reported", |s| sizes_of(s, "fast") == ["0", "0"]).await;
        assert_eq!(sizes_of(&simulation, "slow"), ["1Gi", "1Gi"]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_unusable_has_its_class_asked_about_when_it_is_gone() {
        let simulation = running().await;
        simulation.script(json!({"create_volume": [{"volume": {"capacity_bytes": 1}, "times": 1}, {"delay_ms": 20_000}],
            "delete_volume": [{"delay_ms": 5000}]}));
        add_claim(&simulation, "data", "n1");
        simulation.until("it is being removed", |s| s.calls("DeleteVolume") == 1).await;
        let before = simulation.calls("GetCapacity");
        simulation.until("another is asked for", |s| s.calls("CreateVolume") == 2).await;
        assert_eq!(simulation.calls("GetCapacity"), before + 2, "for both zones");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_deleted_has_its_segments_asked_about() {
        let simulation = shrinking().await;
        let affinity = json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}]}});
        let mut volume = provisioned_volume("old", "h");
        volume["spec"]["nodeAffinity"] = affinity;
        simulation.api.create(&volume).unwrap();
        simulation.phase("old", "Released");
        simulation.until("it is gone", |s| s.volumes().is_empty()).await;
        sleep(Duration::from_secs(1)).await;
        let mut expected = all(&["fast", "slow"], &["a"], "1Gi");
        expected.extend(all(&["fast", "slow"], &["b"], "0"));
        assert_eq!(published(&simulation), expected, "of all classes");
    }
}

mod objects_of_ours {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn others_are_left_alone() {
        let simulation = cluster(1);
        add_class(&simulation, "fast");
        add_node(&simulation, "n1", "a");
        let node = object_of("theirs", "gone", "z", "external-provisioner-n7");
        let mut driver = object("others", "gone", "z");
        driver["metadata"]["labels"]["csi.storage.k8s.io/drivername"] = json!("other.example.com");
        let mut elsewhere = object("elsewhere", "gone", "z");
        elsewhere["metadata"]["namespace"] = json!("sc");
        for foreign in [&node, &driver, &elsewhere] {
            simulation.api.create(foreign).unwrap();
        }
        start(&simulation);
        let mut expected = all(&["fast"], &["a"], "1Gi");
        expected.insert(("gone".into(), "z".into()), vec!["5Gi".into(), "5Gi".into()]);
        until_published(&simulation, expected).await;
        sleep(10 * MINUTE).await;
        assert_eq!(writes(&simulation), [1, 0, 0]);
        assert_eq!(simulation.api.list("CSIStorageCapacity", "sc").len(), 1);
    }

    /// The one without our label is nobody's now.
    #[tokio::test(start_paused = true)]
    async fn are_made_again_when_somebody_takes_a_label_off() {
        let simulation = running().await;
        let name = objects(&simulation)[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let unlabelled = json!({"metadata": {"labels": {"csi.storage.k8s.io/managed-by": "me"}}});
        simulation.api.merge("CSIStorageCapacity", "default", &name, &unlabelled).unwrap();
        simulation.until("there is another one", |s| objects(s).len() == 3).await;
        sleep(10 * MINUTE).await;
        assert_eq!(objects(&simulation).len(), 3);
        assert!(
            published(&simulation).values().all(|sizes| sizes.iter().all(|size| size == "1Gi"))
        );
    }

    /// As in external-provisioner: by the next poll.
    #[tokio::test(start_paused = true)]
    async fn are_corrected_when_somebody_edits_them() {
        let simulation = running().await;
        let name = objects(&simulation)[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let edited = json!({"capacity": "9Gi", "metadata": {"labels": {"more": "yes"}}});
        simulation.api.merge("CSIStorageCapacity", "default", &name, &edited).unwrap();
        until_published(&simulation, all(&["fast"], &["a", "b"], "1Gi")).await;
        let labels = &simulation.api.get("CSIStorageCapacity", "default", &name).unwrap()["metadata"]
            ["labels"];
        assert_eq!(labels["more"], "yes", "and nothing else is touched");
    }
}

mod refusals {
    use super::*;

    fn forbidden(simulation: &Simulation) -> Status {
        let kinds = simulation.api.kinds();
        let kind = kinds.iter().find(|kind| kind.plural == "csistoragecapacities").unwrap();
        Status::forbidden(kind, "x", "no")
    }

    #[tokio::test(start_paused = true)]
    async fn are_tried_again_with_longer_and_longer_waits() {
        for verb in ["create", "patch", "delete"] {
            for status in [403, 409, 429, 500] {
                let simulation = cluster(1);
                add_class(&simulation, "fast");
                add_node(&simulation, "n1", "a");
                add_node(&simulation, "n2", "b");
                simulation.api.create(&object("right", "fast", "b")).unwrap();
                simulation.api.create(&object("stray", "gone", "b")).unwrap();
                let answer = match status {
                    403 => forbidden(&simulation),
                    409 => Status::new(409, "Conflict", "no"),
                    429 => Status::new(429, "TooManyRequests", "no"),
                    _ => Status::internal("no"),
                };
                let refused = Rule::on(verb, "csistoragecapacities", Effect::Answer(answer));
                simulation.faults().add(refused.times(5));
                let process = start(&simulation);
                until_published(&simulation, all(&["fast"], &["a", "b"], "1Gi")).await;
                process.kill();
                let tried: usize = writes(&simulation).iter().sum();
                assert!(tried <= 3 + 5 + 1, "{verb} {status}: {:?}", writes(&simulation));
            }
        }
    }

    /// The write took place and its answer was lost, and the watch delivers it.
    #[tokio::test(start_paused = true)]
    async fn answers_that_are_lost_are_made_up_for_by_the_watch() {
        let simulation = cluster(1);
        add_class(&simulation, "fast");
        add_node(&simulation, "n1", "a");
        for verb in ["create", "patch", "delete"] {
            let lost = Rule::on(verb, "csistoragecapacities", Effect::CutAfter);
            simulation.faults().add(lost.times(2));
        }
        start(&simulation);
        until_published(&simulation, all(&["fast"], &["a"], "1Gi")).await;
        set_capacity(&simulation, 2);
        until_published(&simulation, all(&["fast"], &["a"], "2Gi")).await;
        simulation.api.delete("StorageClass", "", "fast").unwrap();
        until_published(&simulation, Published::new()).await;
        sleep(10 * MINUTE).await;
        assert_eq!(writes(&simulation), [1, 1, 1]);
    }

    /// Nor does the watch deliver it: a double stands until it does.
    #[tokio::test(start_paused = true)]
    async fn answers_that_are_lost_leave_one_object_once_the_watch_is_back() {
        const WITHOUT_STREAMING: u8 = 33;
        let simulation = prepared(Simulation::of_release(WITHOUT_STREAMING));
        add_class(&simulation, "fast");
        add_node(&simulation, "n1", "a");
        let lost = Rule::on("create", "csistoragecapacities", Effect::CutAfter);
        simulation.faults().add(lost.times(2));
        let silent = Effect::Stream(StreamFault::Stall { after: 0 });
        simulation.faults().add(Rule::on("watch", "csistoragecapacities", silent));
        start(&simulation);
        simulation.until("it is made again", |s| objects(s).len() == 3).await;
        sleep(5 * MINUTE).await;
        assert_eq!(writes(&simulation), [3, 0, 0], "and not once more\n{}", simulation.trace());

        simulation.faults().clear();
        simulation.api.watches().cut(Some("csistoragecapacities"));
        until_published(&simulation, all(&["fast"], &["a"], "1Gi")).await;
        set_capacity(&simulation, 2);
        until_published(&simulation, all(&["fast"], &["a"], "2Gi")).await;
        sleep(10 * MINUTE).await;
        assert_eq!(writes(&simulation), [3, 1, 2]);
    }

    /// Nothing is published for it, what is there stays, and the rest of the program works.
    #[tokio::test(start_paused = true)]
    async fn a_driver_that_does_not_tell_its_room_is_not_asked() {
        let simulation = cluster(1);
        simulation.script(json!({"controller_capabilities": ["CREATE_DELETE_VOLUME"]}));
        add_class(&simulation, "fast");
        add_node(&simulation, "n1", "a");
        simulation.api.create(&object("old", "fast", "a")).unwrap();
        simulation.api.create(&object("stray", "gone", "a")).unwrap();
        start(&simulation);
        add_claim(&simulation, "data", "n1");
        simulation.until("there is a volume", |s| s.volumes().len() == 1).await;
        sleep(10 * MINUTE).await;
        assert_eq!(simulation.calls("GetCapacity"), 0);
        assert_eq!(published(&simulation), all(&["fast"], &["a"], "5Gi"));
    }
}

mod processes {
    use super::*;

    /// A standby takes over; at no time are there two objects for one pair.
    #[tokio::test(start_paused = true)]
    async fn take_over_from_one_another() {
        let simulation = cluster(1);
        add_class(&simulation, "fast");
        add_node(&simulation, "n1", "a");
        let leader = simulation.start_elected_with("one", &FAST);
        until_published(&simulation, all(&["fast"], &["a"], "1Gi")).await;
        let standby = simulation.start_elected_with("two", &FAST);
        sleep(MINUTE).await;
        let asked = simulation.calls("GetCapacity");
        leader.kill();
        add_node(&simulation, "n2", "b");
        sleep(Duration::from_secs(5)).await;
        assert_eq!(simulation.calls("GetCapacity"), asked, "a standby asks nobody");
        until_published(&simulation, all(&["fast"], &["a", "b"], "1Gi")).await;
        assert_eq!(writes(&simulation), [2, 0, 0]);
        assert!(standby.outcome().is_none());
    }

    /// Against every rule two publish at once: both keep the same one of each pair's objects.
    #[tokio::test(start_paused = true)]
    async fn two_at_once_end_with_one_object_for_each_pair() {
        for seed in 1..=10 {
            let simulation = cluster(seed);
            for class in ["fast", "slow"] {
                add_class(&simulation, class);
            }
            for (name, zone) in [("n1", "a"), ("n2", "b"), ("n3", "c")] {
                add_node(&simulation, name, zone);
            }
            simulation.faults().add(Rule::on(
                "create",
                "csistoragecapacities",
                Effect::DelayAfter(Duration::from_secs(1)),
            ));
            let flags = [&FAST[..], &["--capacity-threads=4"]].concat();
            let both = [simulation.start_with(&flags), simulation.start_with(&flags)];
            until_published(&simulation, all(&["fast", "slow"], &["a", "b", "c"], "1Gi")).await;
            sleep(10 * MINUTE).await;
            assert_eq!(published(&simulation), all(&["fast", "slow"], &["a", "b", "c"], "1Gi"));
            let [created, patched, deleted] = writes(&simulation);
            assert!((6..=12).contains(&created) && patched == 0, "seed {seed}: {created}");
            // Each deletes a double that it sees; whoever made it once more, when the late answer comes.
            assert!(deleted <= 3 * (created - 6), "seed {seed}: {deleted}");
            both.iter().for_each(Process::kill);
        }
    }

    /// 2,000 nodes and 200 objects: each is written once, at the rate of the flags, and nodes that are replaced one
    /// after the other change nothing.
    #[tokio::test(start_paused = true)]
    async fn publish_hundreds_of_objects_at_the_rate_of_the_flags() {
        let zone = |number: usize| format!("zone-{}", number % 10);
        // external-provisioner's one request a second is the default here, too.
        for (flags, most) in [(&["--kube-api-capacity-qps=50"][..], 120), (&[], 210)] {
            let simulation = cluster(1);
            (0..2000).for_each(|it| add_node(&simulation, &format!("n{it}"), &zone(it)));
            (0..20).for_each(|it| add_class(&simulation, &format!("class-{it}")));
            let has = |count: usize, size: &str| {
                let objects = simulation.api.objects("CSIStorageCapacity");
                let right = objects.iter().filter(|it| it.value()["capacity"] == size).count();
                objects.len() == count && right == count
            };
            simulation.start_with(&[&FAST[..2], flags].concat());
            sleep(Duration::from_secs(most)).await;
            assert!(has(200, "1Gi"), "{flags:?}");
            sleep(2 * MINUTE).await;
            assert_eq!(writes(&simulation), [200, 0, 0], "{flags:?}");
            set_capacity(&simulation, 2);
            sleep(MINUTE + Duration::from_secs(most)).await;
            assert!(has(200, "2Gi"), "{flags:?}");
            let before = writes(&simulation);
            for number in 0..300 {
                add_node(&simulation, &format!("new-{number}"), &zone(number));
                remove_node(&simulation, &format!("n{number}"));
                sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(writes(&simulation), before, "{flags:?}");
            (0..10).for_each(|it| move_node(&simulation, &format!("new-{it}"), "zone-x"));
            sleep(Duration::from_secs(most)).await;
            assert!(has(220, "2Gi"), "{flags:?}");
        }
    }

    /// A question that hangs does not hold up the end.
    #[tokio::test(start_paused = true)]
    async fn end_without_waiting_for_the_driver() {
        let simulation = cluster(1);
        simulation.script(json!({"get_capacity": [{"delay_ms": 3_600_000}]}));
        add_class(&simulation, "fast");
        add_node(&simulation, "n1", "a");
        let process = start(&simulation);
        simulation.until("it is asked", |s| s.calls("GetCapacity") == 1).await;
        let begun = Instant::now();
        simulation.until_stopped(&process).await;
        assert_eq!(process.outcome(), Some(Ok(())));
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

mod servers {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_all_releases_are_spoken_to_in_a_version_they_serve() {
        for (minor, version) in [(36, "v1"), (24, "v1"), (23, "v1beta1"), (21, "v1beta1")] {
            let simulation = prepared(Simulation::of_release(minor));
            add_class(&simulation, "fast");
            add_node(&simulation, "n1", "a");
            start(&simulation);
            until_published(&simulation, all(&["fast"], &["a"], "1Gi")).await;
            set_capacity(&simulation, 2);
            until_published(&simulation, all(&["fast"], &["a"], "2Gi")).await;
            simulation.api.delete("StorageClass", "", "fast").unwrap();
            until_published(&simulation, Published::new()).await;
            let asked = simulation.api.requests().matching("create", "csistoragecapacities");
            assert_eq!(asked[0].info.version, version, "1.{minor}");
        }
    }

    /// There is nothing to publish, and volumes are made.
    #[tokio::test(start_paused = true)]
    async fn that_know_no_such_objects_are_left_alone() {
        let simulation = prepared(Simulation::of_release(20));
        add_class(&simulation, "fast");
        start(&simulation);
        add_claim(&simulation, "data", "n1");
        simulation.until("there is a volume", |s| s.volumes().len() == 1).await;
        assert_eq!(writes(&simulation), [0, 0, 0]);
    }
}
