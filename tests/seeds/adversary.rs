//! A user who writes whatever he likes on claims: on those of his own namespace and, where he may, on
//! others' in a shared one. He wants volumes, names, policies and calls that he could not get
//! from an ordinary claim, above all what belongs to the victims in a namespace that he cannot read.
//!
//! What he does to himself is not the program's to prevent: a record of an open call that he takes off
//! or replaces is given up, and its claim may wait for as long as he leaves it so.

use std::sync::Arc;

use csi_provisioner::controller::{
    claims::record_status::{FINALIZER, RECORD},
    model::record::Record,
};
use serde_json::{Map, Value, json};
use testkit::binder::{BETA_CLASS, BIND_COMPLETED, PROVISIONER, annotation, class_of};
use tokio::time::sleep;

use super::{
    cluster::SELECTED_NODE,
    copying::CLONED,
    core::{Core, DRIVER, NAMESPACE, TENANT, VAULT},
    dice::Dice,
    ledger::{Recorded, is_recorded, text},
    naming::{NAMINGS, Naming},
    nodes::{NODES, ZONE},
    users::{self, CLASSES, FOREIGN, FOREIGN_DRIVER},
    victims::{SEAL, TREASURES, snapshot},
};

/// His claims.
const CLAIMS: [&str; 4] = ["mine", "yours", "theirs", "nobodys"];

/// His snapshots.
const SNAPSHOTS: [&str; 1] = ["still"];

/// A finalizer of his own, under which claims stay in deletion.
const HOLD: &str = "tenant.example.com/hold";

/// A name that no object can have, and that fits into one.
const HUGE: usize = 450_000;

/// Nodes, one that is none, and no node.
const PLACES: [Option<&str>; 5] =
    [Some(NODES[0]), Some(NODES[1]), Some(NODES[2]), Some("nowhere"), None];

/// Texts that are no names, some of which do harm where they are printed or pasted.
const NO_NAMES: [&str; 6] =
    ["", "../../etc", "$(reboot)", "'; rm -rf / #", "\u{1b}[31mred", "pvc-\u{202e}gpj"];

/// Whether the text holds some of that, raw or escaped: what a record says is printed only where it is a
/// name.
pub(crate) fn is_printed_in(text: &str) -> bool {
    NO_NAMES.iter().filter(|no_name| !no_name.is_empty()).any(|no_name| {
        let plain = no_name.trim_start_matches(|it: char| it.is_control());
        text.contains(plain) || text.contains(&no_name.escape_debug().to_string())
    })
}

