//! For how long claims that merely name a source keep it: of another namespace as long as a grant
//! stands, and none for longer than the time-out.

use std::time::Duration;

use serde_json::{Value, json};
use support::{
    simulation::{Process, claim, class, secret, with_secret},
    sources,
};
use tokio::time::sleep;

use super::{CLONE, Cluster, MINUTE, RESTORE};

const CROSS_NAMESPACE: &str = "--feature-gates=CrossNamespaceVolumeDataSource=true";
const SWEEP: &str = "--snapshot-orphan-sweep-interval=1m";
const GROUP: &str = "snapshot.storage.k8s.io";
const SOURCES: [(&str, &str, &str, &str); 2] =
    [("VolumeSnapshot", "snap", GROUP, RESTORE), ("PersistentVolumeClaim", "origin", "", CLONE)];

/// A cluster with a snapshot and a claim that can be copied.
fn with_sources() -> Cluster {
    let cluster = Cluster::new(1);
    cluster.add_snapshot("snap");
    cluster.add_origin("origin");
    cluster
}

/// A cluster with a snapshot and a claim that were copied before, which keeps our finalizer on them,
/// and that are deleted now. Pending claims in `namespace` name them; no provisioner serves those.
fn named_from(namespace: &str) -> Cluster {
    let cluster = with_sources();
    cluster.simulation.api.namespace("other");
    for (kind, name, group, finalizer) in SOURCES {
        let worn = json!({"metadata": {"finalizers": [finalizer]}});
        cluster.simulation.api.merge(kind, "sc", name, &worn).unwrap();
        let mut naming = claim(&format!("names-{name}"));
        naming["metadata"]["namespace"] = json!(namespace);
        naming["metadata"]["annotations"] = Value::Null;
        naming["spec"]["dataSourceRef"] = json!({"kind": kind, "name": name, "namespace": "sc"});
        if !group.is_empty() {
            naming["spec"]["dataSourceRef"]["apiGroup"] = json!(group);
        }
        cluster.simulation.api.create(&naming).unwrap();
        cluster.delete(kind, name);
    }
    cluster
}

/// Lets claims of the namespace `other` use all snapshots and claims.
fn grant(cluster: &Cluster) {
    let mut grant = sources::grant("other", "sc");
    grant["spec"]["to"] =
        SOURCES.map(|(kind, _, group, _)| json!({"group": group, "kind": kind})).into();
    cluster.simulation.api.create(&grant).unwrap();
}

/// The names of the sources that stand.
fn standing(cluster: &Cluster) -> Vec<&'static str> {
    let stands = |(kind, name, ..): &(&str, &str, &str, &str)| cluster.get(kind, name).is_some();
    SOURCES.into_iter().filter(stands).map(|(_, name, ..)| name).collect()
}

fn released(process: &Process) -> String {
    let text = process.metrics();
    let prefix = r#"provisioner_sources_released_total{reason="protection_timeout"} "#;
    text.lines().find_map(|line| line.strip_prefix(prefix)).unwrap_or_default().to_owned()
}

