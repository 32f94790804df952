//! The outcome of a run: what is left of it, in a form that two runs can share. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use regex::Regex;
use serde_json::{Map, Value, json};

use super::{names::Names, scenario::Scenario, yaml};
use crate::apiserver::tree;

/// The parts of an outcome, as recorded under `expect`.
pub type Outcome = Map<String, Value>;

/// Kinds whose objects are looked at in the end.
pub(super) const COLLECTED: [&str; 6] = [
    "PersistentVolumeClaim",
    "PersistentVolume",
    "Event",
    "VolumeSnapshot",
    "CSIStorageCapacity",
    "Lease",
];

/// The marks that our own safety net puts on claims; tests of their own look at them.
const OUR_FINALIZER: &str = "provisioner.storage.kubernetes.io/provisioning-protection";
const OUR_ANNOTATION: &str = "provisioner.storage.kubernetes.io/open-request";

/// What a run left behind.
#[derive(Debug, Clone, Default)]
pub(super) struct Remains {
    pub(super) objects: BTreeMap<String, Vec<Value>>,
    pub(super) calls: Vec<(String, Value)>,
    pub(super) notes: Vec<Value>,
    pub(super) problems: Vec<String>,
    /// The metrics page; `None` when there was none.
    pub(super) metrics: Option<String>,
    /// The exit code of the main process; `null` while it runs.
    pub(super) exit: Value,
}

/// Puts together the outcome of a run.
pub(super) fn outcome(remains: Remains, rules: &Scenario, names: &mut Names) -> Outcome {
    let Remains { mut objects, calls, notes, problems, metrics, exit } = remains;
    let mut take = |kind: &str| objects.remove(kind).unwrap_or_default();
    let mut claims = take("PersistentVolumeClaim");
    for claim in &mut claims {
        own(claim, names);
    }
    let names = &*names;
    let mut out = Outcome::new();
    out.insert("problems".into(), problems.into());
    if !notes.is_empty() {
        out.insert("notes".into(), names.norm(&notes.into()));
    }
    out.insert("csi_counts".into(), counts(&calls));
    out.insert("csi".into(), reported_calls(&calls, rules, names));
    out.insert("pvs".into(), volumes(&take("PersistentVolume"), names));
    out.insert("pvcs".into(), reported_claims(&claims, names));
    out.insert("events".into(), events(&take("Event"), names));
    out.insert("snapshots".into(), snapshots(&take("VolumeSnapshot"), names));
    out.insert("capacities".into(), capacities(take("CSIStorageCapacity"), names));
    out.insert("leases".into(), leases(&take("Lease"), names));
    out.insert("exit".into(), exit);
    out.insert(
        "metrics".into(),
        metrics.map_or(Value::Null, |page| reported_metrics(&page, names)),
    );
    out.retain(|part, _| !rules.skip.contains(part));
    out
}

/// Learns a claim's UID and takes our own marks off it.
fn own(claim: &mut Value, names: &mut Names) {
    if let Some(claim) = claim.as_object_mut() {
        claim.insert("kind".into(), "PersistentVolumeClaim".into());
    }
    names.learn(claim);
    if let Some(finalizers) =
        claim.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut)
    {
        finalizers.retain(|finalizer| finalizer != OUR_FINALIZER);
    }
    if let Some(notes) = claim.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        notes.remove(OUR_ANNOTATION);
    }
}

/// Those of an object's metadata `keys` that hold something.
fn meta(object: &Value, keys: &[&str]) -> Map<String, Value> {
    let found = keys.iter().filter_map(|&key| {
        let value = object.get("metadata")?.get(key)?;
        (!tree::is_empty(value)).then(|| (key.to_owned(), value.clone()))
    });
    found.collect()
}

/// The object's name, namespace, the metadata `keys` that hold something, and whether it is being
/// deleted.
fn identified(object: &Value, keys: &[&str]) -> Map<String, Value> {
    let mut reported = meta(object, keys);
    for key in ["name", "namespace"] {
        reported.insert(key.into(), object.pointer(&format!("/metadata/{key}")).cloned().into());
    }
    reported.insert("deleting".into(), deleting(object));
    reported
}

fn deleting(object: &Value) -> Value {
    object.pointer("/metadata/deletionTimestamp").is_some().into()
}

/// The text that a JSON pointer leads to; empty where there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Normalises all and sorts them by a text in them.
fn sorted_by(
    reported: impl Iterator<Item = Value>,
    names: &Names,
    key: impl Fn(&Value) -> String,
) -> Vec<Value> {
    let mut reported: Vec<_> = reported.map(|object| names.norm(&object)).collect();
    reported.sort_by_cached_key(key);
    reported
}

// === Parts ===

fn counts(calls: &[(String, Value)]) -> Value {
    let mut counts = BTreeMap::<&str, u64>::new();
    for (method, _) in calls {
        *counts.entry(method).or_default() += 1;
    }
    json!(counts)
}

