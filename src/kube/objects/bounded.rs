//! Texts that users write, as far as they are kept.
//!
//! Owns how much of an object's names, annotations and finalizers is kept in memory: whatever a user
//! writes, a claim of his holds some 100 KiB at most. Promises that a text which was cut is longer than
//! Kubernetes allows for a name, so that whoever uses it as one refuses it, and that what this program
//! writes itself is kept whole. Leaves refusing to those who use the texts.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// The longest name of an object, in bytes (a DNS subdomain).
pub const MAX_NAME: usize = 253;

/// What stands at the end of a text that was cut.
const CUT: char = '…';

/// The prefixes of annotations that this program and its peers write.
const KNOWN: [&str; 5] = [
    "pv.kubernetes.io/",
    "provisioner.storage.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.alpha.kubernetes.io/",
    "volume.beta.kubernetes.io/",
];

/// The most of such an annotation's value, in bytes: more than a record takes.
const MAX_KNOWN: usize = 10 << 10;

/// The most of another annotation's value, in bytes: more than any name or handle takes.
const MAX_OTHER: usize = 1 << 10;

/// The most that is kept of the annotations of either sort, in bytes.
const MAX_ANNOTATIONS: usize = 32 << 10;

/// The most entries of a list.
const MAX_ENTRIES: usize = 64;

/// Finalizers that are kept however many there are.
const FINALIZERS: [&str; 4] = [
    "external-provisioner.volume.kubernetes.io/finalizer",
    "provisioner.storage.kubernetes.io/cloning-protection",
    "provisioner.storage.kubernetes.io/provisioning-protection",
    "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection",
];

/// The text, or where it is longer than `most` bytes as much of it, and the mark.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}{CUT}")
}

/// Reads a text of so many bytes at most.
#[derive(Clone, Copy)]
struct Cut(usize);

impl Visitor<'_> for Cut {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(cut(text, self.0))
    }
}

impl<'de> DeserializeSeed<'de> for Cut {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

/// A name; one that is longer than Kubernetes allows is cut to a text that is so, too.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cut(MAX_NAME).deserialize(deserializer).map(Self)
    }
}

/// Reads a name.
pub(super) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Name::deserialize(deserializer).map(|name| name.0)
}

/// Reads a name that may lack.
pub(super) fn optional_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Ok(Option::<Name>::deserialize(deserializer)?.map(|name| name.0))
}

/// Reads whether there is such a field.
pub(super) fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// Reads the first names of a list.
pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::<Names>::deserialize(deserializer)?.unwrap_or_default().0)
}

/// Reads finalizers: each once, the first of them and those of this program.
pub(super) fn finalizers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    Ok(Option::<Finalizers>::deserialize(deserializer)?.map(|finalizers| finalizers.0))
}

/// Reads annotations.
pub(super) fn annotations<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    Ok(Option::<Annotations>::deserialize(deserializer)?.map(|annotations| annotations.0))
}

/// Reads the first owners whose names are names.
pub(super) fn owners<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<OwnerReference>>, D::Error> {
    let mut owners = Option::<Vec<OwnerReference>>::deserialize(deserializer)?;
    if let Some(owners) = &mut owners {
        owners.retain(|owner| {
            let texts = [&owner.api_version, &owner.kind, &owner.name, &owner.uid];
            texts.iter().all(|text| text.len() <= MAX_NAME)
        });
        owners.truncate(MAX_ENTRIES);
        owners.shrink_to_fit();
    }
    Ok(owners)
}

#[derive(Default)]
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_kept = |kept: &[String], _: &str| kept.len() < MAX_ENTRIES;
        deserializer.deserialize_seq(Kept(is_kept)).map(Self)
    }
}

struct Finalizers(Vec<String>);

impl<'de> Deserialize<'de> for Finalizers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_kept = |kept: &[String], name: &str| {
            let is_known = FINALIZERS.contains(&name);
            (is_known || kept.len() < MAX_ENTRIES) && kept.iter().all(|other| other != name)
        };
        deserializer.deserialize_seq(Kept(is_kept)).map(Self)
    }
}

/// The names of a list that are kept, given those kept before.
struct Kept<F>(F);

impl<'de, F: Fn(&[String], &str) -> bool> Visitor<'de> for Kept<F> {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
        let mut kept = Vec::new();
        while let Some(Name(name)) = list.next_element()? {
            if (self.0)(&kept, &name) {
                kept.push(name);
            }
        }
        Ok(kept)
    }
}

struct Annotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Budget { known: MAX_ANNOTATIONS, other: MAX_ANNOTATIONS })
    }
}

/// How many bytes of annotations may still be kept.
struct Budget {
    known: usize,
    other: usize,
}

impl Budget {
    /// The most of this annotation's value, and what is left for those of its sort.
    fn of(&mut self, key: &str) -> (usize, &mut usize) {
        if KNOWN.iter().any(|prefix| key.starts_with(prefix)) {
            (MAX_KNOWN, &mut self.known)
        } else {
            (MAX_OTHER, &mut self.other)
        }
    }
}

impl<'de> Visitor<'de> for Budget {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Annotations, A::Error> {
        let mut kept = BTreeMap::new();
        while let Some(key) = map.next_key_seed(Cut(MAX_KNOWN))? {
            let (most, left) = self.of(&key);
            let value = map.next_value_seed(Cut(most))?;
            if let Some(rest) = left.checked_sub(key.len() + value.len()) {
                *left = rest;
                kept.insert(key, value);
            }
        }
        Ok(Annotations(kept))
    }
}

#[cfg(test)]
mod tests;
