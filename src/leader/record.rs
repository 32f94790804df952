//! The Lease as JSON, and the record in it.

use serde_json::{Map, Value, json};

use super::ElectionSettings;

/// The holder's record in the `spec` of the Lease. Its times are only compared for equality: what counts is
/// when a change of the record was observed, by the observer's own clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// `holderIdentity`; empty without a holder.
    pub(super) holder: String,
    /// `leaseDurationSeconds`; zero if absent.
    pub(super) seconds: i64,
    /// `acquireTime`, RFC 3339 with microseconds.
    pub(super) acquired: Option<String>,
    /// `renewTime`, in the same format.
    pub(super) renewed: Option<String>,
    /// `leaseTransitions`: the number of changes of the holder.
    pub(super) transitions: i64,
}

impl Record {
    fn of(spec: &Map<String, Value>) -> Self {
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

/// Formats a time as a `MicroTime`: RFC 3339 with exactly six decimals.
pub(super) fn micro_time(time: jiff::Timestamp) -> String {
    format!("{time:.6}")
}

/// A Lease as the API server sent it, with all fields, so that a PUT keeps those unknown here.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    spec: Map<String, Value>,
    labels: Map<String, Value>,
    /// The metadata without labels.
    metadata: Map<String, Value>,
    /// All other fields.
    object: Map<String, Value>,
}

impl Lease {
    /// Parses the Lease in a response of the API server.
    pub(super) fn new(object: Value) -> Self {
        let mut object = map(Some(object));
        let mut metadata = map(object.remove("metadata"));
        Self {
            spec: map(object.remove("spec")),
            labels: map(metadata.remove("labels")),
            metadata,
            object,
        }
    }

    /// Returns a new Lease with the settings' name and namespace.
    pub(super) fn to_create(settings: &ElectionSettings) -> Self {
        Self::new(json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": settings.lease_name, "namespace": settings.namespace},
        }))
    }

    /// The holder's record.
    pub(super) fn record(&self) -> Record {
        Record::of(&self.spec)
    }

    /// Its `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.metadata("uid")
    }

    /// Its `metadata.name`.
    pub fn name(&self) -> &str {
        self.metadata("name")
    }

    /// Its `metadata.namespace`.
    pub fn namespace(&self) -> &str {
        self.metadata("namespace")
    }

    /// Its `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &str {
        self.metadata("resourceVersion")
    }

    fn metadata(&self, field: &str) -> &str {
        self.metadata.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the body for a POST or PUT that sets `record` and the settings' labels. All other fields are
    /// unchanged, including the `resourceVersion`.
    pub(super) fn with(mut self, record: &Record, settings: &ElectionSettings) -> Value {
        record.write_to(&mut self.spec);
        self.labels.extend(settings.labels.iter().map(|(key, value)| (key.clone(), json!(value))));
        if !self.labels.is_empty() {
            self.metadata.insert("labels".into(), self.labels.into());
        }
        self.object.insert("metadata".into(), self.metadata.into());
        self.object.insert("spec".into(), self.spec.into());
        self.object.into()
    }
}

/// Returns the fields of a JSON object; none if the value is no object.
fn map(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::leader::CandidateIdentity;

    fn settings(labels: &[(&str, &str)]) -> ElectionSettings {
        ElectionSettings {
            lease_name: "lease".into(),
            namespace: "ns".into(),
            identity: CandidateIdentity::new("me", None),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(5),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        }
    }

    fn record() -> Record {
        Record {
            holder: "me".into(),
            seconds: 15,
            acquired: Some("2026-01-01T00:00:00.000000Z".into()),
            renewed: Some("2026-01-01T00:00:05.000000Z".into()),
            transitions: 3,
        }
    }

    #[test]
    fn unknown_fields_survive_a_write() {
        let lease = Lease::new(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "newTopField": 1,
            "metadata": {"name": "lease", "uid": "u", "resourceVersion": "7", "labels": {"a": "1", "b": "2"}},
            "spec": {"holderIdentity": "other", "preferredHolder": "p", "strategy": "s"},
        }));
        assert_eq!((lease.uid(), lease.resource_version()), ("u", "7"));
        let written = lease.with(&record(), &settings(&[("b", "mine")]));
        assert_eq!(
            written,
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "newTopField": 1,
                "metadata": {"name": "lease", "uid": "u", "resourceVersion": "7", "labels": {"a": "1", "b": "mine"}},
                "spec": {
                    "holderIdentity": "me", "preferredHolder": "p", "strategy": "s", "leaseDurationSeconds": 15,
                    "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:05.000000Z",
                    "leaseTransitions": 3,
                },
            })
        );
        assert_eq!(Lease::new(written).record(), record());
    }

    #[test]
    fn a_new_lease_has_name_namespace_and_record_and_no_empty_labels() {
        let settings = settings(&[]);
        let fresh = Lease::to_create(&settings).with(&record(), &settings);
        assert_eq!(fresh.pointer("/metadata"), Some(&json!({"name": "lease", "namespace": "ns"})));
        assert_eq!(Lease::new(fresh).record(), record());
    }

    #[test]
    fn a_lease_without_a_spec_has_no_holder() {
        for object in
            [json!({}), json!(null), json!({"spec": null}), json!({"spec": {"holderIdentity": 5}})]
        {
            assert_eq!(Lease::new(object).record(), Record::default());
        }
    }

    #[test]
    fn times_have_six_decimals() {
        let time = jiff::Timestamp::new(1_767_225_600, 1_500_999).unwrap();
        assert_eq!(micro_time(time), "2026-01-01T00:00:00.001500Z");
        assert_eq!(micro_time(jiff::Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
