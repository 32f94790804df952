//! Durations and times as they are printed.

use csi_provisioner::status::Place;

/// A duration in its two largest units.
pub fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// When an item is worked on next.
pub(crate) fn when(place: Place) -> String {
    match place {
        Place::Absent => "when something changes".to_owned(),
        Place::Delayed { seconds } => format!("in {}", duration(seconds)),
        Place::Ready => "as soon as a worker is free".to_owned(),
        Place::Processing { seconds } => format!("now, since {}", duration(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m00s"),
            (3_599, "59m59s"),
            (3_600, "1h00m"),
            (90_000, "1d01h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
