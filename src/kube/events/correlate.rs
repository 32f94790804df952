//! Decides whether an event is created, counted into an earlier one, combined with similar ones, or
//! dropped.
//!
//! The rules are those of client-go's `EventCorrelator`:
//! 1. From the tenth different message on, events that differ only in their message and are at most
//!    600 s apart are combined to one event "(combined from similar events): ..." with a count.
//! 2. An event equal to an earlier one, including the message, increments its count.
//! 3. A source may write 25 events about an object and type, and one more every 300 s.
//!
//! Each rule has state for at least 4096 keys. Unlike in client-go, rule 3 does not apply to an
//! object's final event, so that success, or what blocks a claim, is visible after many failures.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    Event, Importance,
    lru_map::{Digest, LruMap, digest, digest_of_both},
    truncated,
};

const CAPACITY: usize = 4096;
const MAX_SIMILAR: usize = 10;
const SIMILAR_WITHIN_SECONDS: f64 = 600.0;
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;

/// client-go's prefix of combined events.
const COMBINED: &str = "(combined from similar events): ";

/// The state of the rules.
#[derive(Debug)]
pub(super) struct Correlator {
    groups: LruMap<Group>,
    written: LruMap<WrittenEvent>,
    buckets: LruMap<TokenBucket>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            groups: LruMap::new(CAPACITY),
            written: LruMap::new(CAPACITY),
            buckets: LruMap::new(CAPACITY),
        }
    }
}

/// Events that differ only in their message.
#[derive(Debug)]
struct Group {
    message: Digest,
    /// Other messages, usually none.
    others: Vec<Digest>,
    last: Timestamp,
}

impl Group {
    fn of(message: Digest, last: Timestamp) -> Self {
        Self { message, others: Vec::new(), last }
    }

    /// Adds a message; returns whether the group's events are combined.
    fn add(&mut self, message: Digest) -> bool {
        if message != self.message && !self.others.contains(&message) {
            self.others.push(message);
        }
        let combined = self.others.len() + 1 >= MAX_SIMILAR;
        if combined {
            // The group stays one short of the limit. Go removes any message, too.
            self.others.pop();
        }
        combined
    }
}

/// An event written before.
#[derive(Debug)]
struct WrittenEvent {
    name: String,
    first: Timestamp,
    count: u32,
}

/// The number of events that a source may write about an object.
#[derive(Debug)]
struct TokenBucket {
    tokens: f64,
    refilled: Timestamp,
}

/// Applies the rules to `event`, recorded at `now`. Returns the event to write: that of its name is updated if
/// it counts more than one. None if it is to be dropped.
pub(super) fn correlate(state: &mut Correlator, event: Event, now: Timestamp) -> Option<Event> {
    let (event, key) = state.combine(event, now);
    let event = state.count(event, key);
    let allowed = state.allow(&event, now);
    (allowed || event.importance == Importance::Final).then_some(event)
}

impl Correlator {
    /// The event `old` is replaced by one called `new`, which further ones are counted into.
    pub(super) fn rename(&mut self, old: &str, new: &str) {
        if let Some(written) = self.written.values_mut().find(|written| written.name == old) {
            new.clone_into(&mut written.name);
        }
    }

    /// Rule 1: returns the event, combined if need be, and the key under which it is counted.
    fn combine(&mut self, event: Event, now: Timestamp) -> (Event, Digest) {
        let (group_key, message) = (group_key(&event), digest(&[&event.message]));
        let is_recent =
            |group: &&mut Group| seconds_between(group.last, now) <= SIMILAR_WITHIN_SECONDS;
        let combined = if let Some(group) = self.groups.get(group_key).filter(is_recent) {
            group.last = now;
            group.add(message)
        } else {
            self.groups.put(group_key, Group::of(message, now));
            false
        };
        if combined {
            (combined_event(event, now), group_key)
        } else {
            let key = event_key(&event);
            (event, key)
        }
    }

    /// Rule 2: counts the event into the one written under the same key.
    fn count(&mut self, mut event: Event, key: Digest) -> Event {
        if let Some(written) = self.written.get(key) {
            event.name.clone_from(&written.name);
            event.first = written.first;
            event.count = written.count.saturating_add(1);
        }
        let name = event.name.clone();
        self.written.put(key, WrittenEvent { name, first: event.first, count: event.count });
        event
    }

