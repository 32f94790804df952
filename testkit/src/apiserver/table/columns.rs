//! The columns of each kind's table, after kube-apiserver's printers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use crate::apiserver::{
    resources::Kind,
    tree::{at, items, members, text},
};

/// What stands in a cell.
#[derive(Clone, Copy)]
enum Content {
    /// The string at a path; empty when absent.
    Text(&'static [&'static str]),
    /// The string at a path, or a word for its absence.
    TextOr(&'static [&'static str], &'static str),
    /// The value at a path as it is, or a default.
    Plain(&'static [&'static str], fn() -> Value),
    /// How many members or elements are at a path.
    Count(&'static [&'static str]),
    /// How long ago the first of the paths that has a time was.
    Age(&'static [&'static [&'static str]]),
    /// What a function makes of the object.
    Made(fn(&Value) -> Value),
}

/// A column: its head and what its cells hold.
#[derive(Clone, Copy)]
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    /// Columns above 0 show with `-o wide` only.
    priority: u8,
    content: Content,
}

const NAME: Column =
    Column { format: "name", ..column("Name", Content::Text(&["metadata", "name"])) };
const AGE: Column = column("Age", Content::Age(&[&["metadata", "creationTimestamp"]]));
const CREATED_AT: Column = column("Created At", Content::Text(&["metadata", "creationTimestamp"]));
const VOLUME_MODE: Column = wide(column("VolumeMode", Content::Made(volume_mode)));

const fn column(name: &'static str, content: Content) -> Column {
    let kind = match content {
        Content::Count(_) => "integer",
        _ => "string",
    };
    Column { name, kind, format: "", priority: 0, content }
}

const fn typed(kind: &'static str, column: Column) -> Column {
    Column { kind, ..column }
}

const fn wide(column: Column) -> Column {
    Column { priority: 1, ..column }
}

impl Column {
    pub(super) fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format,
            "description": "", "priority": self.priority,
        })
    }

    pub(super) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match self.content {
            Content::Text(path) => text(object, path).into(),
            Content::TextOr(path, absent) => match text(object, path) {
                "" => absent.into(),
                text => text.into(),
            },
            Content::Plain(path, absent) => match at(object, path) {
                Value::Null => absent(),
                value => value.clone(),
            },
            Content::Count(path) => {
                items(object, path).len().max(members(object, path).count()).into()
            }
            Content::Age(paths) => {
                let stamp = paths.iter().map(|path| text(object, path)).find(|s| !s.is_empty());
                age(stamp.unwrap_or_default(), now).into()
            }
            Content::Made(make) => make(object),
        }
    }
}

/// The columns of `kind`'s table.
pub(super) fn columns(kind: &Kind) -> Vec<Column> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "PersistentVolume") => persistent_volume(),
        ("", "PersistentVolumeClaim") => persistent_volume_claim(),
        ("", "Event") => event(),
        ("", "Pod") => pod(),
        ("", "Node") => node(),
        ("", name) => core(name),
        ("storage.k8s.io", name) => storage(name),
        ("apps", name) => workload(name),
        ("rbac.authorization.k8s.io", name) => access(name),
        ("coordination.k8s.io", "Lease") => {
            vec![NAME, column("Holder", Content::Text(&["spec", "holderIdentity"])), AGE]
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => vec![NAME, CREATED_AT],
        _ => vec![NAME, AGE],
    }
}

fn persistent_volume() -> Vec<Column> {
    vec![
        NAME,
        column("Capacity", Content::Text(&["spec", "capacity", "storage"])),
        column("Access Modes", Content::Made(|pv| access_modes(at(pv, &["spec", "accessModes"])))),
        column("Reclaim Policy", Content::Text(&["spec", "persistentVolumeReclaimPolicy"])),
        column("Status", Content::Made(phase)),
        column("Claim", Content::Made(claim)),
        column("StorageClass", Content::Made(class)),
        column("VolumeAttributesClass", Content::Made(attributes_class)),
        column("Reason", Content::Text(&["status", "reason"])),
        AGE,
        VOLUME_MODE,
    ]
}

fn persistent_volume_claim() -> Vec<Column> {
    vec![
        NAME,
        column("Status", Content::Made(phase)),
        column("Volume", Content::Text(&["spec", "volumeName"])),
        column("Capacity", Content::Made(|pvc| of_bound(pvc, &["status", "capacity", "storage"]))),
        column(
            "Access Modes",
            Content::Made(|pvc| match text(pvc, &["spec", "volumeName"]) {
                "" => "".into(),
                _ => access_modes(at(pvc, &["status", "accessModes"])),
            }),
        ),
        column("StorageClass", Content::Made(class)),
        column("VolumeAttributesClass", Content::Made(attributes_class)),
        AGE,
        VOLUME_MODE,
    ]
}

