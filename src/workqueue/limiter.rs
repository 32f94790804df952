//! The back-off of failed keys: exponential per key, without jitter, and a token bucket for all keys of a
//! queue, both as in client-go. `Core` counts the failures.

use std::time::Duration;

use crate::runtime::Backoff;

/// Computes the back-off of failed keys.
#[derive(Debug, Clone)]
pub struct Limiter {
    per_item: Backoff,
    bucket: Option<Bucket>,
}

impl Limiter {
    /// Delays each key by its own back-off. Like client-go, without jitter.
    pub fn per_item(per_item: Backoff) -> Self {
        Self { per_item, bucket: None }
    }

    /// Delays a key by the greater of this limiter's delay and that of `bucket`, which all keys of the
    /// queue share. Both count each failure.
    #[must_use]
    pub(super) fn max_of(self, bucket: Bucket) -> Self {
        Self { bucket: Some(bucket), ..self }
    }

    /// client-go's `DefaultControllerRateLimiter`: 5 ms doubling up to 1000 s per key, and 10 retries a
    /// second with bursts of 100 for all keys.
    pub fn controller_default() -> Self {
        let per_item = Backoff::new(Duration::from_millis(5), Duration::from_secs(1000));
        Self::max_of(Self::per_item(per_item), Bucket::new(10.0, 100))
    }

    /// Returns the delay of a key that has failed `failures` times before this failure.
    pub(super) fn wait(&mut self, failures: u32, now: Duration) -> Duration {
        let own = self.per_item.delay(failures);
        self.bucket.as_mut().map_or(own, |bucket| bucket.reserve(now).max(own))
    }
}

/// A token bucket: starts full, refills evenly, lets callers reserve ahead of time.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    refilled: Duration,
}

impl Bucket {
    /// `rate` tokens a second, at most `burst` of them saved up.
    pub(super) fn new(rate: f64, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { rate, burst, tokens: burst, refilled: Duration::ZERO }
    }

    /// Takes one token, if necessary a future one. Returns the time until it is available:
    /// [`Duration::MAX`] for a bucket that never refills.
    pub(super) fn reserve(&mut self, now: Duration) -> Duration {
        let since = now.saturating_sub(self.refilled).as_secs_f64();
        self.refilled = self.refilled.max(now);
        self.tokens = (self.tokens + since * self.rate).min(self.burst) - 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.rate).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_bucket_grants_its_burst_then_spaces_evenly() {
        let mut bucket = Bucket::new(10.0, 3);
        let waits: Vec<u128> = (0..6).map(|_| bucket.reserve(secs(1)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        assert_eq!(bucket.reserve(secs(100)), Duration::ZERO, "refilled, but to the burst only");
        let waits: Vec<u128> = (0..3).map(|_| bucket.reserve(secs(100)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100]);
    }

    #[test]
    fn a_bucket_without_refill_waits_for_ever() {
        let mut bucket = Bucket::new(0.0, 1);
        assert_eq!(bucket.reserve(secs(1)), Duration::ZERO);
        assert_eq!(bucket.reserve(secs(2)), Duration::MAX);
    }

    #[test]
    fn the_stricter_limiter_decides() {
        let per_item = Limiter::per_item(Backoff::new(secs(1), secs(8)));
        let mut limiter = Limiter::max_of(per_item, Bucket::new(0.1, 2));
        let waits: Vec<u64> =
            [0, 3, 0, 4].into_iter().map(|n| limiter.wait(n, secs(1)).as_secs()).collect();
        assert_eq!(waits, [1, 8, 10, 20]);
    }
}
