//! Values that many share: each is kept once, with how many hold it.
//!
//! Owns counting the holders. Promises that equal values share their memory as long as they are
//! held through here, and that nothing is kept of a value that nobody holds.

use std::collections::BTreeMap;

/// Values by how many hold them. Cloning a `T` must share, not copy.
#[derive(Debug)]
pub(super) struct Interned<T>(BTreeMap<T, usize>);

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord + Clone> Interned<T> {
    /// One more holds the value: gives the one that all share.
    pub(super) fn hold(&mut self, value: T) -> T {
        let shared = self.0.get_key_value(&value).map(|(shared, _)| shared.clone());
        let shared = shared.unwrap_or(value);
        *self.0.entry(shared.clone()).or_default() += 1;
        shared
    }

    /// One fewer holds the value.
    pub(super) fn release(&mut self, value: &T) {
        if let Some(holders) = self.0.get_mut(value) {
            *holders -= 1;
            if *holders == 0 {
                self.0.remove(value);
            }
        }
    }

    /// Each value that is held, with how many hold it, in order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&T, usize)> {
        self.0.iter().map(|(value, holders)| (value, *holders))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn equal_values_share_and_the_last_holder_takes_them_away() {
        let mut interned = Interned::<Arc<str>>::default();
        let (one, two) = (interned.hold("a".into()), interned.hold("a".into()));
        assert!(Arc::ptr_eq(&one, &two));
        let _ = interned.hold("b".into());
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