/// Works until all is healed.
pub(crate) async fn run(core: Arc<Core>) {
    let dice = Dice::new(core.seed, "adversary");
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

/// He lets everything go that he has kept from going. Where nobody copies, nobody else looks after
/// what he has marked as a source.
pub(crate) fn retire(core: &Core) {
    let holds = [Some(HOLD), Some(CLONED).filter(|_| !core.plan.copies)];
    for hold in holds.into_iter().flatten() {
        for claim in core.api.list("PersistentVolumeClaim", "") {
            if wears(&claim, hold) {
                release(core, &claim, hold);
            }
        }
    }
    core.observe();
}

/// Does what people must where a namespace cannot go: marks that are no driver's here, or another's,
/// whose provisioner is not played, are taken off what is in it.
pub(crate) fn clear_marks(core: &Core) {
    let namespace = core.api.get("Namespace", "", NAMESPACE);
    if namespace.is_none_or(|it| it["metadata"]["deletionTimestamp"].is_null()) {
        return;
    }
    for claim in core.api.list("PersistentVolumeClaim", NAMESPACE) {
        let is_deleted = claim["metadata"]["deletionTimestamp"].is_string();
        if is_deleted && is_recorded(&claim) && !is_ours(core, &claim) {
            release(core, &claim, FINALIZER);
        }
    }
}

fn act(core: &Core, dice: &Dice) {
    match dice.within(0..14) {
        0..3 => drop(create(core, dice)),
        3 | 4 => match dice.within(0..4) {
            0 => trap_of_another_class(core, dice),
            1 => trap_with_a_volume(core, dice),
            _ => trap(core, dice),
        },
        5..8 => some_claim(core, dice).iter().for_each(|claim| forge(core, dice, claim)),
        8 => some_claim(core, dice).iter().for_each(|claim| finalizers(core, dice, claim)),
        9 => some_claim(core, dice).iter().for_each(|claim| annotate(core, dice, claim)),
        10 => some_claim(core, dice).iter().for_each(|claim| name_volume(core, dice, claim)),
        11 => some_claim(core, dice).iter().for_each(|claim| delete(core, claim)),
        12 => release_one(core, dice),
        _ if core.plan.copies => take_snapshot(core, dice),
        _ => release_one(core, dice),
    }
}

/// A claim that is deleted with the record of a call that was never made, or is about to be.
fn trap(core: &Core, dice: &Dice) {
    let Some(claim) = create(core, dice) else { return };
    let held = json!({"metadata": {"finalizers": [FINALIZER, HOLD]}});
    let Some(claim) = write(core, &claim, &held) else { return };
    if dice.percent(80) {
        forge(core, dice, &claim);
    }
    if dice.percent(70) {
        delete(core, &claim);
    }
}

/// A claim of another driver's class that is annotated for ours, with the record that would be right.
fn trap_of_another_class(core: &Core, dice: &Dice) {
    let Some(claim) = create_of(core, dice, FOREIGN) else { return };
    let for_ours = json!({"metadata": {"annotations": {PROVISIONER: DRIVER}}});
    let Some(claim) = write(core, &claim, &for_ours) else { return };
    put(core, &claim, &Value::Object(right(core, dice, &claim)).to_string());
}

/// A claim that names a volume, with the record of a call for its own.
fn trap_with_a_volume(core: &Core, dice: &Dice) {
    let Some(claim) = create(core, dice) else { return };
    name_volume(core, dice, &claim);
    let Some(claim) = write(core, &claim, &json!({})) else { return };
    put(core, &claim, &Value::Object(right(core, dice, &claim)).to_string());
}

// === Claims ===

/// One of his claims, or of those in the shared namespace that have no volume yet, more rarely of all
/// there.
fn some_claim(core: &Core, dice: &Dice) -> Option<Value> {
    let namespace = if dice.percent(70) { TENANT } else { NAMESPACE };
    let mut claims = core.api.list("PersistentVolumeClaim", namespace);
    if dice.percent(60) {
        claims.retain(|claim| text(claim, "/spec/volumeName").is_empty());
    }
    (!claims.is_empty()).then(|| dice.pick(&claims).clone())
}

fn create(core: &Core, dice: &Dice) -> Option<Value> {
    let class = match dice.within(0..10) {
        0 => FOREIGN,
        1 => "missing",
        _ => *dice.pick(&CLASSES),
    };
    create_of(core, dice, class)
}

fn create_of(core: &Core, dice: &Dice, class: &str) -> Option<Value> {
    let name = *dice.pick(&CLAIMS);
    let mut claim = users::claim(name, class);
    claim["metadata"]["namespace"] = json!(TENANT);
    if dice.percent(30) {
        claim["metadata"]["finalizers"] = json!([FINALIZER, HOLD]);
    }
    if dice.percent(15) {
        claim["metadata"]["annotations"] = json!({PROVISIONER: some_driver(dice)});
    }
    if core.plan.copies && dice.percent(50) {
        let source = some_source(core, dice);
        // The older field knows neither other kinds nor other namespaces.
        let newer = source["kind"] == "Tape" || source["namespace"].is_string();
        let field = if newer { "dataSourceRef" } else { "dataSource" };
        claim["spec"][field] = source;
    }
    let made = core.api.create(&claim).ok()?;
    let (of, uid) = (source_of(&made), text(&made, "/metadata/uid"));
    core.ledger.log(&format!("tenant: creates {name} of {class}{of}, {uid}"));
    core.ledger.tampered(uid);
    core.observe();
    Some(made)
}

/// What a claim is to be made from, in a word.
fn source_of(claim: &Value) -> String {
    let source = &claim["spec"]["dataSourceRef"];
    let name: String = text(source, "/name").chars().take(20).collect();
    if source.is_null() { name } else { format!(" from the {} {name}", text(source, "/kind")) }
}

/// What he names as a source: something of his own, something that is not there, or not his.
fn some_source(core: &Core, dice: &Dice) -> Value {
    let snapshot = |name: &str| json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name});
    let claim = |name: &str| json!({"kind": "PersistentVolumeClaim", "name": name});
    let of_theirs = |mut source: Value| {
        source["namespace"] = json!(VAULT);
        source
    };
    match dice.within(0..11) {
        0 => snapshot(SEAL),
        1 => claim(TREASURES[0]),
        8 => of_theirs(snapshot(SEAL)),
        9 | 10 => of_theirs(claim(dice.pick::<&str>(&TREASURES))),
        2 | 3 => snapshot(SNAPSHOTS[0]),
        4 if core.plan.huge => claim(&"x".repeat(HUGE)),
        5 => json!({"apiGroup": "example.com", "kind": "Tape", "name": "reel"}),
        _ => claim(dice.pick::<&str>(&CLAIMS)),
    }
}

