//! Views of events: as this program writes them, and as it reads those of others.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use serde::Deserialize;

use super::{Metadata, View};

view! {
    /// A core/v1 Event. Events are only written; of the answers only the metadata is read.
    Event: Namespaced "" "v1" "Event" "events" {}
}

view! {
    /// A core/v1 Event as others read it.
    RecordedEvent: Namespaced "" "v1" "Event" "events" {
        /// The object that it is about.
        involved_object: InvolvedObject,
        /// Who wrote it, by its own word.
        source: EventWriter,
        /// The reason, in one word.
        reason: String,
        /// The text.
        message: String,
        /// `Normal` or `Warning`.
        r#type: String,
        /// How often it has happened, for events that are counted.
        count: Option<u32>,
        /// When it last happened, for events that are counted.
        last_timestamp: Option<Time>,
        /// When it first happened.
        first_timestamp: Option<Time>,
        /// When it first happened, as writers of the newer API say it.
        event_time: Option<MicroTime>,
        /// Its repetitions, as writers of the newer API say them.
        series: Option<EventSeries>,
    }
}

impl RecordedEvent {
    /// When it last happened, in whichever field its writer says so.
    pub fn last_time(&self) -> Option<Timestamp> {
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
pub struct EventSeries {
    /// When it last happened.
    pub last_observed_time: Option<MicroTime>,
}

/// `source` of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EventWriter {
    /// The component.
    pub component: String,
}

/// The object that an event is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct InvolvedObject {
    /// Its UID.
    pub uid: String,
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
}
