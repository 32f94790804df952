//! Which event is written, counted into an earlier one, combined with similar ones, or left out.
//!
//! Owns client-go's rules (`EventCorrelator`), without time or I/O of its own:
//! 1. From the tenth different message on, events that are alike but for their message and no more
//!    than 600 s apart become one event "(combined from similar events): ..." that is counted up.
//! 2. An event like an earlier one, message included, is counted into that one.
//! 3. A source has 25 events about an object and type, and one more every 300 s.
//!
//! Each rule remembers 4096 cases at least. One difference: an object's last word passes rule 3, so
//! that success shows after many failures, and so does what blocks a claim.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    Event, Importance,
    digest::{Digest, Remembered, digest, digest_of_both},
};

const REMEMBERED: usize = 4096;
const COMBINE_FROM: usize = 10;
const ALIKE_WITHIN_SECONDS: f64 = 600.0;
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;

/// What to do with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Create it.
    Post(Event),
    /// Count it into the event of that name (`Event::to_patch`), or create it where that is gone.
    Patch(Event),
    /// Leave it out.
    Drop,
}

/// What was seen so far.
#[derive(Debug)]
pub(super) struct Correlator {
    groups: Remembered<Group>,
    written: Remembered<Written>,
    allowances: Remembered<Allowance>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            groups: Remembered::new(REMEMBERED),
            written: Remembered::new(REMEMBERED),
            allowances: Remembered::new(REMEMBERED),
        }
    }
}

/// Events alike but for their message.
#[derive(Debug)]
struct Group {
    message: Digest,
    /// Different ones, mostly none.
    others: Vec<Digest>,
    last: Timestamp,
}

impl Group {
    fn of(message: Digest, last: Timestamp) -> Self {
        Self { message, others: Vec::new(), last }
    }

    /// Takes one more in; tells whether events are combined by now.
    fn grows(&mut self, message: Digest) -> bool {
        if message != self.message && !self.others.contains(&message) {
            self.others.push(message);
        }
        let combined = self.others.len() + 1 >= COMBINE_FROM;
        if combined {
            // Stays one short of the bound. Which one goes is of no account; in Go it is chance.
            self.others.pop();
        }
        combined
    }
}

/// An event written before.
#[derive(Debug)]
struct Written {
    name: Named,
    first: Timestamp,
    count: u32,
}

/// An event's name, in little room: of thousands that are remembered.
#[derive(Debug)]
enum Named {
    /// After its object, and these nanoseconds.
    At(i64),
    /// Otherwise.
    As(String),
}

impl Named {
    fn of(event: &Event) -> Self {
        let stamp =
            event.name.strip_prefix(&event.about.name).and_then(|rest| rest.strip_prefix('.'));
        let stamp = stamp.filter(|stamp| is_usual_hex(stamp));
        let stamp = stamp.and_then(|stamp| i64::from_str_radix(stamp, 16).ok());
        stamp.map_or_else(|| Self::As(event.name.clone()), Self::At)
    }

    fn of_object(&self, object: &str) -> String {
        match self {
            Self::At(stamp) => format!("{object}.{stamp:x}"),
            Self::As(name) => name.clone(),
        }
    }
}

