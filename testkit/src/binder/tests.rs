//! The binder's decisions as a table, and the loop on an in-memory API server.

mod cost;

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Api,
    api::{DeleteParams, PostParams},
    runtime::watcher::Event,
};
use serde_json::{Value, json};

use cost::{one_of_many, volume_for};

use super::{
    work::{Desk, Look, Shown},
    *,
};
use crate::apiserver::{
    ApiServer, Options, User,
    faults::{Effect, Rule, StreamFault},
};

fn cluster(claims: Value, volumes: Value, classes: Value) -> Cluster {
    Cluster { claims: shared(claims), volumes: shared(volumes), classes: shared(classes) }
}

fn shared<K: serde::de::DeserializeOwned>(objects: Value) -> Vec<Arc<K>> {
    let objects: Vec<K> = serde_json::from_value(objects).unwrap();
    objects.into_iter().map(Arc::new).collect()
}

/// A claim `a` with UID `u`, changed by a merge of `change`.
fn claim(change: Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"},
        "spec": {"storageClassName": "c"},
        "status": {"phase": "Pending"},
    });
    merge(&mut claim, change);
    claim
}

/// A volume `v` for the claim `a`, changed by a merge of `change`.
fn volume(change: Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": "v", "resourceVersion": "8"},
        "spec": {
            "claimRef": {"namespace": "n", "name": "a", "uid": "u"},
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
        },
        "status": {"phase": "Pending"},
    });
    merge(&mut volume, change);
    volume
}

fn merge(target: &mut Value, change: Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (key, value) in change {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, change) => *target = change,
    }
}

fn class(provisioner: &str, mode: &str) -> Value {
    json!({"metadata": {"name": "c"}, "provisioner": provisioner, "volumeBindingMode": mode})
}

fn planned(claims: Value, volumes: Value) -> Vec<Action> {
    plan(&cluster(claims, volumes, json!([])), &Settings::default())
}

fn volume_change(patch: Value) -> Action {
    let patch = at_version(patch, Some("8".to_owned()));
    Action::Volume { name: "v".to_owned(), patch }
}

fn claim_change(status: bool, patch: Value) -> Action {
    let (namespace, name) = ("n".to_owned(), "a".to_owned());
    Action::Claim { namespace, name, status, patch: at_version(patch, Some("7".to_owned())) }
}

fn phase(phase: &str) -> Value {
    json!({"status": {"phase": phase}})
}

fn bound_status() -> Value {
    json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}})
}

fn lost() -> Action {
    claim_change(true, json!({"status": {"phase": "Lost", "accessModes": null, "capacity": null}}))
}

/// A claim that the controller has bound to the volume `v`, changed by a merge of `change`.
fn bound_claim(change: Value) -> Value {
    let mut claim = claim(json!({
        "metadata": {"annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}},
        "spec": {"volumeName": "v"},
        "status": {"phase": "Bound"},
    }));
    merge(&mut claim, change);
    claim
}

/// A claim that asks for the volume `v` by its name.
fn asking_claim(change: Value) -> Value {
    let mut claim = claim(json!({"spec": {"volumeName": "v"}}));
    merge(&mut claim, change);
    claim
}

/// A volume that is for no claim.
fn free_volume(change: Value) -> Value {
    let mut volume = volume(json!({"status": {"phase": "Available"}}));
    volume["spec"]["claimRef"] = Value::Null;
    merge(&mut volume, change);
    volume
}

fn terminating() -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
}