fn event() -> Vec<Column> {
    const FIRST: &[&[&str]] = &[&["firstTimestamp"], &["eventTime"]];
    const LAST: &[&[&str]] = &[&["series", "lastObservedTime"], &["lastTimestamp"], &["eventTime"]];
    vec![
        column("Last Seen", Content::Age(LAST)),
        column("Type", Content::Text(&["type"])),
        column("Reason", Content::Text(&["reason"])),
        column("Object", Content::Made(event_object)),
        wide(column("Subobject", Content::Text(&["involvedObject", "fieldPath"]))),
        wide(column("Source", Content::Made(event_source))),
        column("Message", Content::Made(|event| text(event, &["message"]).trim().into())),
        wide(column("First Seen", Content::Age(FIRST))),
        wide(typed("integer", column("Count", Content::Made(event_count)))),
        wide(NAME),
    ]
}

fn pod() -> Vec<Column> {
    vec![
        NAME,
        column("Ready", Content::Made(ready_containers)),
        column("Status", Content::Made(phase)),
        column("Restarts", Content::Made(restarts)),
        AGE,
        wide(column("IP", Content::TextOr(&["status", "podIP"], "<none>"))),
        wide(column("Node", Content::TextOr(&["spec", "nodeName"], "<none>"))),
        wide(column("Nominated Node", Content::TextOr(&["status", "nominatedNodeName"], "<none>"))),
        wide(column("Readiness Gates", Content::TextOr(&[], "<none>"))),
    ]
}

fn node() -> Vec<Column> {
    vec![
        NAME,
        column("Status", Content::Made(node_status)),
        column("Roles", Content::Made(node_roles)),
        AGE,
        column("Version", Content::Text(&["status", "nodeInfo", "kubeletVersion"])),
    ]
}

fn core(kind: &str) -> Vec<Column> {
    match kind {
        "Namespace" => vec![NAME, column("Status", Content::Text(&["status", "phase"])), AGE],
        "Secret" => vec![
            NAME,
            column("Type", Content::Text(&["type"])),
            column("Data", Content::Count(&["data"])),
            AGE,
        ],
        "ConfigMap" => vec![NAME, column("Data", Content::Count(&["data"])), AGE],
        "ServiceAccount" => vec![NAME, column("Secrets", Content::Count(&["secrets"])), AGE],
        _ => vec![NAME, AGE],
    }
}

fn storage(kind: &str) -> Vec<Column> {
    let no = || Value::Bool(false);
    match kind {
        "StorageClass" => vec![
            Column { content: Content::Made(class_name), ..NAME },
            column("Provisioner", Content::Text(&["provisioner"])),
            column("ReclaimPolicy", Content::TextOr(&["reclaimPolicy"], "Delete")),
            column("VolumeBindingMode", Content::TextOr(&["volumeBindingMode"], "Immediate")),
            typed(
                "boolean",
                column("AllowVolumeExpansion", Content::Plain(&["allowVolumeExpansion"], no)),
            ),
            AGE,
        ],
        "CSINode" => vec![NAME, column("Drivers", Content::Count(&["spec", "drivers"])), AGE],
        "VolumeAttachment" => vec![
            NAME,
            column("Attacher", Content::Text(&["spec", "attacher"])),
            column("PV", Content::Text(&["spec", "source", "persistentVolumeName"])),
            column("Node", Content::Text(&["spec", "nodeName"])),
            typed("boolean", column("Attached", Content::Plain(&["status", "attached"], no))),
            AGE,
        ],
        "CSIStorageCapacity" => vec![
            NAME,
            column("StorageClassName", Content::Text(&["storageClassName"])),
            column("Capacity", Content::TextOr(&["capacity"], "<unset>")),
        ],
        "VolumeAttributesClass" => {
            vec![NAME, column("DriverName", Content::Text(&["driverName"])), AGE]
        }
        _ => vec![NAME, AGE],
    }
}

fn workload(kind: &str) -> Vec<Column> {
    let number = |name, path| typed("integer", column(name, Content::Plain(path, || 0.into())));
    match kind {
        "ReplicaSet" => vec![
            NAME,
            number("Desired", &["spec", "replicas"]),
            number("Current", &["status", "replicas"]),
            number("Ready", &["status", "readyReplicas"]),
            AGE,
        ],
        "Deployment" => vec![
            NAME,
            column("Ready", Content::Made(ready_replicas)),
            number("Up-to-date", &["status", "updatedReplicas"]),
            number("Available", &["status", "availableReplicas"]),
            AGE,
        ],
        "StatefulSet" => vec![NAME, column("Ready", Content::Made(ready_replicas)), AGE],
        "DaemonSet" => vec![
            NAME,
            number("Desired", &["status", "desiredNumberScheduled"]),
            number("Current", &["status", "currentNumberScheduled"]),
            number("Ready", &["status", "numberReady"]),
            number("Up-to-date", &["status", "updatedNumberScheduled"]),
            number("Available", &["status", "numberAvailable"]),
            column("Node Selector", Content::Made(node_selector)),
            AGE,
        ],
        _ => vec![NAME, AGE],
    }
}

