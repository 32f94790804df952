//! Decides what a candidate does next: a pure function of what it observed and when.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;

use super::{
    CandidateIdentity, ElectionSettings,
    record::{holder, micro_time, transitions},
};

/// Another's duration counts up to this or ours, whichever is longer: whoever writes a Lease must not keep
/// candidates waiting for years. Longer than any settings that are in use, so that no leader which runs with
/// other settings than ours loses its Lease between two renewals.
const LONGEST_OF_OTHERS: Duration = Duration::from_secs(180);

/// What a candidate knows about its Lease.
#[derive(Debug, Clone)]
pub(super) struct Observation<'a> {
    /// The candidate's settings.
    pub(super) settings: &'a ElectionSettings,
    /// The Lease.
    pub(super) lease: &'a ObservedLease,
    /// Whether the Lease exists, as far as is known.
    pub(super) exists: bool,
    /// The records that this process wrote, or tried to write with unknown result.
    pub(super) written: &'a [LeaseSpec],
    /// The number of transitions at which this process leads; `None` while it does not lead.
    pub(super) leads_at: Option<i32>,
    /// The wall-clock time, for the record.
    pub(super) wall: jiff::Timestamp,
}

/// What was observed of the Lease.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ObservedLease {
    /// The Lease does not exist, and no other process may still lead by it.
    Absent,
    /// The Lease has this record since this boot time, or had it when it was deleted, which its holder
    /// may not know yet.
    Held {
        /// The record.
        record: LeaseSpec,
        /// When the record was first observed, or when a read first found that the Lease is gone.
        since: Duration,
    },
}

/// The next step of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Create the Lease.
    Create(LeaseSpec),
    /// Take the Lease, which has no holder or one that stopped renewing; create it if it was deleted.
    TakeOver(LeaseSpec),
    /// Renew the Lease, which this process holds.
    Renew(LeaseSpec),
    /// Wait at least until this boot time, as another process holds the Lease.
    Wait(Duration),
    /// Stop leading.
    StopLeading(Loss),
}

/// Why a leader stopped leading.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// No renewal succeeded in time.
    #[error("the Lease could not be renewed within the renew deadline")]
    Deadline,
    /// Another process holds the Lease.
    #[error("the Lease is held by {0:?}")]
    OtherHolder(String),
    /// Another process with the same identity wrote the Lease.
    #[error(
        "another process with the identity {0:?} writes the Lease; give each its own host name"
    )]
    SameName(String),
    /// Another process led in between.
    #[error("the Lease was held by another process meanwhile")]
    Interrupted,
}

/// Decides the next step at the boot time `now`.
pub(super) fn decide(observation: &Observation<'_>, now: Duration) -> Step {
    let Observation { settings, lease, leads_at, .. } = observation;
    match lease {
        ObservedLease::Absent => Step::Create(observation.new_record(0)),
        ObservedLease::Held { record, .. } if holder(record).is_empty() => match leads_at {
            // Taking a Lease increments its transitions, releasing it does not.
            Some(at) if *at != transitions(record) => Step::StopLeading(Loss::Interrupted),
            _ => Step::TakeOver(observation.new_record(following(record))),
        },
        ObservedLease::Held { record, since } if holder(record) == settings.identity.name() => {
            observation.step_under_own_name(record, *since, now)
        }
        ObservedLease::Held { record, since } => {
            observation.step_under_other_holder(record, *since, now)
        }
    }
}

/// The number of transitions after this record. The API server takes none that is negative.
fn following(record: &LeaseSpec) -> i32 {
    transitions(record).checked_add(1).filter(|next| *next > 0).unwrap_or_default()
}

fn seconds(number: Option<i32>) -> Duration {
    Duration::from_secs(number.and_then(|number| u64::try_from(number).ok()).unwrap_or_default())
}

impl Observation<'_> {
    /// Whether this process, or one of the same pod, wrote the record.
    pub(super) fn is_own(&self, record: &LeaseSpec) -> bool {
        let CandidateIdentity { name, unique } = &self.settings.identity;
        holder(record) == *name && (*unique || self.written.contains(record))
    }

    /// The step if the record has this candidate's name.
    fn step_under_own_name(&self, record: &LeaseSpec, since: Duration, now: Duration) -> Step {
        let is_own = self.is_own(record);
        let quiet_until = since.saturating_add(self.settings.flags.retry_period.saturating_mul(2));
        if is_own || (self.leads_at.is_none() && quiet_until <= now) {
            Step::Renew(LeaseSpec {
                acquire_time: record.acquire_time.clone(),
                ..self.new_record(transitions(record))
            })
        } else if self.leads_at.is_some() {
            Step::StopLeading(Loss::SameName(holder(record).to_owned()))
        } else {
            Step::Wait(quiet_until)
        }
    }

    /// The step if another process holds the Lease.
    fn step_under_other_holder(&self, record: &LeaseSpec, since: Duration, now: Duration) -> Step {
        if self.leads_at.is_some() {
            return Step::StopLeading(Loss::OtherHolder(holder(record).to_owned()));
        }
        let ends = since.saturating_add(self.counted_duration(record));
        if ends <= now {
            Step::TakeOver(self.new_record(following(record)))
        } else {
            Step::Wait(ends)
        }
    }

    /// How long another's record counts from its last change on. After a deletion only up to our duration:
    /// a leader that can reach the API server has created the Lease again by then.
    fn counted_duration(&self, record: &LeaseSpec) -> Duration {
        let ours = seconds(Some(self.settings.lease_seconds()));
        let longest = if self.exists { ours.max(LONGEST_OF_OTHERS) } else { ours };
        seconds(record.lease_duration_seconds).min(longest)
    }

    /// Returns a record of this candidate, acquired and renewed now.
    fn new_record(&self, transitions: i32) -> LeaseSpec {
        let now = Some(micro_time(self.wall));
        LeaseSpec {
            holder_identity: Some(self.settings.identity.name().to_owned()),
            lease_duration_seconds: Some(self.settings.lease_seconds()),
            acquire_time: now.clone(),
            renew_time: now,
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests;
