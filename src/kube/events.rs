//! Records core/v1 events, as client-go does.
//!
//! A [`Recorder`] has a queue of events (`pending`) and a task that writes them. Messages are truncated,
//! similar events are counted or combined (`correlate`), failed writes are retried. Recording an event never
//! waits and never fails. Events about one object keep their order. An event that the server does not accept
//! delays only events about its own object. An object's final event is not dropped to keep limits.

mod correlate;
mod digest;
mod pending;
mod recorder;

use std::sync::Arc;

use jiff::Timestamp;
pub use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::{Value, json};

pub use self::recorder::{ComponentRecorder, Recorder};
use crate::plain_text::shorten;

/// The longest message, in bytes; some drivers' statuses have 1,500. The API server keeps hundreds of events per
/// namespace, and `kubectl describe` prints them all.
const MAX_MESSAGE: usize = 2048;

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Information.
    Normal,
    /// A failure; somebody may have to act.
    Warning,
}

impl Severity {
    /// The event's `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Whether an event may be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Importance {
    /// It is recorded again as long as it is true, so it may be dropped.
    Repeatable,
    /// The last event about the object until something changes: it is not subject to the limit on
    /// events about one object, nor to the soft limit of the queue.
    Final,
}

/// An event as it waits to be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// Its name.
    pub(super) name: String,
    /// `involvedObject`.
    pub(super) about: Arc<ObjectReference>,
    /// `source.component`.
    pub(super) component: Arc<str>,
    /// `reportingComponent`: the component, or empty for combined events, as in client-go.
    pub(super) reporting_component: Arc<str>,
    /// `type`.
    pub(super) severity: Severity,
    /// Whether it may be dropped.
    pub(super) importance: Importance,
    /// The machine-readable reason.
    pub(super) reason: &'static str,
    /// The human-readable message, [`truncated`].
    pub(super) message: String,
    /// How long the message was, in bytes.
    pub(super) full_length: usize,
    /// `firstTimestamp`.
    pub(super) first: Timestamp,
    /// `lastTimestamp`.
    pub(super) last: Timestamp,
    /// How often it occurred.
    pub(super) count: i32,
}

impl Event {
    /// The event's namespace: that of the object, or `default`.
    pub(super) fn namespace(&self) -> &str {
        self.about.namespace.as_deref().unwrap_or("default")
    }

    /// The strategic merge patch that updates an earlier event to this one.
    pub(super) fn to_patch(&self) -> Value {
        let mut patch = json!({"count": self.count, "lastTimestamp": Time(self.last)});
        // client-go computes the patch from an event without a message, so an empty one is not in it.
        if let (false, Some(fields)) = (self.message.is_empty(), patch.as_object_mut()) {
            fields.insert("message".to_owned(), (*self.message).into());
        }
        patch
    }

    /// The object that the API server is to keep.
    pub(super) fn to_object(&self) -> core::Event {
        core::Event {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: (*self.about).clone(),
            reason: Some(self.reason.to_owned()),
            message: Some(self.message.clone()),
            source: Some(core::EventSource {
                component: Some(self.component.to_string()),
                host: None,
            }),
            first_timestamp: Some(Time(self.first)),
            last_timestamp: Some(Time(self.last)),
            count: Some(self.count),
            type_: Some(self.severity.as_str().to_owned()),
            reporting_component: Some(self.reporting_component.to_string()),
            ..core::Event::default()
        }
    }
}

/// A message that is short enough, from the beginning of one of `full_length` bytes.
fn truncated(full_length: usize, mut message: String) -> String {
    if full_length > MAX_MESSAGE {
        shorten(&mut message, 0, full_length, MAX_MESSAGE);
    }
    message.shrink_to_fit();
    message
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An event about the claim `name` at `second`.
    pub(in crate::kube::events) fn event(
        name: &str,
        reason: &'static str,
        message: &str,
        second: i64,
    ) -> Event {
        let time = Timestamp::from_second(second).unwrap();
        Event {
            name: format!("{name}.{:x}", time.as_nanosecond()),
            about: Arc::new(ObjectReference {
                kind: Some("PersistentVolumeClaim".to_owned()),
                api_version: Some("v1".to_owned()),
                namespace: Some("ns".to_owned()),
                name: Some(name.to_owned()),
                uid: Some(format!("uid-{name}")),
                resource_version: Some("7".to_owned()),
                ..ObjectReference::default()
            }),
            component: "driver_host_id".into(),
            reporting_component: "driver_host_id".into(),
            severity: Severity::Normal,
            importance: Importance::Repeatable,
            reason,
            message: message.to_owned(),
            full_length: message.len(),
            first: time,
            last: time,
            count: 1,
        }
    }

    #[test]
    fn an_event_is_serialized_as_by_client_go() {
        let event = event("c", "Provisioning", "text", 1_700_000_000);
        assert_eq!(
            serde_json::to_value(event.to_object()).unwrap(),
            json!({
                "kind": "Event",
                "apiVersion": "v1",
                "metadata": {"name": "c.17979cfe362a0000", "namespace": "ns"},
                "involvedObject": {
                    "kind": "PersistentVolumeClaim",
                    "namespace": "ns",
                    "name": "c",
                    "uid": "uid-c",
                    "apiVersion": "v1",
                    "resourceVersion": "7",
                },
                "reason": "Provisioning",
                "message": "text",
                "source": {"component": "driver_host_id"},
                "firstTimestamp": "2023-11-14T22:13:20Z",
                "lastTimestamp": "2023-11-14T22:13:20Z",
                "count": 1,
                "type": "Normal",
                "reportingComponent": "driver_host_id",
            })
        );
    }

    #[test]
    fn texts_above_two_kibibytes_are_truncated_between_characters() {
        let of = |text: String| truncated(text.len(), text);
        let whole = "x".repeat(MAX_MESSAGE);
        assert_eq!(of(whole.clone()), whole);
        let cut = of("x".repeat(2049));
        assert_eq!(cut, ["x".repeat(2027), "\u{2026} (cut, 2049 bytes)".into()].concat());
        let odd = of(format!("x{}", "\u{2603}".repeat(1000)));
        assert!((MAX_MESSAGE - 2..=MAX_MESSAGE).contains(&odd.len()), "{odd}");
    }
}
