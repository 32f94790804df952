//! The holder's record in a Lease, which is its `spec` without what others decide, and the Lease that a
//! candidate writes.

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};

use super::ElectionSettings;

/// The record of the Lease. Its times are only compared for equality: what counts is when a change of the
/// record was observed, by the observer's own clock.
pub(super) fn record_of(lease: &Lease) -> LeaseSpec {
    let spec = lease.spec.clone().unwrap_or_default();
    LeaseSpec { preferred_holder: None, strategy: None, ..spec }
}

/// The holder that a record names, whether its time is over or not; empty without one.
pub fn holder(record: &LeaseSpec) -> &str {
    record.holder_identity.as_deref().unwrap_or_default()
}

/// The number of changes of the holder.
pub(super) fn transitions(record: &LeaseSpec) -> i32 {
    record.lease_transitions.unwrap_or_default()
}

/// A time in a record: whole microseconds, so that it equals what the server returns.
pub(super) fn micro_time(time: Timestamp) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time))
}

/// The Lease with `record` and the settings' labels; a new one without a `base`. All that others wrote on
/// the base stays, and its `resourceVersion`.
pub(super) fn written(
    base: Option<Lease>,
    record: LeaseSpec,
    settings: &ElectionSettings,
) -> Lease {
    let Lease { mut metadata, spec } = base.unwrap_or_default();
    metadata.namespace = Some(settings.namespace.clone());
    metadata.name = Some(settings.lease_name.clone());
    for (name, value) in settings.flags.labels.iter().flatten() {
        metadata.labels.get_or_insert_default().insert(name.clone(), value.clone());
    }
    let LeaseSpec { preferred_holder, strategy, .. } = spec.unwrap_or_default();
    Lease { metadata, spec: Some(LeaseSpec { preferred_holder, strategy, ..record }) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json, to_value};

    use super::*;
    use crate::leader::settings::settings;

    fn mine() -> LeaseSpec {
        let at =
            |second: i64| Some(micro_time(Timestamp::from_second(1_767_225_600 + second).unwrap()));
        LeaseSpec {
            holder_identity: Some("me".into()),
            lease_duration_seconds: Some(15),
            acquire_time: at(0),
            renew_time: at(5),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn what_others_wrote_survives_a_write() {
        let metadata = json!({
            "name": "lease", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2025-01-01T00:00:00Z", "annotations": {"n": "o"}, "finalizers": ["f"],
            "labels": {"a": "1", "b": "2"},
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "x"}],
        });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
            "spec": {"holderIdentity": "other", "preferredHolder": "p", "strategy": "s"},
        });
        let base: Lease = from_value(lease.clone()).unwrap();
        let mut settings = settings("me", None);
        settings.flags.labels = vec![[("b".to_owned(), "mine".to_owned())].into()];
        let written = written(Some(base), mine(), &settings);
        let mut expected = lease;
        expected["metadata"]["labels"]["b"] = json!("mine");
        expected["spec"] = json!({
            "holderIdentity": "me", "preferredHolder": "p", "strategy": "s", "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:05.000000Z",
            "leaseTransitions": 3,
        });
        assert_eq!(to_value(&written).unwrap(), expected);
        assert_eq!(record_of(&written), mine());
    }

    #[test]
    fn times_have_six_decimals_and_equal_what_is_read_again() {
        let time = micro_time(Timestamp::new(1_767_225_600, 1_500_999).unwrap());
        let text = to_value(&time).unwrap();
        assert_eq!(text, json!("2026-01-01T00:00:00.001500Z"));
        assert_eq!(from_value::<MicroTime>(text).unwrap(), time);
        let text: Value = to_value(micro_time(Timestamp::UNIX_EPOCH)).unwrap();
        assert_eq!(text, json!("1970-01-01T00:00:00.000000Z"));
    }
}
