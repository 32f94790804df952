//! A map of a few texts, such as annotations and labels: all of them in one text. Four entries take 64 bytes
//! beside their texts; in a list of texts 128, in a `BTreeMap` 544.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, Visitor},
};

/// Texts by key. Clones share them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StringMap {
    /// All keys, each followed by its value, sorted by key.
    texts: Arc<str>,
    /// Where each of them ends in `texts`.
    ends: Arc<[u32]>,
}

impl StringMap {
    /// The value of the key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
    }

    /// All keys with their values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.len()).map(|entry| (self.text(2 * entry), self.text(2 * entry + 1)))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Sets the value of the key. Copies the map.
    #[cfg(test)]
    pub(crate) fn insert(&mut self, key: &str, value: &str) {
        *self = self.iter().chain([(key, value)]).collect();
    }

    /// Removes the key. Copies the map.
    pub fn remove(&mut self, key: &str) {
        *self = self.iter().filter(|(other, _)| *other != key).collect();
    }

    /// A key or a value.
    fn text(&self, number: usize) -> &str {
        let end = |number: usize| self.ends.get(number).map_or(0, |end| *end as usize);
        let start = number.checked_sub(1).map_or(0, end);
        self.texts.get(start..end(number)).unwrap_or_default()
    }
}

/// Of several values of a key the last one counts.
impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for StringMap {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(K, V)> = entries.into_iter().collect();
        if !entries.is_sorted_by(|(a, _), (b, _)| a.as_ref() < b.as_ref()) {
            entries.reverse();
            entries.sort_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
            entries.dedup_by(|(a, _), (b, _)| a.as_ref() == b.as_ref());
        }
        let mut builder = Builder::default();
        for (key, value) in &entries {
            builder.push(key.as_ref());
            builder.push(value.as_ref());
        }
        builder.build()
    }
}

/// A map that is being read: keys and values in turn.
#[derive(Default)]
pub(super) struct Builder {
    texts: String,
    ends: Vec<u32>,
}

impl Builder {
    /// With room for the annotations of most objects.
    pub(super) fn with_room() -> Self {
        Self { texts: String::with_capacity(256), ends: Vec::with_capacity(16) }
    }

    /// Adds a key or a value.
    pub(super) fn push(&mut self, text: &str) {
        self.texts.push_str(text);
        self.ends.push(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
    }

    /// The key or value that was added last.
    pub(super) fn last(&self) -> &str {
        let start = self.ends.iter().rev().nth(1).map_or(0, |end| *end as usize);
        self.texts.get(start..).unwrap_or_default()
    }

    /// Removes what was added last.
    pub(super) fn pop(&mut self) {
        self.ends.pop();
        self.texts.truncate(self.ends.last().map_or(0, |end| *end as usize));
    }

    /// Returns the map, sorted by key.
    pub(super) fn finish(self) -> StringMap {
        let map = self.build();
        if map.iter().is_sorted_by(|(a, _), (b, _)| a < b) { map } else { map.iter().collect() }
    }

    fn build(self) -> StringMap {
        StringMap { texts: self.texts.into(), ends: self.ends.into() }
    }
}

/// Reads a key or a value, shortened by a function, into a [`Builder`]: without an allocation for each.
pub(super) struct Text<'a, F> {
    builder: &'a mut Builder,
    shorten: F,
}

impl<'a, F: Fn(&str) -> Cow<'_, str>> Text<'a, F> {
    pub(super) fn new(builder: &'a mut Builder, shorten: F) -> Self {
        Self { builder, shorten }
    }
}

impl<'de, F: Fn(&str) -> Cow<'_, str>> DeserializeSeed<'de> for Text<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<F: Fn(&str) -> Cow<'_, str>> Visitor<'_> for Text<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.builder.push(&(self.shorten)(text));
        Ok(())
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
        let mut texts = Builder::with_room();
        while map.next_key_seed(Text::new(&mut texts, |key| key.into()))?.is_some() {
            map.next_value_seed(Text::new(&mut texts, |value| value.into()))?;
        }
        Ok(texts.finish())
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
                    map.insert(&key, &value);
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