/// Volume first, claim second, as `bind` in the PV controller: each write of its own.
#[test]
fn a_claim_is_bound_in_three_steps() {
    let point = json!({
        "metadata": {"annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}},
        "spec": {"volumeName": "v"},
    });
    for (claims, volume_phase, expected) in [
        (claim(json!({})), "Pending", volume_change(phase("Bound"))),
        (claim(json!({})), "Bound", claim_change(false, point)),
        (bound_claim(phase("Pending")), "Bound", claim_change(true, bound_status())),
    ] {
        let volumes = json!([volume(phase(volume_phase))]);
        assert_eq!(planned(json!([claims]), volumes), [expected]);
    }
    assert_eq!(planned(json!([bound_claim(json!({}))]), json!([volume(phase("Bound"))])), []);
}

/// The PV controller never looks at a claim's deletionTimestamp.
#[test]
fn a_claim_that_is_being_deleted_is_bound_and_provisioned_for_like_any_other() {
    for volume_phase in ["Pending", "Bound"] {
        let volumes = json!([volume(phase(volume_phase))]);
        let live = planned(json!([claim(json!({}))]), volumes.clone());
        assert_eq!(planned(json!([claim(terminating())]), volumes), live);
    }
    let all = cluster(json!([claim(terminating())]), json!([]), json!([class("d", "Immediate")]));
    let annotations = json!({PROVISIONER: "d", BETA_PROVISIONER: "d"});
    let called = claim_change(false, json!({"metadata": {"annotations": annotations}}));
    assert_eq!(plan(&all, &Settings::default()), [called]);
}

#[test]
fn a_reference_with_another_uid_binds_nothing() {
    for reference in [json!({"uid": "other"}), json!({"name": "b"}), json!({"namespace": "m"})] {
        let volumes = json!([volume(json!({"spec": {"claimRef": reference}}))]);
        let actions = planned(json!([claim(json!({}))]), volumes);
        assert!(matches!(actions.as_slice(), [Action::Release { .. }]), "{actions:?}");
    }
}

/// What a volume whose `claimRef` names the claim must be for a claim that names no volume.
#[test]
fn a_volume_that_does_not_suit_its_claim_is_not_bound_and_keeps_its_phase() {
    for (claims, volumes) in [
        (json!({}), terminating()),
        (json!({"spec": {"resources": {"requests": {"storage": "1025Mi"}}}}), json!({})),
        (json!({"spec": {"volumeMode": "Block"}}), json!({})),
        (json!({"spec": {"accessModes": ["ReadWriteMany"]}}), json!({})),
    ] {
        let (claims, volumes) = (json!([claim(claims)]), json!([volume(volumes)]));
        assert_eq!(planned(claims.clone(), volumes.clone()), [], "{claims} {volumes}");
    }
    // Neither the class nor the size in other words is a matter.
    let suits = json!({"spec": {"storageClassName": "other", "resources": {"requests": {"storage": "1024Mi"}}}});
    let bound = volume_change(phase("Bound"));
    assert_eq!(planned(json!([claim(suits)]), json!([volume(json!({}))])), [bound]);
}

#[test]
fn a_volume_reserved_by_name_gets_the_uid_of_the_claim_that_is_bound_to_it() {
    let reserved = |change: Value| {
        let mut volume = volume(json!({"spec": {"claimRef": {"uid": null}}}));
        merge(&mut volume, change);
        json!([volume])
    };
    let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "n", "name": "a", "uid": "u"});
    let taken = volume_change(json!({"spec": {"claimRef": reference}}));
    for claims in [json!([claim(json!({}))]), json!([asking_claim(json!({}))])] {
        assert_eq!(planned(claims, reserved(json!({}))), std::slice::from_ref(&taken));
    }
    for claims in [json!([]), json!([asking_claim(json!({"spec": {"volumeName": "w"}}))])] {
        assert_eq!(planned(claims.clone(), reserved(phase("Available"))), [], "{claims}");
        let available = volume_change(phase("Available"));
        assert_eq!(planned(claims, reserved(json!({}))), [available]);
    }
    let small = json!([claim(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}))]);
    assert_eq!(planned(small, reserved(phase("Available"))), []);
}

#[test]
fn a_volume_for_no_claim_is_available() {
    let fresh = json!([free_volume(phase("Pending"))]);
    assert_eq!(planned(json!([]), fresh), [volume_change(phase("Available"))]);
    assert_eq!(planned(json!([]), json!([free_volume(json!({}))])), []);
}