fn access(kind: &str) -> Vec<Column> {
    match kind {
        "Role" | "ClusterRole" => vec![NAME, CREATED_AT],
        _ => vec![NAME, column("Role", Content::Made(role_ref)), AGE],
    }
}

// === Cells ===

fn phase(object: &Value) -> Value {
    match text(object, &["metadata", "deletionTimestamp"]) {
        "" => text(object, &["status", "phase"]).into(),
        _ => "Terminating".into(),
    }
}

/// `RWO,ROX`: each mode once, in the printers' order.
fn access_modes(modes: &Value) -> Value {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let named = |long: &str| items(modes, &[]).iter().any(|mode| mode == long);
    let short: Vec<&str> =
        SHORT.into_iter().filter(|(long, _)| named(long)).map(|(_, short)| short).collect();
    short.join(",").into()
}

/// What a claim has of its volume; nothing before it has one.
fn of_bound(claim: &Value, path: &[&str]) -> Value {
    match text(claim, &["spec", "volumeName"]) {
        "" => "".into(),
        _ => text(claim, path).into(),
    }
}

fn claim(volume: &Value) -> Value {
    match text(volume, &["spec", "claimRef", "name"]) {
        "" => "".into(),
        name => format!("{}/{name}", text(volume, &["spec", "claimRef", "namespace"])).into(),
    }
}

/// The class by its old annotation or by its field.
fn class(object: &Value) -> Value {
    let old = text(object, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    match old {
        "" => text(object, &["spec", "storageClassName"]).into(),
        old => old.into(),
    }
}

fn attributes_class(object: &Value) -> Value {
    match text(object, &["spec", "volumeAttributesClassName"]) {
        "" => "<unset>".into(),
        name => name.into(),
    }
}

fn volume_mode(object: &Value) -> Value {
    match text(object, &["spec", "volumeMode"]) {
        "" => "<unset>".into(),
        mode => mode.into(),
    }
}

fn class_name(class: &Value) -> Value {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let name = text(class, &["metadata", "name"]);
    match text(class, &["metadata", "annotations", DEFAULT]) {
        "true" => format!("{name} (default)").into(),
        _ => name.into(),
    }
}

fn event_object(event: &Value) -> Value {
    let kind = text(event, &["involvedObject", "kind"]).to_lowercase();
    match text(event, &["involvedObject", "name"]) {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

fn event_source(event: &Value) -> Value {
    let or = |first: &'static [&str], second: &'static [&str]| match text(event, first) {
        "" => text(event, second),
        found => found,
    };
    let component = or(&["source", "component"], &["reportingComponent"]);
    match or(&["source", "host"], &["reportingInstance"]) {
        "" => component.into(),
        host => format!("{component}, {host}").into(),
    }
}

fn event_count(event: &Value) -> Value {
    let first = [at(event, &["series", "count"]), at(event, &["count"])];
    first.into_iter().find(|count| count.is_number()).cloned().unwrap_or_else(|| 1.into())
}

fn ready_containers(pod: &Value) -> Value {
    let ready = items(pod, &["status", "containerStatuses"])
        .iter()
        .filter(|status| at(status, &["ready"]) == true)
        .count();
    format!("{ready}/{}", items(pod, &["spec", "containers"]).len()).into()
}

fn restarts(pod: &Value) -> Value {
    let statuses = items(pod, &["status", "containerStatuses"]);
    let sum: u64 = statuses.iter().filter_map(|s| at(s, &["restartCount"]).as_u64()).sum();
    sum.to_string().into()
}

fn ready_replicas(workload: &Value) -> Value {
    let number = |path: &[&str]| at(workload, path).as_u64().unwrap_or(0);
    format!("{}/{}", number(&["status", "readyReplicas"]), number(&["spec", "replicas"])).into()
}

fn node_selector(set: &Value) -> Value {
    let selector: Vec<String> = members(set, &["spec", "template", "spec", "nodeSelector"])
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if selector.is_empty() { "<none>".into() } else { selector.join(",").into() }
}

fn node_status(node: &Value) -> Value {
    let ready = items(node, &["status", "conditions"])
        .iter()
        .find(|condition| text(condition, &["type"]) == "Ready");
    let status = match ready.map(|condition| text(condition, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if at(node, &["spec", "unschedulable"]) == true {
        format!("{status},SchedulingDisabled").into()
    } else {
        status.into()
    }
}

fn node_roles(node: &Value) -> Value {
    let roles: Vec<&str> = members(node, &["metadata", "labels"])
        .filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    if roles.is_empty() { "<none>".into() } else { roles.join(",").into() }
}

fn role_ref(binding: &Value) -> Value {
    format!("{}/{}", text(binding, &["roleRef", "kind"]), text(binding, &["roleRef", "name"]))
        .into()
}
