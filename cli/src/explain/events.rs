//! What the events about an object say.
//!
//! Only those of the driver's own provisioner count; those of others are quoted. Whoever may create events
//! in the claim's namespace can write any text in any name, so none is more than a quotation.

use csi_provisioner::csi_provisioner::EVENT_COMPONENT;

use k8s_openapi::api::core::v1::Event;

use crate::{duration::duration, objects::last_time};

/// Whether the provisioner of this driver wrote the event, by the event's own word. The component is the
/// driver's name and the identity of a process, as in external-provisioner.
pub(super) fn is_of_provisioner(event: &Event, driver: &str) -> bool {
    let component = writer(event);
    component == EVENT_COMPONENT
        || component.strip_prefix(driver).is_some_and(|rest| rest.starts_with('_'))
}

/// Who wrote it, by its own word.
fn writer(event: &Event) -> &str {
    event.source.as_ref().and_then(|source| source.component.as_deref()).unwrap_or_default()
}

/// The text.
pub(super) fn message(event: &Event) -> &str {
    event.message.as_deref().unwrap_or_default()
}

/// The reason, in one word.
pub(super) fn reason(event: &Event) -> &str {
    event.reason.as_deref().unwrap_or_default()
}

/// The newest event that somebody else wrote, in words.
pub(super) fn quoted(events: &[Event], driver: &str, now: jiff::Timestamp) -> Option<String> {
    let others = events.iter().filter(|event| !is_of_provisioner(event, driver));
    let event = others.max_by_key(|event| last_time(event))?;
    let when = last_time(event).map(|then| format!(", {} ago", since(now, then)));
    Some(format!(
        "An event of {:?} says{}: {:?}",
        writer(event),
        when.unwrap_or_default(),
        message(event)
    ))
}

/// How long ago `then` was, in words.
pub(super) fn since(now: jiff::Timestamp, then: jiff::Timestamp) -> String {
    duration(u64::try_from(now.duration_since(then).as_secs()).unwrap_or_default())
}

/// The newest event with one of these reasons.
pub(super) fn last<'a>(events: &'a [Event], driver: &str, reasons: &[&str]) -> Option<&'a Event> {
    let ours = events.iter().filter(|event| is_of_provisioner(event, driver));
    let events = ours.filter(|event| reasons.contains(&reason(event)));
    events.max_by_key(|event| last_time(event))
}

/// The newest event about an attempt for a claim. That an attempt begins counts only if there is no other:
/// it is reported right before each failure.
pub(super) fn last_attempt<'a>(events: &'a [Event], driver: &str) -> Option<&'a Event> {
    let is_result = |event: &&Event| match reason(event) {
        "ProvisioningFailed" => true,
        "Provisioning" => message(event).starts_with("Still "),
        _ => false,
    };
    let ours = events.iter().filter(|event| is_of_provisioner(event, driver));
    let results = ours.filter(is_result);
    results.max_by_key(|event| last_time(event)).or_else(|| last(events, driver, &["Provisioning"]))
}

/// The event in words: its text, how often and when it happened.
pub(super) fn reported(event: &Event, now: jiff::Timestamp) -> String {
    let when = last_time(event).map(|then| format!("{} ago", since(now, then)));
    let when = when.unwrap_or_else(|| "at an unknown time".to_owned());
    let count = event.count.filter(|count| *count > 1);
    let count = count.map(|count| format!(", {count} times")).unwrap_or_default();
    format!("The last event says ({when}{count}): {}.", message(event).trim_end_matches('.'))
}