    /// Rule 3: whether the source may write this event.
    fn allow(&mut self, event: &Event, now: Timestamp) -> bool {
        let key = spam_key(event);
        let full = || TokenBucket { tokens: BURST, refilled: now };
        let bucket = match self.buckets.get(key) {
            Some(bucket) => bucket,
            None => self.buckets.put(key, full()),
        };
        let elapsed = seconds_between(bucket.refilled, now).max(0.0);
        bucket.tokens = (bucket.tokens + elapsed / REFILL_SECONDS).min(BURST);
        // Also if the clock was set back: else there would be no more until it has caught up.
        bucket.refilled = now;
        let allowed = bucket.tokens >= 1.0;
        if allowed {
            bucket.tokens -= 1.0;
        }
        allowed
    }
}

/// The event that replaces similar ones.
fn combined_event(event: Event, now: Timestamp) -> Event {
    let full_length = COMBINED.len() + event.full_length;
    Event {
        message: truncated(full_length, [COMBINED, &event.message].concat()),
        full_length,
        first: now,
        last: now,
        count: 1,
        // As in client-go.
        reporting_component: Arc::from(""),
        ..event
    }
}

fn seconds_between(earlier: Timestamp, later: Timestamp) -> f64 {
    later.duration_since(earlier).as_secs_f64()
}

/// The fields of client-go's `getEventKey`.
fn event_key(event: &Event) -> Digest {
    key(event, &[event.reason, &event.message])
}

/// The fields of client-go's `EventAggregatorByReasonFunc`, distinct from an event's key.
fn group_key(event: &Event) -> Digest {
    key(event, &["similar", event.reason, &event.reporting_component])
}

/// The fields of client-go's `getSpamKey`.
fn spam_key(event: &Event) -> Digest {
    key(event, &[])
}

