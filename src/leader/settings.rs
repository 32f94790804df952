//! The settings of an election. `flags` has checked that the durations are consistent.

use super::CandidateIdentity;
use crate::flags;

/// client-go's `JitterFactor`: the delay between two reads is longer by up to this many retry periods.
pub(super) const JITTER: f64 = 1.2;

/// The Lease, identity and flags of an election.
#[derive(Debug, Clone)]
pub struct ElectionSettings {
    /// The Lease's name; see [`lease_name`](super::lease_name).
    pub lease_name: String,
    /// The Lease's namespace; see [`namespace`](super::namespace).
    pub namespace: String,
    /// The candidate's identity.
    pub identity: CandidateIdentity,
    /// The durations, and the labels that every write sets on the Lease. Other labels are kept.
    pub flags: flags::LeaderElection,
}

impl ElectionSettings {
    /// The `leaseDurationSeconds`: rounded up, so that other candidates never wait for less.
    pub(super) fn lease_seconds(&self) -> i32 {
        let duration = self.flags.lease_duration;
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        i32::try_from(seconds).unwrap_or(i32::MAX)
    }
}

/// The settings of a candidate with default durations.
#[cfg(test)]
pub(super) fn settings(host: &str, pod_uid: Option<&str>) -> ElectionSettings {
    use std::time::Duration;

    ElectionSettings {
        lease_name: "lease".into(),
        namespace: "ns".into(),
        identity: CandidateIdentity::new(host, pod_uid),
        flags: flags::LeaderElection {
            leader_election: true,
            namespace: None,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(5),
            labels: Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn fractions_of_seconds_are_rounded_up() {
        for (millis, seconds) in [(15_000, 15), (2_001, 3), (900, 1)] {
            let mut settings = settings("host", None);
            settings.flags.lease_duration = Duration::from_millis(millis);
            assert_eq!(settings.lease_seconds(), seconds);
        }
    }
}
