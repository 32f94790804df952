//! A serde `Deserializer` for messages.
//!
//! A message is a map of the fields in its table, by their names in JSON. Lists and maps are
//! consecutive fields of the same number.

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor, value::BorrowedStrDeserializer},
    forward_to_deserialize_any,
};

use super::{
    tables::{Field, Shape, Table, Value},
    wire::{Content, Fault, Fields},
};

/// Reads the message that `table` describes.
pub(crate) fn read<'de, T: Deserialize<'de>>(message: &'de [u8], table: Table) -> Result<T, Fault> {
    T::deserialize(SingleValue {
        number: 0,
        value: Value::Message(table),
        content: Content::Bytes(message),
    })
}

/// The content of the last field `number`, if there is one.
pub(super) fn last(message: &[u8], number: u64) -> Result<Option<Content<'_>>, Fault> {
    let (mut fields, mut last) = (Fields::of(message), None);
    while let Some((found, content)) = fields.next()? {
        if found == number {
            last = Some(content);
        }
    }
    Ok(last)
}

// === one value ===

/// The deserializer of a value that is no list or map.
#[derive(Clone, Copy)]
struct SingleValue<'de> {
    number: u64,
    value: Value,
    content: Content<'de>,
}

impl<'de> SingleValue<'de> {
    /// Whether JSON omits the value if it is no pointer.
    fn is_empty(self) -> bool {
        match self.value {
            Value::Text | Value::Time => self.content == Content::Bytes(b""),
            Value::Bool | Value::Number => self.content == Content::Number(0),
            Value::Quantity | Value::Message(_) => false,
        }
    }

    fn bytes(self) -> Result<&'de [u8], Fault> {
        self.content.bytes(self.number)
    }

    fn number(self) -> Result<u64, Fault> {
        self.content.number(self.number)
    }
}

impl<'de> Deserializer<'de> for SingleValue<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Text => text(self.bytes()?, visitor),
            Value::Bool => visitor.visit_bool(self.number()? != 0),
            // Integers of any size are encoded as 64 bits in two's complement.
            Value::Number => visitor.visit_i64(self.number()?.cast_signed()),
            Value::Time => match time(self.bytes()?)? {
                Some(time) => visitor.visit_string(time.to_string()),
                None => visitor.visit_unit(),
            },
            Value::Quantity => {
                let amount = last(self.bytes()?, 1)?;
                text(amount.map_or(Ok(&b"0"[..]), |amount| amount.bytes(1))?, visitor)
            }
            Value::Message(table) => visitor.visit_map(Members::of(self.bytes()?, table)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Time if self.is_empty() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Visits a text; as in Go's JSON, invalid UTF-8 is replaced by U+FFFD.
fn text<'de, V: Visitor<'de>>(bytes: &'de [u8], visitor: V) -> Result<V::Value, Fault> {
    match str::from_utf8(bytes) {
        Ok(text) => visitor.visit_borrowed_str(text),
        Err(_) => visitor.visit_string(String::from_utf8_lossy(bytes).into_owned()),
    }
}

/// Reads a time in whole seconds, as Kubernetes does; `None` if the message is empty.
fn time(message: &[u8]) -> Result<Option<Timestamp>, Fault> {
    if message.is_empty() {
        return Ok(None);
    }
    let seconds = last(message, 1)?.map_or(Ok(0), |seconds| seconds.number(1))?;
    Timestamp::from_second(seconds.cast_signed()).map(Some).map_err(|_| Fault::Time)
}

// === messages ===

/// The members of a message, as a serde map.
struct Members<'de> {
    message: MessageReader<'de>,
    /// The embedded message whose members are read now.
    embedded: Option<MessageReader<'de>>,
    /// The member whose key was read and whose value is read next.
    current: Option<(&'static Field, Content<'de>)>,
}

/// The part of a message that is not read yet.
struct MessageReader<'de> {
    fields: Fields<'de>,
    table: Table,
    /// A bit for each field of the table that was read.
    found: u64,
}

impl<'de> MessageReader<'de> {
    fn of(message: &'de [u8], table: Table) -> Self {
        Self { fields: Fields::of(message), table, found: 0 }
    }