/// The calls: equal ones once, those in no particular order last and sorted.
fn reported_calls(calls: &[(String, Value)], rules: &Scenario, names: &Names) -> Value {
    let mut reported = Vec::new();
    for (method, request) in calls {
        let call = json!([method, names.norm(request)]);
        if rules.keep_order || !reported.contains(&call) {
            reported.push(call);
        }
    }
    let unordered = |call: &Value| rules.unordered.iter().any(|m| text(call, "/0") == m);
    let (mut last, mut reported): (Vec<_>, Vec<_>) = reported.into_iter().partition(unordered);
    last.sort_by_cached_key(yaml::key);
    reported.append(&mut last);
    reported.into()
}

fn volumes(objects: &[Value], names: &Names) -> Value {
    let reported = objects.iter().map(|volume| {
        json!({
            "metadata": meta(volume, &["name", "annotations", "finalizers", "labels"]),
            "spec": volume.get("spec"),
            "deleting": deleting(volume),
        })
    });
    let mut reported =
        sorted_by(reported, names, |volume| text(volume, "/metadata/name").to_owned());
    for volume in &mut reported {
        if let Some(claim) = volume.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut) {
            claim.remove("resourceVersion");
        }
        sort_expressions(volume);
    }
    reported.into()
}

/// The reference writes a term's expressions in the random order of a Go map.
fn sort_expressions(volume: &mut Value) {
    let terms = volume.pointer_mut("/spec/nodeAffinity/required/nodeSelectorTerms");
    for term in terms.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(all) = term.get_mut("matchExpressions").and_then(Value::as_array_mut) {
            all.sort_by_cached_key(|expression| text(expression, "/key").to_owned());
        }
    }
}

fn reported_claims(claims: &[Value], names: &Names) -> Value {
    let reported = claims.iter().map(|c| identified(c, &["annotations", "finalizers"]).into());
    let mut reported = sorted_by(reported, names, |claim| text(claim, "/name").to_owned());
    reported.sort_by_cached_key(|claim| text(claim, "/namespace").to_owned());
    reported.into()
}

static COMPONENT_TAIL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("_.*$").ok());

fn events(objects: &[Value], names: &Names) -> Value {
    let reported = objects.iter().map(|event| {
        let message = text(event, "/message");
        let from = text(event, "/source/component");
        json!({
            "type": event.get("type"),
            "reason": event.get("reason"),
            "message": message.strip_prefix("(combined from similar events): ").unwrap_or(message),
            "on": format!(
                "{}/{}",
                text(event, "/involvedObject/kind"),
                text(event, "/involvedObject/name")
            ),
            "from": COMPONENT_TAIL.as_ref().map(|tail| tail.replace(from, "_<id>")),
        })
    });
    let once: BTreeMap<String, Value> =
        reported.map(|event| names.norm(&event)).map(|event| (yaml::key(&event), event)).collect();
    once.into_values().collect()
}

fn snapshots(objects: &[Value], names: &Names) -> Value {
    let reported = objects.iter().map(|snapshot| identified(snapshot, &["finalizers"]).into());
    sorted_by(reported, names, |snapshot| text(snapshot, "/name").to_owned()).into()
}

fn capacities(objects: Vec<Value>, names: &Names) -> Value {
    let reported = objects.into_iter().map(|mut capacity| {
        let kept = meta(&capacity, &["labels", "ownerReferences", "namespace"]);
        if let Some(fields) = capacity.as_object_mut() {
            fields.remove("kind");
            fields.remove("apiVersion");
            fields.insert("metadata".into(), kept.into());
        }
        capacity
    });
    sorted_by(reported, names, yaml::key).into()
}

fn leases(objects: &[Value], names: &Names) -> Value {
    let ours = objects.iter().filter(|o| !text(o, "/metadata/namespace").starts_with("kube-"));
    let reported = ours.map(|lease| {
        let mut reported = identified(lease, &["labels"]);
        reported.remove("deleting");
        let held = !text(lease, "/spec/holderIdentity").is_empty();
        reported.insert("held".into(), held.into());
        reported.into()
    });
    sorted_by(reported, names, |lease| text(lease, "/name").to_owned()).into()
}

/// Which families of metrics are the reference's own, without the buckets and sums.
static OWN_METRICS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let own =
        "^(controller_|csi_sidecar_operations_seconds_count|csistoragecapacit|leader_election)";
    Regex::new(own).ok()
});

fn reported_metrics(page: &str, names: &Names) -> Value {
    let own = |line: &&str| {
        OWN_METRICS.as_ref().is_some_and(|own| own.is_match(line))
            && !line.contains("_bucket")
            && !line.contains("_sum")
    };
    let lines: Vec<_> = page.lines().filter(own).map(|line| names.norm_text(line)).collect();
    let mut texts: Vec<_> = lines.iter().filter_map(Value::as_str).collect();
    texts.sort_unstable();
    json!(texts)
}

/// Lines that match, each once and sorted, without values unless they are wanted.
pub(super) fn series(page: &str, pattern: &Regex, values: bool) -> BTreeSet<String> {
    let matching = page.lines().filter(|line| pattern.is_match(line) && !line.starts_with('#'));
    let reported = matching.map(|line| {
        let bare = line.rsplit_once(' ').map_or(line, |(series, _)| series);
        if values { line } else { bare }
    });
    reported.map(str::to_owned).collect()
}
