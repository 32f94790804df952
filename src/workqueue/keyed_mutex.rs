//! One actor an object: whoever works on something that several queues, or a queue and somebody
//! beside it, may work on holds its key meanwhile (for volumes safety rule 5).

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::table::Table;

type Locks = Arc<Mutex<Table<String, Arc<tokio::sync::Mutex<()>>>>>;

/// Keys of which each is held by at most one at a time.
#[derive(Debug, Clone, Default)]
pub struct KeyedMutex {
    locks: Locks,
}

/// A held key; dropping it gives the key to the next who waits, first come first served.
#[derive(Debug)]
pub struct Held {
    key: String,
    locks: Locks,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyedMutex {
    /// DependencyIndex until nobody else holds `key`, then holds it.
    pub async fn hold(&self, key: &str) -> Held {
        let lock = Arc::clone(self.locks.lock().get_or_default(key));
        // Made before the wait, so that giving up the wait cleans up as well.
        let mut held = Held { key: key.to_owned(), locks: Arc::clone(&self.locks), guard: None };
        held.guard = Some(lock.lock_owned().await);
        held
    }

    /// How many keys are held or waited for.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.locks.lock().len()
    }

    /// Whether no key is held.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut locks = self.locks.lock();
        drop(self.guard.take());
        // One reference is the map's own: nobody waits, the key can be forgotten.
        if locks.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_key_is_held_by_one_and_forgotten_after_the_last() {
        let exclusive = KeyedMutex::default();
        let first = exclusive.hold("pv-1").await;
        let other = exclusive.hold("pv-2").await;
        let mut second = Box::pin(exclusive.hold("pv-1"));
        assert!(second.as_mut().now_or_never().is_none(), "held twice");
        drop(first);
        let second = second.now_or_never().expect("free");
        assert_eq!(exclusive.len(), 2);
        drop((second, other));
        assert!(exclusive.is_empty());
    }

    #[tokio::test]
    async fn giving_up_the_wait_leaves_nothing_behind() {
        for holder_goes_first in [true, false] {
            let exclusive = KeyedMutex::default();
            let first = exclusive.hold("pv").await;
            let mut second = Box::pin(exclusive.hold("pv"));
            assert!(second.as_mut().now_or_never().is_none());
            if holder_goes_first {
                drop(first);
                drop(second);
            } else {
                drop(second);
                drop(first);
            }
            assert!(exclusive.is_empty(), "holder goes first: {holder_goes_first}");
        }
    }
}