    /// The next field that is in the table.
    fn next(&mut self) -> Result<Option<(&'static Field, Content<'de>)>, Fault> {
        while let Some((number, content)) = self.fields.next()? {
            let known = self.table.iter().enumerate().find(|(_, field)| field.number == number);
            let Some((index, field)) = known else { continue };
            let bit = 1_u64 << index;
            if self.found & bit != 0 {
                return Err(Fault::Repeated(number));
            }
            self.found |= bit;
            return Ok(Some((field, content)));
        }
        Ok(None)
    }
}

impl<'de> Members<'de> {
    fn of(message: &'de [u8], table: Table) -> Self {
        Self { message: MessageReader::of(message, table), embedded: None, current: None }
    }

    /// The next member, of the embedded message if there is one.
    fn next(&mut self) -> Result<Option<(&'static Field, Content<'de>)>, Fault> {
        loop {
            if let Some(embedded) = &mut self.embedded {
                match embedded.next()? {
                    Some(field) => return Ok(Some(field)),
                    None => self.embedded = None,
                }
            }
            let Some((field, content)) = self.message.next()? else { return Ok(None) };
            match (field.shape, field.value) {
                (Shape::Embedded, Value::Message(table)) => {
                    self.embedded = Some(MessageReader::of(content.bytes(field.number)?, table));
                }
                _ => return Ok(Some((field, content))),
            }
        }
    }
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        while let Some((field, content)) = self.next()? {
            let single = SingleValue { number: field.number, value: field.value, content };
            if field.shape == Shape::Plain && single.is_empty() {
                continue;
            }
            self.current = Some((field, content));
            return seed.deserialize(BorrowedStrDeserializer::new(field.name)).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let (field, content) = self.current.take().ok_or(Fault::NotProtobuf)?;
        let Field { number, value, shape, .. } = *field;
        let part = self.embedded.as_mut().unwrap_or(&mut self.message);
        if !matches!(shape, Shape::List | Shape::Map) {
            return seed.deserialize(SingleValue { number, value, content });
        }
        let fields = &mut part.fields;
        let mut elements =
            Elements { number, value, next: Some(content), fields, entry_value: None };
        let collection = Collection { elements: &mut elements, is_map: shape == Shape::Map };
        let read = seed.deserialize(collection)?;
        elements.skip()?;
        Ok(read)
    }
}

// === lists and maps ===

/// The elements of a list, or the entries of a map.
struct Elements<'a, 'de> {
    number: u64,
    value: Value,
    /// The first element, which was read already.
    next: Option<Content<'de>>,
    /// The fields with the other elements.
    fields: &'a mut Fields<'de>,
    /// The value of the entry whose key was read.
    entry_value: Option<Content<'de>>,
}

impl<'de> Elements<'_, 'de> {
    fn next(&mut self) -> Result<Option<Content<'de>>, Fault> {
        match self.next.take() {
            Some(content) => Ok(Some(content)),
            None => self.fields.next_of(self.number),
        }
    }

    /// Skips the elements that the visitor did not read.
    fn skip(&mut self) -> Result<(), Fault> {
        while self.next()?.is_some() {}
        Ok(())
    }
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let (number, value) = (self.number, self.value);
        let Some(content) = self.next()? else { return Ok(None) };
        seed.deserialize(SingleValue { number, value, content }).map(Some)
    }
}

/// Entries are messages with a key and a value; empty ones may be absent.
impl<'de> MapAccess<'de> for Elements<'_, 'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        const EMPTY: Content<'_> = Content::Bytes(b"");
        let Some(entry) = self.next()? else { return Ok(None) };
        let entry = entry.bytes(self.number)?;
        self.entry_value = Some(last(entry, 2)?.unwrap_or(EMPTY));
        let content = last(entry, 1)?.unwrap_or(EMPTY);
        seed.deserialize(SingleValue { number: 1, value: Value::Text, content }).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let content = self.entry_value.take().ok_or(Fault::NotProtobuf)?;
        seed.deserialize(SingleValue { number: 2, value: self.value, content })
    }
}

/// The deserializer of a list or a map.
struct Collection<'a, 'b, 'de> {
    elements: &'a mut Elements<'b, 'de>,
    is_map: bool,
}

impl<'de> Deserializer<'de> for Collection<'_, '_, 'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.is_map {
            visitor.visit_map(self.elements)
        } else {
            visitor.visit_seq(self.elements)
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
    }
}