/// Whether a number is spelt as it is written out here: in small letters, without zeros ahead.
fn is_usual_hex(number: &str) -> bool {
    (number == "0" || !number.starts_with('0'))
        && number.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

/// How many more events a source may write about an object: a token bucket.
#[derive(Debug)]
struct Allowance {
    tokens: f64,
    refilled: Timestamp,
}

/// Judges `event`, told now.
pub(super) fn correlate(state: &mut Correlator, event: Event, now: Timestamp) -> Action {
    let (event, key) = state.combine(event, now);
    let event = state.count(event, key);
    let allowed = state.allow(&event, now);
    if !allowed && event.importance == Importance::Repeatable {
        Action::Drop
    } else if event.count > 1 {
        Action::Patch(event)
    } else {
        Action::Post(event)
    }
}

impl Correlator {
    /// Rule 1: the event to go on with, and the key it is counted under.
    fn combine(&mut self, event: Event, now: Timestamp) -> (Event, Digest) {
        let (group_key, message) = (group_key(&event), digest(&[event.message.as_str()]));
        let within = |group: &&mut Group| seconds_between(group.last, now) <= ALIKE_WITHIN_SECONDS;
        let combined = if let Some(group) = self.groups.get(group_key).filter(within) {
            group.last = now;
            group.grows(message)
        } else {
            self.groups.put(group_key, Group::of(message, now));
            false
        };
        if combined {
            (combination(event, now), group_key)
        } else {
            let key = event_key(&event);
            (event, key)
        }
    }

    /// Rule 2: counts the event into the one written under the same key.
    fn count(&mut self, mut event: Event, key: Digest) -> Event {
        if let Some(written) = self.written.get(key) {
            event.name = written.name.of_object(&event.about.name);
            event.first = written.first;
            event.count = written.count.saturating_add(1);
        }
        let name = Named::of(&event);
        self.written.put(key, Written { name, first: event.first, count: event.count });
        event
    }

    /// Rule 3: whether the source may write this event.
    fn allow(&mut self, event: &Event, now: Timestamp) -> bool {
        let key = allowance_key(event);
        let full = || Allowance { tokens: BURST, refilled: now };
        let allowance = match self.allowances.get(key) {
            Some(allowance) => allowance,
            None => self.allowances.put(key, full()),
        };
        let since = seconds_between(allowance.refilled, now).max(0.0);
        allowance.tokens = (allowance.tokens + since / REFILL_SECONDS).min(BURST);
        allowance.refilled = allowance.refilled.max(now);
        let allowed = allowance.tokens >= 1.0;
        if allowed {
            allowance.tokens -= 1.0;
        }
        allowed
    }
}

/// One event in place of many similar ones.
fn combination(event: Event, now: Timestamp) -> Event {
    Event {
        message: event.message.combined(),
        first: now,
        last: now,
        count: 1,
        // client-go leaves it out here.
        reporting_component: Arc::from(""),
        ..event
    }
}

fn seconds_between(earlier: Timestamp, later: Timestamp) -> f64 {
    later.duration_since(earlier).as_secs_f64()
}

/// What client-go's `getEventKey` joins.
fn event_key(event: &Event) -> Digest {
    key(event, &[event.reason, event.message.as_str()])
}

/// What client-go's `EventAggregatorByReasonFunc` joins, told apart from a key of one event.
fn group_key(event: &Event) -> Digest {
    key(event, &["similar", event.reason, &event.reporting_component])
}

/// What client-go's `getSpamKey` joins.
fn allowance_key(event: &Event) -> Digest {
    key(event, &[])
}

/// Who tells something of what, how bad it is, and `more`.
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
    use crate::kube::events::{Message, Severity, tests::event};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn tell(state: &mut Correlator, message: &str, second: i64) -> Action {
        correlate(state, event("c", "Reason", message, second), at(second))
    }

    fn posted(verdict: Action) -> Event {
        match verdict {
            Action::Post(event) => event,
            other => panic!("not posted: {other:?}"),
        }
    }

    fn patched(verdict: Action) -> Event {
        match verdict {
            Action::Patch(event) => event,
            other => panic!("not patched: {other:?}"),
        }
    }

    #[test]
    fn an_event_told_again_is_counted_into_the_first() {
        let mut state = Correlator::default();
        let first = posted(tell(&mut state, "m", 100));
        let again = patched(tell(&mut state, "m", 160));
        assert_eq!(
            (again.count, again.name, again.first, again.last),
            (2, first.name, at(100), at(160))
        );
        assert_eq!(patched(tell(&mut state, "m", 170)).count, 3);
        assert_eq!(posted(tell(&mut state, "other", 180)).count, 1);
    }

    #[test]
    fn another_object_reason_or_severity_is_another_event() {
        let mut state = Correlator::default();
        posted(tell(&mut state, "m", 0));
        posted(correlate(&mut state, event("d", "Reason", "m", 0), at(0)));
        posted(correlate(&mut state, event("c", "Other", "m", 0), at(0)));
        let warning = Event { severity: Severity::Warning, ..event("c", "Reason", "m", 0) };
        posted(correlate(&mut state, warning, at(0)));
    }

    /// Which fields tell events, groups of similar ones and allowances apart: client-go's
    /// `getEventKey`, `EventAggregatorByReasonFunc` and `getSpamKey`.
    #[test]
    fn keys_hold_the_fields_that_client_go_joins() {
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
            ("message", |e| e.message = Message::new("other".to_owned()), [true, false, false]),
            ("reporter", |e| e.reporting_component = "other".into(), [false, true, false]),
            ("version", |e| about(e).resource_version = "8".into(), [false; 3]),
            ("name", |e| e.name = "other".into(), [false; 3]),
        ];
        let keys = |event: &Event| [event_key(event), group_key(event), allowance_key(event)];
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
            assert_eq!(
                posted(tell(&mut state, &format!("m{n}"), n)).message.as_str(),
                format!("m{n}")
            );
        }
        let tenth = posted(tell(&mut state, "m10", 10));
        assert_eq!(tenth.message.as_str(), "(combined from similar events): m10");
        assert_eq!((tenth.first, &*tenth.reporting_component), (at(10), ""));
        let eleventh = patched(tell(&mut state, "m11", 11));
        assert_eq!(eleventh.message.as_str(), "(combined from similar events): m11");
        assert_eq!((eleventh.count, eleventh.name), (2, tenth.name));
    }

    #[test]
    fn messages_600_seconds_apart_are_not_similar() {
        for (gap, combined) in [(600, true), (601, false)] {
            let mut state = Correlator::default();
            (1..10).for_each(|n| _ = tell(&mut state, &format!("m{n}"), n));
            let tenth = posted(tell(&mut state, "m10", 9 + gap));
            assert_eq!(tenth.message.as_str().starts_with("(combined"), combined, "{gap} s");
        }
    }

    #[test]
    fn a_source_has_25_events_and_one_more_every_300_seconds() {
        let mut state = Correlator::default();
        let dropped = |state: &mut Correlator, second| tell(state, "m", second) == Action::Drop;
        let written = (0..40).filter(|_| !dropped(&mut state, 1000)).count();
        assert_eq!(written, 25);
        assert!(dropped(&mut state, 1299));
        assert!(!dropped(&mut state, 1301));
        assert!(dropped(&mut state, 1302));
        // What was left out counts nevertheless.
        assert_eq!(patched(tell(&mut state, "m", 1601)).count, 44);
    }

    #[test]
    fn each_severity_has_its_own_allowance() {
        let mut state = Correlator::default();
        (0..30).for_each(|_| _ = tell(&mut state, "m", 0));
        let warning = Event { severity: Severity::Warning, ..event("c", "Reason", "m", 0) };
        posted(correlate(&mut state, warning, at(0)));
    }

    #[test]
    fn the_last_word_passes_the_allowance() {
        let mut state = Correlator::default();
        (0..30).for_each(|_| _ = tell(&mut state, "m", 0));
        assert_eq!(tell(&mut state, "m", 0), Action::Drop);
        let last = Event {
            importance: Importance::LastWord,
            ..event("c", "ProvisioningSucceeded", "done", 0)
        };
        posted(correlate(&mut state, last, at(0)));
    }

    #[test]
    fn at_least_4096_cases_are_remembered_and_at_most_half_as_many_more() {
        let after = |others: usize| {
            let mut state = Correlator::default();
            posted(tell(&mut state, "m", 0));
            for n in 0..others {
                correlate(&mut state, event(&format!("o{n}"), "Reason", "m", 0), at(0));
            }
            tell(&mut state, "m", 1)
        };
        assert_eq!(patched(after(4095)).count, 2);
        assert_eq!(posted(after(6144)).count, 1, "forgotten");
    }

    #[test]
    fn an_event_is_patched_under_the_name_it_was_written_with() {
        for name in [
            "c.17979cfe362a0000",
            "c.0",
            "c.00",
            "c.A",
            "c.",
            "c.x",
            "other.1",
            "c",
            "c.+1",
            "c.-1",
            "c.ffffffffffffffff",
            "0b7e9f4e",
        ] {
            let mut state = Correlator::default();
            let named =
                |second| Event { name: name.to_owned(), ..event("c", "Reason", "m", second) };
            posted(correlate(&mut state, named(1), at(1)));
            let again = Event { name: "c.9".to_owned(), ..named(2) };
            assert_eq!(patched(correlate(&mut state, again, at(2))).name, name);
        }
    }

    #[test]
    fn a_clock_set_back_does_no_harm() {
        let mut state = Correlator::default();
        posted(tell(&mut state, "m", 1000));
        assert_eq!(patched(tell(&mut state, "m", 10)).count, 2);
    }
}
