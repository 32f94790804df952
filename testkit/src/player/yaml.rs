//! YAML as the reference player reads it: as `PyYAML` does, which follows YAML 1.1.
//!
//! Owns the reading of scenario files into [`Node`]s: a bare `yes` or `on` is a boolean, `010` is
//! eight, `1:30` is ninety, and mappings keep their order (a note is named by its keys in order).
//! Promises to refuse, rather than to read differently, what JSON could not hold: dates, infinity,
//! merge keys, foreign tags.
//!
//! A layer of its own on the parser's events, because no crate that goes on to values keeps YAML
//! 1.1: `serde-saphyr`, which reads manifests elsewhere in this crate, can be configured to take its
//! booleans and octal numbers, but reads `1:30` and dates as text and `1e3` and `0o10` as numbers
//! without a word, so that the two players would disagree silently on what a file says.

mod scalar;

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde::{
    Deserializer, de,
    de::{
        IntoDeserializer,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Number, Value};

use self::scalar::plain;

/// A YAML value whose mappings keep their order.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// `null`, `~` or nothing.
    Null,
    /// A boolean, in any of YAML 1.1's spellings.
    Bool(bool),
    /// An integer or a fraction.
    Number(Number),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping. Keys are text: a bare `on` counts as such, numbers as their digits.
    Map(Vec<(String, Node)>),
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// It is not YAML.
    #[error("not YAML: {0}")]
    Syntax(String),
    /// It is YAML, but nothing that JSON could hold.
    #[error("line {line}: {what}; put it in quotes if text is meant")]
    Unsupported {
        /// Line in the file, from 1.
        line: usize,
        /// What stands there.
        what: String,
    },
    /// It ends too early or holds no document.
    #[error("the document ends too early")]
    Incomplete,
    /// A value does not have the form that is wanted there.
    #[error("{0}")]
    Shape(String),
}

/// All documents of a file.
pub(super) fn documents(text: &str) -> Result<Vec<Node>, YamlError> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: BTreeMap::new() };
    let mut documents = Vec::new();
    loop {
        match reader.next()? {
            (Event::DocumentStart(..), _) => documents.push(reader.node()?),
            (Event::StreamEnd, _) => return Ok(documents),
            _ => {}
        }
    }
}

/// The only document of a file.
pub(super) fn document(text: &str) -> Result<Node, YamlError> {
    documents(text)?.into_iter().next().ok_or(YamlError::Incomplete)
}

// === Reader ===

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: BTreeMap<usize, Node>,
}

impl<'a> Reader<'a> {
    /// The next event that is no comment, and its line.
    fn next(&mut self) -> Result<(Event<'a>, usize), YamlError> {
        loop {
            match self.parser.next_event() {
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok((event, span))) => return Ok((event, span.start.line())),
                Some(Err(error)) => return Err(YamlError::Syntax(error.to_string())),
                None => return Err(YamlError::Incomplete),
            }
        }
    }

    fn node(&mut self) -> Result<Node, YamlError> {
        let (event, line) = self.next()?;
        self.value(event, line)
    }

    fn value(&mut self, event: Event<'a>, line: usize) -> Result<Node, YamlError> {
        let (anchor, node) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, scalar(&text, style, tag.as_deref(), line)?)
            }
            Event::SequenceStart(_, anchor, _) => (anchor, self.list()?),
            Event::MappingStart(_, anchor, _) => (anchor, self.map()?),
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).cloned();
                return known.ok_or_else(|| unsupported(line, "an alias of what encloses it"));
            }
            _ => return Err(YamlError::Incomplete),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self) -> Result<Node, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Node::List(items)),
                (event, line) => items.push(self.value(event, line)?),
            }
        }
    }

    fn map(&mut self) -> Result<Node, YamlError> {
        let mut entries: Vec<(String, Node)> = Vec::new();
        loop {
            let (event, line) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(Node::Map(entries));
            }
            let key = key(self.value(event, line)?, line)?;
            let value = self.node()?;
            // As in a Python dict, a repeated key keeps its first place and its last value.
            match entries.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = value,
                None => entries.push((key, value)),
            }
        }
    }
}

