//! Users: they create, change and delete claims, classes and secrets.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    admins, adversary,
    cluster::{CLAIM_IN_USE, SELECTED_NODE},
    copiers,
    core::{Core, DRIVER, NAMESPACE},
    dice::Dice,
    ledger::{is_recorded, text},
    nodes::{self, ZONE},
};

pub(crate) const CLASSES: [&str; 3] = ["plain", "kept", "secret"];

/// A class of another driver's, and that driver.
pub(crate) const FOREIGN: &str = "foreign";
pub(crate) const FOREIGN_DRIVER: &str = "other.example.com";

pub(crate) const CLAIMS: [&str; 4] = ["one", "two", "three", "four"];

/// Everything that makes claims possible, as it is at the start and again at the end.
pub(crate) fn provide(core: &Core) {
    for name in CLASSES {
        if core.api.get("StorageClass", "", name).is_none() {
            core.api.create(&class(core, name, false, "a")).unwrap();
        }
    }
    if core.plan.adversary && core.api.get("StorageClass", "", FOREIGN).is_none() {
        let mut foreign = class(core, "secret", false, "a");
        foreign["metadata"]["name"] = json!(FOREIGN);
        foreign["provisioner"] = json!(FOREIGN_DRIVER);
        foreign["parameters"]["of"] = json!(FOREIGN);
        core.api.create(&foreign).unwrap();
    }
    // In a namespace that is going there can't be one.
    if core.api.get("Secret", NAMESPACE, "key").is_none() {
        let _ = core.api.create(&secret());
    }
}

/// Does what the events ask people for: a class that an open call needs comes back.
pub(crate) fn mend(core: &Core) {
    adversary::clear_marks(core);
    provide(core);
    copiers::mend(core);
    for event in core.api.list("Event", "") {
        let asked = text(&event, "/message").contains("restore the class");
        let object = |field: &str| text(&event["involvedObject"], field).to_owned();
        let (namespace, name) = (object("/namespace"), object("/name"));
        let claim = core.api.get("PersistentVolumeClaim", &namespace, &name);
        let Some(claim) = claim else { continue };
        let current = claim["metadata"]["uid"] == event["involvedObject"]["uid"];
        // What somebody has made up nobody can restore.
        let tampered = core.ledger.is_tampered(text(&claim, "/metadata/uid"));
        if !asked || !current || !is_recorded(&claim) || tampered {
            continue;
        }
        let name = text(&claim, "/spec/storageClassName");
        let now = core.api.get("StorageClass", "", name).unwrap();
        let other = if text(&now, "/parameters/cluster") == "a" { "b" } else { "a" };
        core.api.delete("StorageClass", "", name).unwrap();
        core.api.create(&class(core, name, false, other)).unwrap();
        core.ledger.log(&format!("user: restores the class {name}, cluster {other}"));
        return;
    }
}

/// Does so many things, then lets it be.
pub(crate) async fn run(core: &Core) {
    let dice = Dice::new(core.seed, "users");
    for _ in 0..core.plan.acts {
        sleep(dice.stretch(20..core.plan.pause)).await;
        core.observe();
        act(core, &dice);
        core.observe();
    }
}

fn act(core: &Core, dice: &Dice) {
    if core.plan.meddling && dice.percent(35) {
        return admins::meddle(core, dice);
    }
    if core.plan.restless && dice.percent(30) {
        return replace_class(core, dice);
    }
    if core.plan.local && dice.percent(10) {
        return move_claim(core, dice);
    }
    match dice.within(0..11) {
        0..5 => create_claim(core, dice),
        5..8 => delete_claim(core, dice),
        8 => replace_class(core, dice),
        9 if core.plan.evicts && dice.percent(50) => delete_namespace(core),
        9 => toggle_secret(core),
        _ => admins::flip_policy(core, dice),
    }
}

fn create_claim(core: &Core, dice: &Dice) {
    let (name, class) = (dice.pick(&CLAIMS), dice.pick(&CLASSES));
    if let Ok(made) = core.api.create(&claim(name, class)) {
        core.ledger
            .log(&format!("user: creates {name} of {class}, {}", text(&made, "/metadata/uid")));
    }
}

