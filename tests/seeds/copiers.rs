//! Users who copy: they clone claims and restore snapshots, and delete either at any moment.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::binder::class_of;
use tokio::time::sleep;

use super::{
    core::{Core, DRIVER, NAMESPACE, TENANT},
    dice::Dice,
    driver::NO_SOURCE,
    ledger::text,
    users::{self, CLAIMS, CLASSES},
};

/// The claims that are copies.
const COPIES: [&str; 3] = ["clone", "twin", "restored"];

const SNAPSHOTS: [&str; 2] = ["morning", "evening"];

/// Works until all is healed.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "copiers");
    loop {
        sleep(dice.stretch(20..core.plan.pause)).await;
        if core.is_healed() {
            return;
        }
        core.observe();
        act(&core, &dice);
        core.observe();
    }
}

fn act(core: &Core, dice: &Dice) {
    match dice.within(0..10) {
        0..4 => copy(core, dice),
        4 | 5 => take_snapshot(core, dice),
        6 | 7 => delete_source(core, dice),
        8 => delete_named("VolumeSnapshot", core, one(dice, &SNAPSHOTS)),
        _ => delete_named("PersistentVolumeClaim", core, one(dice, &COPIES)),
    }
}

/// What a claim names as its source; null where it names none.
fn source(claim: &Value) -> &Value {
    let spec = &claim["spec"];
    if spec["dataSource"].is_null() { &spec["dataSourceRef"] } else { &spec["dataSource"] }
}

fn is_pending(claim: &Value) -> bool {
    !source(claim).is_null() && text(claim, "/spec/volumeName").is_empty()
}

fn one(dice: &Dice, names: &[&'static str]) -> &'static str {
    dice.pick::<&str>(names)
}

fn copy(core: &Core, dice: &Dice) {
    let reference = if dice.percent(50) {
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": dice.pick(&SNAPSHOTS)})
    } else {
        let of = if dice.percent(80) { dice.pick(&CLAIMS) } else { dice.pick(&COPIES) };
        json!({"kind": "PersistentVolumeClaim", "name": of})
    };
    let (name, class) = (dice.pick(&COPIES), dice.pick(&CLASSES));
    let mut claim = users::claim(name, class);
    claim["spec"]["dataSource"] = reference.clone();
    if let Ok(made) = core.api.create(&claim) {
        let (of, uid) = (text(&reference, "/name"), text(&made, "/metadata/uid"));
        core.ledger.log(&format!("copier: creates {name} of {of}, class {class}, {uid}"));
    }
}

fn take_snapshot(core: &Core, dice: &Dice) {
    let (name, of) = (dice.pick(&SNAPSHOTS), dice.pick(&CLAIMS));
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"source": {"persistentVolumeClaimName": of}},
    });
    if core.api.create(&snapshot).is_ok() {
        core.ledger.log(&format!("copier: takes the snapshot {name} of {of}"));
    }
}

/// What a copy is being made from goes, as far as its finalizers let it.
fn delete_source(core: &Core, dice: &Dice) {
    let mut copies = core.api.list("PersistentVolumeClaim", NAMESPACE);
    copies.retain(is_pending);
    if copies.is_empty() {
        return;
    }
    let source = source(dice.pick(&copies));
    delete_named(text(source, "/kind"), core, text(source, "/name"));
}

fn delete_named(kind: &str, core: &Core, name: &str) {
    if core.api.delete(kind, NAMESPACE, name).is_ok() {
        core.ledger.log(&format!("copier: deletes the {kind} {name}"));
    }
}

fn delete(kind: &str, core: &Core, object: &Value) {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    if core.api.delete(kind, namespace, name).is_ok() {
        core.ledger.log(&format!("copier: deletes the {kind} {namespace}/{name}"));
    }
}

/// Does what the events of copies that can't be made ask people for: those go whose source is gone,
/// is going, or is another one by now.
pub(crate) fn mend(core: &Core) {
    for claim in
        [NAMESPACE, TENANT].iter().flat_map(|it| core.api.list("PersistentVolumeClaim", it))
    {
        if is_pending(&claim) && (!can_be_made(core, &claim) || is_hopeless(core, &claim)) {
            delete("PersistentVolumeClaim", core, &claim);
        }
    }
    // Nobody will bind what a snapshot waits for.
    for snapshot in core.api.list("VolumeSnapshot", "") {
        if text(&snapshot, "/status/boundVolumeSnapshotContentName").is_empty() {
            delete("VolumeSnapshot", core, &snapshot);
        }
    }
}

fn can_be_made(core: &Core, claim: &Value) -> bool {
    let (kind, name) = (text(source(claim), "/kind"), text(source(claim), "/name"));
    let class = core.api.get("StorageClass", "", class_of(claim));
    let (own, other) = (text(claim, "/metadata/namespace"), text(source(claim), "/namespace"));
    // Nobody grants anything by then.
    if !["", own].contains(&other) {
        return false;
    }
    let source = core.api.get(kind, own, name);
    class.is_some_and(|class| class["provisioner"] == DRIVER)
        && source.is_some_and(|source| {
            let bound = kind == "VolumeSnapshot" || text(&source, "/status/phase") == "Bound";
            bound && source["metadata"]["deletionTimestamp"].is_null()
        })
}

/// Whether an event says that its source is another one by now, or gone at the driver.
fn is_hopeless(core: &Core, claim: &Value) -> bool {
    core.api.list("Event", text(claim, "/metadata/namespace")).iter().any(|event| {
        let message = text(event, "/message");
        event["involvedObject"]["uid"] == claim["metadata"]["uid"]
            && (message.contains("another source of that name") || message.contains(NO_SOURCE))
    })
}
