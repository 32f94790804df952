//! The Lease as JSON, and the part of it that an election is about.

use serde_json::{Map, Value, json};

use super::ElectionSettings;

/// Who holds the Lease, as its `spec` says. Times are compared, never read: what counts is when
/// a change of the record was seen, by the reader's own clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// `holderIdentity`; empty when nobody holds it.
    pub holder: String,
    /// `leaseDurationSeconds`; zero when absent.
    pub seconds: i64,
    /// `acquireTime`, RFC 3339 with microseconds.
    pub acquired: Option<String>,
    /// `renewTime`, likewise.
    pub renewed: Option<String>,
    /// `leaseTransitions`: how often the holder changed.
    pub transitions: i64,
}

impl Record {
    fn of(spec: &Value) -> Self {
        let text = |field: &str| spec.get(field).and_then(Value::as_str).map(str::to_owned);
        let number = |field: &str| spec.get(field).and_then(Value::as_i64).unwrap_or_default();
        Self {
            holder: text("holderIdentity").unwrap_or_default(),
            seconds: number("leaseDurationSeconds"),
            acquired: text("acquireTime"),
            renewed: text("renewTime"),
            transitions: number("leaseTransitions"),
        }
    }

    fn write_to(&self, spec: &mut Map<String, Value>) {
        spec.insert("holderIdentity".into(), json!(self.holder));
        spec.insert("leaseDurationSeconds".into(), json!(self.seconds));
        spec.insert("acquireTime".into(), json!(self.acquired));
        spec.insert("renewTime".into(), json!(self.renewed));
        spec.insert("leaseTransitions".into(), json!(self.transitions));
    }
}

/// A time as Lease fields have it: RFC 3339 with exactly six decimals.
pub(super) fn micro_time(time: jiff::Timestamp) -> String {
    format!("{time:.6}")
}

/// A Lease as the API server sent it, kept whole so that fields unknown here survive a PUT.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease(Value);

impl Lease {
    /// The Lease in an answer of the API server.
    pub fn new(object: Value) -> Self {
        Self(object)
    }

    /// The record it carries.
    pub fn record(&self) -> Record {
        Record::of(self.0.get("spec").unwrap_or(&Value::Null))
    }

    /// Its `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.metadata("uid")
    }

    /// Its `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &str {
        self.metadata("resourceVersion")
    }

    fn metadata(&self, field: &str) -> &str {
        self.0
            .pointer("/metadata")
            .and_then(|m| m.get(field))
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// What to PUT so that the Lease carries `record` and the settings' labels; everything else,
    /// the resourceVersion with it, stays.
    pub(super) fn with(&self, record: &Record, settings: &ElectionSettings) -> Value {
        let mut object = self.0.clone();
        record.write_to(field(&mut object, &["spec"]));
        if !settings.labels.is_empty() {
            let labels = field(&mut object, &["metadata", "labels"]);
            labels.extend(settings.labels.iter().map(|(key, value)| (key.clone(), json!(value))));
        }
        object
    }

    /// What to POST to make the Lease with `record`.
    pub(super) fn fresh(record: &Record, settings: &ElectionSettings) -> Value {
        let empty = Self(json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": settings.lease_name, "namespace": settings.namespace},
            "spec": {},
        }));
        empty.with(record, settings)
    }
}

/// The object at a path, made where it is missing or no object.
fn field<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match (value, path.split_first()) {
        (Value::Object(map), None) => map,
        (Value::Object(map), Some((first, rest))) => {
            field(map.entry(*first).or_insert(Value::Null), rest)
        }
        // Made an object above.
        _ => unreachable!(),
    }
}
