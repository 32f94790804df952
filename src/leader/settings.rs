//! The settings of an election. `flags` has checked that the durations are consistent.

use std::{collections::BTreeMap, time::Duration};

use super::CandidateIdentity;

/// client-go's `JitterFactor`: the delay between two reads is longer by up to this many retry periods.
pub(super) const JITTER: f64 = 1.2;

/// The Lease, identity and durations of an election.
#[derive(Debug, Clone)]
pub struct ElectionSettings {
    /// The Lease's name; see [`lease_name`](super::lease_name).
    pub lease_name: String,
    /// The Lease's namespace; see [`namespace`](super::namespace).
    pub namespace: String,
    /// The candidate's identity.
    pub identity: CandidateIdentity,
    /// How long other candidates wait after this holder's last renewal.
    pub lease_duration: Duration,
    /// How long a holder leads after its last successful renewal.
    pub renew_deadline: Duration,
    /// The interval between renewals of a holder, and between reads of a candidate.
    pub retry_period: Duration,
    /// Labels that every write sets on the Lease. Other labels are kept.
    pub labels: BTreeMap<String, String>,
}

impl ElectionSettings {
    /// The `leaseDurationSeconds`: rounded up, so that other candidates never wait for less.
    pub(super) fn lease_seconds(&self) -> i32 {
        let seconds =
            self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        i32::try_from(seconds).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(lease: u64, renew: u64, retry: u64) -> ElectionSettings {
        ElectionSettings {
            lease_name: "l".into(),
            namespace: "n".into(),
            identity: CandidateIdentity::new("h", None),
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            retry_period: Duration::from_millis(retry),
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn fractions_of_seconds_are_rounded_up() {
        assert_eq!(settings(15_000, 1, 1).lease_seconds(), 15);
        assert_eq!(settings(2_001, 1, 1).lease_seconds(), 3);
        assert_eq!(settings(900, 1, 1).lease_seconds(), 1);
    }
}
