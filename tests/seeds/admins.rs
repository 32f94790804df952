//! Administrators, and users who do what only administrators should.

use serde_json::{Value, json};

use super::{
    cluster::SELECTED_NODE,
    core::{Core, DRIVER, NAMESPACE},
    dice::Dice,
    external_provisioner::{self, Made},
    ledger::text,
    naming::Naming,
    nodes,
    storage::{handle, image_of, name_of, node_of},
    users::{CLAIMS, CLASSES},
};

/// The volume of PersistentVolumes that take our names.
const OUR_NAME_BY_HAND: &str = "by-hand";

/// Marks what was put there by hand or from a backup, for the checks.
pub(crate) const BY_HAND: &str = "seeds.example.com/by-hand";

/// Does one thing that nobody should do.
pub(crate) fn meddle(core: &Core, dice: &Dice) {
    match dice.within(0..10) {
        0 => strip_finalizers(core, dice),
        1 => strip_claim(core, dice),
        2 | 3 => delete_volume(core, dice),
        4 => add_volume_of_our_name(core, dice),
        5 => add_volume(core, dice),
        6 => add_volume_of_our_handle(core, dice),
        7 | 8 => restore(core, dice),
        _ => name_volume(core, dice),
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

/// One of the PersistentVolumes, those on their way more often: they are the ones that matter.
fn some_volume(core: &Core, dice: &Dice) -> Option<Value> {
    let volumes = core.api.list("PersistentVolume", "");
    let moving: Vec<_> =
        volumes.iter().filter(|volume| text(volume, "/status/phase") != "Bound").collect();
    if !moving.is_empty() && dice.percent(50) {
        return Some(Value::clone(dice.pick::<&Value>(&moving)));
    }
    (!volumes.is_empty()).then(|| dice.pick(&volumes).clone())
}

pub(crate) fn flip_policy(core: &Core, dice: &Dice) {
    let Some(volume) = some_volume(core, dice) else { return };
    let name = text(&volume, "/metadata/name");
    let policy = match text(&volume, "/spec/persistentVolumeReclaimPolicy") {
        "Delete" => "Retain",
        _ => "Delete",
    };
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    if core.api.merge("PersistentVolume", "", name, &patch).is_ok() {
        core.ledger.log(&format!("admin: {name} is {policy} from now on"));
    }
}

/// Who leads, and since when, stays as it is.
pub(crate) fn write_on_lease(core: &Core, dice: &Dice) {
    let Some(lease) = core.api.list("Lease", "default").pop() else { return };
    let patch = json!({"metadata": {"labels": {"by-hand": dice.within(0..1_000).to_string()}}});
    if core.api.merge("Lease", "default", text(&lease, "/metadata/name"), &patch).is_ok() {
        core.ledger.log("admin: writes on the Lease");
    }
}

fn strip_finalizers(core: &Core, dice: &Dice) {
    let Some(volume) = some_volume(core, dice) else { return };
    let name = text(&volume, "/metadata/name");
    core.ledger.log(&format!("admin: strips {name} of its finalizers"));
    strip(core, &volume);
}

fn strip(core: &Core, volume: &Value) {
    let patch = json!({"metadata": {"finalizers": null}});
    if core.api.merge("PersistentVolume", "", text(volume, "/metadata/name"), &patch).is_ok() {
        core.ledger.stripped(text(volume, "/metadata/uid"));
    }
}

/// What nothing stands against: it goes at once, whatever it is.
pub(crate) fn take_away(core: &Core, volume: &Value) {
    let name = text(volume, "/metadata/name");
    core.ledger.log(&format!("admin: takes {name} away by force"));
    strip(core, volume);
    let _ = core.api.delete("PersistentVolume", "", name);
}

fn delete_volume(core: &Core, dice: &Dice) {
    let Some(volume) = some_volume(core, dice) else { return };
    let name = text(&volume, "/metadata/name");
    if core.api.delete("PersistentVolume", "", name).is_ok() {
        core.ledger.log(&format!("admin: deletes {name}"));
        if core.api.get("PersistentVolume", "", name).is_none() {
            core.ledger.stripped(text(&volume, "/metadata/uid"));
        }
    }
}

/// A PersistentVolume created by hand, of a volume that no driver made; some are available to any claim.
fn by_hand(core: &Core, dice: &Dice, name: &str, handle: &str) -> Value {
    let node = match node_of(image_of(handle)) {
        None if core.plan.local => Some(*dice.pick(&nodes::NODES)),
        node => node,
    };
    let class = if dice.percent(70) { "by-hand" } else { *dice.pick(&CLASSES) };
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {BY_HAND: "yes"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": class,
            "nodeAffinity": node.map(nodes::affinity),
            "csi": {"driver": DRIVER, "volumeHandle": handle},
        },
    })
}