fn delete(core: &Core, claim: &Value) {
    let (namespace, name) = (text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
    if core.api.delete("PersistentVolumeClaim", namespace, name).is_ok() {
        core.ledger.log(&format!("tenant: deletes {namespace}/{name}"));
        core.observe();
    }
}

fn take_snapshot(core: &Core, dice: &Dice) {
    let of = *dice.pick(&CLAIMS);
    if core.api.create(&snapshot(TENANT, SNAPSHOTS[0], of)).is_ok() {
        core.ledger.log(&format!("tenant: takes a snapshot of {of}"));
    } else if core.api.delete("VolumeSnapshot", TENANT, SNAPSHOTS[0]).is_ok() {
        core.ledger.log("tenant: deletes his snapshot");
    }
}

// === What he writes ===

/// Writes on a claim; the claim as it is then.
fn write(core: &Core, claim: &Value, patch: &Value) -> Option<Value> {
    let (namespace, name) = (text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
    let before = core.api.get("PersistentVolumeClaim", namespace, name)?;
    let after = core.api.merge("PersistentVolumeClaim", namespace, name, patch).ok()?;
    note(core, &before, &after);
    core.observe();
    Some(after)
}

/// Notes what his writing means for the checks.
fn note(core: &Core, before: &Value, after: &Value) {
    let uid = text(after, "/metadata/uid");
    core.ledger.tampered(uid);
    let record = |claim: &Value| claim["metadata"]["annotations"][RECORD].clone();
    if record(before) != record(after) {
        core.asking.recorded(TENANT, uid);
    }
    let is_lost = is_recorded(before)
        && is_ours(core, before)
        && (!is_recorded(after) || record(before) != record(after));
    // Another driver's record is nobody's here to replace.
    if is_lost || is_recorded(after) && !["", DRIVER].contains(&record_of(after).driver.as_str()) {
        core.ledger.claim_stripped(uid);
    }
}

/// Whether a mark on the claim is our driver's: its record says so, or where it says nothing, or is too
/// long for a record, the claim is ours. Where each node has a driver of its own, a record without a
/// node on a claim that selects none is nobody's.
pub(crate) fn is_ours(core: &Core, claim: &Value) -> bool {
    let record = record_of(claim);
    let is_placed = record.node.is_some()
        || annotation(claim, SELECTED_NODE).is_some_and(|node| !node.is_empty());
    if core.plan.local && !is_placed {
        return false;
    }
    match record.driver.as_str() {
        "" => annotation(claim, PROVISIONER) == Some(DRIVER),
        driver => driver == DRIVER,
    }
}

fn record_of(claim: &Value) -> Record {
    let text = claim["metadata"]["annotations"][RECORD].as_str();
    text.and_then(Record::decode).unwrap_or_default()
}

fn wears(claim: &Value, finalizer: &str) -> bool {
    let finalizers = claim["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|it| it == finalizer))
}

fn finalizers(core: &Core, dice: &Dice, claim: &Value) {
    let mut all = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let one = *dice.pick(&[FINALIZER, FINALIZER, CLONED, HOLD]);
    if dice.percent(60) {
        all.push(json!(one));
    } else {
        all.retain(|it| it != one);
    }
    let name = text(claim, "/metadata/name");
    if write(core, claim, &json!({"metadata": {"finalizers": all}})).is_some() {
        core.ledger.log(&format!("tenant: changes {one} of {name}"));
    }
}

fn release(core: &Core, claim: &Value, hold: &str) {
    let mut all = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    all.retain(|it| it != hold);
    if write(core, claim, &json!({"metadata": {"finalizers": all}})).is_some() {
        core.ledger.log(&format!("tenant: lets {} go", text(claim, "/metadata/name")));
    }
}

fn release_one(core: &Core, dice: &Dice) {
    let mut held = core.api.list("PersistentVolumeClaim", "");
    held.retain(|claim| wears(claim, HOLD));
    if !held.is_empty() {
        release(core, dice.pick(&held), HOLD);
    }
}

fn some_driver(dice: &Dice) -> &'static str {
    dice.pick::<&str>(&[DRIVER, DRIVER, FOREIGN_DRIVER, "\u{7}bell", ""])
}

/// Any annotation that somebody goes by.
fn annotate(core: &Core, dice: &Dice, claim: &Value) {
    let (key, value) = match dice.within(0..6) {
        0 | 1 => (PROVISIONER, json!(some_driver(dice))),
        2 => (BETA_CLASS, json!(dice.pick(&["plain", "kept", FOREIGN, "missing"]))),
        3 => (BETA_CLASS, Value::Null),
        4 => (BIND_COMPLETED, json!(dice.pick(&[Some("yes"), None]))),
        _ => (SELECTED_NODE, json!(dice.pick(&PLACES))),
    };
    let patch = json!({"metadata": {"annotations": {key: value}}});
    if write(core, claim, &patch).is_some() {
        let name = text(claim, "/metadata/name");
        core.ledger.log(&format!("tenant: annotates {name}: {key} {value}"));
    }
}

/// Names a volume for a claim: a victim's, his own to be, or none.
fn name_volume(core: &Core, dice: &Dice, claim: &Value) {
    let volumes = core.api.list("PersistentVolume", "");
    let own = Naming::of(core.plan.names, dice).name(text(claim, "/metadata/uid"));
    let volume = match dice.within(0..3) {
        0 if !volumes.is_empty() => text(dice.pick(&volumes), "/metadata/name").to_owned(),
        1 => own,
        _ => "nowhere".to_owned(),
    };
    let Some(before) = write(core, claim, &json!({})) else { return };
    if write(core, claim, &json!({"spec": {"volumeName": volume}})).is_some() {
        // Nothing is recorded any more on a claim that names a volume.
        if Recorded::on(&before).is_none() {
            core.ledger.claim_stripped(text(claim, "/metadata/uid"));
        }
        core.ledger.log(&format!("tenant: names {volume} in {}", text(claim, "/metadata/name")));
    }
}

// === Records ===

/// Puts a record on a claim that says what he likes.
fn forge(core: &Core, dice: &Dice, claim: &Value) {
    let record = match dice.within(0..12) {
        0 => String::from(*dice.pick(&["garbage", "[]", "null", "{\"driver\": 7}"])),
        1 => json!({"driver": DRIVER, "volume": "x".repeat(9_000)}).to_string(),
        2 => pasted(core, dice).unwrap_or_default(),
        _ => forged(core, dice, claim).to_string(),
    };
    put(core, claim, &record);
}

/// Puts this text on a claim as the record of an open call.
fn put(core: &Core, claim: &Value, record: &str) {
    let mut patch = json!({"metadata": {"annotations": {RECORD: record}}});
    if !wears(claim, FINALIZER) && text(claim, "/metadata/deletionTimestamp").is_empty() {
        let finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        patch["metadata"]["finalizers"] = json!([finalizers, vec![json!(FINALIZER)]].concat());
    }
    if write(core, claim, &patch).is_some() {
        let (name, shown) = (text(claim, "/metadata/name"), shown(record));
        core.ledger.log(&format!("tenant: forges on {name}: {shown}"));
    }
}

/// A text as it may stand in the trace.
fn shown(text: &str) -> String {
    text.chars().take(400).flat_map(char::escape_debug).collect()
}

/// A record that stands on some claim now.
fn pasted(core: &Core, dice: &Dice) -> Option<String> {
    let claims = core.api.list("PersistentVolumeClaim", "");
    let records = claims.iter().filter_map(|it| it["metadata"]["annotations"][RECORD].as_str());
    let records: Vec<&str> = records.collect();
    (!records.is_empty()).then(|| (*dice.pick(&records)).to_owned())
}

/// The right record of the claim, but for up to three of its fields.
fn forged(core: &Core, dice: &Dice, claim: &Value) -> Value {
    let mut record = right(core, dice, claim);
    for _ in 0..dice.within(0..4) {
        forge_field(core, dice, claim, &mut record);
    }
    Value::Object(record)
}

fn right(core: &Core, dice: &Dice, claim: &Value) -> Map<String, Value> {
    let (class, uid) = (class_of(claim), text(claim, "/metadata/uid"));
    let standing = core.api.get("StorageClass", "", class);
    let class_uid = standing.map(|class| class["metadata"]["uid"].clone()).unwrap_or_default();
    let record = json!({
        "driver": DRIVER, "volume": Naming::of(core.plan.names, dice).name(uid),
        "class": class, "classUid": class_uid, "digest": "0", "since": "2024-01-01T00:00:00Z",
    });
    let Value::Object(mut record) = record else { return Map::new() };
    if let Some(node) = claim["metadata"]["annotations"].get(SELECTED_NODE) {
        record.insert("node".to_owned(), node.clone());
    }
    record
}

fn forge_field(core: &Core, dice: &Dice, claim: &Value, record: &mut Map<String, Value>) {
    let (key, value) = match dice.within(0..11) {
        0 => ("driver", json!(dice.pick(&["", FOREIGN_DRIVER, "\u{7}bell"]))),
        1 | 2 => ("volume", json!(some_volume_name(core, dice, claim))),
        3 => ("node", json!(dice.pick(&PLACES))),
        4 => ("classUid", some_class_uid(core, dice)),
        5 => ("class", json!(dice.pick(&["kept", FOREIGN, "missing"]))),
        6 => ("topology", some_topology(dice)),
        7 => ("retain", json!(true)),
        _ => match victim(core, dice) {
            Some(victim) => ("source", victim),
            None => ("retain", json!(true)),
        },
    };
    record.insert(key.to_owned(), value);
}

/// A volume's name that is not that of the claim's own, or is under another prefix.
fn some_volume_name(core: &Core, dice: &Dice, claim: &Value) -> String {
    let claims = core.api.list("PersistentVolumeClaim", "");
    let (uid, naming) = (text(claim, "/metadata/uid"), dice.pick(&NAMINGS[..3]));
    match dice.within(0..4) {
        0 => naming.name(uid),
        1 => naming.name(text(dice.pick(&claims), "/metadata/uid")),
        2 => format!("evil-{uid}"),
        _ => String::from(*dice.pick(&NO_NAMES)),
    }
}

fn some_class_uid(core: &Core, dice: &Dice) -> Value {
    let classes = core.api.list("StorageClass", "");
    if classes.is_empty() || dice.percent(40) {
        return json!(dice.pick(&["", "0", "\u{7}bell"]));
    }
    dice.pick(&classes)["metadata"]["uid"].clone()
}

fn some_topology(dice: &Dice) -> Value {
    let place = |zone: &str| json!({ZONE: zone});
    match dice.within(0..5) {
        0 => json!({"terms": [place(NODES[1]), place(NODES[0])], "first": 1}),
        1 => json!({"terms": [place("the moon")], "first": 7}),
        2 => json!({"best": place(NODES[0]), "digest": "0"}),
        3 => json!({"terms": [{"kubernetes.io/hostname": "master"}], "first": 0}),
        _ => json!("everywhere"),
    }
}

/// The source of somebody else, as records of earlier releases say it.
fn victim(core: &Core, dice: &Dice) -> Option<Value> {
    let mut found = Vec::new();
    for volume in core.api.list("PersistentVolume", "") {
        let reference = &volume["spec"]["claimRef"];
        if reference["namespace"] != TENANT && !reference.is_null() {
            found.push(("claim", reference.clone(), volume["spec"]["csi"]["volumeHandle"].clone()));
        }
    }
    for content in core.api.list("VolumeSnapshotContent", "") {
        let reference = content["spec"]["volumeSnapshotRef"].clone();
        found.push(("snapshot", reference, content["status"]["snapshotHandle"].clone()));
    }
    if found.is_empty() {
        return None;
    }
    let (kind, reference, handle) = dice.pick(&found);
    let namespace = if dice.percent(50) { json!(TENANT) } else { reference["namespace"].clone() };
    Some(json!({"kind": kind, "namespace": namespace, "name": reference["name"],
                "uid": reference["uid"], "handle": handle}))
}

// === What he may be owed ===

/// Whether the claim must have its volume in the end though he has written on it: nothing that he has
/// left there is in the way of an ordinary claim.
pub(crate) fn is_owed(core: &Core, claim: &Value, reported: bool) -> bool {
    let class = core.api.get("StorageClass", "", class_of(claim));
    let ours = class.is_some_and(|class| class["provisioner"] == DRIVER);
    let spec = &claim["spec"];
    let is_plain = spec["dataSource"].is_null() && spec["dataSourceRef"].is_null();
    let annotations = &claim["metadata"]["annotations"];
    let unmarked = annotations[BIND_COMPLETED].is_null();
    let place = annotations[SELECTED_NODE].as_str();
    let zones = users::zones(core, class_of(claim));
    let placed = !core.plan.topology || place.is_none_or(|node| zones.contains(&node));
    let waits = reported && is_recorded(claim) && may_count(core, claim);
    let stands = claim["metadata"]["deletionTimestamp"].is_null();
    ours && is_plain && unmarked && placed && stands && !waits
}

/// Whether the claim's record may be one that counts: it is our driver's, and names a volume of the
/// claim or a node of others.
fn may_count(core: &Core, claim: &Value) -> bool {
    let record = record_of(claim);
    let uid = text(claim, "/metadata/uid");
    let named = |naming: &Naming| record.volume == naming.name(uid);
    is_ours(core, claim) && (is_elsewhere(core, claim, &record) || NAMINGS.iter().any(named))
}

/// Whether the record is of a node that the claim does not select: whatever else it says only that
/// node's process judges, and the others wait for it.
fn is_elsewhere(core: &Core, claim: &Value, record: &Record) -> bool {
    let selected = annotation(claim, SELECTED_NODE).unwrap_or_default();
    core.plan.local && record.node.as_deref().is_some_and(|node| node != selected)
}