fn unsupported(line: usize, what: impl Into<String>) -> YamlError {
    YamlError::Unsupported { line, what: what.into() }
}

/// A mapping's key as text.
fn key(node: Node, line: usize) -> Result<String, YamlError> {
    match node {
        Node::Text(text) => Ok(text),
        Node::Number(number) => Ok(number.to_string()),
        // What the scenarios mean by a bare `on:`.
        Node::Bool(true) => Ok("on".to_owned()),
        _ => Err(unsupported(line, "a key that is no text")),
    }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: usize,
) -> Result<Node, YamlError> {
    match tag.map(Tag::core_suffix) {
        Some(Some("str")) => Ok(Node::Text(text.to_owned())),
        Some(_) => Err(unsupported(line, "a tag other than !!str")),
        None if style == ScalarStyle::Plain => plain(text).map_err(|what| unsupported(line, what)),
        None => Ok(Node::Text(text.to_owned())),
    }
}

// === impl Node ===

impl Node {
    /// The value of a mapping's key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Reads a typed value out of this one.
    pub fn read<T: de::DeserializeOwned>(self) -> Result<T, YamlError> {
        T::deserialize(self)
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
            Node::Map(entries) => {
                Self::Object(entries.into_iter().map(|(k, v)| (k, Self::from(v))).collect())
            }
        }
    }
}

impl de::Error for YamlError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Shape(message.to_string())
    }
}

impl IntoDeserializer<'_, YamlError> for Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = YamlError;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlError> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Bool(value) => visitor.visit_bool(value),
            Self::Number(value) => {
                value.deserialize_any(visitor).map_err(|e| YamlError::Shape(e.to_string()))
            }
            Self::Text(value) => visitor.visit_string(value),
            Self::List(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            Self::Map(entries) => visitor.visit_map(MapDeserializer::new(entries.into_iter())),
        }
    }

    fn deserialize_option<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlError> {
        match self {
            Self::Null => visitor.visit_none(),
            some => visitor.visit_some(some),
        }
    }

    fn deserialize_newtype_struct<V: de::Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, YamlError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, YamlError> {
        match self {
            Self::Text(variant) => visitor.visit_enum(variant.into_deserializer()),
            other => Err(YamlError::Shape(format!("a word is wanted, not {}", Value::from(other)))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Value, YamlError> {
        document(text).map(Value::from)
    }

    #[test]
    fn what_json_cannot_hold_is_refused_with_its_line() {
        for text in
            ["2026-11-21", "2026-11-21 10:00:00", ".inf", "-.INF", "1:30.5", "!x y", "<<: 1"]
        {
            let refused = read(&format!("# first\na:\n - {text}"));
            assert!(matches!(refused, Err(YamlError::Unsupported { line: 3, .. })), "{refused:?}");
        }
        assert!(read(&"9".repeat(30)).is_err());
    }

    #[test]
    fn quoted_and_tagged_scalars_are_text() {
        assert_eq!(read("['no', \"1\", !!str 12]"), Ok(json!(["no", "1", "12"])));
        assert_eq!(read("a: |\n  on\n"), Ok(json!({"a": "on\n"})));
    }

    #[test]
    fn mappings_keep_their_order_and_bare_on_is_a_key() {
        let Ok(Node::Map(entries)) = document("{z: 1, on: 2, 'a': 3, 7: x, z: 4}") else {
            panic!("a mapping was written")
        };
        let keys: Vec<_> = entries.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["z", "on", "a", "7"]);
    }

    #[test]
    fn aliases_repeat_their_anchor_and_documents_are_separate() {
        assert_eq!(read("a: &x {k: [1]}\nb: *x\n"), Ok(json!({"a": {"k": [1]}, "b": {"k": [1]}})));
        let all = documents("a: 1\n---\nb: 2\n").unwrap();
        assert_eq!(
            all.into_iter().map(Value::from).collect::<Value>(),
            json!([{"a": 1}, {"b": 2}])
        );
    }
}
