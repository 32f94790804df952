//! The binder's decisions as a table, and the loop on an in-memory API server.

use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::*;
use crate::apiserver::{ApiServer, Options, User};

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

#[test]
fn a_pending_claim_is_pointed_at_the_volume_that_names_it_then_both_are_bound() {
    let actions = planned(json!([claim(json!({}))]), json!([volume(json!({}))]));
    let patch = json!({"status": {"phase": "Bound"}, "metadata": {"resourceVersion": "8"}});
    let bound = Action::Volume { name: "v".to_owned(), patch };
    let pointed = Action::Claim {
        namespace: "n".to_owned(),
        name: "a".to_owned(),
        status: false,
        patch: json!({
            "metadata": {
                "annotations": {
                    "pv.kubernetes.io/bind-completed": "yes",
                    "pv.kubernetes.io/bound-by-controller": "yes",
                },
                "resourceVersion": "7",
            },
            "spec": {"volumeName": "v"},
        }),
    };
    assert_eq!(actions, [bound, pointed]);

    let claims = json!([claim(json!({"spec": {"volumeName": "v"}}))]);
    let actions = planned(claims, json!([volume(json!({"status": {"phase": "Bound"}}))]));
    let status =
        json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
    assert_eq!(
        actions,
        [Action::Claim {
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            status: true,
            patch: json!({"status": status, "metadata": {"resourceVersion": "7"}}),
        }]
    );
}

#[test]
fn only_a_reference_with_the_claims_own_uid_binds() {
    for reference in [json!({"uid": "other"}), json!({"name": "b"}), json!({"namespace": "m"})] {
        let volumes = json!([volume(json!({"spec": {"claimRef": reference}}))]);
        let actions = planned(json!([claim(json!({}))]), volumes);
        assert!(matches!(actions.as_slice(), [Action::Release { .. }]), "{actions:?}");
    }
    let unbound = volume(json!({"spec": {"claimRef": {"uid": null}}}));
    assert_eq!(planned(json!([claim(json!({}))]), json!([unbound])), []);
}

#[test]
fn nothing_is_left_to_do_where_both_are_bound() {
    let claims = json!([claim(json!({"spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}))]);
    assert_eq!(planned(claims, json!([volume(json!({"status": {"phase": "Bound"}}))])), []);
}

#[test]
fn volumes_of_gone_claims_are_released_once() {
    for (phase, releases) in [("Bound", 1), ("Pending", 1), ("Released", 0), ("Failed", 0)] {
        let volumes = json!([volume(json!({"status": {"phase": phase}}))]);
        assert_eq!(planned(json!([]), volumes).len(), releases, "{phase}");
    }
}

#[test]
fn only_bound_claims_are_lost() {
    for (phase, losses) in [("Bound", 1), ("Pending", 0), ("Lost", 0)] {
        let change = json!({"spec": {"volumeName": "v"}, "status": {"phase": phase}});
        let actions = planned(json!([claim(change)]), json!([]));
        assert_eq!(actions.len(), losses, "{phase}");
    }
}

/// The volume goes between the two writes that bind its claim.
#[test]
fn claims_are_lost_as_soon_as_their_binding_is_complete() {
    for (phase, losses) in [("Bound", 1), ("Pending", 1), ("Lost", 0)] {
        let change = json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}},
                            "spec": {"volumeName": "v"}, "status": {"phase": phase}});
        assert_eq!(planned(json!([claim(change)]), json!([])).len(), losses, "{phase}");
    }
}

#[test]
fn a_claim_being_deleted_is_not_bound_any_more() {
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let volumes = json!([volume(json!({"status": {"phase": "Bound"}}))]);
    assert_eq!(planned(json!([claim(going)]), volumes), []);
}

#[test]
fn claims_of_dynamic_classes_call_their_provisioner_late_ones_with_a_node() {
    let node = |node: &str| json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
    for (class, change, given, expected) in [
        (class("d", "Immediate"), json!({}), None, Some((2, false))),
        (class(NO_PROVISIONER, "Immediate"), json!({}), None, None),
        (class("d", "WaitForFirstConsumer"), json!({}), None, None),
        (class("d", "WaitForFirstConsumer"), json!({}), Some("x"), Some((3, true))),
        (class("d", "WaitForFirstConsumer"), node("y"), Some("x"), Some((2, false))),
        (
            class("d", "Immediate"),
            json!({"metadata": {"annotations": {PROVISIONER: "d", BETA_PROVISIONER: "d"}}}),
            None,
            None,
        ),
    ] {
        let settings = Settings { node: given.map(str::to_owned), ..Settings::default() };
        let all = cluster(json!([claim(change)]), json!([]), json!([class]));
        let annotations: Vec<_> = plan(&all, &settings)
            .into_iter()
            .map(|action| match action {
                Action::Claim { patch, .. } => {
                    let given = patch["metadata"]["annotations"].as_object().unwrap().clone();
                    (given.len(), given.contains_key(SELECTED_NODE))
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(annotations, Vec::from_iter(expected));
    }
    let unknown = cluster(json!([claim(json!({}))]), json!([]), json!([]));
    assert_eq!(plan(&unknown, &Settings::default()), []);
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
