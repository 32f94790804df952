//! The pages of a list in JSON.
//!
//! The metadata of the list comes before the objects, if the server is written in Go, and is yielded as
//! soon as it was received.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use serde_json::{Deserializer, Error, value::RawValue};

use super::{
    AnswerError, Part,
    buffer::{Buffer, MAX_BUFFERED},
};
use crate::kube::{informer::tolerant::Tolerant, objects::View};

/// Reads a list.
#[derive(Default)]
pub(super) struct Reader {
    buffer: Buffer,
    /// The answer without its objects, as far as it was received.
    frame: Vec<u8>,
    place: Place,
    /// Whether the metadata of the list was yielded.
    head_yielded: bool,
}

/// Which part of an answer is read next.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// What precedes the objects.
    #[default]
    Before,
    /// The objects.
    Objects,
    /// What follows the objects.
    After,
    /// Nothing: the answer has ended.
    End,
}

/// The frame of a list.
#[derive(Deserialize)]
struct Frame {
    metadata: Option<ListMeta>,
}

impl Reader {
    /// Appends received bytes; an empty slice means the end of the answer.
    pub(super) fn push(&mut self, received: &[u8]) -> Result<(), AnswerError> {
        self.buffer.push(received)?;
        match self.place {
            _ if !received.is_empty() => {}
            Place::Objects => return Err(AnswerError::Ends),
            Place::Before | Place::After | Place::End => self.place = Place::End,
        }
        Ok(())
    }

    /// Reads the next part; returns none if more bytes are needed for it.
    pub(super) fn next<V: View>(&mut self) -> Result<Option<Part<V>>, AnswerError> {
        loop {
            let place = self.place;
            let part = self.step()?;
            if part.is_some() || place == self.place {
                return Ok(part);
            }
        }
    }

    fn step<V: View>(&mut self) -> Result<Option<Part<V>>, AnswerError> {
        match self.place {
            Place::Before => Ok(self.read_beginning()?.map(Part::Head)),
            Place::Objects => self.object(),
            Place::After => {
                self.extend_frame(self.buffer.unread().len())?;
                Ok(None)
            }
            Place::End => {
                self.extend_frame(self.buffer.unread().len())?;
                let frame: Frame = serde_json::from_slice(&self.frame)?;
                let is_yielded = std::mem::replace(&mut self.head_yielded, true);
                let head = Part::Head(frame.metadata.unwrap_or_default());
                Ok(Some(if is_yielded { Part::End } else { head }))
            }
        }
    }

    /// Moves the next `length` bytes to the frame.
    fn extend_frame(&mut self, length: usize) -> Result<(), AnswerError> {
        if self.frame.len() + length > MAX_BUFFERED {
            return Err(AnswerError::TooLarge);
        }
        self.frame.extend_from_slice(self.buffer.unread().get(..length).unwrap_or_default());
        self.buffer.advance(length);
        Ok(())
    }

    /// Reads up to the first object; returns the metadata of the list, if it comes before the objects.
    fn read_beginning(&mut self) -> Result<Option<ListMeta>, AnswerError> {
        let Some(items) = items_begin(self.buffer.unread()) else { return Ok(None) };
        self.extend_frame(items)?;
        self.place = Place::Objects;
        let closed = [&self.frame[..], b"]}"].concat();
        let head = serde_json::from_slice::<Frame>(&closed).ok().and_then(|frame| frame.metadata);
        self.head_yielded = head.is_some();
        Ok(head)
    }

    fn object<V: View>(&mut self) -> Result<Option<Part<V>>, AnswerError> {
        let between = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        self.buffer.advance(self.buffer.unread().iter().take_while(|byte| between(byte)).count());
        if self.buffer.unread().first() == Some(&b']') {
            self.place = Place::After;
            return Ok(None);
        }
        let Some((object, length)) = first_of(self.buffer.unread())? else { return Ok(None) };
        self.buffer.advance(length);
        Ok(Some(Part::Object(object)))
    }
}

/// Reads the object at the beginning of `bytes`, and its length; returns none if its end was not received
/// yet.
fn first_of<V: View>(bytes: &[u8]) -> Result<Option<(Tolerant<V>, usize)>, Error> {
    let mut objects = Deserializer::from_slice(bytes).into_iter::<V>();
    match objects.next() {
        Some(Ok(object)) => Ok(Some((Tolerant::Read(object), objects.byte_offset()))),
        // It may be JSON all the same.
        Some(Err(error)) if error.is_data() => name_of(bytes),
        Some(Err(error)) if !is_incomplete(&error, bytes) => Err(error),
        Some(Err(_)) | None => Ok(None),
    }
}

/// Whether the error may come from the end of what was received. `serde_json` calls a number that ends within
/// its exponent or after its sign invalid.
fn is_incomplete(error: &Error, bytes: &[u8]) -> bool {
    let is_at_end = || {
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let before: usize = lines.take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
        before + error.column() >= bytes.len()
    };
    error.is_eof() || is_at_end()
}

/// Reads the name of the object at the beginning of `bytes`, which cannot be read as a `V`, and its
/// length.
fn name_of<V: View>(bytes: &[u8]) -> Result<Option<(Tolerant<V>, usize)>, Error> {
    let mut objects = Deserializer::from_slice(bytes).into_iter::<&RawValue>();
    match objects.next() {
        // Only what follows a number or a word shows where it ends.
        Some(Ok(_)) if objects.byte_offset() == bytes.len() && !is_delimited(bytes) => Ok(None),
        Some(Ok(object)) => {
            Ok(Some((Tolerant::read(object.get().as_bytes()), objects.byte_offset())))
        }
        Some(Err(error)) if !is_incomplete(&error, bytes) => Err(error),
        Some(Err(_)) | None => Ok(None),
    }
}

/// Whether the value at the beginning of `bytes` has a delimiter at its end.
fn is_delimited(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(b'{' | b'[' | b'"'))
}

/// Returns how many bytes precede the first object: all up to `"items":[`, which is in no JSON string, as
/// its quotes would be escaped.
fn items_begin(answer: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"\"items\"";
    let mut from = 0;
    loop {
        let rest = answer.get(from..)?;
        let key = rest.windows(KEY.len()).position(|window| window == KEY)?;
        from += key + KEY.len();
        let mut signs = answer.iter().enumerate().skip(from);
        let mut sign = || signs.find(|(_, byte)| !byte.is_ascii_whitespace());
        if let (Some((_, b':')), Some((at, b'['))) = (sign(), sign()) {
            return Some(at + 1);
        }
    }
}

#[cfg(test)]
mod tests;
