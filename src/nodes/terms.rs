//! Topology keys of the driver, and a node's labels for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// How many topology keys of the driver on a node count. Each kubelet writes its own. Most drivers have a few; some
/// register all labels of their node.
pub(super) const MOST_OF_A_NODE: usize = 256;

/// How many topology keys of all nodes count, and so how many labels of a node are kept.
pub(super) const MOST_OF_ALL: usize = 1024;

/// The topology keys of the driver on a node, in its order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keys(Vec<String>);

/// A node's labels that topology keys name, ordered by key. All nodes share the keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(Box<[(Arc<str>, Box<str>)]>);

impl Keys {
    /// The keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether the driver has no topology.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys with their values by `label`; `None` if one has none.
    pub fn segments<'a>(
        &self,
        label: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<BTreeMap<String, String>> {
        self.iter().map(|key| Some((key.to_owned(), label(key)?.to_owned()))).collect()
    }

    /// Whether all of them are in `set`.
    pub(super) fn are_in(&self, set: &BTreeSet<Arc<str>>) -> bool {
        self.iter().all(|key| set.contains(key))
    }

    /// The keys with their values in a node's labels; `None` if one has none.
    pub(super) fn place_in(&self, labels: &Labels) -> Option<BTreeMap<String, String>> {
        self.segments(|key| labels.get(key))
    }
}

impl<S: Into<String>> FromIterator<S> for Keys {
    fn from_iter<I: IntoIterator<Item = S>>(keys: I) -> Self {
        Self(keys.into_iter().map(Into::into).collect())
    }
}

/// As Go prints a list of strings, which messages use.
impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.0.join(" "))
    }
}

impl Labels {
    /// The value of the label `key`, if the node has it.
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
        self.0.get(place).map(|(_, value)| &**value)
    }

    /// The labels, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Those of `labels`, which are sorted by key, that `keys` name.
    pub(super) fn named<'a>(
        keys: &BTreeSet<Arc<str>>,
        labels: impl Iterator<Item = (&'a String, &'a String)>,
    ) -> Self {
        let named = labels.filter_map(|(key, value)| {
            Some((Arc::clone(keys.get(&**key)?), value.as_str().into()))
        });
        Self(named.collect())
    }
}
