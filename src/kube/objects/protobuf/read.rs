//! Messages as serde's data: each view reads them as it reads JSON.
//!
//! A message is a map of the fields that its table knows, by their names in JSON. Lists and maps
//! are the fields of one number that follow one another.

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
    T::deserialize(One {
        number: 0,
        value: Value::Message(table),
        content: Content::Bytes(message),
    })
}

/// What the field `number` holds, where there is one; of several the last.
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

/// A value, of whatever number of bytes.
#[derive(Clone, Copy)]
struct One<'de> {
    number: u64,
    value: Value,
    content: Content<'de>,
}

impl<'de> One<'de> {
    /// Whether JSON leaves it out where it is no pointer.
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

impl<'de> Deserializer<'de> for One<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Text => text(self.bytes()?, visitor),
            Value::Bool => visitor.visit_bool(self.number()? != 0),
            // Written as 64 bits in two's complement whatever its size.
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

/// Shows a text, with marks for what is no UTF-8, as Go writes JSON.
fn text<'de, V: Visitor<'de>>(bytes: &'de [u8], visitor: V) -> Result<V::Value, Fault> {
    match str::from_utf8(bytes) {
        Ok(text) => visitor.visit_borrowed_str(text),
        Err(_) => visitor.visit_string(String::from_utf8_lossy(bytes).into_owned()),
    }
}

/// A time in whole seconds, as Kubernetes reads and writes it; none where the message is empty.
fn time(message: &[u8]) -> Result<Option<Timestamp>, Fault> {
    if message.is_empty() {
        return Ok(None);
    }
    let seconds = last(message, 1)?.map_or(Ok(0), |seconds| seconds.number(1))?;
    Timestamp::from_second(seconds.cast_signed()).map(Some).map_err(|_| Fault::Time)
}

// === messages ===

/// The members of a message.
struct Members<'de> {
    message: Part<'de>,
    /// The message whose members stand among its own.
    embedded: Option<Part<'de>>,
    /// The member of which the name was read.
    named: Option<(&'static Field, Content<'de>)>,
}

/// The rest of a message.
struct Part<'de> {
    fields: Fields<'de>,
    table: Table,
    /// A bit for each field of the table that was there.
    seen: u64,
}

impl<'de> Part<'de> {
    fn of(message: &'de [u8], table: Table) -> Self {
        Self { fields: Fields::of(message), table, seen: 0 }
    }

    /// The next field that is known.
    fn next(&mut self) -> Result<Option<(&'static Field, Content<'de>)>, Fault> {
        while let Some((number, content)) = self.fields.next()? {
            let known = self.table.iter().enumerate().find(|(_, field)| field.number == number);
            let Some((place, field)) = known else { continue };
            let this = 1_u64 << place;
            if self.seen & this != 0 {
                return Err(Fault::Repeated(number));
            }
            self.seen |= this;
            return Ok(Some((field, content)));
        }
        Ok(None)
    }
}

impl<'de> Members<'de> {
    fn of(message: &'de [u8], table: Table) -> Self {
        Self { message: Part::of(message, table), embedded: None, named: None }
    }

    /// The next field that is known and a member.
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
                    self.embedded = Some(Part::of(content.bytes(field.number)?, table));
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
            let one = One { number: field.number, value: field.value, content };
            if field.shape == Shape::Plain && one.is_empty() {
                continue;
            }
            self.named = Some((field, content));
            return seed.deserialize(BorrowedStrDeserializer::new(field.name)).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let (field, content) = self.named.take().ok_or(Fault::NotProtobuf)?;
        let Field { number, value, shape, .. } = *field;
        let part = self.embedded.as_mut().unwrap_or(&mut self.message);
        if !matches!(shape, Shape::List | Shape::Map) {
            return seed.deserialize(One { number, value, content });
        }
        let fields = &mut part.fields;
        let mut several = Several { number, value, next: Some(content), fields, held: None };
        let whole = Whole { several: &mut several, is_map: shape == Shape::Map };
        let read = seed.deserialize(whole)?;
        several.skip()?;
        Ok(read)
    }
}

// === lists and maps ===

/// The elements of a list, or the entries of a map.
struct Several<'a, 'de> {
    number: u64,
    value: Value,
    /// The element that was read already.
    next: Option<Content<'de>>,
    /// Where the others follow.
    fields: &'a mut Fields<'de>,
    /// The value of the entry of which the key was read.
    held: Option<Content<'de>>,
}

impl<'de> Several<'_, 'de> {
    fn next(&mut self) -> Result<Option<Content<'de>>, Fault> {
        match self.next.take() {
            Some(content) => Ok(Some(content)),
            None => self.fields.next_of(self.number),
        }
    }

    /// Passes over what nobody wanted.
    fn skip(&mut self) -> Result<(), Fault> {
        while self.next()?.is_some() {}
        Ok(())
    }
}

impl<'de> SeqAccess<'de> for Several<'_, 'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let (number, value) = (self.number, self.value);
        let Some(content) = self.next()? else { return Ok(None) };
        seed.deserialize(One { number, value, content }).map(Some)
    }
}

/// Entries are messages of a key and a value, of which the empty ones may be absent.
impl<'de> MapAccess<'de> for Several<'_, 'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        const EMPTY: Content<'_> = Content::Bytes(b"");
        let Some(entry) = self.next()? else { return Ok(None) };
        let entry = entry.bytes(self.number)?;
        self.held = Some(last(entry, 2)?.unwrap_or(EMPTY));
        let content = last(entry, 1)?.unwrap_or(EMPTY);
        seed.deserialize(One { number: 1, value: Value::Text, content }).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let content = self.held.take().ok_or(Fault::NotProtobuf)?;
        seed.deserialize(One { number: 2, value: self.value, content })
    }
}

/// A list or a map as one value.
struct Whole<'a, 'b, 'de> {
    several: &'a mut Several<'b, 'de>,
    is_map: bool,
}

impl<'de> Deserializer<'de> for Whole<'_, '_, 'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.is_map { visitor.visit_map(self.several) } else { visitor.visit_seq(self.several) }
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
