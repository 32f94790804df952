//! Users and administrators: they make claims, change their minds, and meddle.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    cluster::CLAIM_IN_USE,
    core::{Core, DRIVER, NAMESPACE},
    dice::Dice,
    ledger::text,
};

const CLASSES: [&str; 3] = ["plain", "kept", "secret"];
const CLAIMS: [&str; 4] = ["one", "two", "three", "four"];

/// The volume of PersistentVolumes that take our names.
const OUR_NAME_BY_HAND: &str = "by-hand";

/// Everything that makes claims possible, as it is at the start and again at the end.
pub(crate) fn provide(core: &Core) {
    for name in CLASSES {
        if core.api.get("StorageClass", "", name).is_none() {
            core.api.create(&class(name, false, "a")).unwrap();
        }
    }
    if core.api.get("Secret", NAMESPACE, "key").is_none() {
        core.api.create(&secret()).unwrap();
    }
}

/// What was added by hand under our names and serves nobody goes.
pub(crate) fn clear_names(core: &Core) {
    for volume in core.api.list("PersistentVolume", "") {
        let handle = text(&volume, "/spec/csi/volumeHandle");
        if handle == OUR_NAME_BY_HAND && text(&volume, "/status/phase") != "Bound" {
            core.api.delete("PersistentVolume", "", text(&volume, "/metadata/name")).unwrap();
        }
    }
}

/// Does what the events ask people for: a class that an open call needs comes back.
pub(crate) fn mend(core: &Core) {
    for event in core.api.list("Event", NAMESPACE) {
        let asked = text(&event, "/message").contains("restore the class");
        let name = text(&event, "/involvedObject/name");
        let Some(claim) = core.api.get("PersistentVolumeClaim", NAMESPACE, name) else { continue };
        let current = claim["metadata"]["uid"] == event["involvedObject"]["uid"];
        if !asked || !current || !text(&claim, "/spec/volumeName").is_empty() {
            continue;
        }
        let name = text(&claim, "/spec/storageClassName");
        let now = core.api.get("StorageClass", "", name).unwrap();
        let other = if text(&now, "/parameters/cluster") == "a" { "b" } else { "a" };
        core.api.delete("StorageClass", "", name).unwrap();
        core.api.create(&class(name, false, other)).unwrap();
        core.ledger.tell(&format!("user: restores the class {name}, cluster {other}"));
        return;
    }
}

/// Does so many things, then lets it be.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "users");
    for _ in 0..core.plan.acts {
        sleep(dice.stretch(20..core.plan.pause)).await;
        core.observe();
        act(&core, &dice);
        core.observe();
    }
}

fn act(core: &Core, dice: &Dice) {
    let meddling = if core.plan.meddling { 16 } else { 11 };
    match dice.within(0..meddling) {
        0..5 => create_claim(core, dice),
        5..8 => delete_claim(core, dice),
        8 => replace_class(core, dice),
        9 => toggle_secret(core),
        10 => flip_policy(core, dice),
        11 => strip_finalizers(core, dice),
        12 => delete_volume(core, dice),
        13 => add_volume_of_our_name(core, dice),
        14 => add_volume(core, dice),
        _ => name_volume(core, dice),
    }
}

fn create_claim(core: &Core, dice: &Dice) {
    let (name, class) = (dice.pick(&CLAIMS), dice.pick(&CLASSES));
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE, "finalizers": [CLAIM_IN_USE]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                 "resources": {"requests": {"storage": "1Gi"}}},
    });
    if let Ok(made) = core.api.create(&claim) {
        core.ledger
            .tell(&format!("user: creates {name} of {class}, {}", text(&made, "/metadata/uid")));
    }
}

fn delete_claim(core: &Core, dice: &Dice) {
    let claims = core.api.list("PersistentVolumeClaim", NAMESPACE);
    let waiting: Vec<_> =
        claims.iter().filter(|it| text(it, "/spec/volumeName").is_empty()).collect();
    // Those in the making are the ones that matter most.
    let name = if waiting.is_empty() || dice.percent(30) {
        *dice.pick(&CLAIMS)
    } else {
        text(dice.pick::<&Value>(&waiting), "/metadata/name")
    };
    if core.api.delete("PersistentVolumeClaim", NAMESPACE, name).is_ok() {
        core.ledger.tell(&format!("user: deletes the claim {name}"));
    }
}

