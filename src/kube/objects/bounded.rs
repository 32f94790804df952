//! Limits the memory for texts that users write: names, annotations, finalizers and Secrets.
//!
//! Whatever a user writes, a claim takes at most some 100 KiB. A truncated name is longer than
//! Kubernetes allows for names, so that code that uses it as a name refuses it. What this program
//! writes itself is not truncated.

use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{SecretData, SecretValue};
use crate::kube::name::MAX_NAME;

/// Appended to a truncated text.
const ELLIPSIS: char = '…';

/// The prefixes of annotations that this program and other Kubernetes components write.
const KNOWN: [&str; 6] = [
    "pv.kubernetes.io/",
    "provisioner.storage.kubernetes.io/",
    // The driver's handle of an in-tree volume: truncated it would be another volume's.
    "rbd.csi.ceph.com/volume-handle",
    "volume.kubernetes.io/",
    "volume.alpha.kubernetes.io/",
    "volume.beta.kubernetes.io/",
];

/// The longest value of a known annotation, in bytes: longer than any call record.
const MAX_KNOWN: usize = 10 << 10;

/// The longest value of another annotation, in bytes: longer than any name or handle.
const MAX_OTHER: usize = 1 << 10;

/// The limit on all known annotations together, and on all others, in bytes.
const MAX_ANNOTATIONS: usize = 32 << 10;

/// The limit on a Secret, in bytes: CSI allows 4 KiB for the texts of such a map.
pub const MAX_SECRET: usize = 64 << 10;

/// What an entry of a map takes in memory beside its texts, in bytes.
const ENTRY: usize = 128;

/// The most entries of a list.
const MAX_ENTRIES: usize = 64;

/// Finalizers that are kept in addition to the limit.
const FINALIZERS: [&str; 4] = [
    "external-provisioner.volume.kubernetes.io/finalizer",
    "provisioner.storage.kubernetes.io/cloning-protection",
    "provisioner.storage.kubernetes.io/provisioning-protection",
    "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection",
];

/// Truncates a text longer than `max` bytes and appends [`ELLIPSIS`].
fn truncate(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push(ELLIPSIS);
        text.shrink_to_fit();
    }
}

/// A name. One that is longer than Kubernetes allows is truncated and stays longer than allowed.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut name = String::deserialize(deserializer)?;
        truncate(&mut name, MAX_NAME);
        Ok(Self(name))
    }
}

/// Reads a name.
pub(super) fn name<'de, D: Deserializer<'de>, T: From<String>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Name::deserialize(deserializer).map(|name| name.0.into())
}

/// Reads an optional name.
pub(super) fn optional_name<'de, D: Deserializer<'de>, T: From<String>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Name>::deserialize(deserializer)?.map(|name| name.0.into()))
}

/// Reads whether the field is present and not null.
pub(super) fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// Reads the first names of a list.
pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<str>>, D::Error> {
    deserializer.deserialize_option(Names(|kept, _| kept.len() < MAX_ENTRIES))
}

/// Reads the first finalizers and those of this program, without duplicates.
pub(super) fn finalizers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Box<str>>, D::Error> {
    deserializer.deserialize_option(Names(|kept, name| {
        let is_known = FINALIZERS.contains(&name);
        (is_known || kept.len() < MAX_ENTRIES) && kept.iter().all(|other| **other != *name)
    }))
}

/// Reads annotations, within the limits.
pub(super) fn annotations<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let mut annotations = BTreeMap::new();
    let (mut known, mut other) = (MAX_ANNOTATIONS, MAX_ANNOTATIONS);
    deserializer.deserialize_option(Entries::new(|key: String, mut value: String| {
        let (max, left) = if KNOWN.iter().any(|prefix| key.starts_with(prefix)) {
            (MAX_KNOWN, &mut known)
        } else {
            (MAX_OTHER, &mut other)
        };
        truncate(&mut value, max);
        if let Some(rest) = left.checked_sub(ENTRY + key.len() + value.len()) {
            *left = rest;
            annotations.insert(key, value);
        }
    }))?;
    Ok(annotations)
}

/// Reads the values of a Secret. If they are too large, none is kept.
impl<'de> Deserialize<'de> for SecretData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut values = BTreeMap::new();
        let mut left = Some(MAX_SECRET);
        deserializer.deserialize_option(Entries::new(|key: String, value: SecretValue| {
            left = left.and_then(|left| left.checked_sub(ENTRY + key.len() + value.expose().len()));
            match left {
                Some(_) => drop(values.insert(key, value)),
                None => values.clear(),
            }
        }))?;
        Ok(left.map_or(Self::TooLarge, |_| Self::Values(Arc::new(values))))
    }
}

/// Reads the first owners, without those whose texts are longer than names may be.
pub(super) fn owners<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<OwnerReference>, D::Error> {
    let mut owners = Option::<Vec<OwnerReference>>::deserialize(deserializer)?.unwrap_or_default();
    owners.retain(|owner| {
        let texts = [&owner.api_version, &owner.kind, &owner.name, &owner.uid];
        texts.iter().all(|text| text.len() <= MAX_NAME)
    });
    owners.truncate(MAX_ENTRIES);
    owners.shrink_to_fit();
    Ok(owners)
}

/// Calls the function with each entry of a map, one after the other: what it does not keep takes no
/// memory.
struct Entries<V, F>(F, PhantomData<V>);

impl<V, F: FnMut(String, V)> Entries<V, F> {
    fn new(entry: F) -> Self {
        Self(entry, PhantomData)
    }
}

impl<'de, V: Deserialize<'de>, F: FnMut(String, V)> Visitor<'de> for Entries<V, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, map: D) -> Result<(), D::Error> {
        map.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry()? {
            (self.0)(key, value);
        }
        Ok(())
    }
}

/// Reads the names of a list for which the function, called with the names kept so far, is true.
struct Names(fn(&[Box<str>], &str) -> bool);

impl<'de> Visitor<'de> for Names {
    type Value = Vec<Box<str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of strings")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, list: D) -> Result<Self::Value, D::Error> {
        list.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while let Some(Name(name)) = list.next_element()? {
            if (self.0)(&kept, &name) {
                // Most lists have one name.
                kept.reserve_exact(1);
                kept.push(name.into());
            }
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests;
