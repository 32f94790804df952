//! Shared values with reference counts.
//!
//! Equal values share their memory while they are held, and are dropped with the last holder.

use std::collections::BTreeMap;

/// Values by their number of holders. Cloning a `T` must share, not copy.
#[derive(Debug)]
pub(super) struct Interned<T>(BTreeMap<T, usize>);

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord + Clone> Interned<T> {
    /// Adds a holder; returns the shared value.
    pub(super) fn acquire(&mut self, value: T) -> T {
        let shared = self.0.get_key_value(&value).map(|(shared, _)| shared.clone());
        let shared = shared.unwrap_or(value);
        *self.0.entry(shared.clone()).or_default() += 1;
        shared
    }

    /// Removes a holder.
    pub(super) fn release(&mut self, value: &T) {
        if let Some(holders) = self.0.get_mut(value) {
            *holders -= 1;
            if *holders == 0 {
                self.0.remove(value);
            }
        }
    }

    /// Each value with its number of holders, in order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&T, usize)> {
        self.0.iter().map(|(value, holders)| (value, *holders))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn equal_values_are_shared_until_the_last_holder_releases_them() {
        let mut interned = Interned::<Arc<str>>::default();
        let (one, two) = (interned.acquire("a".into()), interned.acquire("a".into()));
        assert!(Arc::ptr_eq(&one, &two));
        let _ = interned.acquire("b".into());
        assert_eq!(
            interned.iter().map(|(v, n)| (&**v, n)).collect::<Vec<_>>(),
            [("a", 2), ("b", 1)]
        );
        interned.release(&one);
        interned.release(&two);
        interned.release(&two);
        assert_eq!(interned.iter().map(|(v, n)| (&**v, n)).collect::<Vec<_>>(), [("b", 1)]);
    }
}
