//! The rights that `deploy/kubernetes/rbac.yaml` grants, and those of ceph-csi's chart: enough for
//! the whole life of a claim, and none of ours without need.

// What tests share fails like a test does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[allow(dead_code)] // other tests share the world
#[path = "simulation/world.rs"]
mod world;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Value, json};
use testkit::apiserver::{
    ApiServer, Documents, Options,
    access::{auth::service_account, authorizer::Rbac, bootstrap},
    audit::Recorded,
    hooks::Hooks,
    resources::ServerVersion,
    serve::manifests,
};
use tokio::time::{Instant, sleep};
use world::Simulation;

const OURS: &str = include_str!("../deploy/kubernetes/rbac.yaml");
const CEPH_CSI: &str = include_str!("conformance/cluster/rbac-cephcsi.yaml");

/// A release without streaming lists: there, initial lists need `list` too.
const WITHOUT_STREAMING: u8 = 33;

/// What a granted verb is for.
enum Need {
    /// A claim's life as [`live`] plays it meets it, and is refused without.
    Life,
    /// Only something rarer does.
    Rare(&'static str),
}
use Need::{Life, Rare};

/// Every verb that our manifest grants, and the need for it.
const NEEDS: [(&str, &str, Need); 21] = [
    ("persistentvolumes", "get", Life), // was the claim given a volume before this process saw it?
    ("persistentvolumes", "list", Life), // volumes due for deletion, without streaming lists
    ("persistentvolumes", "watch", Life), // volumes that come to be due
    ("persistentvolumes", "create", Life), // what the driver made is saved
    ("persistentvolumes", "patch", Life), // the protection finalizer comes off a deleted volume
    ("persistentvolumes", "delete", Life), // the object goes after the volume
    ("persistentvolumeclaims", "get", Life), // is a claim whose volume vanished still unbound?
    ("persistentvolumeclaims", "list", Life), // claims that stand already, without streaming lists
    ("persistentvolumeclaims", "watch", Life), // new claims
    (
        "persistentvolumeclaims",
        "update",
        Rare("gives the selected node back when it has no room, which only topology can tell"),
    ),
    ("storageclasses", "list", Life), // classes, without streaming lists
    ("storageclasses", "watch", Life), // classes
    ("volumeattachments", "list", Life), // what is attached is not deleted, without streaming lists
    ("volumeattachments", "watch", Life), // what is attached is not deleted
    (
        "volumeattributesclasses",
        "get",
        Rare("what else the driver is told, where a claim names a class of it; from 1.34 on"),
    ),
    ("events", "create", Life), // what happened is told
    ("events", "patch", Life),  // the same again is counted
    ("leases", "get", Life),    // who leads?
    ("leases", "watch", Life),  // a standby takes over as soon as it may
    ("leases", "create", Life), // the first leader
    ("leases", "update", Life), // the leader renews
];

/// What the original needs (v6.3.0), of the kinds that ours names. Its manifest grants all of it
/// but the last.
const ORIGINAL: [(&str, &[&str]); 7] = [
    ("persistentvolumes", &["get", "list", "watch", "create", "patch", "delete"]),
    ("persistentvolumeclaims", &["get", "list", "watch", "update"]),
    ("storageclasses", &["get", "list", "watch"]),
    ("volumeattachments", &["get", "list", "watch"]),
    ("events", &["list", "watch", "create", "update", "patch"]),
    ("leases", &["get", "watch", "list", "delete", "update", "create"]),
    ("volumeattributesclasses", &["get"]),
];

/// A cluster with RBAC and these roles, where the program is the service account `account`.
fn cluster(minor: u8, roles: &[Value], account: &str) -> Simulation {
    let hooks = Hooks {
        authorizer: Arc::new(Rbac::default()),
        extensions: vec![Arc::new(Documents)],
        ..Hooks::default()
    };
    let version = ServerVersion::minor(minor);
    let api = ApiServer::new(Options { version, hooks, ..Options::default() });
    for object in bootstrap::roles().iter().chain(roles) {
        api.create(object).expect("a manifest's object is valid");
    }
    Simulation::on(api, 1, service_account("default", account))
}

/// The life of a claim with some candidates for the Lease: two failures, a volume, its loss, another one, and
/// the deletion of both. An error names what did not come about.
async fn live(simulation: &Simulation, candidates: &[&str]) -> Result<(), &'static str> {
    simulation.script(json!({
        "controller_capabilities": ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"],
        "create_volume": [{"error": {"code": "ABORTED"}, "times": 2}, {}],
    }));
    // Seen at the start: a volume may be there already.
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
    for minor in [WITHOUT_STREAMING, 36] {
        let simulation = cluster(minor, &parsed(manifest), account);
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

#[test]
fn every_verb_that_is_granted_has_its_need_written_down() {
    let written: BTreeSet<_> = NEEDS
        .iter()
        .map(|(resource, verb, _)| ((*resource).to_owned(), (*verb).to_owned()))
        .collect();
    assert_eq!(grants(&parsed(OURS)), written);
}

#[test]
fn nothing_is_granted_that_the_original_does_not_ask_for() {
    for (resource, verb) in grants(&parsed(OURS)) {
        let original = ORIGINAL.iter().find(|(kind, _)| *kind == resource);
        assert!(original.is_some_and(|(_, verbs)| verbs.contains(&&*verb)), "{verb} {resource}");
    }
}

/// Removed one by one: without need, nobody would be refused anything.
#[tokio::test(start_paused = true)]
async fn each_verb_is_missed_when_it_is_not_granted() {
    for (resource, verb, need) in &NEEDS {
        let roles = without(parsed(OURS), resource, verb);
        let simulation = cluster(WITHOUT_STREAMING, &roles, "csi-provisioner");
        // Who stands by needs no more rights than who leads, but for the Lease.
        let candidates: &[&str] = if *resource == "leases" { &["a", "b"] } else { &["a"] };
        let lived = live(&simulation, candidates).await;
        let missed = refused(&simulation);
        match need {
            Life => assert_eq!(missed, BTreeSet::from([format!("{verb} {resource}")])),
            Rare(why) => assert_eq!((lived, missed), (Ok(()), BTreeSet::new()), "{why}"),
        }
    }
}

/// A claim with a VolumeAttributesClass needs one right more, and is told where it lacks.
#[tokio::test(start_paused = true)]
async fn a_claims_attributes_class_must_be_readable() {
    let lacking = without(parsed(OURS), "volumeattributesclasses", "get");
    for (roles, expected) in [
        (parsed(OURS), BTreeSet::new()),
        (lacking, BTreeSet::from(["get volumeattributesclasses".to_owned()])),
    ] {
        let simulation = cluster(36, &roles, "csi-provisioner");
        simulation
            .script(json!({"controller_capabilities": ["CREATE_DELETE_VOLUME", "MODIFY_VOLUME"]}));
        simulation.create_attributes_class("gold", world::DRIVER, &json!({"iops": "5000"}));
        simulation.create_claim_of("data", "gold");
        simulation.start();
        let told = if expected.is_empty() { "ProvisioningSucceeded" } else { "ProvisioningFailed" };
        comes(60, || simulation.has_event("data", told)).await.expect(told);
        assert_eq!(refused(&simulation), expected);
    }
}
