//! Volumes on their way out, in simulated time: deleted once, when nothing keeps them, and never
//! when somebody else's data would go with them.

mod newest_view;
mod other_writers;

use std::time::Duration;

use serde_json::{Value, json};
use support::simulation::{Simulation, attachment, provisioned_volume, secret};
use testkit::apiserver::{
    faults::{Effect, Rule, StreamFault},
    status::Status,
};
use tokio::time::sleep;

const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// A PersistentVolume of the driver for a claim that is gone.
fn volume(name: &str, handle: &str) -> Value {
    let mut volume = provisioned_volume(name, handle);
    volume["metadata"]["finalizers"] = json!([FINALIZER]);
    volume
}

/// The events about an object without a namespace: type, reason, message and count.
fn events(simulation: &Simulation, about: &str) -> Vec<(String, String, String, u64)> {
    let events = simulation.api.list("Event", "default");
    let about = events.iter().filter(|event| event["involvedObject"]["name"] == about);
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let one = |event: &Value| {
        let count = event["count"].as_u64().unwrap_or(1);
        (text(event, "type"), text(event, "reason"), text(event, "message"), count)
    };
    about.map(one).collect()
}

fn exists(simulation: &Simulation, name: &str) -> bool {
    simulation.volumes().iter().any(|volume| volume["metadata"]["name"] == name)
}

mod handles {
    use super::*;