/// A PersistentVolume under the name that a waiting claim's will get.
fn add_volume_of_our_name(core: &Core, dice: &Dice) {
    let Some(claim) = some_waiting_claim(core, dice) else { return };
    let name = Naming::of(core.plan.names, dice).name(text(&claim, "/metadata/uid"));
    if core.api.create(&by_hand(core, dice, &name, OUR_NAME_BY_HAND)).is_ok() {
        core.ledger.log(&format!("admin: adds {name} by hand"));
    }
}

fn add_volume(core: &Core, dice: &Dice) {
    let name = format!("static-{}", dice.within(0..3));
    if core.api.create(&by_hand(core, dice, &name, &format!("by-hand-{name}"))).is_ok() {
        core.ledger.log(&format!("admin: adds {name} by hand"));
    }
}

/// A claim's user names a volume for it.
fn name_volume(core: &Core, dice: &Dice) {
    let Some(volume) = some_volume(core, dice) else { return };
    let (name, volume) = (dice.pick(&CLAIMS), text(&volume, "/metadata/name"));
    let patch = json!({"spec": {"volumeName": volume}});
    if core.api.merge("PersistentVolumeClaim", NAMESPACE, name, &patch).is_ok() {
        core.ledger.log(&format!("user: names {volume} in {name}"));
    }
}

/// One of the claims that wait.
fn some_waiting_claim(core: &Core, dice: &Dice) -> Option<Value> {
    let mut claims = core.api.list("PersistentVolumeClaim", NAMESPACE);
    claims.retain(|claim| text(claim, "/spec/volumeName").is_empty());
    (!claims.is_empty()).then(|| dice.pick(&claims).clone())
}

/// Whatever keeps a claim from going is taken off it.
fn strip_claim(core: &Core, dice: &Dice) {
    let Some(claim) = some_waiting_claim(core, dice) else { return };
    let name = text(&claim, "/metadata/name");
    let patch = json!({"metadata": {"finalizers": null}});
    if core.api.merge("PersistentVolumeClaim", NAMESPACE, name, &patch).is_ok() {
        core.ledger.log(&format!("user: strips {name} of its finalizers"));
        core.ledger.claim_stripped(text(&claim, "/metadata/uid"));
    }
}

/// The handle that the volume of a claim has or will have, known to be its own.
fn handle_of(core: &Core, dice: &Dice, claim: &Value) -> String {
    let naming = Naming::of(core.plan.names, dice);
    let class = core.api.get("StorageClass", "", text(claim, "/spec/storageClassName"));
    let cluster = class.map(|class| text(&class, "/parameters/cluster").to_owned());
    let name = naming.name(text(claim, "/metadata/uid"));
    let node = claim["metadata"]["annotations"][SELECTED_NODE].as_str();
    let node = node.filter(|_| core.plan.local);
    let image = node.map_or_else(|| name.clone(), |node| format!("{name}@{node}"));
    handle(cluster.as_deref().unwrap_or("a"), &image)
}

