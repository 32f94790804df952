//! The rights that `deploy/kubernetes/rbac.yaml` grants, and those of ceph-csi's chart: enough for
//! the whole life of a claim, and none of ours without need.

use std::{collections::BTreeSet, time::Duration};

use csi_provisioner::preflight::{Feature, NEEDS, Need};
use serde_json::{Value, json};
use support::{
    simulation::{DRIVER, Simulation, claim},
    sources,
};
use testkit::apiserver::{audit::Recorded, serve::manifests};
use tokio::time::{Instant, sleep};

const OURS: &str = include_str!("../../deploy/kubernetes/rbac.yaml");
const CEPH_CSI: &str = include_str!("../conformance/cluster/rbac-cephcsi.yaml");

/// The oldest release that is tested here.
const OLD: u8 = 33;

/// Needed, but by something rarer than what [`live`] plays: only some claims name a
/// VolumeAttributesClass, few nodes lack a label, and restores have tests of their own.
const RARE: [(&str, &str); 6] = [
    ("volumeattributesclasses", "get"),
    ("nodes", "get"),
    ("volumesnapshots", "get"),
    ("volumesnapshots", "list"),
    ("volumesnapshots", "patch"),
    ("volumesnapshotcontents", "get"),
];

/// The features whose rules our manifest has commented, to be enabled by those who need them.
const OPTIONAL: [Feature; 5] = [
    Feature::Secrets,
    Feature::CrossNamespaceSources,
    Feature::Capacity,
    Feature::CapacityOwner,
    Feature::CapacityOwnersOwner,
];

/// The needs whose rules our manifest grants, or has commented.
fn needs(optional: bool) -> impl Iterator<Item = &'static Need> {
    NEEDS.iter().filter(move |need| OPTIONAL.contains(&need.feature) == optional)
}

/// What external-provisioner needs (v6.3.0), of the kinds that ours names. Its manifest grants all of it
/// but the last. Snapshots it updates where we patch them, or update them where only that is granted.
const EXTERNAL_PROVISIONER: [(&str, &[&str]); 11] = [
    ("persistentvolumes", &["get", "list", "watch", "create", "patch", "delete"]),
    ("persistentvolumeclaims", &["get", "list", "watch", "update"]),
    ("storageclasses", &["get", "list", "watch"]),
    ("volumeattachments", &["get", "list", "watch"]),
    ("csinodes", &["get", "list", "watch"]),
    ("nodes", &["get", "list", "watch"]),
    ("events", &["list", "watch", "create", "update", "patch"]),
    ("leases", &["get", "watch", "list", "delete", "update", "create"]),
    ("volumesnapshots", &["get", "list", "watch", "patch"]),
    ("volumesnapshotcontents", &["get", "list"]),
    ("volumeattributesclasses", &["get"]),
];

/// The topology key of the driver.
const KEY: &str = "disk.example.com/zone";

/// What a driver that knows of places reports.
const PLACES: [&str; 2] = ["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"];

/// The node `n` with these labels and with the driver on it.
fn create_node(simulation: &Simulation, labels: &Value) {
    let drivers = json!([{"name": DRIVER, "nodeID": "n", "topologyKeys": [KEY]}]);
    for object in [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels}}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": drivers}}),
    ] {
        simulation.api.create(&object).expect("the object is valid");
    }
}

/// The life of a claim with some candidates for the Lease: two failures, a volume, its loss, another one, and
/// the deletion of both. An error names what did not come about.
async fn live(simulation: &Simulation, candidates: &[&str]) -> Result<(), &'static str> {
    create_node(simulation, &json!({KEY: "a"}));
    simulation.script(json!({
        "plugin_capabilities": PLACES,
        "controller_capabilities": ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"],
        "create_volume": [{"error": {"code": "ABORTED"}, "times": 2}, {}],
    }));
    // Listed at the start: a volume may exist already.
    let uid = simulation.create_claim("data");
    for candidate in candidates {
        simulation.start_elected(candidate);
    }
    comes(60, || simulation.volumes().len() == 1).await.or(Err("a volume"))?;
    simulation.release(&uid);
    comes(60, || simulation.volumes().is_empty()).await.or(Err("its loss"))?;
    comes(1200, || simulation.volumes().len() == 1).await.or(Err("another volume"))?;
    simulation.delete_claim("data");
    simulation.release(&uid);
    comes(60, || simulation.volumes().is_empty()).await.or(Err("the end of the volume"))
}

