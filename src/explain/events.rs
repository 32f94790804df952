//! What the events about an object say.

use crate::{kube::objects::RecordedEvent, status::duration};

/// How long ago `then` was, in words.
pub(super) fn since(now: jiff::Timestamp, then: jiff::Timestamp) -> String {
    duration(u64::try_from(now.duration_since(then).as_secs()).unwrap_or_default())
}

/// The newest event with one of these reasons.
pub(super) fn last<'a>(events: &'a [RecordedEvent], reasons: &[&str]) -> Option<&'a RecordedEvent> {
    let events = events.iter().filter(|event| reasons.contains(&event.reason.as_str()));
    events.max_by_key(|event| event.last_time())
}

/// The newest event about an attempt for a claim. That an attempt begins counts only if there is no other:
/// it is reported right before each failure.
pub(super) fn last_attempt(events: &[RecordedEvent]) -> Option<&RecordedEvent> {
    let is_result = |event: &&RecordedEvent| match event.reason.as_str() {
        "ProvisioningFailed" => true,
        "Provisioning" => event.message.starts_with("Still "),
        _ => false,
    };
    let results = events.iter().filter(is_result);
    results.max_by_key(|event| event.last_time()).or_else(|| last(events, &["Provisioning"]))
}

/// The event in words: its text, how often and when it happened.
pub(super) fn reported(event: &RecordedEvent, now: jiff::Timestamp) -> String {
    let when = event.last_time().map(|then| format!("{} ago", since(now, then)));
    let when = when.unwrap_or_else(|| "at an unknown time".to_owned());
    let count = event.count.filter(|count| *count > 1);
    let count = count.map(|count| format!(", {count} times")).unwrap_or_default();
    format!("The last event says ({when}{count}): {}.", event.message.trim_end_matches('.'))
}
