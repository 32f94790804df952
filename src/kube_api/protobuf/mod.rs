//! Objects in Kubernetes' protobuf, as the JSON that our views read.
//!
//! Owns turning a message into the JSON that the server would have written of it, as far as the
//! [`tables`] go: whatever is not in them is skipped and costs next to nothing, `managedFields`
//! above all. So each view has one reader, and this is no code for each view. Promises that bytes
//! which are no such message are a [`Fault`]; that what JSON leaves out because it is empty is left
//! out, and what JSON writes although it is empty is written; and that nothing is lost silently: a
//! field that comes twice, which Kubernetes never writes, is a fault. Leaves frames and
//! lists to whoever reads answers.

#[cfg(test)]
pub(crate) mod samples;
mod tables;
mod wire;

use std::io::Write as _;

use jiff::Timestamp;

use self::{
    tables::{Field, Shape, Value},
    wire::Content,
};
pub(crate) use self::{
    tables::{LIST_META, NAMES, STATUS, Table, of},
    wire::{Fault, Fields},
};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What stands before every answer's envelope.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// Fields of the envelope, a `runtime.Unknown`: what it holds, and that itself.
pub(crate) const TYPE_META: u64 = 1;
pub(crate) const RAW: u64 = 2;

/// The message in an envelope that has come whole.
pub(crate) fn unwrapped(answer: &[u8]) -> Result<&[u8], Fault> {
    let envelope = answer.strip_prefix(MAGIC).ok_or(Fault::NotProtobuf)?;
    Ok(last(envelope, RAW)?.map(|raw| raw.bytes(RAW)).transpose()?.unwrap_or_default())
}

/// The kind that a `TypeMeta` names.
pub(crate) fn kind_of(type_meta: &[u8]) -> Result<&[u8], Fault> {
    Ok(last(type_meta, 2)?.map(|kind| kind.bytes(2)).transpose()?.unwrap_or_default())
}

/// What the field `number` holds, where there is one; of several the last.
fn last(message: &[u8], number: u64) -> Result<Option<Content<'_>>, Fault> {
    let (mut fields, mut last) = (Fields::of(message), None);
    while let Some((found, content)) = fields.next()? {
        if found == number {
            last = Some(content);
        }
    }
    Ok(last)
}

/// Appends the message to `json`. After a fault, what was appended means nothing.
pub(crate) fn to_json(message: &[u8], table: Table, json: &mut Vec<u8>) -> Result<(), Fault> {
    json.push(b'{');
    members(message, table, json)?;
    json.push(b'}');
    Ok(())
}

/// Appends the members of an object.
fn members(message: &[u8], table: Table, json: &mut Vec<u8>) -> Result<(), Fault> {
    let mut fields = Fields::of(message);
    let mut seen = 0_u64;
    while let Some((number, content)) = fields.next()? {
        let Some(place) = table.iter().position(|field| field.number == number) else { continue };
        let Some(field) = table.get(place) else { continue };
        let this = 1_u64 << place;
        if seen & this != 0 {
            return Err(Fault::Repeated(number));
        }
        seen |= this;
        member(field, content, &mut fields, json)?;
    }
    Ok(())
}

/// Appends one member; takes the other elements of a list or map from `rest`.
fn member(
    field: &Field,
    content: Content<'_>,
    rest: &mut Fields<'_>,
    json: &mut Vec<u8>,
) -> Result<(), Fault> {
    match (field.shape, field.value) {
        (Shape::Plain, _) if is_empty(field.value, content) => Ok(()),
        (Shape::Embedded, Value::Message(table)) => {
            members(content.bytes(field.number)?, table, json)
        }
        (Shape::Plain | Shape::Pointer | Shape::Embedded, value) => {
            name(field.name, json);
            one(field.number, value, content, json)
        }
        (Shape::List, value) => {
            name(field.name, json);
            json.push(b'[');
            let mut next = Some(content);
            while let Some(element) = next {
                comma(json);
                one(field.number, value, element, json)?;
                next = rest.next_of(field.number)?;
            }
            json.push(b']');
            Ok(())
        }
        (Shape::Map, value) => {
            name(field.name, json);
            json.push(b'{');
            let mut next = Some(content);
            while let Some(element) = next {
                entry(element.bytes(field.number)?, value, json)?;
                next = rest.next_of(field.number)?;
            }
            json.push(b'}');
            Ok(())
        }
    }
}

