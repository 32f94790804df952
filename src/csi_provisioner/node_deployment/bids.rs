//! How long each node waits before it tries to become a claim's owner.
//!
//! The delays keep hundreds of nodes from trying at once. A bid survives changes of its claim, so a
//! change neither shortens nor extends the delay. Pure except for its lock.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::runtime::Backoff;

/// The bid for one claim.
#[derive(Debug, Clone, Copy, Default)]
struct Bid {
    /// How often ownership was tried.
    tries: u32,
    /// When it is tried next; `None`: not scheduled yet.
    due: Option<Instant>,
}

/// The bids of this node, by claim UID.
#[derive(Debug)]
pub(super) struct Bids {
    backoff: Backoff,
    claims: Mutex<BTreeMap<String, Bid>>,
}

/// The delay after `tries` failed tries, less a random part of the first delay; `unit` is random, below 1.
/// The first tries of all nodes are thus spread over the first delay.
fn delay(backoff: Backoff, tries: u32, unit: f64) -> Duration {
    backoff.delay(tries).saturating_sub(backoff.start.mul_f64(unit))
}

impl Bids {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { backoff, claims: Mutex::default() }
    }

    /// The remaining delay of the claim's next try, which is scheduled now if it is not yet; `unit`
    /// is random.
    pub(super) fn wait(&self, uid: &str, unit: f64) -> Duration {
        let mut claims = self.claims.lock();
        let bid = claims.entry(uid.to_owned()).or_default();
        let delay = delay(self.backoff, bid.tries, unit);
        let due = *bid.due.get_or_insert_with(|| Instant::now() + delay);
        due.saturating_duration_since(Instant::now())
    }

    /// The try failed: the next delay is longer.
    pub(super) fn tried(&self, uid: &str) {
        if let Some(bid) = self.claims.lock().get_mut(uid) {
            *bid = Bid { tries: bid.tries.saturating_add(1), due: None };
        }
    }

    /// The claim is decided or gone: later bids start from the first delay.
    pub(super) fn forget(&self, uid: &str) {
        self.claims.lock().remove(uid);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.claims.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::sleep;

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

    #[tokio::test(start_paused = true)]
    async fn a_bid_keeps_its_delay() {
        let bids = Bids::new(DEFAULT);
        assert_eq!(bids.wait("u", 0.5), seconds(10));
        sleep(seconds(4)).await;
        assert_eq!(bids.wait("u", 0.0), seconds(6));
        sleep(seconds(60)).await;
        assert_eq!(bids.wait("u", 0.0), Duration::ZERO);
        bids.tried("u");
        assert_eq!(bids.wait("u", 0.0), seconds(40));
    }

    #[tokio::test(start_paused = true)]
    async fn a_decided_claim_starts_over() {
        let bids = Bids::new(DEFAULT);
        bids.wait("u", 0.0);
        bids.tried("u");
        bids.forget("u");
        assert_eq!(bids.len(), 0);
        bids.tried("u");
        assert_eq!(bids.len(), 0, "nobody bids for it");
        assert_eq!(bids.wait("u", 0.0), seconds(20));
    }
}