    /// An admin made a second PersistentVolume of the same volume, to keep its data.
    #[tokio::test(start_paused = true)]
    async fn a_volume_that_another_one_stands_for_is_not_deleted() {
        let simulation = Simulation::new(1);
        simulation.api.create(&volume("ours", "shared")).unwrap();
        let mut kept = volume("kept", "shared");
        kept["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        kept["metadata"]["annotations"] = json!({});
        kept["metadata"]["finalizers"] = json!([]);
        simulation.api.create(&kept).unwrap();
        simulation.start();
        sleep(Duration::from_secs(1)).await;
        simulation.phase("ours", "Released");
        simulation
            .until("it is reported", |s| s.has_cluster_event("ours", "VolumeFailedDelete"))
            .await;
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(simulation.calls("DeleteVolume"), 0);
        let (_, _, text, _) = events(&simulation, "ours").remove(0);
        assert!(text.contains(r#"PersistentVolume "kept""#), "{text}");

        simulation.api.delete("PersistentVolume", "", "kept").unwrap();
        let took = simulation.until("it is deleted", |s| !exists(s, "ours")).await;
        assert!(took < Duration::from_secs(1), "woken: {took:?}");
        assert_eq!(simulation.calls("DeleteVolume"), 1);
    }

    /// Both were there at the start: a list shows them as a watch does.
    #[tokio::test(start_paused = true)]
    async fn those_that_are_all_due_go_together() {
        let simulation = Simulation::scripted(json!({"delete_volume": [{"delay_ms": 3000}]}));
        for name in ["one", "two", "three"] {
            simulation.api.create(&volume(name, "shared")).unwrap();
            simulation.phase(name, "Released");
        }
        simulation.start();
        let took = simulation.until("all are gone", |s| s.volumes().is_empty()).await;
        assert!(took < Duration::from_secs(10), "{took:?}");
        sleep(Duration::from_secs(600)).await;
        assert_eq!(simulation.calls("DeleteVolume"), 1);
    }

    /// A driver that hands one share to several claims, which are deleted one after the other.
    #[tokio::test(start_paused = true)]
    async fn the_last_one_that_is_released_takes_the_others_along() {
        let simulation = Simulation::new(1);
        for name in ["one", "two", "three"] {
            simulation.api.create(&volume(name, "shared")).unwrap();
            simulation.phase(name, "Bound");
        }
        simulation.start();
        for name in ["one", "two"] {
            sleep(Duration::from_secs(600)).await;
            simulation.phase(name, "Released");
        }
        sleep(Duration::from_secs(600)).await;
        assert_eq!((simulation.calls("DeleteVolume"), simulation.volumes().len()), (0, 3));
        assert!(simulation.has_cluster_event("two", "VolumeFailedDelete"));
        simulation.phase("three", "Released");
        let took = simulation.until("all are gone", |s| s.volumes().is_empty()).await;
        assert!(took < Duration::from_secs(1), "woken: {took:?}");
        assert_eq!(simulation.calls("DeleteVolume"), 1);
    }

    /// Each is Released but for one thing, by which this program would not delete it.
    #[tokio::test(start_paused = true)]
    async fn one_that_is_not_due_keeps_the_volume() {
        type Change = fn(&mut Value);
        let changes: [(&str, Change); 4] = [
            ("Bound", |_| ()),
            ("Available", |_| ()),
            ("Released", |kept| {
                kept["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] =
                    json!("other.example.com");
            }),
            ("Released", |kept| {
                kept["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
                kept["metadata"]["finalizers"] = json!(["example.com/keep"]);
            }),
        ];
        for (phase, change) in changes {
            let simulation = Simulation::new(1);
            let mut kept = volume("kept", "shared");
            change(&mut kept);
            for volume in [volume("ours", "shared"), kept] {
                simulation.api.create(&volume).unwrap();
            }
            simulation.phase("kept", phase);
            simulation.start();
            simulation.phase("ours", "Released");
            sleep(Duration::from_secs(600)).await;
            assert_eq!(simulation.calls("DeleteVolume"), 0, "{phase}");
            assert!(simulation.has_cluster_event("ours", "VolumeFailedDelete"), "{phase}");
        }
    }

    /// It is listed as due and kept by an admin right after: a live read of it decides.
    #[tokio::test(start_paused = true)]
    async fn one_that_is_kept_at_the_last_moment_keeps_the_volume() {
        let simulation = Simulation::new(1);
        for name in ["one", "two"] {
            simulation.api.create(&volume(name, "shared")).unwrap();
            simulation.phase(name, "Released");
        }
        let late = Effect::Delay(Duration::from_secs(1));
        simulation.faults().add(Rule::on("get", "persistentvolumes", late).times(2));
        simulation.start();
        let listed = |s: &Simulation| s.api_requests("list", "persistentvolumes") > 1;
        simulation.until("they are listed for the deletion", listed).await;
        for name in ["one", "two"] {
            simulation.retain(name);
        }
        sleep(Duration::from_secs(600)).await;
        assert_eq!(simulation.calls("DeleteVolume"), 0);
        assert_eq!(simulation.volumes().len(), 2);
    }

    /// Nobody takes a volume from a node that still has it under another PersistentVolume's name.
    #[tokio::test(start_paused = true)]
    async fn one_that_is_attached_keeps_the_volume() {
        let simulation = Simulation::scripted(
            json!({"controller_capabilities": ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"]}),
        );
        for name in ["one", "two"] {
            simulation.api.create(&volume(name, "shared")).unwrap();
            simulation.phase(name, "Released");
        }
        simulation.create(&attachment("two", "n1"));
        simulation.start();
        sleep(Duration::from_secs(600)).await;
        assert_eq!(simulation.calls("DeleteVolume"), 0);
        let (_, _, text, _) = events(&simulation, "one").remove(0);
        assert!(
            text.contains(
                r#"PersistentVolume "two", which stands for it, too, is still attached to node n1"#
            ),
            "{text}"
        );
        simulation.api.delete("VolumeAttachment", "", "two-n1").unwrap();
        simulation.until("both are gone", |s| s.volumes().is_empty()).await;
        assert_eq!(simulation.calls("DeleteVolume"), 1);
    }

    /// The same handle of another driver is another volume.
    #[tokio::test(start_paused = true)]
    async fn another_drivers_handle_is_no_matter() {
        let simulation = Simulation::new(1);
        simulation.api.create(&volume("ours", "1")).unwrap();
        let mut other = volume("theirs", "1");
        other["spec"]["csi"]["driver"] = json!("other.example.com");
        other["metadata"]["annotations"] = json!({});
        simulation.api.create(&other).unwrap();
        simulation.start();
        simulation.phase("ours", "Released");
        simulation.until("it is deleted", |s| !exists(s, "ours")).await;
        assert_eq!(simulation.calls("DeleteVolume"), 1);
    }
}

mod detach {
    use super::*;

    fn attaching() -> Simulation {
        let simulation = Simulation::scripted(
            json!({"controller_capabilities": ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"]}),
        );
        simulation.create(&secret("s", "k"));
        let mut volume = volume("pv", "h");
        let annotations = &mut volume["metadata"]["annotations"];
        annotations["volume.kubernetes.io/provisioner-deletion-secret-name"] = json!("s");
        annotations["volume.kubernetes.io/provisioner-deletion-secret-namespace"] = json!("sc");
        simulation.api.create(&volume).unwrap();
        simulation
    }

    #[tokio::test(start_paused = true)]
    async fn an_attached_volume_is_deleted_within_a_second_of_its_detachment() {
        let simulation = attaching();
        for node in ["n1", "n2"] {
            simulation.api.create(&attachment("pv", node)).unwrap();
        }
        let process = simulation.start();
        simulation.phase("pv", "Released");
        sleep(Duration::from_secs(1200)).await;
        let attached = |node: &str, times| {
            let text = format!("persistentvolume pv is still attached to node {node}");
            ("Warning".to_owned(), "VolumeFailedDelete".to_owned(), text, times)
        };
        let first = attached("n1", 2);
        assert_eq!(
            events(&simulation, "pv"),
            std::slice::from_ref(&first),
            "each quarter of an hour"
        );
        assert!(process.metrics().contains("\nprovisioner_volumes_waiting_for_detach 1\n"));
        simulation.api.delete("VolumeAttachment", "", "pv-n1").unwrap();
        sleep(Duration::from_secs(2)).await;
        let second = attached("n2", 1);
        assert_eq!(events(&simulation, "pv"), [first, second], "the node that has it now");
        assert_eq!(simulation.calls("DeleteVolume"), 0);
        assert_eq!(simulation.api_requests("get", "secrets"), 0);

        simulation.api.delete("VolumeAttachment", "", "pv-n2").unwrap();
        let took = simulation.until("it is deleted", |s| s.calls("DeleteVolume") == 1).await;
        assert!(took < Duration::from_secs(1), "{took:?}");
        simulation.until("it is gone", |s| s.volumes().is_empty()).await;
        assert_eq!(events(&simulation, "pv").len(), 2);
        let metrics = process.metrics();
        assert!(metrics.contains("\nprovisioner_volumes_waiting_for_detach 0\n"));
        let failed = "controller_persistentvolume_delete_failed_total{class=\"\"} 3";
        assert!(metrics.contains(failed), "as often as the events: {metrics}");
    }

    /// Attached while the secret is read: looked at again right before the call.
    #[tokio::test(start_paused = true)]
    async fn attached_at_the_last_moment_it_is_not_deleted() {
        let simulation = attaching();
        simulation
            .faults()
            .add(Rule::on("get", "secrets", Effect::Delay(Duration::from_secs(5))).times(1));
        simulation.start();
        simulation.phase("pv", "Released");
        sleep(Duration::from_secs(1)).await; // its secret is asked for
        simulation.api.create(&attachment("pv", "n1")).unwrap();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(simulation.calls("DeleteVolume"), 0);
        simulation.api.delete("VolumeAttachment", "", "pv-n1").unwrap();
        simulation.until("it is gone", |s| s.volumes().is_empty()).await;
    }
}

/// PersistentVolumes that somebody deletes before their claims are bound to them.
mod unbound {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn its_claim_gets_another_persistent_volume_of_the_same_volume() {
        let simulation = Simulation::new(1);
        simulation.start();
        let uid = simulation.served().await;
        let first = simulation.volumes().remove(0);
        let name = format!("pvc-{uid}");
        simulation.api.delete("PersistentVolume", "", &name).unwrap();
        let another = |s: &Simulation| {
            s.is_saved(&uid) && s.volumes()[0]["metadata"]["uid"] != first["metadata"]["uid"]
        };
        let took = simulation.until("the claim has another one", another).await;
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_eq!(simulation.volumes()[0]["spec"]["csi"], first["spec"]["csi"]);
        assert_eq!(simulation.calls("DeleteVolume"), 0);
        assert!(simulation.has_cluster_event(&name, "DeletedBeforeBound"));
    }

    /// Once the claim is gone as well, the volume goes the ordinary way.
    #[tokio::test(start_paused = true)]
    async fn without_its_claim_it_waits_to_be_released() {
        let simulation = Simulation::new(1);
        simulation.start();
        let uid = simulation.served().await;
        simulation.delete_claim("data");
        simulation.api.delete("PersistentVolume", "", &format!("pvc-{uid}")).unwrap();
        sleep(Duration::from_secs(60)).await;
        assert!(simulation.is_saved(&uid), "our finalizer holds it");
        simulation.release(&uid);
        simulation.until("it is gone", |s| s.volumes().is_empty()).await;
        assert_eq!(simulation.calls("DeleteVolume"), 1);
        assert!(simulation.left_at_driver().is_empty());
    }

    /// The claim is deleted before its volume is asked for again. external-provisioner would hold the
    /// PersistentVolume until it is released, and delete the volume.
    #[tokio::test(start_paused = true)]
    async fn if_the_claim_goes_before_it_gets_another_one_the_volume_is_a_suspected_leak() {
        for is_held_by_another in [false, true] {
            let simulation = Simulation::new(1);
            let process = simulation.start();
            let uid = simulation.served().await;
            let name = format!("pvc-{uid}");
            let volume = json!({"metadata": {"finalizers":
                [FINALIZER, "example.com/another"]}});
            if is_held_by_another {
                simulation.api.merge("PersistentVolume", "", &name, &volume).unwrap();
            }
            simulation.api.delete("StorageClass", "", "fast").unwrap();
            simulation.api.delete("PersistentVolume", "", &name).unwrap();
            let let_go = |s: &Simulation| s.has_cluster_event(&name, "DeletedBeforeBound");
            simulation.until("it is let go", let_go).await;
            simulation.delete_claim("data");
            sleep(Duration::from_secs(1)).await;
            if is_held_by_another {
                let let_go = json!({"metadata": {"finalizers": null}});
                simulation.api.merge("PersistentVolume", "", &name, &let_go).unwrap();
            }
            sleep(Duration::from_secs(60)).await;
            assert_eq!((simulation.volumes().len(), simulation.left_at_driver().len()), (0, 1));
            let reported = "provisioner_suspected_leaks_total{reason=\"superseded\"} 1";
            assert!(process.metrics().contains(reported), "{is_held_by_another}");
        }
    }

    /// Its claim would get a volume of another name, and this one would be nobody's.
    #[tokio::test(start_paused = true)]
    async fn one_of_another_name_than_its_claim_would_get_stays() {
        let simulation = Simulation::new(1);
        let process = simulation.start();
        let uid = simulation.served().await;
        process.kill();
        simulation.start_with(&["--volume-name-prefix=other"]);
        let name = format!("pvc-{uid}");
        simulation.api.delete("PersistentVolume", "", &name).unwrap();
        let reported = |s: &Simulation| s.has_cluster_event(&name, "VolumeFailedDelete");
        simulation.until("it is reported", reported).await;
        sleep(Duration::from_secs(60)).await;
        assert!(simulation.is_saved(&uid) && simulation.calls("CreateVolume") == 1);
        simulation.until_gone(&uid).await;
        assert!(simulation.left_at_driver().is_empty());
    }

    /// The claim goes, and the volume is released, while our patch is on its way.
    #[tokio::test(start_paused = true)]
    async fn released_before_it_is_let_go_it_is_deleted() {
        let simulation = Simulation::new(1);
        simulation.start();
        let uid = simulation.served().await;
        let late = Effect::Delay(Duration::from_secs(5));
        simulation.faults().add(Rule::on("patch", "persistentvolumes", late).times(1));
        simulation.api.delete("PersistentVolume", "", &format!("pvc-{uid}")).unwrap();
        sleep(Duration::from_secs(1)).await; // the patch is on its way
        simulation.until_gone(&uid).await;
        assert_eq!(simulation.calls("DeleteVolume"), 1);
        assert!(simulation.left_at_driver().is_empty());
    }

    /// It was deleted while nobody worked.
    #[tokio::test(start_paused = true)]
    async fn a_start_finds_it() {
        let simulation = Simulation::new(1);
        let process = simulation.start();
        let uid = simulation.served().await;
        let before = simulation.volumes()[0]["metadata"]["uid"].clone();
        process.kill();
        simulation.api.delete("PersistentVolume", "", &format!("pvc-{uid}")).unwrap();
        simulation.start();
        simulation
            .until("the claim has another one", |s| {
                s.is_saved(&uid) && s.volumes()[0]["metadata"]["uid"] != before
            })
            .await;
        assert_eq!(simulation.left_at_driver().len(), 1);
        assert_eq!(simulation.calls("DeleteVolume"), 0);
    }
}

/// Volumes that were there before the program and lack its finalizer.
mod adoption {
    use super::*;

    fn is_adopted(volume: &Value) -> bool {
        volume["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.contains(&json!(FINALIZER)))
    }

    fn adopted(simulation: &Simulation) -> usize {
        simulation.volumes().iter().filter(|volume| is_adopted(volume)).count()
    }

    fn existing(count: usize) -> Simulation {
        let simulation = Simulation::new(1);
        for number in 0..count {
            let name = format!("old-{number}");
            let mut old = volume(&name, &name);
            old["metadata"]["finalizers"] = json!([]);
            simulation.api.create(&old).unwrap();
            simulation.phase(&name, "Bound");
        }
        simulation
    }

    /// Each write takes a second.
    fn slow_to_write(simulation: &Simulation) {
        let slow = Rule::on("patch", "persistentvolumes", Effect::Delay(Duration::from_secs(1)));
        simulation.faults().add(slow);
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_workers_adopt_them() {
        let simulation = existing(20);
        slow_to_write(&simulation);
        simulation.start_with(&["--worker-threads=10"]);
        simulation.until("the first are adopted", |s| adopted(s) > 0).await;
        for count in [5, 10, 15, 20] {
            sleep(Duration::from_millis(500)).await;
            assert_eq!(adopted(&simulation), count);
            sleep(Duration::from_millis(510)).await;
        }
    }

    /// Claims are served and volumes deleted at once, however many wait to be adopted.
    #[tokio::test(start_paused = true)]
    async fn behind_all_other_work() {
        let simulation = existing(100);
        simulation.api.create(&volume("released", "released")).unwrap();
        slow_to_write(&simulation);
        simulation.start_with(&["--worker-threads=10"]);
        simulation.until("it has begun", |s| adopted(s) > 0).await;
        let uid = simulation.create_claim("data");
        simulation.phase("released", "Released");
        let is_done = |s: &Simulation| s.is_saved(&uid) && s.calls("DeleteVolume") > 0;
        let took = simulation.until("both are done", is_done).await;
        assert!(took < Duration::from_millis(500), "{took:?}");
        assert!(adopted(&simulation) < 50);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_bound_later_is_adopted_at_once() {
        let simulation = Simulation::new(1);
        let mut late = volume("late", "late");
        late["metadata"]["finalizers"] = json!([]);
        simulation.api.create(&late).unwrap();
        simulation.start();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(adopted(&simulation), 0);
        simulation.phase("late", "Bound");
        sleep(Duration::from_millis(200)).await;
        assert_eq!(adopted(&simulation), 1);
    }
}
