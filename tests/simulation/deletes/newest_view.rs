//! The live read of a PersistentVolume right before its volume is deleted.

use super::*;
use tokio::time::Instant;

/// Adds a PersistentVolume that is deleted with the secret `sc/s`.
fn add_volume_with_secret(simulation: &Simulation) {
    let mut pv = volume("pv", "h");
    let annotations = &mut pv["metadata"]["annotations"];
    annotations["volume.kubernetes.io/provisioner-deletion-secret-name"] = json!("s");
    annotations["volume.kubernetes.io/provisioner-deletion-secret-namespace"] = json!("sc");
    simulation.api.create(&pv).unwrap();
}

/// The policy changes while the secret is read slowly: Retain wins.
#[tokio::test(start_paused = true)]
async fn after_a_slow_secret_the_volume_is_looked_at_again() {
    let simulation = Simulation::new(1);
    add_volume_with_secret(&simulation);
    simulation
        .faults()
        .add(Rule::on("get", "secrets", Effect::Delay(Duration::from_secs(5))).times(1));
    simulation.start();
    sleep(Duration::from_secs(1)).await;
    simulation.phase("pv", "Released");
    sleep(Duration::from_secs(1)).await; // its secret is asked for
    simulation.unwatched(|s| s.retain("pv"));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(simulation.calls("DeleteVolume"), 0);
    assert!(exists(&simulation, "pv"));
}

/// The process stands still while the answer is under way: what that says was long before.
#[tokio::test(start_paused = true)]
async fn what_was_looked_at_before_a_standstill_is_looked_at_again() {
    let simulation = Simulation::new(1);
    simulation.api.create(&volume("pv", "h")).unwrap();
    let process = simulation.start();
    sleep(Duration::from_secs(1)).await;
    let late = Effect::DelayAfter(Duration::from_secs(1));
    simulation.faults().add(Rule::on("get", "persistentvolumes", late).times(1));
    simulation.phase("pv", "Released");
    sleep(Duration::from_millis(500)).await; // it is looked at
    process.suspend(Duration::from_secs(60));
    simulation.retain("pv");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(simulation.calls("DeleteVolume"), 0);
    assert!(exists(&simulation, "pv"));
}

/// With few requests a second allowed, a read waits long before it is sent: its answer is as new. Nor do others'
/// waits keep apart the look at a volume and at those that share it.
#[tokio::test(start_paused = true)]
async fn a_look_is_as_old_as_its_request_whatever_that_waited_for() {
    for shared_by in [1, 2] {
        let simulation = Simulation::new(1);
        for n in 0..40 {
            let handle = format!("h{}", n / shared_by);
            simulation.api.create(&volume(&format!("pv{n}"), &handle)).unwrap();
        }
        simulation.start_with(&["--kube-api-qps=2", "--kube-api-burst=1"]);
        sleep(Duration::from_secs(60)).await;
        (0..40).for_each(|n| simulation.phase(&format!("pv{n}"), "Released"));
        simulation.until("nothing is left", |s| s.volumes().is_empty()).await;
        assert_eq!(simulation.calls("DeleteVolume"), 40 / shared_by);
        let looks = simulation.api_requests("get", "persistentvolumes");
        assert!(shared_by > 1 || looks <= 40, "each was looked at once: {looks}");
    }
}

/// Three volumes are released, and the read of the first is answered late.
#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_too_long_holds_nobody_else_up() {
    let simulation = Simulation::scripted(json!({"delete_volume": [{"delay_ms": 100}]}));
    let names = ["pv-0", "pv-1", "pv-2"];
    for name in names {
        simulation.api.create(&volume(name, name)).unwrap();
    }
    simulation.start();
    sleep(Duration::from_secs(1)).await;
    let late = Effect::DelayAfter(Duration::from_secs(20));
    simulation.faults().add(Rule::on("get", "persistentvolumes", late).named("pv-0").times(1));
    let released = Instant::now();
    for name in names {
        simulation.phase(name, "Released");
        sleep(Duration::from_millis(1)).await;
    }
    simulation.until("two are deleted", |s| s.calls("DeleteVolume") == 2).await;
    assert!(released.elapsed() < Duration::from_millis(600), "{:?}", released.elapsed());
    simulation.until("the last is deleted", |s| s.calls("DeleteVolume") == 3).await;
    let deleted = simulation.requests("DeleteVolume");
    assert!(deleted[0]["volume_id"] == "pv-1" && deleted[1]["volume_id"] == "pv-2", "{deleted:?}");
}

/// A watch that stands still shows late what was so long before.
#[tokio::test(start_paused = true)]
async fn an_event_that_was_held_up_is_not_believed() {
    let replaced = |s: &Simulation| {
        s.force_delete("pv");
        s.api.create(&volume("pv", "h")).unwrap();
    };
    let retained = |s: &Simulation| s.retain("pv");
    for happens in [retained as fn(&Simulation), replaced] {
        let simulation = Simulation::new(1);
        simulation.api.create(&volume("pv", "h")).unwrap();
        simulation.start();
        sleep(Duration::from_secs(1)).await;
        let late = StreamFault::Drag { after: 0, by: Duration::from_secs(60) };
        let late = Rule::on("watch", "persistentvolumes", Effect::Stream(late));
        simulation.faults().add(late.times(1));
        simulation.api.watches().cut(Some("persistentvolumes"));
        sleep(Duration::from_secs(10)).await; // it is watched again
        simulation.phase("pv", "Released");
        sleep(Duration::from_secs(30)).await;
        happens(&simulation);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(simulation.calls("DeleteVolume"), 0);
        assert!(exists(&simulation, "pv"));
    }
}

/// A secret that can't be read is reported and tried again; one that is missing is passed over, as
/// in external-provisioner.
#[tokio::test(start_paused = true)]
async fn an_unreadable_secret_is_waited_for_and_a_missing_one_is_not() {
    for (code, passed_over) in [(500, false), (503, false), (403, false), (404, true)] {
        let simulation = Simulation::new(1);
        add_volume_with_secret(&simulation);
        let kinds = simulation.api.kinds();
        let kind = kinds.iter().find(|kind| kind.plural == "secrets").unwrap();
        let status = match code {
            403 => Some(Status::forbidden(kind, "s", "no")),
            404 => None,
            _ => Some(Status::internal("no")),
        };
        if let Some(status) = status {
            simulation.create(&secret("s", "k"));
            simulation.faults().add(Rule::on("get", "secrets", Effect::Answer(status)));
        }
        simulation.start();
        simulation.phase("pv", "Released");
        sleep(Duration::from_secs(60)).await;
        assert_eq!(simulation.calls("DeleteVolume"), usize::from(passed_over), "{code}");
        assert_eq!(
            simulation.has_cluster_event("pv", "VolumeFailedDelete"),
            !passed_over,
            "{code}"
        );
        simulation.faults().clear();
        let took = simulation.until("it is gone", |s| s.volumes().is_empty()).await;
        assert!(took <= Duration::from_secs(16), "{code}: {took:?}");
        let with = simulation.requests("DeleteVolume").remove(0)["secrets"].clone();
        assert_eq!(with != Value::Null && with != json!({}), !passed_over, "{code}: {with}");
    }
}
