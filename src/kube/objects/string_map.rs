//! A map of a few texts, such as annotations and labels: a sorted list, which for four entries takes
//! a third of the memory of a `BTreeMap`.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

/// Texts by key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StringMap(Vec<(Box<str>, Box<str>)>);

impl StringMap {
    /// The value of the key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.place(key).ok()?;
        self.0.get(place).map(|(_, value)| &**value)
    }

    /// All keys with their values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the value of the key. Fast for a key that follows all others, as in what a server sends.
    pub fn insert(&mut self, key: Box<str>, value: Box<str>) {
        match self.place(&key) {
            Ok(place) => _ = self.0.get_mut(place).map(|entry| entry.1 = value),
            Err(place) => self.0.insert(place, (key, value)),
        }
    }

    /// Removes the key.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(other, _)| **other != *key);
    }

    /// Frees spare capacity.
    pub(super) fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }

    /// Where the key is, or where it belongs.
    fn place(&self, key: &str) -> Result<usize, usize> {
        match self.0.last() {
            Some((last, _)) if **last < *key => Err(self.0.len()),
            _ => self.0.binary_search_by(|(other, _)| (**other).cmp(key)),
        }
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for StringMap {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        entries.into_iter().for_each(|(key, value)| map.insert(key.into(), value.into()));
        map
    }
}

impl fmt::Debug for StringMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Texts)
    }
}

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = StringMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringMap, A::Error> {
        let mut texts = StringMap::default();
        while let Some((key, value)) = map.next_entry()? {
            texts.insert(key, value);
        }
        texts.shrink_to_fit();
        Ok(texts)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_as_a_btree_map(steps in vec((any::<bool>(), "[a-d]{0,2}", "[x-z]"), 0..40)) {
            let (mut map, mut model) = (StringMap::default(), BTreeMap::new());
            for (inserts, key, value) in steps {
                if inserts {
                    map.insert(key.as_str().into(), value.as_str().into());
                    model.insert(key.clone(), value);
                } else {
                    map.remove(&key);
                    model.remove(&key);
                }
                prop_assert_eq!(map.get(&key), model.get(&key).map(String::as_str));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
            }
            prop_assert!(map.iter().eq(model.iter().map(|(key, value)| (&**key, &**value))));
            let json = serde_json::to_string(&model).unwrap();
            prop_assert_eq!(&serde_json::from_str::<StringMap>(&json).unwrap(), &map);
            prop_assert_eq!(model.into_iter().collect::<StringMap>(), map);
        }
    }
}