/// The class of this name says something else from now on, or is gone.
fn replace_class(core: &Core, dice: &Dice) {
    let name = dice.pick(&CLASSES);
    let gone = core.api.delete("StorageClass", "", name).is_ok();
    if gone && dice.percent(30) {
        core.ledger.tell(&format!("user: deletes the class {name}"));
        return;
    }
    let (turned, cluster) = (dice.percent(40), dice.pick(&["a", "b"]));
    core.api.create(&class(name, turned, cluster)).unwrap();
    core.ledger
        .tell(&format!("user: replaces the class {name}, turned {turned}, cluster {cluster}"));
}

/// A class; `turned`: with the other reclaim policy.
fn class(name: &str, turned: bool, cluster: &str) -> Value {
    let policy = if (name == "kept") == turned { "Delete" } else { "Retain" };
    let mut class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": DRIVER, "reclaimPolicy": policy, "parameters": {"cluster": cluster},
    });
    if name == "secret" {
        class["parameters"] = json!({
            "cluster": cluster, "secret": "right",
            "csi.storage.k8s.io/provisioner-secret-name": "key",
            "csi.storage.k8s.io/provisioner-secret-namespace": NAMESPACE,
        });
    }
    class
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": NAMESPACE},
           "data": {"key": "cmlnaHQ="}})
}

fn toggle_secret(core: &Core) {
    if core.api.delete("Secret", NAMESPACE, "key").is_ok() {
        core.ledger.tell("user: deletes the secret");
    } else {
        core.api.create(&secret()).unwrap();
        core.ledger.tell("user: creates the secret");
    }
}

/// One of the PersistentVolumes.
fn some_volume(core: &Core, dice: &Dice) -> Option<Value> {
    let volumes = core.api.list("PersistentVolume", "");
    (!volumes.is_empty()).then(|| dice.pick(&volumes).clone())
}

fn flip_policy(core: &Core, dice: &Dice) {
    let Some(volume) = some_volume(core, dice) else { return };
    let name = text(&volume, "/metadata/name");
    let policy = match text(&volume, "/spec/persistentVolumeReclaimPolicy") {
        "Delete" => "Retain",
        _ => "Delete",
    };
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    if core.api.merge("PersistentVolume", "", name, &patch).is_ok() {
        core.ledger.tell(&format!("admin: {name} is {policy} from now on"));
    }
}

fn strip_finalizers(core: &Core, dice: &Dice) {
    let Some(volume) = some_volume(core, dice) else { return };
    let name = text(&volume, "/metadata/name");
    let patch = json!({"metadata": {"finalizers": null}});
    if core.api.merge("PersistentVolume", "", name, &patch).is_ok() {
        core.ledger.tell(&format!("admin: strips {name} of its finalizers"));
        core.ledger.stripped(text(&volume, "/metadata/uid"));
    }
}

fn delete_volume(core: &Core, dice: &Dice) {
    let Some(volume) = some_volume(core, dice) else { return };
    let name = text(&volume, "/metadata/name");
    if core.api.delete("PersistentVolume", "", name).is_ok() {
        core.ledger.tell(&format!("admin: deletes {name}"));
        if core.api.get("PersistentVolume", "", name).is_none() {
            core.ledger.stripped(text(&volume, "/metadata/uid"));
        }
    }
}

/// A PersistentVolume made by hand, of nobody's volume.
fn by_hand(name: &str, handle: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "by-hand",
            "csi": {"driver": DRIVER, "volumeHandle": handle},
        },
    })
}

/// A PersistentVolume under the name that a waiting claim's will get.
fn add_volume_of_our_name(core: &Core, dice: &Dice) {
    let claims = core.api.list("PersistentVolumeClaim", NAMESPACE);
    if claims.is_empty() {
        return;
    }
    let name = format!("pvc-{}", text(dice.pick(&claims), "/metadata/uid"));
    if core.api.create(&by_hand(&name, OUR_NAME_BY_HAND)).is_ok() {
        core.ledger.tell(&format!("admin: adds {name} by hand"));
    }
}

fn add_volume(core: &Core, dice: &Dice) {
    let name = format!("static-{}", dice.within(0..3));
    if core.api.create(&by_hand(&name, &format!("by-hand-{name}"))).is_ok() {
        core.ledger.tell(&format!("admin: adds {name} by hand"));
    }
}

/// A claim's user names a volume for it.
fn name_volume(core: &Core, dice: &Dice) {
    let Some(volume) = some_volume(core, dice) else { return };
    let (name, volume) = (dice.pick(&CLAIMS), text(&volume, "/metadata/name"));
    let patch = json!({"spec": {"volumeName": volume}});
    if core.api.merge("PersistentVolumeClaim", NAMESPACE, name, &patch).is_ok() {
        core.ledger.tell(&format!("user: names {volume} in {name}"));
    }
}