/// Waits for something, but not for ever: without a right it may never come.
async fn comes(seconds: u64, holds: impl Fn() -> bool) -> Result<(), ()> {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > Duration::from_secs(seconds) {
            return Err(());
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Which requests were refused for want of rights, as `verb resource`.
fn refused(simulation: &Simulation) -> BTreeSet<String> {
    let requests = simulation.api.requests().all();
    requests.iter().filter(|request| request.code == 403).map(Recorded::what).collect()
}

/// What the roles among `objects` grant, as (resource, verb).
fn grants(objects: &[Value]) -> BTreeSet<(String, String)> {
    let texts = |value: &Value| {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let rules = objects.iter().filter_map(|object| object["rules"].as_array()).flatten();
    rules
        .flat_map(|rule| {
            let verbs = texts(&rule["verbs"]);
            let resources = texts(&rule["resources"]);
            resources.into_iter().flat_map(move |resource| {
                verbs.clone().into_iter().map(move |verb| (resource.clone(), verb))
            })
        })
        .collect()
}

/// The same manifest without one verb on one resource, each of which has a rule of its own.
fn without(mut objects: Vec<Value>, resource: &str, verb: &str) -> Vec<Value> {
    let rules = objects.iter_mut().filter_map(|object| object["rules"].as_array_mut()).flatten();
    for rule in rules.filter(|rule| rule["resources"] == json!([resource])) {
        rule["verbs"].as_array_mut().expect("a rule has verbs").retain(|granted| granted != verb);
    }
    objects
}

fn parsed(manifest: &str) -> Vec<Value> {
    manifests::parse(manifest).expect("the manifest is YAML")
}

async fn is_enough(manifest: &str, account: &str) {
    for minor in [OLD, 36] {
        let simulation = Simulation::with_roles(minor, &parsed(manifest), account);
        assert_eq!(
            live(&simulation, &["a", "b"]).await,
            Ok(()),
            "1.{minor}\n{}",
            simulation.trace()
        );
        assert_eq!(refused(&simulation), BTreeSet::new(), "1.{minor}");
        assert_eq!(simulation.left_at_driver(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn our_manifest_is_enough_for_the_life_of_a_claim() {
    is_enough(OURS, "csi-provisioner").await;
}

#[tokio::test(start_paused = true)]
async fn the_rights_of_ceph_csi_are_enough_for_the_life_of_a_claim() {
    is_enough(CEPH_CSI, "ceph-csi-provisioner").await;
}

fn written(optional: bool) -> BTreeSet<(String, String)> {
    needs(optional).map(|need| (need.resource.to_owned(), need.verb.to_owned())).collect()
}

/// The commented rules of the manifest that are for this version, as a manifest of their own.
fn commented() -> String {
    let lines = OURS.lines().filter_map(|line| line.trim_start().strip_prefix("# "));
    let rules = lines.filter(|line| line.starts_with("- apiGroups") || line.starts_with("  "));
    format!("rules:\n{}", rules.collect::<Vec<_>>().join("\n"))
}

#[test]
fn every_verb_that_is_granted_has_its_need_written_down() {
    assert_eq!(grants(&parsed(OURS)), written(false));
}

#[test]
fn what_optional_features_need_stands_commented() {
    let commented = grants(&parsed(&commented()));
    assert!(written(true).is_subset(&commented), "{commented:?}");
}

#[tokio::test(start_paused = true)]
async fn two_questions_show_which_rights_are_missing() {
    let simulation = Simulation::with_roles(36, &parsed(OURS), "csi-provisioner");
    simulation.start_elected("a");
    sleep(Duration::from_secs(60)).await;
    let reviews = simulation.api.requests().all();
    let reviews = reviews.iter().filter(|request| request.info.resource.starts_with("selfsubject"));
    let answered: Vec<u16> = reviews.map(|request| request.code).collect();
    assert_eq!(answered, [201, 201], "one question for the cluster, one for the Lease");
}

/// On the Lease's object and in the gauge, until the role is mended.
#[tokio::test(start_paused = true)]
async fn a_right_is_missing_until_it_is_granted() {
    let simulation = Simulation::with_roles(
        36,
        &without(parsed(OURS), "storageclasses", "watch"),
        "csi-provisioner",
    );
    let process = simulation.start_elected("a");
    let gauge = r#"provisioner_missing_permissions{group="storage.k8s.io",resource="storageclasses",verb="watch"} 1"#;
    sleep(Duration::from_secs(60)).await;
    assert!(process.metrics().contains(gauge), "{}", process.metrics());
    let reported = || {
        let events = simulation.api.objects("Event").into_iter();
        let of_lease = events.filter(|event| event.value()["involvedObject"]["kind"] == "Lease");
        let missing = of_lease.filter(|event| event.value()["reason"] == "MissingPermissions");
        missing.map(|event| event.value()["message"].to_string()).collect::<Vec<_>>()
    };
    let rule = r#"resources: [\"storageclasses\"], verbs: [\"watch\"]"#;
    assert!(reported().len() == 1 && reported()[0].contains(rule), "{:?}", reported());

    for role in parsed(OURS).iter().filter(|object| object["kind"] == "ClusterRole") {
        let name = role["metadata"]["name"].as_str().expect("a name");
        let rules = json!({"rules": role["rules"]});
        simulation.api.merge("ClusterRole", "", name, &rules).expect("the role stands");
    }
    sleep(Duration::from_secs(10 * 60)).await;
    assert!(!process.metrics().contains("provisioner_missing_permissions{"));
    assert_eq!(reported().len(), 1, "once");
}

#[test]
fn nothing_is_granted_that_the_original_does_not_ask_for() {
    for (resource, verb) in grants(&parsed(OURS)) {
        let rights = EXTERNAL_PROVISIONER.iter().find(|(kind, _)| *kind == resource);
        assert!(rights.is_some_and(|(_, verbs)| verbs.contains(&&*verb)), "{verb} {resource}");
    }
}

/// Removed one by one: without need, nobody would be refused anything.
#[test]
fn each_verb_is_missed_when_it_is_not_granted() {
    let needs: Vec<_> = needs(false).collect();
    // Each takes a second: on two cores at once.
    let (half, rest) = needs.split_at(needs.len() / 2);
    std::thread::scope(|threads| {
        for needs in [half, rest] {
            threads.spawn(|| {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
                runtime.block_on(are_missed(needs));
            });
        }
    });
}

async fn are_missed(needs: &[&Need]) {
    for Need { resource, verb, .. } in needs {
        let roles = without(parsed(OURS), resource, verb);
        let simulation = Simulation::with_roles(OLD, &roles, "csi-provisioner");
        // Who stands by needs no more rights than who leads, but for the Lease.
        let candidates: &[&str] = if *resource == "leases" { &["a", "b"] } else { &["a"] };
        let lived = live(&simulation, candidates).await;
        let missed = refused(&simulation);
        if RARE.contains(&(resource, verb)) {
            assert_eq!((lived, missed), (Ok(()), BTreeSet::new()), "{verb} {resource}");
        } else {
            assert_eq!(missed, BTreeSet::from([format!("{verb} {resource}")]));
        }
    }
}

fn missing(rights: &[&str]) -> BTreeSet<String> {
    rights.iter().map(|&right| right.to_owned()).collect()
}

/// A claim with a VolumeAttributesClass needs one right more, and gets an event if it is missing.
#[tokio::test(start_paused = true)]
async fn a_claims_attributes_class_must_be_readable() {
    let lacking = without(parsed(OURS), "volumeattributesclasses", "get");
    for (roles, expected) in
        [(parsed(OURS), BTreeSet::new()), (lacking, missing(&["get volumeattributesclasses"]))]
    {
        let simulation = Simulation::with_roles(36, &roles, "csi-provisioner");
        simulation
            .script(json!({"controller_capabilities": ["CREATE_DELETE_VOLUME", "MODIFY_VOLUME"]}));
        simulation.create_attributes_class("gold", DRIVER, &json!({"iops": "5000"}));
        simulation.create_claim_of("data", "gold");
        simulation.start();
        let reported =
            if expected.is_empty() { "ProvisioningSucceeded" } else { "ProvisioningFailed" };
        comes(60, || simulation.has_event("data", reported)).await.expect(reported);
        assert_eq!(refused(&simulation), expected);
    }
}

/// The event of a claim for a node that lacks a label lists all that the node has, and where that can't be
/// read what is known; either way it goes on once the label is there.
#[tokio::test(start_paused = true)]
async fn the_labels_of_a_selected_node_should_be_readable() {
    let lacking = without(parsed(OURS), "nodes", "get");
    for (roles, labels, expected) in [
        (parsed(OURS), "map[arch:arm]", BTreeSet::new()),
        (lacking, "map[]", BTreeSet::from(["get nodes".to_owned()])),
    ] {
        let simulation = Simulation::with_roles(36, &roles, "csi-provisioner");
        simulation.script(json!({"plugin_capabilities": PLACES}));
        create_node(&simulation, &json!({"arch": "arm"}));
        let mut claim = claim("data");
        claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("n");
        simulation.api.create(&claim).expect("the claim is valid");
        simulation.start();
        comes(60, || simulation.has_event("data", "ProvisioningFailed")).await.expect("an event");
        assert!(
            simulation.event_messages("data", "ProvisioningFailed")[0].contains(labels),
            "{labels}"
        );
        let labelled = json!({"metadata": {"labels": {KEY: "a"}}});
        simulation.api.merge("Node", "", "n", &labelled).expect("the node stands");
        comes(1, || simulation.volumes().len() == 1).await.expect("a volume");
        assert_eq!(refused(&simulation), expected);
    }
}

/// A claim is made from a snapshot. Without a right the restore gets an event, or goes on without
/// what the right is for; what external-provisioner's manifest grants is enough.
#[tokio::test(start_paused = true)]
async fn a_restore_needs_to_read_and_should_protect_its_snapshot() {
    let lacking = |resource, verb| without(parsed(OURS), resource, verb);
    let update = |mut roles: Vec<Value>| {
        let rules = roles.iter_mut().filter_map(|object| object["rules"].as_array_mut()).flatten();
        for rule in rules.filter(|rule| rule["resources"] == json!(["volumesnapshots"])) {
            rule["verbs"] = json!(["get", "list", "watch", "update"]);
        }
        roles
    };
    for (roles, made, missed) in [
        (parsed(OURS), true, &[][..]),
        (parsed(CEPH_CSI), true, &[]),
        (update(parsed(OURS)), true, &["patch volumesnapshots"]),
        (
            lacking("volumesnapshots", "patch"),
            true,
            &["patch volumesnapshots", "update volumesnapshots"],
        ),
        (lacking("volumesnapshots", "list"), true, &["list volumesnapshots"]),
        (lacking("volumesnapshots", "get"), false, &["get volumesnapshots"]),
        (lacking("volumesnapshotcontents", "get"), false, &["get volumesnapshotcontents"]),
    ] {
        let account =
            if roles == parsed(CEPH_CSI) { "ceph-csi-provisioner" } else { "csi-provisioner" };
        let simulation = Simulation::with_roles(36, &roles, account);
        simulation.script(
            json!({"controller_capabilities": ["CREATE_DELETE_VOLUME", "CREATE_DELETE_SNAPSHOT"]}),
        );
        sources::install_kinds(&simulation);
        sources::create_snapshot(&simulation, "snap");
        sources::create_restore(&simulation, "data", "snap");
        simulation.start();
        let reported = if made { "ProvisioningSucceeded" } else { "ProvisioningFailed" };
        comes(60, || simulation.has_event("data", reported)).await.expect(reported);
        assert_eq!(refused(&simulation), missing(missed));
    }
}

/// The pod `host`, whose `ReplicaSet` belongs to a Deployment.
fn create_pod(simulation: &Simulation) {
    let metadata = |name: &str, kind: &str, owner: &str| {
        json!({"name": name, "namespace": "default", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": true}]})
    };
    let spec = json!({"containers": [{"name": "c", "image": "example.com/c:1"}]});
    let template = json!({"metadata": {"labels": {"app": "p"}}, "spec": spec});
    for object in [
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata("host", "ReplicaSet", "set"), "spec": spec}),
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata("set", "Deployment", "provisioner"),
               "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "p"}}, "template": template}}),
    ] {
        simulation.api.create(&object).expect("the object is valid");
    }
}

/// Our manifest, its Role with the commented rules for these resources.
fn with_commented(resources: &[&str]) -> Vec<Value> {
    let mut objects = parsed(OURS);
    let commented = parsed(&commented());
    let rules = commented.iter().filter_map(|object| object["rules"].as_array()).flatten();
    let wanted = rules
        .filter(|rule| resources.iter().any(|resource| rule["resources"] == json!([resource])));
    let role = objects.iter_mut().find(|object| object["kind"] == "Role").expect("a Role");
    role["rules"].as_array_mut().expect("rules").extend(wanted.cloned());
    objects
}

/// Each level of `--capacity-ownerref-level` needs the rights to read what is below the owner.
#[tokio::test(start_paused = true)]
async fn the_owner_of_capacity_objects_is_found_with_the_commented_rules() {
    for (granted, level, lacking) in [
        (&["pods", "replicasets"][..], "2", None),
        (&["pods"], "2", Some("replicasets")),
        (&["pods"], "1", None),
        (&[], "1", Some("pods")),
        (&[], "0", Some("pods")),
        (&[], "-1", None),
    ] {
        let granted = [granted, &["csistoragecapacities"]].concat();
        let simulation = Simulation::with_roles(36, &with_commented(&granted), "csi-provisioner");
        create_pod(&simulation);
        simulation.create_claim("data");
        let level = format!("--capacity-ownerref-level={level}");
        let process = simulation.start_with(&["--enable-capacity", &level]);
        let works = comes(60, || simulation.volumes().len() == 1).await.is_ok();
        assert_eq!(works, lacking.is_none(), "{level} {granted:?}");
        let expected = lacking.map(|resource| format!("get {resource}"));
        assert_eq!(refused(&simulation), expected.into_iter().collect(), "{level} {granted:?}");
        let why = process.outcome().and_then(Result::err).unwrap_or_default();
        let reported = lacking.map_or("", |_| "look up owner(s) of pod: get object: ");
        assert!(
            why.starts_with(reported) && why.is_empty() == reported.is_empty(),
            "{level}: {why}"
        );
    }
}

/// The life of the objects of a driver that reports capacity: created, corrected, deleted. An error
/// names what did not come about.
async fn publish(simulation: &Simulation) -> Result<(), &'static str> {
    let set_capacity = |gib: u64| {
        let capabilities = ["CREATE_DELETE_VOLUME", "GET_CAPACITY"];
        let answer = json!([{"available_capacity": gib << 30}]);
        let script = json!({"controller_capabilities": capabilities, "get_capacity": answer});
        simulation.script(script);
    };
    let late = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
        "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"});
    let sizes = || {
        let objects = simulation.api.list("CSIStorageCapacity", "default");
        objects.iter().map(|object| object["capacity"].clone()).collect::<Vec<_>>()
    };
    set_capacity(1);
    create_node(simulation, &json!({KEY: "a"}));
    simulation.api.create(&late).expect("the class is valid");
    simulation.start_with(&["--enable-capacity", "--capacity-ownerref-level=-1"]);
    comes(60, || sizes() == ["1Gi"]).await.or(Err("an object"))?;
    set_capacity(2);
    comes(120, || sizes() == ["2Gi"]).await.or(Err("its correction"))?;
    simulation.api.delete("StorageClass", "", "late").expect("the class stands");
    comes(60, || sizes().is_empty()).await.or(Err("its end"))
}

#[tokio::test(start_paused = true)]
async fn capacity_objects_are_published_with_the_commented_rules() {
    for minor in [OLD, 36] {
        let simulation = Simulation::with_roles(
            minor,
            &with_commented(&["csistoragecapacities"]),
            "csi-provisioner",
        );
        assert_eq!(publish(&simulation).await, Ok(()), "1.{minor}\n{}", simulation.trace());
        assert_eq!(refused(&simulation), BTreeSet::new(), "1.{minor}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_verb_on_capacity_objects_is_missed_when_it_is_not_granted() {
    let capacity = needs(true).filter(|need| need.resource == "csistoragecapacities");
    for Need { resource, verb, .. } in capacity {
        let roles = without(with_commented(&[resource]), resource, verb);
        let simulation = Simulation::with_roles(OLD, &roles, "csi-provisioner");
        let published = publish(&simulation).await;
        // What this process writes itself it knows without a watch.
        assert_eq!(published.is_ok(), *verb == "watch", "{verb}");
        assert_eq!(refused(&simulation), BTreeSet::from([format!("{verb} {resource}")]));
    }
}
