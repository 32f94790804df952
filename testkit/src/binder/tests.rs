//! The binder on an in-memory API server.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{Settings, run};
use crate::apiserver::{ApiServer, Options, User};

const CLAIM: &str = "PersistentVolumeClaim";
const VOLUME: &str = "PersistentVolume";

fn claim(change: &Value) -> Value {
    let mut claim = json!({
        "kind": CLAIM, "metadata": {"name": "a", "namespace": "default"},
        "spec": {
            "storageClassName": "c", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    json_patch::merge(&mut claim, change);
    claim
}

fn volume(claim: Option<&Value>, change: &Value) -> Value {
    let reference = claim.map(|claim| {
        json!({"kind": CLAIM, "namespace": "default", "name": "a", "uid": claim["metadata"]["uid"]})
    });
    let mut volume = json!({
        "kind": VOLUME, "metadata": {"name": "v"},
        "spec": {
            "storageClassName": "c", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d.example.com", "volumeHandle": "h"}, "claimRef": reference,
            "persistentVolumeReclaimPolicy": "Delete",
        },
    });
    json_patch::merge(&mut volume, change);
    volume
}

fn server() -> ApiServer {
    let server = ApiServer::new(Options::default());
    let class =
        json!({"kind": "StorageClass", "metadata": {"name": "c"}, "provisioner": "d.example.com"});
    server.create(&class).unwrap();
    server
}

/// Does something while the binder runs.
async fn bound(server: &ApiServer, settings: Settings, work: impl Future<Output = ()>) {
    let client = server.client(User::new("binder"));
    tokio::select! {
        () = run(client, settings) => {}
        () = work => {}
    }
}

async fn reaches(server: &ApiServer, kind: &str, phase: &str) {
    let (namespace, name) = if kind == CLAIM { ("default", "a") } else { ("", "v") };
    let reached = async {
        while server.get(kind, namespace, name).is_none_or(|it| it["status"]["phase"] != phase) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    let last = || server.get(kind, namespace, name);
    assert!(
        timeout(Duration::from_secs(600), reached).await.is_ok(),
        "{kind} {phase}: {:?}",
        last()
    );
}

/// What a user may do to a claim of his own: ask for a volume by its name, and hold a deleted claim.
#[tokio::test(start_paused = true)]
async fn a_held_claim_that_is_deleted_gets_the_free_volume_that_it_asks_for() {
    let server = server();
    server.create(&claim(&json!({"metadata": {"finalizers": ["example.com/held"]}}))).unwrap();
    server.delete(CLAIM, "default", "a").unwrap();
    bound(&server, Settings { protection: true, ..Settings::default() }, async {
        server.create(&volume(None, &json!({}))).unwrap();
        reaches(&server, VOLUME, "Available").await;
        server.merge(CLAIM, "default", "a", &json!({"spec": {"volumeName": "v"}})).unwrap();
        reaches(&server, CLAIM, "Bound").await;
        reaches(&server, VOLUME, "Bound").await;
        server.delete(VOLUME, "", "v").unwrap();
        sleep(Duration::from_secs(10)).await;
        assert!(server.get(VOLUME, "", "v").is_some(), "in use");
        server.merge(CLAIM, "default", "a", &json!({"metadata": {"finalizers": null}})).unwrap();
        while server.get(VOLUME, "", "v").is_some() {
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_does_not_suit_is_not_bound_and_a_claim_without_its_volume_is_lost() {
    for unfit in [
        json!({"spec": {"capacity": {"storage": "1Mi"}}}),
        json!({"spec": {"volumeMode": "Block"}}),
        json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
        json!({"spec": {"claimRef": {"uid": "another"}}}),
    ] {
        let server = server();
        let made = server.create(&claim(&json!({}))).unwrap();
        server.create(&volume(Some(&made), &unfit)).unwrap();
        bound(&server, Settings::default(), sleep(Duration::from_secs(10))).await;
        assert_ne!(
            server.get(CLAIM, "default", "a").unwrap()["status"]["phase"],
            "Bound",
            "{unfit}"
        );
    }
    let server = server();
    let done = json!({"annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
    server.create(&claim(&json!({"metadata": done, "spec": {"volumeName": "v"}}))).unwrap();
    bound(&server, Settings::default(), reaches(&server, CLAIM, "Lost")).await;
}
