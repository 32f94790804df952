//! Shadow mode beside a provisioner that works, in simulated time. The provisioner stands for
//! external-provisioner; where the two are to differ, it has other flags.

use std::time::Duration;

use serde_json::{Value, json};
use support::{
    simulation::{DRIVER, Process, SHADOW, Simulation, claim, class, foreign_volume},
    sources,
};
use testkit::apiserver::{access::auth::service_account, audit::Recorded, serve::manifests};
use tokio::time::sleep;

const OURS: &str = include_str!("../../deploy/kubernetes/rbac.yaml");
const MANIFEST: &str = include_str!("../../deploy/kubernetes/shadow.yaml");

const HOUR: Duration = Duration::from_secs(3600);

/// How often shadow mode has come to this result; 0 before the process serves the series.
fn results(shadow: &Process, subject: &str, agreement: &str) -> usize {
    let series = format!(
        "provisioner_shadow_results_total{{agreement=\"{agreement}\",subject=\"{subject}\"}} "
    );
    let metrics = shadow.metrics();
    let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
    value.map_or(0, |value| value.parse().unwrap())
}

/// How often shadow mode has come to any result about this but `same`.
fn others(shadow: &Process, subject: &str) -> usize {
    ["documented", "unexplained", "unknown"]
        .iter()
        .map(|agreement| results(shadow, subject, agreement))
        .sum()
}

/// The requests of shadow mode that are no reads.
fn writes(simulation: &Simulation) -> Vec<String> {
    let requests = simulation.api.requests().all();
    let shadow = requests.iter().filter(|request| request.user.name.contains(SHADOW));
    let reads = ["get", "list", "watch"];
    shadow.filter(|it| !reads.contains(&&*it.info.verb)).map(Recorded::what).collect()
}

fn claim_of(name: &str, class: &str) -> Value {
    let mut claim = claim(name);
    claim["spec"]["storageClassName"] = json!(class);
    claim
}

/// A driver of all kinds of volumes, with topology, and a node.
fn prepare(simulation: &Simulation) {
    sources::install_kinds(simulation);
    let zone = "disk.example.com/zone";
    let place = json!({zone: "a"});
    simulation.script(json!({
        "plugin_capabilities": ["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"],
        "controller_capabilities": [
            "CREATE_DELETE_VOLUME", "CREATE_DELETE_SNAPSHOT", "CLONE_VOLUME", "MODIFY_VOLUME"],
        "create_volume": [
            {"volume": {"volume_context": {"a": "b"}, "accessible_topology": [place]}}],
    }));
    let drivers = json!([{"name": DRIVER, "nodeID": "n", "topologyKeys": [zone]}]);
    simulation.create(&json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "labels": {zone: "a"}}}));
    simulation.create(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {"name": "n"}, "spec": {"drivers": drivers}}));
}

/// Claims of all kinds that a provisioner serves.
fn create_all_kinds(simulation: &Simulation) -> usize {
    simulation.create(&json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "s", "namespace": "sc"}, "data": {"key": "cGFzc3dvcmQ="}}));
    simulation.create(&class(
        "full",
        &json!({
            "reclaimPolicy": "Retain", "mountOptions": ["noatime"],
            "parameters": {
                "csi.storage.k8s.io/fstype": "xfs",
                "csi.storage.k8s.io/provisioner-secret-name": "s",
                "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
                "csi.storage.k8s.io/node-stage-secret-name": "${pvc.name}",
                "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}",
                "pool": "p",
            },
        }),
    ));
    simulation.create_attributes_class("gold", DRIVER, &json!({"tier": "gold"}));
    sources::create_snapshot(simulation, "snap");
    sources::create_origin(simulation, "origin");
    let block = {
        let mut claim = claim_of("block", "full");
        claim["spec"]["volumeMode"] = json!("Block");
        claim
    };
    let odd = {
        let mut claim = claim("odd");
        claim["spec"]["resources"]["requests"]["storage"] = json!("1500M");
        claim["spec"]["accessModes"] = json!(["ReadOnlyMany", "ReadWriteMany"]);
        claim
    };
    for claim in [claim("plain"), claim_of("full", "full"), block, odd] {
        simulation.create(&claim);
    }
    simulation.create_claim_of("tiered", "gold");
    sources::create_restore(simulation, "restored", "snap");
    sources::create_clone(simulation, "cloned", "origin");
    7
}