/// `spec.volumeName` may be set by the claim's user.
#[test]
fn a_free_volume_that_a_claim_asks_for_is_bound_if_it_suits() {
    let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "n", "name": "a", "uid": "u"});
    let taken = volume_change(json!({
        "metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}},
        "spec": {"claimRef": reference},
    }));
    let classed = |class: &str| json!({"spec": {"storageClassName": class}});
    for (claims, volumes, binds) in [
        (json!({}), classed("c"), true),
        (terminating(), classed("c"), true),
        (json!({}), classed("other"), false),
        (json!({"spec": {"volumeAttributesClassName": "gold"}}), classed("c"), false),
        (json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}), classed("c"), false),
        (json!({"spec": {"volumeMode": "Block"}}), classed("c"), false),
        (json!({"spec": {"accessModes": ["ReadWriteMany"]}}), classed("c"), false),
    ] {
        let (claims, volumes) = (json!([asking_claim(claims)]), json!([free_volume(volumes)]));
        let expected = if binds { vec![taken.clone()] } else { Vec::new() };
        assert_eq!(planned(claims.clone(), volumes.clone()), expected, "{claims} {volumes}");
    }
    let going = json!([free_volume(json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"storageClassName": "c"},
    }))]);
    assert_eq!(planned(json!([asking_claim(json!({}))]), going), []);
}

/// Of one whose `claimRef` names the claim nothing else is checked.
#[test]
fn a_claim_is_bound_to_its_own_volume_that_it_asks_for_whatever_that_is_like() {
    for unsuited in [terminating(), json!({"spec": {"capacity": {"storage": "1Mi"}}})] {
        let with = |phase: Value| {
            let mut volume = volume(unsuited.clone());
            merge(&mut volume, phase);
            json!([volume])
        };
        let bound = volume_change(phase("Bound"));
        assert_eq!(planned(json!([asking_claim(json!({}))]), with(json!({}))), [bound]);
        let complete = json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}});
        let completed = claim_change(false, complete);
        assert_eq!(planned(json!([asking_claim(json!({}))]), with(phase("Bound"))), [completed]);
    }
}

#[test]
fn a_claim_that_asks_for_a_volume_of_another_waits() {
    let others = json!([volume(
        json!({"spec": {"claimRef": {"name": "b", "uid": "b"}}, "status": {"phase": "Released"}})
    )]);
    assert_eq!(planned(json!([asking_claim(json!({}))]), others.clone()), []);
    assert_eq!(planned(json!([bound_claim(json!({}))]), others), [lost()]);
    // Nor is anybody asked to make one, however its class is.
    let all =
        cluster(json!([asking_claim(json!({}))]), json!([]), json!([class("d", "Immediate")]));
    assert_eq!(plan(&all, &Settings::default()), []);
}

#[test]
fn volumes_of_gone_claims_are_released_once() {
    for (phase, releases) in [("Bound", 1), ("Pending", 1), ("Released", 0), ("Failed", 0)] {
        let volumes = json!([volume(json!({"status": {"phase": phase}}))]);
        assert_eq!(planned(json!([]), volumes).len(), releases, "{phase}");
    }
}

