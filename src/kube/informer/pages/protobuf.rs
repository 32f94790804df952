//! The pages of a list in protobuf.
//!
//! An answer is `k8s\0` and an envelope (`runtime.Unknown`) around a list. Field 1 of the list is its
//! metadata, field 2 an object, repeated. Servers write fields in the order of their numbers, so the
//! metadata comes first. An object that cannot be read is yielded with its name, as its length is
//! known. [`crate::kube::objects::protobuf`] reads the messages.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;

use super::{AnswerError, Part, buffer::Buffer};
use crate::kube::{
    informer::tolerant::Tolerant,
    objects::{
        View,
        protobuf::{Fault, Fields, LIST_META, MAGIC, RAW, TYPE_META, kind_of, read},
    },
};

/// Fields of a list.
const METADATA: u64 = 1;
const ITEMS: u64 = 2;

/// Reads a list.
#[derive(Default)]
pub(super) struct Reader {
    buffer: Buffer,
    place: Place,
    /// Whether the metadata of the list was yielded.
    head_yielded: bool,
}

/// Which part of an answer is read next.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// What precedes the list.
    #[default]
    Envelope,
    /// The list, of which so many bytes are left.
    List(usize),
    /// Nothing: the answer has ended.
    End,
}

/// A field of a list.
enum Field<V> {
    Known(Part<V>),
    Unknown,
}

impl Reader {
    /// Appends received bytes; an empty slice means the end of the answer.
    pub(super) fn push(&mut self, received: &[u8]) -> Result<(), AnswerError> {
        match self.place {
            // What follows the list in its envelope is ignored.
            Place::List(0) if !received.is_empty() => Ok(()),
            _ if !received.is_empty() => self.buffer.push(received),
            Place::List(0) | Place::End => {
                self.place = Place::End;
                Ok(())
            }
            Place::Envelope | Place::List(_) => Err(AnswerError::Ends),
        }
    }

    /// Reads the next part; returns none if more bytes are needed for it.
    pub(super) fn next<V: View>(&mut self) -> Result<Option<Part<V>>, AnswerError> {
        if self.place == Place::Envelope && !self.read_envelope(V::KIND)? {
            return Ok(None);
        }
        while let Some(field) = self.field()? {
            if let Field::Known(part) = field {
                self.head_yielded |= matches!(part, Part::Head(_));
                return Ok(Some(part));
            }
        }
        Ok(match self.place {
            Place::End if !std::mem::replace(&mut self.head_yielded, true) => {
                Some(Part::Head(ListMeta::default()))
            }
            Place::End => Some(Part::End),
            Place::Envelope | Place::List(_) => None,
        })
    }

    /// Reads up to the list of objects of `kind`; returns whether its beginning was received.
    fn read_envelope(&mut self, kind: &str) -> Result<bool, AnswerError> {
        let Some((magic, envelope)) = self.buffer.unread().split_at_checked(MAGIC.len()) else {
            return Ok(false);
        };
        if magic != MAGIC {
            return Err(Fault::NotProtobuf.into());
        }
        match list_position(envelope, kind) {
            Ok((before, length)) => {
                self.buffer.advance(MAGIC.len() + before);
                self.place = Place::List(length);
                Ok(true)
            }
            Err(AnswerError::Protobuf(Fault::CutShort)) => Ok(false),
            Err(broken) => Err(broken),
        }
    }

    /// Reads the next field of the list; returns none at its end, or if it was not received whole.
    fn field<V: View>(&mut self) -> Result<Option<Field<V>>, AnswerError> {
        let Place::List(left) = self.place else { return Ok(None) };
        let received = self.buffer.unread();
        // More may follow the list.
        let list = received.get(..left);
        let mut fields = Fields::of(list.unwrap_or(received));
        let before = fields.len();
        let (number, content) = match fields.next() {
            Ok(Some(field)) => field,
            Ok(None) => return Ok(None),
            Err(Fault::CutShort) if list.is_none() => return Ok(None),
            Err(fault) => return Err(fault.into()),
        };
        let field = match number {
            METADATA => Field::Known(Part::Head(read(content.bytes(METADATA)?, LIST_META)?)),
            ITEMS => Field::Known(Part::Object(Tolerant::read_protobuf(content.bytes(ITEMS)?))),
            _ => Field::Unknown,
        };
        let length = before - fields.len();
        self.buffer.advance(length);
        self.place = Place::List(left - length);
        Ok(Some(field))
    }
}

/// Returns how many bytes of an envelope precede its list of objects of `kind`, and the list's length.
fn list_position(envelope: &[u8], kind: &str) -> Result<(usize, usize), AnswerError> {
    let mut fields = Fields::of(envelope);
    loop {
        let mut ahead = fields;
        let head = ahead.head()?;
        if head.number == RAW {
            return Ok((envelope.len() - ahead.len(), head.length()?));
        }
        if let Some((TYPE_META, content)) = fields.next()? {
            let list = kind_of(content.bytes(TYPE_META)?)?;
            if list.strip_suffix(b"List") != Some(kind.as_bytes()) {
                return Err(AnswerError::OtherKind);
            }
        }
    }
}

#[cfg(test)]
mod tests;