#[tokio::test(start_paused = true)]
async fn the_role_of_the_manifest_is_enough_and_none_of_it_writes() {
    let [ours, shadows] = [OURS, MANIFEST].map(|manifest| manifests::parse(manifest).unwrap());
    let reads = ["get", "list", "watch"].map(|verb| json!(verb));
    let rules = shadows.iter().filter_map(|it| it["rules"].as_array()).flatten();
    for verb in rules.filter_map(|rule| rule["verbs"].as_array()).flatten() {
        assert!(reads.contains(verb), "{verb}");
    }
    let secrets = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "secrets"}, "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    let mut binding = ours.iter().find(|it| it["kind"] == "ClusterRoleBinding").unwrap().clone();
    binding["metadata"]["name"] = json!("secrets");
    binding["roleRef"]["name"] = json!("secrets");
    let is_rbac = |it: &Value| it["apiVersion"] != "apps/v1";
    let shadows = shadows.into_iter().filter(is_rbac);
    let objects: Vec<_> = ours.into_iter().chain(shadows).chain([secrets, binding]).collect();
    let simulation = Simulation::with_roles(36, &objects, "csi-provisioner");
    prepare(&simulation);
    let claims = create_all_kinds(&simulation);
    let account = service_account("default", "csi-provisioner-shadow");
    let shadow = simulation.start_shadow_as(account, &["--extra-create-metadata"]);
    simulation.start_with(&["--extra-create-metadata"]);
    simulation.until("all are compared", |_| results(&shadow, "volume", "same") == claims).await;
    assert_eq!(results(&shadow, "served_there", "unexplained"), 0);
    assert_eq!(simulation.calls("CreateVolume"), claims);
    let requests = simulation.api.requests().all();
    let of_shadow = requests.iter().filter(|it| it.user.name.contains(SHADOW));
    let refused: Vec<_> = of_shadow.filter(|it| it.code == 403).map(Recorded::what).collect();
    assert_eq!(refused, [""; 0]);
    assert_eq!(writes(&simulation), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_saved_before_shadow_mode_began_to_look_is_compared() {
    let simulation = Simulation::new(2);
    simulation.start();
    let uid = simulation.create_claim("data");
    simulation.until("it is saved", |it| it.is_saved(&uid)).await;
    let shadow = simulation.start_shadow(&[]);
    simulation.until("it is compared", |_| results(&shadow, "volume", "same") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_differs_after_a_change_of_the_class_is_unknown() {
    let simulation = Simulation::new(4);
    let shadow = simulation.start_shadow(&["--default-fstype=ext4"]);
    simulation.create_claim("data");
    sleep(Duration::from_secs(5)).await;
    let options = json!({"mountOptions": ["noatime"]});
    simulation.api.merge("StorageClass", "", "fast", &options).unwrap();
    sleep(Duration::from_secs(5)).await;
    simulation.start_with(&["--default-fstype=xfs"]);
    simulation.until("it is compared", |_| others(&shadow, "volume") == 1).await;
    assert_eq!(results(&shadow, "volume", "unknown"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_only_the_other_serves_is_unexplained() {
    let simulation = Simulation::new(5);
    let mut claim = claim("data");
    claim["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
    let uid = simulation.create(&claim);
    let shadow = simulation.start_shadow(&[]);
    sleep(Duration::from_secs(1)).await;
    let mut volume = foreign_volume(&uid, &uid, "h");
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": DRIVER});
    simulation.create(&volume);
    simulation
        .until("it is compared", |_| results(&shadow, "served_there", "unexplained") == 1)
        .await;
}

#[tokio::test(start_paused = true)]
async fn claims_that_nobody_serves_are_kept_for_an_hour() {
    let simulation = Simulation::new(7);
    let shadow = simulation.start_shadow(&[]);
    simulation.create(&claim_of("no-class", "none"));
    simulation.create_claim("no-original");
    let uid = simulation.create_claim("deleted");
    sleep(HOUR / 2).await;
    simulation.delete_claim("deleted");
    sleep(HOUR).await;
    assert_eq!(results(&shadow, "unserved", "same"), 1, "both leave it");
    assert_eq!(results(&shadow, "unserved", "unknown"), 1, "the driver may have refused");
    assert!(!simulation.is_saved(&uid));
    assert_eq!(writes(&simulation), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_not_provisioned_is_not_compared() {
    let simulation = Simulation::new(8);
    let shadow = simulation.start_shadow(&[]);
    let uid = simulation.create_claim("data");
    sleep(Duration::from_secs(1)).await;
    simulation.create(&foreign_volume("mine", &uid, "h"));
    sleep(HOUR * 2).await;
    for subject in ["volume", "served_there", "unserved"] {
        assert_eq!(results(&shadow, subject, "same") + others(&shadow, subject), 0, "{subject}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_another_driver_that_the_other_deletes_is_documented() {
    let simulation = Simulation::new(13);
    let shadow = simulation.start_shadow(&[]);
    let mut volume = foreign_volume("odd", "odd", "h");
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": DRIVER});
    volume["spec"]["csi"]["driver"] = json!("other.example.com");
    simulation.create(&volume);
    simulation.release("odd");
    sleep(Duration::from_secs(5)).await;
    simulation.force_delete_volume("odd");
    simulation.until("it is compared", |_| results(&shadow, "deletion", "documented") == 1).await;
    assert_eq!(results(&shadow, "deletion", "same"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_deleted_before_it_is_served_is_documented() {
    let simulation = Simulation::new(10);
    let mut claim = claim("data");
    claim["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let uid = simulation.create(&claim);
    simulation.delete_claim("data");
    let shadow = simulation.start_shadow(&[]);
    sleep(Duration::from_secs(1)).await;
    let mut volume = foreign_volume(&uid, &uid, "h");
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": DRIVER});
    simulation.create(&volume);
    simulation
        .until("it is compared", |_| results(&shadow, "served_there", "documented") == 1)
        .await;
}