/// The event's component, object, type, and `more`.
fn key(event: &Event, more: &[&str]) -> Digest {
    let about = &event.about;
    let common = [
        &*event.component,
        &about.kind,
        &about.namespace,
        &about.name,
        &about.uid,
        &about.api_version,
        event.severity.as_str(),
    ];
    digest_of_both(&common, more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::events::{MAX_MESSAGE, Severity, tests::event};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn record(state: &mut Correlator, message: &str, second: i64) -> Option<Event> {
        correlate(state, event("c", "Reason", message, second), at(second))
    }

    fn posted(event: Option<Event>) -> Event {
        event.filter(|event| event.count == 1).unwrap()
    }

    fn patched(event: Option<Event>) -> Event {
        event.filter(|event| event.count > 1).unwrap()
    }

    #[test]
    fn a_repeated_event_increments_the_count_of_the_first() {
        let mut state = Correlator::default();
        let first = posted(record(&mut state, "m", 100));
        let again = patched(record(&mut state, "m", 160));
        assert_eq!(
            (again.count, again.name, again.first, again.last),
            (2, first.name, at(100), at(160))
        );
        assert_eq!(patched(record(&mut state, "m", 170)).count, 3);
        assert_eq!(posted(record(&mut state, "other", 180)).count, 1);
    }

    /// Against client-go's `getEventKey`, `EventAggregatorByReasonFunc` and `getSpamKey`.
    #[test]
    fn keys_have_the_fields_of_client_gos_keys() {
        type Change = fn(&mut Event);
        fn about(event: &mut Event) -> &mut crate::kube::events::Subject {
            Arc::make_mut(&mut event.about)
        }
        let table: [(&str, Change, [bool; 3]); 12] = [
            ("component", |e| e.component = "other".into(), [true, true, true]),
            ("kind", |e| about(e).kind = "Other".into(), [true, true, true]),
            ("namespace", |e| about(e).namespace = "other".into(), [true, true, true]),
            ("object", |e| about(e).name = "other".into(), [true, true, true]),
            ("uid", |e| about(e).uid = "other".into(), [true, true, true]),
            ("API version", |e| about(e).api_version = "v2".into(), [true, true, true]),
            ("type", |e| e.severity = Severity::Warning, [true, true, true]),
            ("reason", |e| e.reason = "Other", [true, true, false]),
            ("message", |e| e.message = "other".to_owned(), [true, false, false]),
            ("reporter", |e| e.reporting_component = "other".into(), [false, true, false]),
            ("version", |e| about(e).resource_version = "8".into(), [false; 3]),
            ("name", |e| e.name = "other".to_owned(), [false; 3]),
        ];
        let keys = |event: &Event| [event_key(event), group_key(event), spam_key(event)];
        let before = event("c", "Reason", "m", 0);
        for (field, change, differs) in table {
            let mut after = before.clone();
            change(&mut after);
            let (before, after) = (keys(&before), keys(&after));
            assert_eq!([0, 1, 2].map(|key| before[key] != after[key]), differs, "{field}");
        }
    }

    #[test]
    fn the_tenth_different_message_is_combined() {
        let mut state = Correlator::default();
        for n in 1..10 {
            assert_eq!(posted(record(&mut state, &format!("m{n}"), n)).message, format!("m{n}"));
        }
        let tenth = posted(record(&mut state, "m10", 10));
        assert_eq!(tenth.message, "(combined from similar events): m10");
        assert_eq!((tenth.first, &*tenth.reporting_component), (at(10), ""));
        let eleventh = patched(record(&mut state, "m11", 11));
        assert_eq!(eleventh.message, "(combined from similar events): m11");
        assert_eq!((eleventh.count, eleventh.name), (2, tenth.name));
    }

    #[test]
    fn a_combined_message_is_not_longer_and_has_one_note() {
        let combined = |text: &str| {
            let message = truncated(text.len(), text.to_owned());
            let similar = Event { full_length: text.len(), ..event("c", "Reason", &message, 0) };
            combined_event(similar, at(0)).message
        };
        assert_eq!(combined("no"), "(combined from similar events): no");
        for length in [2017, 2048, 2049, 5000] {
            let text = combined(&"x".repeat(length));
            let note = format!("x\u{2026} (cut, {} bytes)", length + COMBINED.len());
            assert!(text.ends_with(&note) && text.len() == MAX_MESSAGE, "{text}");
        }
        assert_eq!(combined(&"x".repeat(MAX_MESSAGE - COMBINED.len())).len(), MAX_MESSAGE);
    }

    #[test]
    fn messages_600_seconds_apart_are_not_similar() {
        for (gap, combined) in [(600, true), (601, false)] {
            let mut state = Correlator::default();
            (1..10).for_each(|n| _ = record(&mut state, &format!("m{n}"), n));
            let tenth = posted(record(&mut state, "m10", 9 + gap));
            assert_eq!(tenth.message.starts_with("(combined"), combined, "{gap} s");
        }
    }

    #[test]
    fn a_source_has_25_events_and_one_more_every_300_seconds() {
        let mut state = Correlator::default();
        let dropped = |state: &mut Correlator, second| record(state, "m", second).is_none();
        let written = (0..40).filter(|_| !dropped(&mut state, 1000)).count();
        assert_eq!(written, 25);
        assert!(dropped(&mut state, 1299));
        assert!(!dropped(&mut state, 1301));
        assert!(dropped(&mut state, 1302));
        // Dropped events count too.
        assert_eq!(patched(record(&mut state, "m", 1601)).count, 44);
    }

    #[test]
    fn a_final_event_is_not_limited() {
        let mut state = Correlator::default();
        (0..30).for_each(|_| _ = record(&mut state, "m", 0));
        assert_eq!(record(&mut state, "m", 0), None);
        let last = Event {
            importance: Importance::Final,
            ..event("c", "ProvisioningSucceeded", "done", 0)
        };
        posted(correlate(&mut state, last, at(0)));
    }

    #[test]
    fn after_a_clock_was_set_back_a_source_has_one_more_every_300_seconds_again() {
        let mut state = Correlator::default();
        (0..25).for_each(|_| assert!(record(&mut state, "m", 1_000_000).is_some()));
        let is_written =
            [10, 309, 310, 311].map(|second| record(&mut state, "m", second).is_some());
        assert_eq!(is_written, [false, false, true, false]);
    }
}
