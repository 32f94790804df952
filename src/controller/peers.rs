//! The other processes of a node deployment: how long this one waits before it does for a claim or a volume
//! what any of them may do, such as becoming the owner of the claim.
//!
//! The delays keep hundreds of nodes from trying at once. A wait survives changes of its object, so a change
//! neither shortens nor extends it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::runtime::{Backoff, Random};

/// The waits of this process among its peers. Clones share them. Without peers nothing waits.
#[derive(Clone, Default)]
pub struct Peers(Option<Arc<Waits>>);

struct Waits {
    backoff: Backoff,
    random: Arc<dyn Random>,
    /// By the UID of a claim or the name of a volume.
    keys: Mutex<BTreeMap<String, Wait>>,
}

/// The wait for one claim or volume.
#[derive(Debug, Clone, Copy, Default)]
struct Wait {
    /// How often this process has tried.
    tries: u32,
    /// When it tries next; `None`: not scheduled yet.
    due: Option<Instant>,
}

/// The delay after `tries` failed tries, less a random part of the first delay; `unit` is random, below 1.
/// The first tries of all nodes are thus spread over the first delay.
fn delay(backoff: Backoff, tries: u32, unit: f64) -> Duration {
    backoff.delay(tries).saturating_sub(backoff.start.mul_f64(unit))
}

impl Peers {
    /// Waits with this back-off.
    pub fn new(backoff: Backoff, random: Arc<dyn Random>) -> Self {
        Self(Some(Arc::new(Waits { backoff, random, keys: Mutex::default() })))
    }

    /// The remaining delay of the next try for the claim or volume, which is scheduled now if it is not yet.
    pub fn wait(&self, key: &str) -> Duration {
        let Some(waits) = &self.0 else { return Duration::ZERO };
        let unit = waits.random.unit();
        let mut keys = waits.keys.lock();
        let wait = keys.entry(key.to_owned()).or_default();
        let delay = delay(waits.backoff, wait.tries, unit);
        let due = *wait.due.get_or_insert_with(|| Instant::now() + delay);
        due.saturating_duration_since(Instant::now())
    }

    /// The try failed: the next delay is longer.
    pub fn tried(&self, key: &str) {
        let Some(waits) = &self.0 else { return };
        if let Some(wait) = waits.keys.lock().get_mut(key) {
            *wait = Wait { tries: wait.tries.saturating_add(1), due: None };
        }
    }

    /// It is decided or gone: later tries start from the first delay.
    pub fn forget(&self, key: &str) {
        if let Some(waits) = &self.0 {
            waits.keys.lock().remove(key);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.iter().map(|waits| waits.keys.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    const DEFAULT: Backoff = Backoff::new(Duration::from_secs(20), Duration::from_secs(60));

    #[test]
    fn waits_double_up_to_the_longest_less_a_part_of_the_shortest() {
        for (tries, longest) in [(0, 20), (1, 40), (2, 60), (3, 60), (200, 60)] {
            assert_eq!(delay(DEFAULT, tries, 0.0), seconds(longest));
            assert_eq!(delay(DEFAULT, tries, 0.5), seconds(longest - 10));
        }
        let short = Backoff::new(seconds(20), seconds(5));
        assert_eq!(delay(short, 0, 0.9), Duration::ZERO, "never before now");
    }

    proptest! {
        #[test]
        fn no_wait_is_out_of_bounds(base in 0..=u64::MAX, max in 0..=u64::MAX, tries in 0..=u32::MAX, unit in 0.0..1.0) {
            let backoff = Backoff::new(Duration::from_millis(base), Duration::from_millis(max));
            prop_assert!(delay(backoff, tries, unit) <= backoff.max);
        }
    }

    /// Always draws these bits.
    struct Fixed(u64);

    impl Random for Fixed {
        fn bits(&self) -> u64 {
            self.0
        }
    }

    fn peers(bits: u64) -> Peers {
        Peers::new(DEFAULT, Arc::new(Fixed(bits)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_decided_claim_starts_over() {
        let peers = peers(0);
        peers.wait("u");
        peers.tried("u");
        peers.forget("u");
        assert_eq!(peers.len(), 0);
        peers.tried("u");
        assert_eq!(peers.len(), 0, "nobody waits for it");
        assert_eq!(peers.wait("u"), seconds(20));
    }
}
