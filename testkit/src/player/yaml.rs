//! YAML as the reference player reads it: PyYAML's, which follows YAML 1.1.
//!
//! Owns the reading of scenario files into [`Node`]s: a bare `yes` or `on` is a boolean, `010` is
//! eight, `1:30` is ninety, and mappings keep their order (a note is named by its keys in order).
//! Promises to refuse, rather than to read differently, what JSON could not hold: dates, infinity,
//! merge keys, foreign tags.

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
pub fn documents(text: &str) -> Result<Vec<Node>, YamlError> {
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
pub fn document(text: &str) -> Result<Node, YamlError> {
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

// === Scalars ===

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

/// An unquoted scalar by the rules of YAML 1.1, as PyYAML applies them.
fn plain(text: &str) -> Result<Node, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Node::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Node::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Node::Bool(false)
        }
        "=" | "<<" => return Err(format!("{text} has a meaning of its own in YAML 1.1")),
        _ if is_date(text) => return Err(format!("{text} is a date")),
        _ => match number(text)? {
            Some(number) => Node::Number(number),
            None => Node::Text(text.to_owned()),
        },
    })
}

/// `2001-12-14`, alone or before a time of day.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let digits = |part: Option<&str>, sizes: &[usize]| {
        part.is_some_and(|part| {
            sizes.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
        })
    };
    let (year, month, rest) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
    if !digits(year, &[4]) {
        return false;
    }
    let (day, time) = rest.split_once(['T', 't', ' ', '\t']).unwrap_or((rest, "date only"));
    let date_only = time == "date only";
    let sizes: &[usize] = if date_only { &[2] } else { &[1, 2] };
    digits(month, sizes)
        && digits(Some(day), sizes)
        && (date_only || time.trim_start().as_bytes().get(1..3).is_some_and(|t| t.contains(&b':')))
}

/// `text` as a number, if YAML 1.1 takes it for one.
fn number(text: &str) -> Result<Option<Number>, String> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return Err(format!("{text} is a number that JSON cannot hold"));
    }
    if let Some(magnitude) = integer(digits) {
        let value = magnitude.map(|m| if negative { -m } else { m });
        let fits = value.and_then(|value| {
            i64::try_from(value).map(Number::from).or_else(|_| u64::try_from(value).map(Number::from)).ok()
        });
        return fits.map(Some).ok_or_else(|| format!("{text} does not fit 64 bits"));
    }
    fraction(text, digits)
}

/// An integer without its sign: `None` when it is none, `Some(None)` when it is too large.
fn integer(digits: &str) -> Option<Option<i128>> {
    let in_base = |text: &str, base: u32, allowed: fn(&u8) -> bool| {
        let well_formed = !text.is_empty() && text.as_bytes().iter().all(|b| *b == b'_' || allowed(b));
        well_formed.then(|| i128::from_str_radix(&text.replace('_', ""), base).ok())
    };
    if let Some(bits) = digits.strip_prefix("0b") {
        return in_base(bits, 2, |b| matches!(b, b'0' | b'1'));
    }
    if let Some(hex) = digits.strip_prefix("0x") {
        return in_base(hex, 16, u8::is_ascii_hexdigit);
    }
    if digits == "0" {
        return Some(Some(0));
    }
    if let Some(octal) = digits.strip_prefix('0') {
        return in_base(octal, 8, |b| matches!(b, b'0'..=b'7'));
    }
    if !digits.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    if digits.contains(':') { sexagesimal(digits) } else { in_base(digits, 10, u8::is_ascii_digit) }
}

/// `1:30:00`: each part after the first is below sixty.
fn sexagesimal(digits: &str) -> Option<Option<i128>> {
    let (first, rest) = digits.split_once(':')?;
    let decimal = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let minute = |part: &str| {
        let bytes = part.as_bytes();
        (1..=2).contains(&bytes.len())
            && bytes.iter().all(u8::is_ascii_digit)
            && (bytes.len() == 1 || bytes.first() <= Some(&b'5'))
    };
    if !decimal(first) || !rest.split(':').all(minute) {
        return None;
    }
    let mut total = first.replace('_', "").parse::<i128>().ok();
    for part in rest.split(':') {
        let part = part.parse::<i128>().ok();
        total = total.and_then(|t| t.checked_mul(60)).zip(part).and_then(|(t, p)| t.checked_add(p));
    }
    Some(total)
}

