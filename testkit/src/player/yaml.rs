//! YAML as scenario files write it.
//!
//! Owns [`Node`], a YAML value whose mappings keep their order: a note is named by its keys in order.
//! Leaves reading to `serde-saphyr`. The files write what YAML 1.1 (of `play.py`) and 1.2 read alike: what
//! the two read differently stands in quotes.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Number, Value};

/// A YAML value whose mappings keep their order.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// `null`, `~` or nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer or a fraction.
    Number(Number),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping.
    Map(Vec<(String, Node)>),
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// It is not YAML.
    #[error("not YAML: {0}")]
    Syntax(String),
    /// It holds no document.
    #[error("there is no document")]
    Empty,
    /// A value does not have the form that is wanted there.
    #[error("{0}")]
    Shape(String),
}

/// All documents of a file.
pub(super) fn documents(text: &str) -> Result<Vec<Node>, YamlError> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| YamlError::Syntax(error.to_string()))
}

/// The first document of a file.
pub(super) fn document(text: &str) -> Result<Node, YamlError> {
    documents(text)?.into_iter().next().ok_or(YamlError::Empty)
}

impl Node {
    /// The value of a mapping's key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Reads a typed value out of this one. Its mappings come in order.
    pub fn read<T: de::DeserializeOwned>(&self) -> Result<T, YamlError> {
        let text = serde_json::to_string(self);
        text.and_then(|text| serde_json::from_str(&text))
            .map_err(|error| YamlError::Shape(error.to_string()))
    }
}

impl From<Node> for Value {
    fn from(node: Node) -> Self {
        match node {
            Node::Null => Self::Null,
            Node::Bool(value) => Self::Bool(value),
            Node::Number(value) => Self::Number(value),
            Node::Text(value) => Self::String(value),
            Node::List(items) => items.into_iter().map(Self::from).collect(),
            Node::Map(entries) => entries.into_iter().collect(),
        }
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Bool(value) => to.serialize_bool(*value),
            Self::Number(value) => value.serialize(to),
            Self::Text(value) => to.serialize_str(value),
            Self::List(items) => to.collect_seq(items),
            Self::Map(entries) => to.collect_map(entries.iter().map(|(k, v)| (k, v))),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Visitor)
    }
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        Node::deserialize(from)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        Number::from_f64(value).map(Node::Number).ok_or_else(|| E::custom("no finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Node::List(all))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            all.push(entry);
        }
        Ok(Node::Map(all))
    }
}
