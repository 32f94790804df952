//! The pages of a list in protobuf.
//!
//! Owns the frame: the envelope (`k8s\0` and a `runtime.Unknown`) around a list, of which the first
//! field is its version and the second one object after the other. Servers write the fields in the
//! order of their numbers, so the version comes first. Promises what [`super`] does; an object of which the
//! bytes are no such object keeps its name, and costs only itself, as its length is known. Leaves
//! messages to [`crate::kube::objects::protobuf`].

use kube::api::ListMeta;

use super::{Broken, Part, held::Held};
use crate::kube::{
    informer::tolerant::Tolerant,
    objects::{
        View,
        protobuf::{Fault, Fields, LIST_META, MAGIC, NAMES, RAW, TYPE_META, kind_of, read},
    },
};

/// Fields of a list.
const METADATA: u64 = 1;
const ITEMS: u64 = 2;

/// Reads a list.
#[derive(Default)]
pub(super) struct Reader {
    held: Held,
    place: Place,
    /// Whether the version was told.
    told: bool,
}

/// Where in an answer a reader is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// Before the list.
    #[default]
    Envelope,
    /// In the list, of which so many bytes are to come.
    List(usize),
    /// At the answer's end.
    End,
}

/// A field of a list.
enum Field<V> {
    Known(Part<V>),
    Unknown,
}

impl Reader {
    /// Takes in more bytes; none at the answer's end.
    pub(super) fn take_in(&mut self, came: &[u8]) -> Result<(), Broken> {
        match self.place {
            // What follows a list in its envelope says nothing.
            Place::List(0) if !came.is_empty() => Ok(()),
            _ if !came.is_empty() => self.held.take_in(came),
            Place::List(0) | Place::End => {
                self.place = Place::End;
                Ok(())
            }
            Place::Envelope | Place::List(_) => Err(Broken::Ends),
        }
    }

    /// The next part, where enough has come for it.
    pub(super) fn next<V: View>(&mut self) -> Result<Option<Part<V>>, Broken> {
        if self.place == Place::Envelope && !self.begins(&V::kind(&()))? {
            return Ok(None);
        }
        while let Some(field) = self.field()? {
            if let Field::Known(part) = field {
                self.told |= matches!(part, Part::Head(_));
                return Ok(Some(part));
            }
        }
        Ok(match self.place {
            Place::End if !std::mem::replace(&mut self.told, true) => {
                Some(Part::Head(ListMeta::default()))
            }
            Place::End => Some(Part::End),
            Place::Envelope | Place::List(_) => None,
        })
    }

    /// Reads as far as the list of such objects begins; says whether that has come.
    fn begins(&mut self, kind: &str) -> Result<bool, Broken> {
        let Some((magic, envelope)) = self.held.rest().split_at_checked(MAGIC.len()) else {
            return Ok(false);
        };
        if magic != MAGIC {
            return Err(Fault::NotProtobuf.into());
        }
        match list_begins(envelope, kind) {
            Ok((before, length)) => {
                self.held.advance(MAGIC.len() + before);
                self.place = Place::List(length);
                Ok(true)
            }
            Err(Broken::Protobuf(Fault::CutShort)) => Ok(false),
            Err(broken) => Err(broken),
        }
    }

    /// The next field of the list, where it has come whole; none at its end.
    fn field<V: View>(&mut self) -> Result<Option<Field<V>>, Broken> {
        let Place::List(left) = self.place else { return Ok(None) };
        let came = self.held.rest();
        // What lies behind the list is not the list's.
        let list = came.get(..left);
        let mut fields = Fields::of(list.unwrap_or(came));
        let before = fields.len();
        let (number, content) = match fields.next() {
            Ok(Some(field)) => field,
            Ok(None) => return Ok(None),
            Err(Fault::CutShort) if list.is_none() => return Ok(None),
            Err(fault) => return Err(fault.into()),
        };
        let field = match number {
            METADATA => Field::Known(Part::Head(read(content.bytes(METADATA)?, LIST_META)?)),
            ITEMS => Field::Known(Part::Object(object(content.bytes(ITEMS)?))),
            _ => Field::Unknown,
        };
        let length = before - fields.len();
        self.held.advance(length);
        self.place = Place::List(left - length);
        Ok(Some(field))
    }
}

/// How much of an envelope stands before its list of such objects, and how long that is.
fn list_begins(envelope: &[u8], kind: &str) -> Result<(usize, usize), Broken> {
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
                return Err(Broken::OtherKind);
            }
        }
    }
}

/// Reads an object; one that is none as far as it has a name.
fn object<V: View>(message: &[u8]) -> Tolerant<V> {
    let object = V::from_protobuf().ok_or(Fault::Unexpected).and_then(|read| read(message));
    object.map_or_else(
        |fault| Tolerant::unreadable(read(message, NAMES).unwrap_or_default(), fault.to_string()),
        Tolerant::Read,
    )
}

#[cfg(test)]
mod tests;
