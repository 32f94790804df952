//! The binder's decisions as a table, and the loop on an in-memory API server.

use std::time::Duration;

use kube::{
    Api,
    api::{DeleteParams, PostParams},
    runtime::watcher::Event,
};
use serde_json::{Value, json};

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

// === What it costs ===

/// How many claims come at once.
const BURST: usize = 300;

/// A waiting claim of a burst.
fn one_of_many(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("a-{number}"), "namespace": "default"},
        "spec": {
            "storageClassName": "c", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

/// The volume that a provisioner makes for it.
fn volume_for(claim: &Value) -> Value {
    let metadata = &claim["metadata"];
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("v-{}", metadata["name"].as_str().unwrap())},
        "spec": {
            "claimRef": {"namespace": "default", "name": metadata["name"], "uid": metadata["uid"]},
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d", "volumeHandle": metadata["name"]}, "storageClassName": "c",
        },
    })
}

/// Waits until all objects of a kind are of this phase.
async fn all_reach(server: &ApiServer, kind: &str, wanted: &str) {
    for _ in 0..600 {
        if server.list(kind, "").iter().all(|object| object["status"]["phase"] == wanted) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not all of {kind} became {wanted}");
}

/// On a server whose watches are behind: each event is under way for longer than the one before.
#[tokio::test(start_paused = true)]
async fn a_claim_of_a_burst_costs_as_many_requests_as_one_alone() {
    let server = ApiServer::new(Options::default());
    let drag = StreamFault::Drag { after: 0, by: Duration::from_millis(1) };
    for resource in ["persistentvolumeclaims", "persistentvolumes"] {
        server.faults().add(Rule::on("watch", resource, Effect::Stream(drag)));
    }
    let mut class = class("d", "Immediate");
    merge(&mut class, json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}));
    server.create(&class).unwrap();
    let burst = async {
        let claims: Vec<_> =
            (0..BURST).map(|number| server.create(&one_of_many(number)).unwrap()).collect();
        tokio::time::sleep(Duration::from_secs(10)).await;
        for claim in &claims {
            server.create(&volume_for(claim)).unwrap();
        }
        all_reach(&server, "PersistentVolumeClaim", "Bound").await;
        all_reach(&server, "PersistentVolume", "Bound").await;
        for number in 0..BURST {
            server.delete("PersistentVolumeClaim", "default", &format!("a-{number}")).unwrap();
        }
        all_reach(&server, "PersistentVolume", "Released").await;
    };
    tokio::select! {
        () = run(server.client(User::new("binder")), Settings::default()) => {}
        () = burst => {}
    }
    let mut requests = BTreeMap::new();
    for request in server.requests().all().iter().filter(|request| request.info.verb != "watch") {
        *requests.entry(request.what()).or_insert(0) += 1;
    }
    // The provisioner's annotations, the volume's name, and its phase; a live look before the release.
    let expected = [
        ("get persistentvolumeclaims", BURST),
        ("list persistentvolumeclaims", 1),
        ("list persistentvolumes", 1),
        ("list storageclasses", 1),
        ("patch persistentvolumeclaims", 2 * BURST),
        ("patch persistentvolumeclaims/status", BURST),
        ("patch persistentvolumes/status", 2 * BURST),
    ];
    assert_eq!(requests, expected.map(|(what, count)| (what.to_owned(), count)).into());
}

/// Objects as a server would have them, which shows each change to the desk at once.
struct Shows {
    desk: Desk,
    claims: BTreeMap<String, Value>,
    volumes: BTreeMap<String, Value>,
    version: u64,
    looks: usize,
}

impl Shows {
    fn claim(&mut self, name: &str, change: Value) {
        let claim = changed(&mut self.claims, &mut self.version, name, change);
        self.desk.shown(Shown::Claim(Box::new(Event::Apply(claim))));
    }

    fn volume(&mut self, name: &str, change: Value) {
        let volume = changed(&mut self.volumes, &mut self.version, name, change);
        self.desk.shown(Shown::Volume(Box::new(Event::Apply(volume))));
    }

    /// Does all there is to do.
    fn settle(&mut self) {
        while let Some(Look { item, action }) = self.desk.look() {
            self.looks += 1;
            match action {
                None => continue,
                Some(Action::Claim { name, patch, .. }) => self.claim(&name, patch),
                Some(Action::Volume { name, patch }) => self.volume(&name, patch),
                Some(other) => panic!("{other:?}"),
            }
            self.desk.done(item, Some(self.version));
        }
    }
}

fn changed<K: serde::de::DeserializeOwned>(
    objects: &mut BTreeMap<String, Value>,
    version: &mut u64,
    name: &str,
    change: Value,
) -> K {
    *version += 1;
    let object = objects.entry(name.to_owned()).or_insert_with(|| json!({}));
    merge(object, change);
    merge(object, json!({"metadata": {"resourceVersion": version.to_string()}}));
    serde_json::from_value(object.clone()).unwrap()
}

/// How often an object was looked at until so many claims, that came at once, were all bound.
fn looks(claims: usize) -> usize {
    let (desk, version, looks) = (Desk::new(Settings::default()), 0, 0);
    let (none, class) = (BTreeMap::new(), class("d", "Immediate"));
    let mut shows = Shows { desk, claims: none.clone(), volumes: none, version, looks };
    let class = serde_json::from_value(class).unwrap();
    shows.desk.shown(Shown::Class(Box::new(Event::Apply(class))));
    for number in 0..claims {
        let mut claim = one_of_many(number);
        merge(&mut claim, json!({"metadata": {"uid": format!("u-{number}")}}));
        shows.claim(&format!("a-{number}"), claim);
    }
    shows.settle();
    for claim in shows.claims.clone().into_values() {
        let volume = volume_for(&claim);
        let name = volume["metadata"]["name"].as_str().unwrap().to_owned();
        shows.volume(&name, volume);
    }
    shows.settle();
    assert!(shows.claims.values().all(|claim| claim["status"]["phase"] == "Bound"));
    shows.looks
}

#[test]
fn a_claim_of_a_burst_is_looked_at_as_often_as_one_alone() {
    assert_eq!(looks(1), 7);
    assert_eq!(looks(200), 200 * looks(1));
}
