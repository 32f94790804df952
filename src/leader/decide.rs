//! What a candidate does next, from what it saw and when: a pure function.

use std::time::Duration;

use super::{
    ElectionSettings, Identity,
    record::{Record, micro_time},
};

/// What a candidate knows of its Lease.
#[derive(Debug, Clone)]
pub(super) struct Observation<'a> {
    /// The candidate and its times.
    pub(super) settings: &'a ElectionSettings,
    /// The Lease.
    pub(super) seen: &'a Seen,
    /// What this process wrote, or tried to write without learning the end.
    pub(super) written: &'a [Record],
    /// The transitions at which this process leads; `None` while it does not.
    pub(super) leads_at: Option<i64>,
    /// The wall clock, for what is written down.
    pub(super) wall: jiff::Timestamp,
}

/// What was seen of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// It does not exist, and no other process may still count on it.
    Absent,
    /// It carries this record, and has done so since this time on the boot clock; or it did when it
    /// was deleted, which its holder may not know yet.
    Held {
        /// The record.
        record: Record,
        /// When it was first seen, or first missed by a look.
        since: Duration,
    },
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Make the Lease.
    Create(Record),
    /// Take the Lease over from nobody or from a silent holder; where it was deleted, make it.
    TakeOver(Record),
    /// Write it again: it is ours.
    Renew(Record),
    /// Leave it to its holder, at least until this time on the boot clock.
    Wait(Duration),
    /// Lead no longer.
    StopLeading(Loss),
}

/// Why a leader leads no longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// No renewal succeeded in time.
    #[error("the Lease could not be renewed within the renew deadline")]
    Deadline,
    /// Another holder was seen.
    #[error("the Lease is held by {0:?}")]
    OtherHolder(String),
    /// Another process with this one's identity wrote the Lease.
    #[error(
        "another process with the identity {0:?} writes the Lease; give each its own host name"
    )]
    SameName(String),
    /// Somebody led in between.
    #[error("the Lease was held by another process meanwhile")]
    Interrupted,
}

/// Decides what to do at `now` on the boot clock.
pub(super) fn decide(observation: &Observation<'_>, now: Duration) -> Step {
    let Observation { settings, seen, leads_at, .. } = observation;
    match seen {
        Seen::Absent => Step::Create(observation.new_record(0)),
        Seen::Held { record, .. } if record.holder.is_empty() => match leads_at {
            // Taking a Lease counts its transitions up, giving it back does not.
            Some(transitions) if *transitions != record.transitions => {
                Step::StopLeading(Loss::Interrupted)
            }
            _ => Step::TakeOver(observation.new_record(record.transitions.saturating_add(1))),
        },
        Seen::Held { record, since } if record.holder == settings.identity.name() => {
            observation.with_own_name(record, *since, now)
        }
        Seen::Held { record, since } => observation.with_other_holder(record, *since, now),
    }
}

impl Observation<'_> {
    /// Whether this process, or one of the same pod, wrote the record.
    pub(super) fn is_own(&self, record: &Record) -> bool {
        let Identity { name, unique } = &self.settings.identity;
        record.holder == *name && (*unique || self.written.contains(record))
    }

    fn with_own_name(&self, record: &Record, since: Duration, now: Duration) -> Step {
        let ours = self.is_own(record);
        let still_until = since.saturating_add(self.settings.retry_period.saturating_mul(2));
        if ours || (self.leads_at.is_none() && still_until <= now) {
            Step::Renew(Record {
                acquired: record.acquired.clone(),
                ..self.new_record(record.transitions)
            })
        } else if self.leads_at.is_some() {
            Step::StopLeading(Loss::SameName(record.holder.clone()))
        } else {
            Step::Wait(still_until)
        }
    }

    fn with_other_holder(&self, record: &Record, since: Duration, now: Duration) -> Step {
        if self.leads_at.is_some() {
            return Step::StopLeading(Loss::OtherHolder(record.holder.clone()));
        }
        let duration = Duration::from_secs(u64::try_from(record.seconds).unwrap_or(0));
        let ends = since.saturating_add(duration);
        if ends <= now {
            Step::TakeOver(self.new_record(record.transitions.saturating_add(1)))
        } else {
            Step::Wait(ends)
        }
    }

    /// A record of this candidate, acquired and renewed now.
    fn new_record(&self, transitions: i64) -> Record {
        let now = Some(micro_time(self.wall));
        Record {
            holder: self.settings.identity.name().to_owned(),
            seconds: self.settings.lease_seconds(),
            acquired: now.clone(),
            renewed: now,
            transitions,
        }
    }
}

#[cfg(test)]
mod tests;
