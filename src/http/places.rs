//! Limits the number of connections, in all and per address.
//!
//! A new connection gets a place within moments: if none is free, the connection that was silent longest
//! loses its place, one of the same address if that address has its share, and one with a request in
//! progress only if all have one. So no client can keep others out by holding connections. A new
//! connection keeps its place until its request can have arrived. The server closes connections that
//! have lost their places.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How long a new connection keeps its place in any case: long enough for the request to arrive. So
/// 3,200 new connections a second are accepted, and more wait in the kernel's backlog.
const GRACE: Duration = Duration::from_millis(20);

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    total: usize,
    per_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    guests: BTreeMap<u64, Guest>,
    next: u64,
}

#[derive(Debug)]
struct Guest {
    address: IpAddr,
    is_answered: bool,
    came: Instant,
    /// When it became idle: when it was accepted, or its last request began or was answered.
    since: Instant,
    lost: CancellationToken,
}

impl Places {
    pub(super) fn new(total: usize, per_address: usize) -> Arc<Self> {
        Arc::new(Self { total, per_address, taken: Mutex::default() })
    }

    /// Waits for a place for a connection from `address`; another connection may lose its place.
    pub(super) async fn take(self: &Arc<Self>, address: IpAddr) -> ConnectionPlace {
        // A socket for both families has IPv4 addresses as addresses of IPv6.
        let address = address.to_canonical();
        loop {
            match self.try_take(address) {
                Ok(place) => return place,
                Err(soon) => sleep_until(soon).await,
            }
        }
    }

    /// Tries to get a place. `Err`: all connections are new; when the first of them can be replaced.
    fn try_take(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPlace, Instant> {
        let (since, lost) = (Instant::now(), CancellationToken::new());
        let mut taken = self.taken.lock();
        taken.free_place(address, self.total, self.per_address)?;
        let number = taken.next;
        taken.next += 1;
        let guest = Guest { address, is_answered: false, came: since, since, lost: lost.clone() };
        taken.guests.insert(number, guest);
        Ok(ConnectionPlace { places: Arc::clone(self), number, lost })
    }
}

impl Taken {
    /// Takes the place of one connection if the limit is reached.
    fn free_place(
        &mut self,
        address: IpAddr,
        total: usize,
        per_address: usize,
    ) -> Result<(), Instant> {
        let of_address = self.guests.values().filter(|guest| guest.address == address).count();
        if of_address >= per_address && self.evict(|guest| guest.address == address) {
            return Ok(());
        }
        // While all connections of an address are new, it may have more than its share.
        if self.guests.len() < total || self.evict(|_| true) {
            return Ok(());
        }
        let first = self.guests.values().map(|guest| guest.came).min();
        Err(first.unwrap_or_else(Instant::now) + GRACE)
    }

    /// Takes the place of one of those connections. `false` if all are new.
    fn evict(&mut self, is_one: impl Fn(&Guest) -> bool) -> bool {
        let ones = self.guests.iter().filter(|(_, guest)| is_one(guest) && guest.may_go());
        let longest = ones.min_by_key(|(number, guest)| (guest.is_answered, guest.since, **number));
        let number = longest.map(|(number, _)| *number);
        let gone = number.and_then(|number| self.guests.remove(&number));
        gone.inspect(|guest| guest.lost.cancel()).is_some()
    }
}

impl Guest {
    fn may_go(&self) -> bool {
        self.came.elapsed() >= GRACE
    }
}

/// A connection's place, until it is dropped or lost.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    places: Arc<Places>,
    number: u64,
    lost: CancellationToken,
}

impl ConnectionPlace {
    /// Waits until another connection has got this place.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Marks a request as in progress until the result is dropped.
    pub(super) fn answering(&self) -> Answering<'_> {
        self.mark(true);
        Answering(self)
    }

    fn mark(&self, is_answered: bool) {
        if let Some(guest) = self.places.taken.lock().guests.get_mut(&self.number) {
            guest.is_answered = is_answered;
            guest.since = Instant::now();
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.places.taken.lock().guests.remove(&self.number);
    }
}

/// See [`ConnectionPlace::answering`].
pub(super) struct Answering<'a>(&'a ConnectionPlace);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.mark(false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    const PLACES: (usize, usize) = (4, 2);

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// Places of connections from these addresses, one a second.
    async fn taken(by: &[u8]) -> (Arc<Places>, Vec<ConnectionPlace>) {
        let places = Places::new(PLACES.0, PLACES.1);
        let mut taken = Vec::new();
        for last in by {
            taken.push(places.take(address(*last)).await);
            advance(Duration::from_secs(1)).await;
        }
        (places, taken)
    }

    fn lost(places: &[ConnectionPlace]) -> Vec<bool> {
        places.iter().map(|place| place.lost.is_cancelled()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_silent_longest_loses_its_place() {
        let (places, taken) = taken(&[1, 2, 3, 4]).await;
        drop(taken[0].answering());
        let _newcomer = places.take(address(5)).await;
        assert_eq!(lost(&taken), [false, true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_with_its_share_replaces_its_own_connections() {
        let (places, taken) = taken(&[1, 2, 2]).await;
        let _newcomer = places.take(address(2)).await;
        assert_eq!(lost(&taken), [false, true, false]);
        advance(Duration::from_secs(1)).await;
        let mapped =
            IpAddr::from("10.0.0.2".parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped());
        let _newcomer = places.take(mapped).await;
        assert_eq!(lost(&taken), [false, true, true], "the same address, written in another way");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_request_in_progress_goes_last() {
        let (places, taken) = taken(&[1, 2, 3, 4]).await;
        let (first, _second) = (taken[0].answering(), taken[1].answering());
        advance(Duration::from_secs(1)).await;
        let (fifth, sixth) = (places.take(address(5)).await, places.take(address(6)).await);
        assert_eq!(lost(&taken), [false, false, true, true]);
        drop(first);
        let (_fifth, _sixth) = (fifth.answering(), sixth.answering());
        advance(Duration::from_secs(1)).await;
        let _newcomer = places.take(address(7)).await;
        assert_eq!(lost(&taken), [true, false, true, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_keeps_its_place_for_a_moment() {
        let places = Places::new(PLACES.0, PLACES.1);
        let start = Instant::now();
        let mut taken = Vec::new();
        for last in [1, 2, 2, 2] {
            taken.push(places.take(address(last)).await);
        }
        assert_eq!((lost(&taken), start.elapsed()), (vec![false; 4], Duration::ZERO));
        let _newcomer = places.take(address(3)).await;
        assert_eq!(lost(&taken), [true, false, false, false]);
        assert!(start.elapsed() >= GRACE && start.elapsed() < 2 * GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_place_is_free() {
        let (places, mut taken) = taken(&[1, 2, 3, 4]).await;
        taken.remove(3);
        let _newcomer = places.take(address(5)).await;
        assert_eq!(lost(&taken), [false; 3]);
        assert_eq!(places.taken.lock().guests.len(), PLACES.0);
    }
}