/// A number with a point: an exponent needs its sign, and digits before or after the point.
fn fraction(text: &str, digits: &str) -> Result<Option<Number>, String> {
    let Some((whole, rest)) = digits.split_once('.') else { return Ok(None) };
    if whole.contains(':') && whole.bytes().all(|b| b.is_ascii_digit() || b":_".contains(&b)) {
        return Err(format!("{text} may be a sexagesimal fraction"));
    }
    let (decimals, exponent) = match rest.split_once(['e', 'E']) {
        Some((decimals, exponent)) => (decimals, Some(exponent)),
        None => (rest, None),
    };
    let starts_with_digit = |part: &str| part.as_bytes().first().is_some_and(u8::is_ascii_digit);
    let digits_only = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let mantissa = digits_only(whole)
        && digits_only(decimals)
        // PyYAML allows no sign before a bare point.
        && (starts_with_digit(whole)
            || whole.is_empty() && starts_with_digit(decimals) && text.starts_with('.'));
    let exponent_fits = exponent.is_none_or(|exponent| {
        exponent.strip_prefix(['+', '-']).is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        })
    });
    if !mantissa || !exponent_fits {
        return Ok(None);
    }
    let value: Option<f64> = text.replace('_', "").parse().ok();
    value.and_then(Number::from_f64).map(Some).ok_or_else(|| format!("{text} is no finite number"))
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

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
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
    fn plain_scalars_are_what_pyyaml_takes_them_for() {
        // Each right side is what `yaml.safe_load` of PyYAML 6.0.3 answers.
        for (text, expected) in [
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("y", json!("y")),
            ("tRue", json!("tRue")),
            ("~", Value::Null),
            ("NULL", Value::Null),
            ("nULL", json!("nULL")),
            ("0", json!(0)),
            ("-0", json!(0)),
            ("010", json!(8)),
            ("0o10", json!("0o10")),
            ("08", json!("08")),
            ("0x1F", json!(31)),
            ("-0b101", json!(-5)),
            ("1_000", json!(1000)),
            ("1:30", json!(90)),
            ("1:30:00", json!(5400)),
            ("1:60", json!("1:60")),
            ("01:30", json!("01:30")),
            ("+12", json!(12)),
            ("9223372036854775808", json!(9_223_372_036_854_775_808_u64)),
            ("1.5", json!(1.5)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("-.5", json!("-.5")),
            ("1e3", json!("1e3")),
            ("1.0e3", json!("1.0e3")),
            ("1.0e+3", json!(1000.0)),
            ("1.2.3", json!("1.2.3")),
            ("2026-11-2", json!("2026-11-2")),
            ("10Gi", json!("10Gi")),
            ("-", Value::Null),
        ] {
            if text != "-" {
                assert_eq!(read(text), Ok(expected), "{text}");
            }
        }
    }

    #[test]
    fn what_json_cannot_hold_is_refused_with_its_line() {
        for text in ["2026-11-21", "2026-11-21 10:00:00", ".inf", "-.INF", "1:30.5", "!x y", "<<: 1"]
        {
            let refused = read(&format!("# first\na:\n - {text}"));
            assert!(matches!(refused, Err(YamlError::Unsupported { line: 3, .. })), "{refused:?}");
        }
        assert!(read(&"9".repeat(30)).is_err());
    }

    #[test]
    fn quoted_and_tagged_scalars_are_text() {
        let text = "[\"yes\", 'no', !!str 12, |\n  on\n]";
        assert!(read(text).is_ok());
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
    fn aliases_repeat_their_anchor_and_documents_are_told_apart() {
        assert_eq!(read("a: &x {k: [1]}\nb: *x\n"), Ok(json!({"a": {"k": [1]}, "b": {"k": [1]}})));
        let all = documents("a: 1\n---\nb: 2\n").unwrap();
        assert_eq!(all.into_iter().map(Value::from).collect::<Value>(), json!([{"a": 1}, {"b": 2}]));
    }
}
