//! How an election is run.

use std::{collections::BTreeMap, time::Duration};

use super::Identity;

/// client-go's `JitterFactor`: a pause between two looks lasts up to this many retry periods more.
pub(super) const JITTER: f64 = 1.2;

/// One election's Lease, candidate and times.
#[derive(Debug, Clone)]
pub struct ElectionSettings {
    /// The Lease's name: [`lease_name`](super::lease_name) of the driver's.
    pub lease_name: String,
    /// The Lease's namespace: [`namespace`](super::namespace).
    pub namespace: String,
    /// Who this candidate is.
    pub identity: Identity,
    /// How long others wait after this holder's last sign of life.
    pub lease_duration: Duration,
    /// How long after its last successful renewal a holder goes on.
    pub renew_deadline: Duration,
    /// How often a holder renews; how often a candidate looks.
    pub retry_period: Duration,
    /// Set on the Lease whenever it is written; other labels stay.
    pub labels: BTreeMap<String, String>,
}

/// The times do not fit together; client-go's texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Another candidate could take the Lease before this one has let go.
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseDuration,
    /// There would be no time for a second try.
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    RenewDeadline,
    /// Renewing would never pause.
    #[error("retryPeriod must be greater than zero")]
    RetryPeriod,
}

impl ElectionSettings {
    /// Checks that the times fit together.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.lease_duration <= self.renew_deadline {
            Err(SettingsError::LeaseDuration)
        } else if self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            Err(SettingsError::RenewDeadline)
        } else if self.retry_period.is_zero() {
            Err(SettingsError::RetryPeriod)
        } else {
            Ok(())
        }
    }

    /// The duration written into the Lease, in whole seconds: rounded up, so that nobody counts
    /// it shorter than this process does.
    pub(super) fn lease_seconds(&self) -> i64 {
        let seconds =
            self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        i64::try_from(seconds).unwrap_or(i64::MAX).min(i64::from(i32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(lease: u64, renew: u64, retry: u64) -> ElectionSettings {
        ElectionSettings {
            lease_name: "l".into(),
            namespace: "n".into(),
            identity: Identity::new("h", None),
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            retry_period: Duration::from_millis(retry),
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn times_that_do_not_fit_are_refused_with_the_originals_words() {
        for (lease, renew, retry, error) in [
            (15_000, 10_000, 5_000, None),
            (10_000, 10_000, 5_000, Some("leaseDuration must be greater than renewDeadline")),
            (
                15_000,
                6_000,
                5_000,
                Some("renewDeadline must be greater than retryPeriod*JitterFactor"),
            ),
            (15_000, 6_001, 5_000, None),
            (15_000, 10_000, 0, Some("retryPeriod must be greater than zero")),
            (0, 0, 0, Some("leaseDuration must be greater than renewDeadline")),
        ] {
            let found = settings(lease, renew, retry).check().err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), error, "{lease} {renew} {retry}");
        }
    }

    #[test]
    fn a_broken_second_counts_whole() {
        assert_eq!(settings(15_000, 1, 1).lease_seconds(), 15);
        assert_eq!(settings(2_001, 1, 1).lease_seconds(), 3);
        assert_eq!(settings(900, 1, 1).lease_seconds(), 1);
    }
}
