//! What the commands read of objects that the sidecar does not read so: events of others, pods, and Leases
//! in whichever namespace they are.

use std::time::Duration;

use csi_provisioner::{
    kube::objects::{Metadata, View},
    leader,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::LeaseSpec,
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};
use serde::Deserialize;

/// Makes a struct with `metadata` the view of a namespaced kind of version v1.
macro_rules! namespaced_view {
    ($name:ident, $group:literal $kind:literal $plural:literal) => {
        impl View for $name {
            const GROUP: &'static str = $group;
            const VERSION: &'static str = "v1";
            const KIND: &'static str = $kind;
            const PLURAL: &'static str = $plural;
            const NAMESPACED: bool = true;

            fn meta(&self) -> &Metadata {
                &self.metadata
            }
        }
    };
}

/// A core/v1 Event.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RecordedEvent {
    /// The metadata.
    pub(crate) metadata: Metadata,
    /// The object that it is about.
    pub(crate) involved_object: InvolvedObject,
    /// Who wrote it, by its own word.
    pub(crate) source: EventWriter,
    /// The reason, in one word.
    pub(crate) reason: String,
    /// The text.
    pub(crate) message: String,
    /// `Normal` or `Warning`.
    pub(crate) r#type: String,
    /// How often it has happened, for events that are counted.
    pub(crate) count: Option<u32>,
    /// When it last happened, for events that are counted.
    pub(crate) last_timestamp: Option<Time>,
    /// When it first happened.
    pub(crate) first_timestamp: Option<Time>,
    /// When it first happened, as writers of the newer API say it.
    pub(crate) event_time: Option<MicroTime>,
    /// Its repetitions, as writers of the newer API say them.
    pub(crate) series: Option<EventSeries>,
}

namespaced_view!(RecordedEvent, "" "Event" "events");

impl RecordedEvent {
    /// When it last happened, in whichever field its writer says so.
    pub(crate) fn last_time(&self) -> Option<Timestamp> {
        let of_series = self.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let precise = || of_series.map(|time| time.0);
        let [last, first] = [&self.last_timestamp, &self.first_timestamp]
            .map(|time| time.as_ref().map(|time| time.0));
        let created = || self.metadata.creation_timestamp.as_ref().map(|time| time.0);
        precise()
            .or(last)
            .or_else(|| self.event_time.as_ref().map(|time| time.0))
            .or(first)
            .or_else(created)
    }
}

/// `series` of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EventSeries {
    /// When it last happened.
    pub(crate) last_observed_time: Option<MicroTime>,
}

/// `source` of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct EventWriter {
    /// The component.
    pub(crate) component: String,
}

/// The object that an event is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct InvolvedObject {
    /// Its UID.
    pub(crate) uid: String,
}

/// A Pod: what shows whether it works.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pod {
    /// The metadata.
    pub(crate) metadata: Metadata,
    /// The current state.
    pub(crate) status: PodStatus,
}

namespaced_view!(Pod, "" "Pod" "pods");

/// `status` of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub(crate) phase: String,
    /// The containers.
    pub(crate) container_statuses: Vec<ContainerStatus>,
}

/// The state of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    /// The container's name.
    pub(crate) name: String,
    /// Whether it is ready.
    pub(crate) ready: bool,
    /// How often it was started again.
    pub(crate) restart_count: u32,
}

/// A Lease.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Lease {
    /// The metadata.
    pub(crate) metadata: Metadata,
    /// The holder's record.
    pub(crate) spec: LeaseSpec,
}

namespaced_view!(Lease, "coordination.k8s.io" "Lease" "leases");

impl Lease {
    /// The holder at `now`. A Lease without a duration is held.
    pub(crate) fn current_holder(&self, now: Timestamp) -> Option<&str> {
        let spec = &self.spec;
        let holder = Some(leader::holder(spec)).filter(|holder| !holder.is_empty())?;
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let (Some(renewed), Some(seconds)) = (&spec.renew_time, seconds) else {
            return Some(holder);
        };
        let since = Duration::try_from(now.duration_since(renewed.0)).unwrap_or_default();
        (since <= Duration::from_secs(seconds)).then_some(holder)
    }
}

/// The host name in a holder's identity, which is the pod's name unless the pod uses the host's network.
pub(crate) fn host_of(holder: &str) -> &str {
    holder.split('_').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_time_is_found_whichever_field_has_it() {
        let time = |second: u32| format!("2026-01-01T00:00:0{second}Z");
        let precise = |second: u32| format!("2026-01-01T00:00:0{second}.000000Z");
        for (event, second) in [
            (json!({"metadata": {"creationTimestamp": time(1)}}), 1),
            (json!({"firstTimestamp": time(2)}), 2),
            (json!({"firstTimestamp": time(1), "eventTime": precise(2), "lastTimestamp": null}), 2),
            (json!({"firstTimestamp": time(1), "lastTimestamp": time(3)}), 3),
            (json!({"series": {"lastObservedTime": precise(3)}, "lastTimestamp": time(1)}), 3),
        ] {
            let read: RecordedEvent = serde_json::from_value(event.clone()).unwrap();
            assert_eq!(read.last_time().map(|it| it.to_string()), Some(time(second)), "{event}");
        }
    }

    #[test]
    fn a_lease_is_held_until_it_has_run_out() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lease = |holder: &str| json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "1970-01-01T00:00:10.000000Z"});
        for (spec, now, expected) in [
            (lease("a"), 10, Some("a")),
            (lease("a"), 25, Some("a")),
            (lease("a"), 26, None),
            (lease(""), 10, None),
            (json!({"holderIdentity": "a"}), 10, Some("a")),
            (json!({"holderIdentity": "a", "leaseDurationSeconds": -1}), 10, Some("a")),
            (json!({}), 10, None),
        ] {
            let lease: Lease = serde_json::from_value(json!({"spec": &spec})).unwrap();
            assert_eq!(lease.current_holder(at(now)), expected, "{spec} {now}");
        }
    }
}
