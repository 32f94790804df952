//! Records core/v1 events, as client-go does.
//!
//! A [`Recorder`] has a queue of events and a task that writes them. Messages are truncated,
//! similar events are counted or combined (`correlate`), failed writes are retried. Recording an event never
//! waits and never fails. Events about one object keep their order. An event that the server does not accept
//! delays only events about its own object, and further attempts for others if 80 objects have one. An object's
//! final event is not dropped to keep limits.

mod correlate;
mod lru_map;
mod recorder;

use std::{borrow::Cow, fmt, sync::Arc};

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

pub use self::recorder::{ComponentRecorder, Recorder};
use crate::plain_text::shorten;

/// The longest message, in bytes; some drivers' statuses have 1,500. The API server keeps hundreds of events per
/// namespace, and `kubectl describe` prints them all.
const MAX_MESSAGE: usize = 2048;

/// The object an event is about. Empty fields are not serialized, as in Go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// Its kind, such as `PersistentVolumeClaim`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: Cow<'static, str>,
    /// Its API version, such as `v1`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: Cow<'static, str>,
    /// Its namespace; empty for cluster-scoped kinds.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The object's version at the time of the event.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

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

/// A core/v1 event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Its name.
    pub(super) name: String,
    /// `involvedObject`.
    pub(super) about: Arc<Subject>,
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
    pub(super) count: u32,
}

impl Event {
    /// The event's namespace: that of the object, or `default`.
    pub(super) fn namespace(&self) -> &str {
        match self.about.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        }
    }

    /// The strategic merge patch that updates an earlier event to this one.
    pub(super) fn to_patch(&self) -> Value {
        let mut patch = json!({"count": self.count, "lastTimestamp": Seconds(self.last)});
        // client-go computes the patch from an event without a message, so an empty one is not in it.
        if let (false, Some(fields)) = (self.message.is_empty(), patch.as_object_mut()) {
            fields.insert("message".to_owned(), (*self.message).into());
        }
        patch
    }
}

/// `namespace/name`, or the name alone.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// The body of the request that creates the event.
impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Metadata<'a> {
            name: &'a str,
            namespace: &'a str,
        }
        #[derive(Serialize)]
        struct Component<'a> {
            component: &'a str,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Body<'a> {
            kind: &'static str,
            api_version: &'static str,
            metadata: Metadata<'a>,
            involved_object: &'a Subject,
            reason: &'a str,
            message: &'a str,
            source: Component<'a>,
            first_timestamp: Seconds,
            last_timestamp: Seconds,
            count: u32,
            r#type: &'static str,
            event_time: Option<Seconds>,
            reporting_component: &'a str,
            reporting_instance: &'static str,
        }
        Body {
            kind: "Event",
            api_version: "v1",
            metadata: Metadata { name: &self.name, namespace: self.namespace() },
            involved_object: &self.about,
            reason: self.reason,
            message: &self.message,
            source: Component { component: &self.component },
            first_timestamp: Seconds(self.first),
            last_timestamp: Seconds(self.last),
            count: self.count,
            r#type: self.severity.as_str(),
            event_time: None,
            reporting_component: &self.reporting_component,
            reporting_instance: "",
        }
        .serialize(serializer)
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

/// RFC 3339 in whole seconds, as Kubernetes serializes times.
struct Seconds(Timestamp);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Timestamp::from_second(self.0.as_second()).unwrap_or(self.0).fmt(f)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
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
            about: Arc::new(Subject {
                kind: "PersistentVolumeClaim".into(),
                api_version: "v1".into(),
                namespace: "ns".to_owned(),
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                resource_version: "7".to_owned(),
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
            serde_json::to_value(event).unwrap(),
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
                "eventTime": null,
                "reportingComponent": "driver_host_id",
                "reportingInstance": "",
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

    #[test]
    fn fractions_of_seconds_are_truncated() {
        let time = Timestamp::from_nanosecond(1_700_000_000_999_999_999).unwrap();
        assert_eq!(Seconds(time).to_string(), "2023-11-14T22:13:20Z");
    }
}