pub(crate) fn claim(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE, "finalizers": [CLAIM_IN_USE]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                 "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn delete_claim(core: &Core, dice: &Dice) {
    let claims = core.api.list("PersistentVolumeClaim", NAMESPACE);
    let waiting: Vec<_> =
        claims.iter().filter(|it| text(it, "/spec/volumeName").is_empty()).collect();
    // Those in the making are the ones that matter most.
    let name = if waiting.is_empty() || dice.percent(50) {
        *dice.pick(&CLAIMS)
    } else {
        text(dice.pick::<&Value>(&waiting), "/metadata/name")
    };
    if core.api.delete("PersistentVolumeClaim", NAMESPACE, name).is_ok() {
        core.ledger.log(&format!("user: deletes the claim {name}"));
    }
}

/// Another node is chosen for a claim that waits.
fn move_claim(core: &Core, dice: &Dice) {
    let mut claims = core.api.list("PersistentVolumeClaim", NAMESPACE);
    claims.retain(|claim| {
        let chosen = claim["metadata"]["annotations"][SELECTED_NODE].is_string();
        chosen && text(claim, "/spec/volumeName").is_empty()
    });
    if claims.is_empty() {
        return;
    }
    let claim = dice.pick(&claims);
    let node = dice.pick(zones(core, text(claim, "/spec/storageClassName")));
    let (name, patch) = (
        text(claim, "/metadata/name"),
        json!({"metadata": {"annotations": {SELECTED_NODE: node}}}),
    );
    if core.api.merge("PersistentVolumeClaim", NAMESPACE, name, &patch).is_ok() {
        core.ledger.log(&format!("user: moves the claim {name} to {node}"));
    }
}

/// The class of this name says something else from now on, or is gone.
fn replace_class(core: &Core, dice: &Dice) {
    let name: &str = dice.pick::<&str>(&CLASSES);
    replace(core, dice, name);
}

pub(crate) fn replace(core: &Core, dice: &Dice, name: &str) {
    let gone = core.api.delete("StorageClass", "", name).is_ok();
    if gone && dice.percent(30) {
        core.ledger.log(&format!("user: deletes the class {name}"));
        return;
    }
    let (turned, cluster) = (dice.percent(40), dice.pick(&["a", "b"]));
    core.api.create(&class(core, name, turned, cluster)).unwrap();
    core.ledger
        .log(&format!("user: replaces the class {name}, turned {turned}, cluster {cluster}"));
}

/// A class; `turned`: with the other reclaim policy.
fn class(core: &Core, name: &str, turned: bool, cluster: &str) -> Value {
    let policy = if (name == "kept") == turned { "Delete" } else { "Retain" };
    let mut class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": DRIVER, "reclaimPolicy": policy, "parameters": {"of": name, "cluster": cluster},
    });
    if core.plan.topology && name != "kept" {
        class["volumeBindingMode"] = json!("WaitForFirstConsumer");
    }
    if core.plan.confined && name == "secret" {
        let term = json!({"key": ZONE, "values": zones(core, name)});
        class["allowedTopologies"] = json!([{"matchLabelExpressions": [term]}]);
    }
    if name == "kept" {
        class["mountOptions"] = json!(["noatime"]);
        class["parameters"]["csi.storage.k8s.io/fstype"] = json!("xfs");
    }
    if name == "secret" {
        class["parameters"] = json!({
            "of": name, "cluster": cluster, "secret": "right",
            "csi.storage.k8s.io/node-stage-secret-name": "${pvc.name}",
            "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}",
            "csi.storage.k8s.io/provisioner-secret-name": "key",
            "csi.storage.k8s.io/provisioner-secret-namespace": NAMESPACE,
        });
    }
    class
}

/// The zones in which a class's volumes may be.
pub(crate) fn zones(core: &Core, class: &str) -> &'static [&'static str] {
    let all = nodes::all(&core.plan);
    if core.plan.confined && class == "secret" { &all[1..] } else { all }
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": NAMESPACE},
           "data": {"key": "cmlnaHQ="}})
}

fn toggle_secret(core: &Core) {
    if core.api.delete("Secret", NAMESPACE, "key").is_ok() {
        core.ledger.log("user: deletes the secret");
    } else if core.api.create(&secret()).is_ok() {
        core.ledger.log("user: creates the secret");
    }
}

/// With everything in it; it comes again once it is gone.
fn delete_namespace(core: &Core) {
    if core.api.delete("Namespace", "", NAMESPACE).is_ok() {
        core.ledger.log("user: deletes the namespace");
    }
}