/// Whether JSON leaves a field out that is no pointer.
fn is_empty(value: Value, content: Content<'_>) -> bool {
    match value {
        Value::Text | Value::Time => content == Content::Bytes(b""),
        Value::Bool | Value::Number => content == Content::Number(0),
        Value::Quantity | Value::Message(_) => false,
    }
}

/// Appends a map's entry: a message of a key and a value, of which the empty ones may be absent.
fn entry(message: &[u8], value: Value, json: &mut Vec<u8>) -> Result<(), Fault> {
    const EMPTY: Content<'_> = Content::Bytes(b"");
    let [key, held] =
        [last(message, 1)?, last(message, 2)?].map(|content| content.unwrap_or(EMPTY));
    comma(json);
    text(key.bytes(1)?, json);
    json.push(b':');
    one(2, value, held, json)
}

/// Appends what the field `number` holds.
fn one(number: u64, value: Value, content: Content<'_>, json: &mut Vec<u8>) -> Result<(), Fault> {
    match value {
        Value::Text => text(content.bytes(number)?, json),
        Value::Bool => {
            let said: &[u8] = if content.number(number)? == 0 { b"false" } else { b"true" };
            json.extend_from_slice(said);
        }
        // Written as 64 bits in two's complement whatever its size.
        Value::Number => written(content.number(number)?.cast_signed(), json),
        Value::Time => time(content.bytes(number)?, json)?,
        Value::Quantity => quantity(content.bytes(number)?, json)?,
        Value::Message(table) => to_json(content.bytes(number)?, table, json)?,
    }
    Ok(())
}

/// Appends a member's name, which needs no escapes.
fn name(name: &str, json: &mut Vec<u8>) {
    comma(json);
    quoted(name.as_bytes(), json);
    json.push(b':');
}

/// Appends what parts the next member or element from the one before, if there is one.
fn comma(json: &mut Vec<u8>) {
    if !matches!(json.last(), Some(b'{' | b'[')) {
        json.push(b',');
    }
}

/// Appends a text, with marks for what is no UTF-8, as Go writes it.
fn text(bytes: &[u8], json: &mut Vec<u8>) {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if bytes.iter().all(plain) {
        return quoted(bytes, json);
    }
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(json, &*String::from_utf8_lossy(bytes));
}

/// Appends a text as it is.
fn quoted(text: &[u8], json: &mut Vec<u8>) {
    json.push(b'"');
    json.extend_from_slice(text);
    json.push(b'"');
}

/// Appends a number.
fn written(number: i64, json: &mut Vec<u8>) {
    let _ = write!(json, "{number}");
}

/// Appends a time in whole seconds, as Kubernetes reads and writes it; no time where it is empty.
fn time(message: &[u8], json: &mut Vec<u8>) -> Result<(), Fault> {
    if message.is_empty() {
        json.extend_from_slice(b"null");
        return Ok(());
    }
    let seconds = last(message, 1)?.map_or(Ok(0), |seconds| seconds.number(1))?;
    let time = Timestamp::from_second(seconds.cast_signed()).map_err(|_| Fault::Time)?;
    let _ = write!(json, "\"{time}\"");
    Ok(())
}

/// Appends a quantity; one without text is nothing.
fn quantity(message: &[u8], json: &mut Vec<u8>) -> Result<(), Fault> {
    let amount = last(message, 1)?.map_or(Ok(&b"0"[..]), |amount| amount.bytes(1))?;
    text(amount, json);
    Ok(())
}

#[cfg(test)]
mod tests;