/// Only those that were made for the claim, and are to be deleted, are released.
#[test]
fn a_volume_whose_claim_is_bound_to_another_is_released_or_let_go() {
    let claims = json!([bound_claim(json!({"spec": {"volumeName": "other"}}))]);
    let other = json!({"metadata": {"name": "other"}, "spec": {"claimRef": {"uid": "u", "namespace": "n", "name": "a"}}, "status": {"phase": "Bound"}});
    let made = json!({"pv.kubernetes.io/provisioned-by": "d"});
    let bound = json!({BOUND_BY_CONTROLLER: "yes"});
    let let_go = || volume_change(json!({"spec": {"claimRef": {"uid": null}}}));
    let freed = json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}, "spec": {"claimRef": null}});
    for (annotations, policy, before, expected) in [
        (&made, "Delete", "Pending", Some(volume_change(phase("Released")))),
        (&made, "Delete", "Bound", Some(volume_change(phase("Released")))),
        (&made, "Delete", "Released", None),
        (&made, "Delete", "Failed", None),
        (&made, "Retain", "Pending", Some(let_go())),
        (&json!({}), "Delete", "Pending", Some(let_go())),
        (&bound, "Delete", "Bound", Some(volume_change(freed))),
    ] {
        let volume = volume(json!({
            "metadata": {"annotations": annotations},
            "spec": {"persistentVolumeReclaimPolicy": policy},
            "status": {"phase": before},
        }));
        let actions = planned(claims.clone(), json!([volume, other]));
        assert_eq!(actions, Vec::from_iter(expected), "{annotations} {policy} {before}");
    }
}

#[test]
fn a_claim_whose_binding_is_complete_is_lost_without_its_volume() {
    for (phase, losses) in [("Bound", 1), ("Pending", 1), ("Lost", 0)] {
        let claims = json!([bound_claim(json!({"status": {"phase": phase}}))]);
        assert_eq!(planned(claims, json!([])).len(), losses, "{phase}");
    }
    // The annotation may be its user's, too.
    let nameless = claim(json!({"metadata": {"annotations": {BIND_COMPLETED: "mine"}}}));
    assert_eq!(planned(json!([nameless]), json!([])), [lost()]);
}

#[test]
fn a_claim_that_asks_for_a_volume_that_is_not_there_waits() {
    assert_eq!(planned(json!([asking_claim(json!({}))]), json!([])), []);
    let once_bound = asking_claim(bound_status());
    let waits = json!({"status": {"phase": "Pending", "accessModes": null, "capacity": null}});
    assert_eq!(planned(json!([once_bound]), json!([])), [claim_change(true, waits)]);
}

/// The annotations that the claim gets from its class, where it gets some.
fn called(change: Value, class: &Value, node: Option<&str>) -> Option<Value> {
    let settings = Settings { node: node.map(str::to_owned), ..Settings::default() };
    let all = cluster(json!([claim(change)]), json!([]), json!([class]));
    let actions = plan(&all, &settings);
    assert!(actions.len() < 2, "{actions:?}");
    actions.into_iter().next().map(|action| match action {
        Action::Claim { patch, .. } => patch["metadata"]["annotations"].clone(),
        other => panic!("{other:?}"),
    })
}

