//! A mutex per key. It keeps workers of different queues from working on the same object at once (for
//! volumes: safety rule 5).

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Locks = Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>>;

/// Keys, each of which is locked by at most one task at a time.
#[derive(Debug, Clone, Default)]
pub struct KeyedMutex {
    locks: Locks,
}

/// A locked key. Dropping it passes the key to the task that has waited longest.
#[derive(Debug)]
pub struct KeyedMutexGuard {
    key: String,
    locks: Locks,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyedMutex {
    /// Waits until no other task has locked `key`, and then locks it.
    pub async fn lock(&self, key: &str) -> KeyedMutexGuard {
        let lock = Arc::clone(self.locks.lock().entry(key.to_owned()).or_default());
        // Created before the wait, so that a cancelled wait cleans up as well.
        let mut guard =
            KeyedMutexGuard { key: key.to_owned(), locks: Arc::clone(&self.locks), guard: None };
        guard.guard = Some(lock.lock_owned().await);
        guard
    }

    /// Locks `key` unless another task has.
    pub fn try_lock(&self, key: &str) -> Option<KeyedMutexGuard> {
        let lock = Arc::clone(self.locks.lock().entry(key.to_owned()).or_default());
        let mut guard =
            KeyedMutexGuard { key: key.to_owned(), locks: Arc::clone(&self.locks), guard: None };
        guard.guard = Some(lock.try_lock_owned().ok()?);
        Some(guard)
    }

    /// The number of keys that are held or waited for.
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

impl Drop for KeyedMutexGuard {
    fn drop(&mut self) {
        let mut locks = self.locks.lock();
        drop(self.guard.take());
        // If the map has the only reference, no task waits.
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
    async fn a_key_has_one_holder_and_is_removed_after_the_last() {
        let mutex = KeyedMutex::default();
        let first = mutex.lock("pv-1").await;
        let other = mutex.lock("pv-2").await;
        let mut second = Box::pin(mutex.lock("pv-1"));
        assert!(second.as_mut().now_or_never().is_none(), "held twice");
        drop(first);
        let second = second.now_or_never().expect("free");
        assert_eq!(mutex.len(), 2);
        drop((second, other));
        assert!(mutex.is_empty());
    }

    #[tokio::test]
    async fn a_try_does_not_wait_and_leaves_nothing_behind() {
        let mutex = KeyedMutex::default();
        let first = mutex.try_lock("pv").unwrap();
        assert!(mutex.try_lock("pv").is_none());
        drop(first);
        assert!(mutex.is_empty());
        let first = mutex.lock("pv").await;
        assert!(mutex.try_lock("pv").is_none());
        drop(first);
        assert!(mutex.is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing_behind() {
        for holder_goes_first in [true, false] {
            let mutex = KeyedMutex::default();
            let first = mutex.lock("pv").await;
            let mut second = Box::pin(mutex.lock("pv"));
            assert!(second.as_mut().now_or_never().is_none());
            if holder_goes_first {
                drop(first);
                drop(second);
            } else {
                drop(second);
                drop(first);
            }
            assert!(mutex.is_empty(), "holder goes first: {holder_goes_first}");
        }
    }
}