/// A PersistentVolume by hand of the volume that a claim in the making gets.
fn add_volume_of_our_handle(core: &Core, dice: &Dice) {
    let Some(claim) = some_waiting_claim(core, dice) else { return };
    let name = format!("static-{}", dice.within(0..3));
    let handle = handle_of(core, dice, &claim);
    if core.api.create(&by_hand(core, dice, &name, &handle)).is_ok() {
        core.ledger.log(&format!("admin: adds {name} of {handle} by hand"));
    }
}

/// From a backup: what is there in this place goes, and what was comes back under a new UID.
fn restore(core: &Core, dice: &Dice) {
    let old = || some_volume(core, dice).map(backup);
    let saved = if dice.percent(50) { old() } else { of_claim_in_the_making(core, dice) };
    let Some((name, mut volume)) = saved else { return };
    volume["metadata"]["annotations"][BY_HAND] = json!("yes");
    if dice.percent(50) {
        volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    }
    if let Some(now) = core.api.get("PersistentVolume", "", &name) {
        take_away(core, &now);
    }
    core.observe();
    if core.api.create(&volume).is_ok() {
        core.ledger.log(&format!("admin: restores {name} from a backup"));
        if dice.percent(30) {
            delete_claim_of(core, &volume);
        }
    }
}

/// Puts another object in the place of a PersistentVolume, as a backup holds it.
pub(crate) fn bring_back(core: &Core, volume: &Value) {
    let (name, mut saved) = backup(volume.clone());
    saved["metadata"]["annotations"][BY_HAND] = json!("yes");
    take_away(core, volume);
    core.observe();
    if core.api.create(&saved).is_ok() {
        core.ledger.log(&format!("admin: restores {name} from a backup"));
    }
    core.observe();
}

/// It was the wrong one.
fn delete_claim_of(core: &Core, volume: &Value) {
    let claim = text(volume, "/spec/claimRef/name");
    if core.api.delete("PersistentVolumeClaim", NAMESPACE, claim).is_ok() {
        core.ledger.log(&format!("admin: deletes the claim {claim}"));
    }
}

/// The PersistentVolume that a waiting claim has in a backup of a cluster where it was bound.
fn of_claim_in_the_making(core: &Core, dice: &Dice) -> Option<(String, Value)> {
    let claim = some_waiting_claim(core, dice)?;
    let class = core.api.get("StorageClass", "", text(&claim, "/spec/storageClassName"))?;
    let handle = handle_of(core, dice, &claim);
    let name = name_of(image_of(&handle)).to_owned();
    Some((name.clone(), external_provisioner::volume(&name, &Made::of(&handle), &claim, &class)))
}

/// The PersistentVolume of a claim whose volume is being made comes from a backup, to be deleted
/// with its claim.
pub(crate) fn restore_unsaved(core: &Core, image: &str, claim: &Value) -> Option<()> {
    let mut class = core.api.get("StorageClass", "", text(claim, "/spec/storageClassName"))?;
    class["reclaimPolicy"] = json!("Delete");
    let (name, handle) = (name_of(image), handle(text(&class, "/parameters/cluster"), image));
    let mut volume = external_provisioner::volume(name, &Made::of(&handle), claim, &class);
    volume["metadata"]["annotations"][BY_HAND] = json!("yes");
    core.api.create(&volume).ok()?;
    core.ledger.log(&format!("admin: restores {name} from a backup"));
    Some(())
}

/// A PersistentVolume as a backup holds it.
fn backup(mut volume: Value) -> (String, Value) {
    let name = text(&volume, "/metadata/name").to_owned();
    let annotations = volume["metadata"]["annotations"].take();
    volume["metadata"] = json!({"name": name, "annotations": annotations,
                                "finalizers": [external_provisioner::PROTECTION]});
    if volume["metadata"]["annotations"].is_null() {
        volume["metadata"]["annotations"] = json!({});
    }
    volume["status"] = json!({});
    (name, volume)
}