fn annotated(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

#[test]
fn claims_of_dynamic_classes_call_their_provisioner_late_ones_with_a_node() {
    let both = json!({PROVISIONER: "d", BETA_PROVISIONER: "d"});
    let with_node = json!({PROVISIONER: "d", BETA_PROVISIONER: "d", SELECTED_NODE: "x"});
    let node = annotated(&json!({SELECTED_NODE: "y"}));
    let late = || class("d", "WaitForFirstConsumer");
    for (class, change, given, expected) in [
        (class("d", "Immediate"), json!({}), None, Some(both.clone())),
        (class("kubernetes.io/no-provisioner", "Immediate"), json!({}), None, None),
        (class("kubernetes.io/host-path", "Immediate"), json!({}), None, None),
        (late(), json!({}), None, None),
        (late(), json!({}), Some("x"), Some(with_node)),
        (late(), node, Some("x"), Some(both)),
    ] {
        assert_eq!(called(change, &class, given), expected);
    }
    assert_eq!(planned(json!([claim(json!({}))]), json!([])), []);
}

/// Whatever its user has written there.
#[test]
fn the_provisioner_of_a_claim_is_that_of_its_class() {
    let own = || class("d", "Immediate");
    let both = json!({PROVISIONER: "d", BETA_PROVISIONER: "d"});
    let other = annotated(&json!({PROVISIONER: "other", BETA_PROVISIONER: "d"}));
    assert_eq!(called(other, &own(), None), Some(both.clone()));
    // The older annotation alone is not looked at.
    let older = annotated(&json!({PROVISIONER: "d", BETA_PROVISIONER: "other"}));
    assert_eq!(called(older, &own(), None), None);
    // The class that an annotation names wins over the field.
    let by_annotation = annotated(&json!({"volume.beta.kubernetes.io/storage-class": "c"}));
    let mut change = by_annotation;
    merge(&mut change, json!({"spec": {"storageClassName": "none"}}));
    assert_eq!(called(change, &own(), None), Some(both));
}

#[test]
fn a_class_of_an_in_tree_plugin_calls_the_driver_that_took_it_over() {
    let in_tree = || class("kubernetes.io/aws-ebs", "Immediate");
    let driver = "ebs.csi.aws.com";
    let both = json!({PROVISIONER: driver, BETA_PROVISIONER: driver});
    assert_eq!(called(json!({}), &in_tree(), None), Some(both.clone()));
    // An annotation of before says who took it over, until the driver itself is named.
    let before = json!({PROVISIONER: "kubernetes.io/aws-ebs"});
    let moved = json!({MIGRATED_TO: driver});
    assert_eq!(called(annotated(&before), &in_tree(), None), Some(moved.clone()));
    let mut marked = before;
    merge(&mut marked, moved);
    let mut named = both;
    merge(&mut named, json!({MIGRATED_TO: null}));
    assert_eq!(called(annotated(&marked), &in_tree(), None), Some(named));
    // Nobody else's claim or volume carries it.
    let forged = json!({PROVISIONER: "d", MIGRATED_TO: driver});
    let none = json!({MIGRATED_TO: null});
    assert_eq!(called(annotated(&forged), &class("d", "Immediate"), None), Some(none.clone()));
    let forged = json!({"pv.kubernetes.io/provisioned-by": "d", MIGRATED_TO: driver});
    let actions = planned(json!([]), json!([free_volume(annotated(&forged))]));
    assert_eq!(actions, [volume_change(annotated(&none))]);
}

/// Finalizers as the two protection controllers keep them, where no Pod uses anything.
#[test]
fn claims_and_volumes_are_protected_while_they_are_in_use_where_that_is_asked_for() {
    let settings = Settings { protection: true, ..Settings::default() };
    let finalizers = |names: &[&str]| json!({"metadata": {"finalizers": names}});
    let going = |names: &[&str]| {
        let mut change = finalizers(names);
        merge(&mut change, terminating());
        change
    };
    let protected = |claims: Value, volumes: Value| {
        let all = cluster(claims, volumes, json!([]));
        assert_eq!(plan(&all, &Settings::default()), []);
        plan(&all, &settings)
    };
    for (change, expected) in [
        (json!({}), Some(&["kubernetes.io/pvc-protection"][..])),
        (finalizers(&["x"]), Some(&["x", "kubernetes.io/pvc-protection"])),
        (finalizers(&["kubernetes.io/pvc-protection"]), None),
        (going(&["x"]), None),
        (going(&["x", "kubernetes.io/pvc-protection"]), Some(&["x"])),
    ] {
        let expected = expected.map(|names| claim_change(false, finalizers(names)));
        let actions = protected(json!([claim(change.clone())]), json!([]));
        assert_eq!(actions, Vec::from_iter(expected), "{change}");
    }
    for (change, phase, expected) in [
        (json!({}), "Available", Some(&["kubernetes.io/pv-protection"][..])),
        (going(&["kubernetes.io/pv-protection"]), "Available", Some(&[])),
        (going(&["x"]), "Available", None),
    ] {
        let mut volume = free_volume(change.clone());
        merge(&mut volume, json!({"status": {"phase": phase}}));
        let expected = expected.map(|names| volume_change(finalizers(names)));
        let actions = protected(json!([]), json!([volume]));
        assert_eq!(actions, Vec::from_iter(expected), "{change} {phase}");
    }
    let mut used = volume(going(&["kubernetes.io/pv-protection"]));
    merge(&mut used, phase("Bound"));
    let claims = bound_claim(finalizers(&["kubernetes.io/pvc-protection"]));
    assert_eq!(protected(json!([claims]), json!([used])), []);
}

/// Waits until an object's phase is this one.
async fn reaches<K>(api: &Api<K>, name: &str, wanted: &str)
where
    K: serde::de::DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    for _ in 0..200 {
        let object = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
        if object["status"]["phase"] == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{name} did not become {wanted}: {:?}", api.get(name).await);
}

#[tokio::test(start_paused = true)]
async fn on_an_api_server_a_claim_is_provisioned_for_bound_and_its_volume_released() {
    let server = ApiServer::new(Options::default());
    let client = server.client(User::new("binder"));
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), "default");
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let made = async {
        let params = PostParams::default();
        let class: StorageClass = serde_json::from_value(class("d", "Immediate")).unwrap();
        Api::<StorageClass>::all(client.clone()).create(&params, &class).await.unwrap();
        let claim = json!({
            "metadata": {"name": "a"},
            "spec": {
                "storageClassName": "c",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        let claim = serde_json::from_value(claim).unwrap();
        let claim = claims.create(&params, &claim).await.unwrap();
        while claims.get("a").await.unwrap().annotations().get(PROVISIONER).is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let volume = json!({
            "metadata": {"name": "v"},
            "spec": {
                "claimRef": {"namespace": "default", "name": "a", "uid": claim.metadata.uid},
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "csi": {"driver": "d", "volumeHandle": "h"},
                "storageClassName": "c",
            },
        });
        let volume = serde_json::from_value(volume).unwrap();
        volumes.create(&params, &volume).await.unwrap();
        reaches(&claims, "a", "Bound").await;
        reaches(&volumes, "v", "Bound").await;
        claims.delete("a", &DeleteParams::default()).await.unwrap();
        reaches(&volumes, "v", "Released").await;
    };
    tokio::select! {
        () = run(client.clone(), Settings::default()) => {}
        () = made => {}
    }
}

/// What a user may do to a claim of his own: ask for a volume by its name, and hold a deleted claim.
#[tokio::test(start_paused = true)]
async fn on_an_api_server_a_held_claim_that_is_deleted_gets_the_free_volume_that_it_asks_for() {
    let server = ApiServer::new(Options::default());
    let client = server.client(User::new("binder"));
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), "default");
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let settings = Settings { protection: true, ..Settings::default() };
    let mut claim = one_of_many(0);
    merge(&mut claim, json!({"metadata": {"finalizers": ["example.com/held"]}}));
    server.create(&claim).unwrap();
    server.delete("PersistentVolumeClaim", "default", "a-0").unwrap();
    let made = async {
        let mut volume = volume_for(&claim);
        volume["spec"]["claimRef"] = Value::Null;
        server.create(&volume).unwrap();
        reaches(&volumes, "v-a-0", "Available").await;
        let asks = json!({"spec": {"volumeName": "v-a-0"}});
        server.merge("PersistentVolumeClaim", "default", "a-0", &asks).unwrap();
        reaches(&claims, "a-0", "Bound").await;
        reaches(&volumes, "v-a-0", "Bound").await;
        server.delete("PersistentVolume", "", "v-a-0").unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(server.get("PersistentVolume", "", "v-a-0").is_some(), "in use");
        let let_go = json!({"metadata": {"finalizers": null}});
        server.merge("PersistentVolumeClaim", "default", "a-0", &let_go).unwrap();
        while server.get("PersistentVolume", "", "v-a-0").is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = run(client.clone(), settings) => {}
        () = made => {}
    }
}
