//! Latencies, summed up.

use std::time::Duration;

use serde::Serialize;

/// What many latencies come to, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Half of them are no longer.
    pub p50_ms: f64,
    /// 99 of 100 are no longer.
    pub p99_ms: f64,
    /// None is longer.
    pub max_ms: f64,
}

impl Latency {
    /// Sums up; `None` where there is nothing.
    pub fn of(latencies: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let mut sorted: Vec<Duration> = latencies.into_iter().collect();
        sorted.sort_unstable();
        Some(Self {
            p50_ms: percentile(&sorted, 50)?,
            p99_ms: percentile(&sorted, 99)?,
            max_ms: percentile(&sorted, 100)?,
        })
    }
}

/// The smallest of the sorted latencies that is not exceeded by `percent` of them (nearest rank).
fn percentile(sorted: &[Duration], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map(milliseconds)
}

fn milliseconds(duration: &Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1e3)
}

/// To the microsecond, or whatever a thousandth is: more digits say nothing.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(milliseconds: impl IntoIterator<Item = u64>) -> Option<[f64; 3]> {
        let latency = Latency::of(milliseconds.into_iter().map(Duration::from_millis))?;
        Some([latency.p50_ms, latency.p99_ms, latency.max_ms])
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        assert_eq!(of([]), None);
        assert_eq!(of([7]), Some([7.0, 7.0, 7.0]));
        assert_eq!(of([3, 1, 2]), Some([2.0, 3.0, 3.0]));
        assert_eq!(of((1..=100).rev()), Some([50.0, 99.0, 100.0]));
        assert_eq!(of(1..=1000), Some([500.0, 990.0, 1000.0]));
    }

    #[test]
    fn fractions_are_kept_to_the_microsecond() {
        let latency = Latency::of([Duration::from_nanos(1_234_567)]).unwrap();
        assert!((latency.max_ms - 1.235).abs() < 1e-9);
    }
}
