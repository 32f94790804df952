//! Events: what `kubectl describe` shows at the end.
//!
//! Owns core/v1 events from the call that tells one to the API server: what an event looks like
//! (as client-go writes it), how much it says (`message`), when similar ones are counted or combined (`correlate`), and the
//! queue with its writer ([`Recorder`]). Promises that telling an event never waits and never
//! fails, that events about one object keep their order, that one the server does not take holds up
//! those about its own object only, and that an object's first event and its last word get out
//! where the server lets them. Leaves reasons and messages to those who tell.

mod correlate;
mod digest;
mod held;
mod message;
mod pending;
mod recorder;
mod sink;

use std::{borrow::Cow, fmt, sync::Arc};

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use self::message::Message;
pub(super) use self::recorder::AT_ONCE;
pub use self::recorder::{Recorder, Source};

/// The object an event is about. Fields that are empty are not written, as Go leaves them out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// Its kind, as in `PersistentVolumeClaim`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: Cow<'static, str>,
    /// Its API version, as in `v1`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: Cow<'static, str>,
    /// Its namespace; empty for kinds that have none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The version the event speaks of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Somebody may have to act.
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

/// Whether an event may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Importance {
    /// It comes again as long as it is true, so one of many may be left out.
    Repeatable,
    /// The last there is to say of the object until something changes: it passes the limit on
    /// events about one object, and the full queue.
    LastWord,
}

/// A core/v1 event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Its name, `<object>.<hex nanoseconds>`.
    pub(super) name: String,
    /// What it is about.
    pub(super) about: Arc<Subject>,
    /// Who tells it: `source.component`.
    pub(super) component: Arc<str>,
    /// `reportingComponent`: the same, but empty for combined events, where client-go leaves it out.
    pub(super) reporting_component: Arc<str>,
    /// How bad it is.
    pub(super) severity: Severity,
    /// Whether it may be left out.
    pub(super) importance: Importance,
    /// Why, in one word.
    pub(super) reason: &'static str,
    /// What, for people.
    pub(in super::events) message: Message,
    /// When it was first seen.
    pub(super) first: Timestamp,
    /// When it was last seen.
    pub(super) last: Timestamp,
    /// How often it was seen.
    pub(super) count: u32,
}

impl Event {
    /// The namespace it lives in: the object's, or `default`.
    pub(super) fn namespace(&self) -> &str {
        match self.about.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        }
    }

    /// The strategic merge patch that brings an earlier event up to this one.
    pub(super) fn to_patch(&self) -> Value {
        let mut patch = json!({"count": self.count, "lastTimestamp": Seconds(self.last)});
        // client-go compares with an empty message, and equal fields are not patched.
        let message = self.message.as_str();
        if let (false, Some(fields)) = (message.is_empty(), patch.as_object_mut()) {
            fields.insert("message".to_owned(), message.into());
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

/// The object as it is created.
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
            message: self.message.as_str(),
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

/// RFC 3339 in whole seconds, as Kubernetes writes times.
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

    /// An event about the claim `name`, told by `driver` at `second`.
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
            message: Message::new(message.to_owned()),
            first: time,
            last: time,
            count: 1,
        }
    }

    #[test]
    fn an_event_is_written_as_client_go_writes_it() {
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
    fn events_about_objects_without_namespace_live_in_default() {
        let mut event = event("pv", "VolumeFailedDelete", "text", 0);
        event.about = Arc::new(Subject { name: "pv".to_owned(), ..Subject::default() });
        let json = serde_json::to_value(event).unwrap();
        assert_eq!(json.pointer("/metadata/namespace"), Some(&json!("default")));
        assert_eq!(json.get("involvedObject"), Some(&json!({"name": "pv"})));
    }

    #[test]
    fn a_patch_holds_what_changes() {
        let again = Event { count: 3, ..event("c", "r", "text", 1_700_000_000) };
        let patch = json!({"count": 3, "lastTimestamp": "2023-11-14T22:13:20Z", "message": "text"});
        assert_eq!(again.to_patch(), patch);
        let silent = Event { message: Message::new(String::new()), ..again };
        assert_eq!(silent.to_patch().get("message"), None);
    }

    #[test]
    fn fractions_of_seconds_are_cut() {
        let time = Timestamp::from_nanosecond(1_700_000_000_999_999_999).unwrap();
        assert_eq!(Seconds(time).to_string(), "2023-11-14T22:13:20Z");
    }
}