/// Its user has no right to the sources, with the feature gate or without.
#[tokio::test(start_paused = true)]
async fn a_claim_of_another_namespace_does_not_keep_a_source_without_a_grant() {
    for flags in [&[SWEEP][..], &[SWEEP, CROSS_NAMESPACE]] {
        let cluster = named_from("other");
        let process = cluster.simulation.start_with(flags);
        sleep(3 * MINUTE).await;
        assert!(standing(&cluster).is_empty(), "{flags:?}");
        assert_eq!(released(&process), "", "{flags:?}: nothing was kept for too long");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_another_namespace_keeps_a_source_as_long_as_a_grant_stands() {
    let cluster = named_from("other");
    grant(&cluster);
    cluster.simulation.start_with(&[SWEEP, CROSS_NAMESPACE, "--retry-interval-max=1m"]);
    let asked = || cluster.simulation.api_requests("list", "referencegrants");
    sleep(Duration::from_secs(10)).await;
    assert!((3..=4).contains(&asked()), "{} lists in ten seconds", asked());
    sleep(30 * MINUTE).await;
    assert_eq!(standing(&cluster), ["snap", "origin"]);
    assert!(asked() < 80, "{} lists in half an hour", asked());
    cluster.simulation.api.delete("ReferenceGrant", "sc", "grant").unwrap();
    sleep(3 * MINUTE).await;
    assert!(standing(&cluster).is_empty());
}

/// While the grants cannot be read nobody knows.
#[tokio::test(start_paused = true)]
async fn a_source_is_kept_while_the_grants_cannot_be_read() {
    let cluster = named_from("other");
    cluster.simulation.refuse("list", "referencegrants", 1_000_000);
    cluster.simulation.start_with(&[SWEEP, CROSS_NAMESPACE, "--retry-interval-max=1m"]);
    sleep(30 * MINUTE).await;
    assert_eq!(standing(&cluster), ["snap", "origin"]);
    cluster.simulation.faults().clear();
    sleep(3 * MINUTE).await;
    assert!(standing(&cluster).is_empty());
}

/// Neither a claim that gets no volume nor its user keeps what somebody has deleted.
#[tokio::test(start_paused = true)]
async fn a_deleted_source_goes_after_the_time_out_although_a_claim_names_it() {
    for (namespace, grants) in [("sc", false), ("other", true)] {
        let cluster = named_from(namespace);
        if grants {
            grant(&cluster);
        }
        let process = cluster.simulation.start_with(&[SWEEP, CROSS_NAMESPACE]);
        sleep(58 * MINUTE).await;
        assert_eq!(standing(&cluster), ["snap", "origin"], "{namespace}");
        assert_eq!(released(&process), "");
        sleep(5 * MINUTE).await;
        assert!(standing(&cluster).is_empty(), "{namespace}");
        assert_eq!(released(&process), "2");
        for (_, name, ..) in SOURCES {
            let messages = cluster.simulation.event_messages(name, "SourceReleased");
            assert!(messages.len() == 1 && messages[0].contains("1 pending claim"), "{messages:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_time_out_a_deleted_source_waits_for_the_claims_that_name_it() {
    let cluster = named_from("sc");
    cluster.simulation.start_with(&[SWEEP, "--claim-protection-timeout=0"]);
    sleep(48 * 60 * MINUTE).await;
    assert_eq!(standing(&cluster), ["snap", "origin"]);
}

/// The driver may be reading it.
#[tokio::test(start_paused = true)]
async fn a_source_is_kept_beyond_the_time_out_while_a_call_is_open_for_it() {
    for (kind, name, ..) in SOURCES {
        let cluster = with_sources();
        cluster.fail("ABORTED");
        let process = cluster.simulation.start_with(&[SWEEP]);
        let uid = cluster.add_claim("data", kind, name);
        cluster.until("the call is open", |c| c.calls() > 1).await;
        cluster.delete(kind, name);
        sleep(180 * MINUTE).await;
        assert!(standing(&cluster).contains(&name), "{name}");
        cluster.succeed();
        cluster.until("the volume is saved", |c| c.simulation.is_saved(&uid)).await;
        cluster.until("the source is gone", |c| c.get(kind, name).is_none()).await;
        // A snapshot is needed no more; a clone that is not bound still holds its source by its name.
        assert_eq!(released(&process), if name == "snap" { "" } else { "1" });
        cluster.kept_its_promise();
    }
}

/// Its call has ended, and nobody waits for it.
#[tokio::test(start_paused = true)]
async fn a_volume_of_a_deleted_claim_that_cannot_be_saved_keeps_no_source_beyond_the_time_out() {
    for (kind, name, ..) in SOURCES {
        let cluster = with_sources();
        cluster.simulation.refuse("create", "persistentvolumes", 1_000_000);
        let flags = ["--snapshot-orphan-sweep-interval=0", "--retry-interval-max=1m"];
        cluster.simulation.start_with(&flags);
        cluster.add_claim("data", kind, name);
        cluster.until("the volume is made", |c| c.calls() > 0).await;
        sleep(MINUTE).await;
        cluster.simulation.delete_claim("data");
        cluster.delete(kind, name);
        sleep(55 * MINUTE).await;
        assert!(standing(&cluster).contains(&name), "{name}");
        sleep(15 * MINUTE).await;
        assert!(!standing(&cluster).contains(&name), "{name}");
    }
}

/// It is asked for again and again, and every time it is known how that ended.
#[tokio::test(start_paused = true)]
async fn a_claim_that_the_driver_refuses_keeps_no_source_beyond_the_time_out() {
    for (kind, name, ..) in SOURCES {
        let cluster = with_sources();
        cluster.fail("INTERNAL");
        let process = cluster.simulation.start_with(&[SWEEP]);
        cluster.add_claim("data", kind, name);
        cluster.until("it was refused", |c| c.calls() > 2).await;
        cluster.delete(kind, name);
        sleep(55 * MINUTE).await;
        assert!(standing(&cluster).contains(&name), "{name}");
        sleep(15 * MINUTE).await;
        assert!(!standing(&cluster).contains(&name), "{name}");
        assert_eq!(released(&process), "1");
        cluster.kept_its_promise();
    }
}

/// The driver may still be reading it, whether or not the grant exists. It is not asked any more: nobody will know.
#[tokio::test(start_paused = true)]
async fn a_source_whose_grant_is_taken_back_is_kept_for_an_open_call_until_the_time_out() {
    let cluster = named_from("other");
    grant(&cluster);
    cluster.fail("ABORTED");
    cluster.simulation.start_with(&[SWEEP, CROSS_NAMESPACE, "--retry-interval-max=1m"]);
    let ours = json!({"metadata": {"annotations": claim("any")["metadata"]["annotations"]}});
    let api = &cluster.simulation.api;
    api.merge("PersistentVolumeClaim", "other", "names-snap", &ours).unwrap();
    cluster.until("the call is open", |c| c.calls() > 1).await;
    api.delete("ReferenceGrant", "sc", "grant").unwrap();
    let calls = cluster.calls();
    sleep(58 * MINUTE).await;
    assert_eq!(standing(&cluster), ["snap"], "nothing copies the claim");
    sleep(10 * MINUTE).await;
    assert!(standing(&cluster).is_empty());
    assert_eq!(cluster.calls(), calls);
    cluster.kept_its_promise();
}

/// Whatever keeps a live claim from asking the driver again.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_repeated_for_the_time_out_keeps_no_source() {
    for (kind, name, ..) in SOURCES {
        let cluster = with_sources();
        cluster.simulation.create(&class("guarded", &json!({"parameters": with_secret("key")})));
        cluster.simulation.api.create(&secret("key", "text")).unwrap();
        cluster.fail("ABORTED");
        let process = cluster.simulation.start_with(&[SWEEP]);
        let mut data = claim("data");
        data["spec"]["storageClassName"] = json!("guarded");
        data["spec"]["dataSourceRef"] = json!({"kind": kind, "name": name});
        if kind == "VolumeSnapshot" {
            data["spec"]["dataSourceRef"]["apiGroup"] = json!(GROUP);
        }
        let uid = cluster.simulation.create(&data);
        cluster.until("the call is open", |c| c.calls() > 1).await;
        cluster.delete("Secret", "key");
        cluster.delete(kind, name);
        sleep(58 * MINUTE).await;
        assert!(standing(&cluster).contains(&name), "{name}");
        sleep(10 * MINUTE).await;
        assert!(!standing(&cluster).contains(&name), "{name}");
        assert_eq!(released(&process), "1", "{name}");
        cluster.succeed();
        cluster.simulation.api.create(&secret("key", "text")).unwrap();
        cluster.until("the volume is saved", |c| c.simulation.is_saved(&uid)).await;
    }
}

/// Its grant is given again much later.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_repeated_after_the_time_out_protects_its_source_again() {
    let cluster = with_sources();
    let api = &cluster.simulation.api;
    api.namespace("other");
    grant(&cluster);
    cluster.fail("ABORTED");
    cluster.simulation.start_with(&[SWEEP, CROSS_NAMESPACE]);
    let mut data = claim("data");
    data["metadata"]["namespace"] = json!("other");
    data["spec"]["dataSourceRef"] =
        json!({"apiGroup": GROUP, "kind": "VolumeSnapshot", "name": "snap", "namespace": "sc"});
    api.create(&data).unwrap();
    cluster.until("the call is open", |c| c.calls() > 1).await;
    api.delete("ReferenceGrant", "sc", "grant").unwrap();
    sleep(70 * MINUTE).await;
    assert!(!cluster.is_guarded("snap"));
    let calls = cluster.calls();
    grant(&cluster);
    cluster.until("it is repeated", |c| c.calls() > calls).await;
    assert!(cluster.is_guarded("snap"));
    cluster.kept_its_promise();
}

/// Makes an object of another driver of this one.
fn give_away(cluster: &Cluster, kind: &str, name: &str, driver: &str) {
    let api = &cluster.simulation.api;
    let mut object = api.get(kind, "", name).unwrap();
    api.delete(kind, "", name).unwrap();
    object["metadata"] = json!({"name": name});
    *object.pointer_mut(driver).unwrap() = json!("other.example.com");
    api.create(&object).unwrap();
}

/// All provisioners share the finalizers. The other one knows whether its driver is copying.
#[tokio::test(start_paused = true)]
async fn a_source_of_another_driver_is_left_to_the_provisioner_of_that_driver() {
    for namespace in ["sc", "other"] {
        let cluster = named_from(namespace);
        give_away(&cluster, "PersistentVolume", "pv-origin", "/spec/csi/driver");
        give_away(&cluster, "VolumeSnapshotContent", "content-snap", "/spec/driver");
        cluster.simulation.start_with(&[SWEEP, CROSS_NAMESPACE]);
        sleep(180 * MINUTE).await;
        assert_eq!(standing(&cluster), ["snap", "origin"], "{namespace}");
    }
}

/// Its claim is gone, and its call may run on. A provisioner that is not there any more keeps nothing for ever.
#[tokio::test(start_paused = true)]
async fn a_source_of_another_driver_that_nobody_names_goes_after_the_time_out() {
    let cluster = named_from("sc");
    for (_, name, ..) in SOURCES {
        cluster.simulation.delete_claim(&format!("names-{name}"));
    }
    give_away(&cluster, "PersistentVolume", "pv-origin", "/spec/csi/driver");
    give_away(&cluster, "VolumeSnapshotContent", "content-snap", "/spec/driver");
    let process = cluster.simulation.start_with(&[SWEEP]);
    sleep(55 * MINUTE).await;
    assert_eq!(standing(&cluster), ["snap", "origin"]);
    sleep(10 * MINUTE).await;
    assert!(standing(&cluster).is_empty());
    assert_eq!(released(&process), "", "no claim has lost it");
}
