//! The pages of a list in JSON.
//!
//! Promises what [`super`] does; that the version is known as soon as it came: before the objects,
//! where the server is written in Go.

use kube::api::ListMeta;
use serde::Deserialize;
use serde_json::{Deserializer, Error, value::RawValue};

use super::{
    Broken, Part,
    held::{Held, MAX_HELD},
};
use crate::kube::{informer::tolerant::Tolerant, objects::View};

/// Reads a list.
#[derive(Default)]
pub(super) struct Reader {
    held: Held,
    /// The answer without its objects.
    frame: Vec<u8>,
    place: Place,
    told: bool,
}

/// Where in an answer a reader is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// Before the objects.
    #[default]
    Before,
    /// Among them.
    Among,
    /// After them.
    After,
    /// At the answer's end.
    End,
}

/// The frame of a list.
#[derive(Deserialize)]
struct Frame {
    metadata: Option<ListMeta>,
}

impl Reader {
    /// Takes in more bytes; none at the answer's end.
    pub(super) fn take_in(&mut self, came: &[u8]) -> Result<(), Broken> {
        self.held.take_in(came)?;
        match self.place {
            _ if !came.is_empty() => {}
            Place::Among => return Err(Broken::Ends),
            Place::Before | Place::After | Place::End => self.place = Place::End,
        }
        Ok(())
    }

    /// The next part, where enough has come for it.
    pub(super) fn next<V: View>(&mut self) -> Result<Option<Part<V>>, Broken> {
        loop {
            let place = self.place;
            let part = self.step()?;
            if part.is_some() || place == self.place {
                return Ok(part);
            }
        }
    }

    fn step<V: View>(&mut self) -> Result<Option<Part<V>>, Broken> {
        match self.place {
            Place::Before => Ok(self.begins()?.map(Part::Head)),
            Place::Among => self.object(),
            Place::After => {
                self.frame_goes_on(self.held.rest().len())?;
                Ok(None)
            }
            Place::End => {
                self.frame_goes_on(self.held.rest().len())?;
                let frame: Frame = serde_json::from_slice(&self.frame)?;
                let untold = !std::mem::replace(&mut self.told, true);
                let head = Part::Head(frame.metadata.unwrap_or_default());
                Ok(Some(if untold { head } else { Part::End }))
            }
        }
    }

    /// So much more belongs to the frame.
    fn frame_goes_on(&mut self, length: usize) -> Result<(), Broken> {
        if self.frame.len() + length > MAX_HELD {
            return Err(Broken::TooLarge);
        }
        self.frame.extend_from_slice(self.held.rest().get(..length).unwrap_or_default());
        self.held.advance(length);
        Ok(())
    }

    /// Reads as far as the objects begin; gives the version, where it stands before them.
    fn begins(&mut self) -> Result<Option<ListMeta>, Broken> {
        let Some(items) = items_begin(self.held.rest()) else { return Ok(None) };
        self.frame_goes_on(items)?;
        self.place = Place::Among;
        let closed = [&self.frame[..], b"]}"].concat();
        let head = serde_json::from_slice::<Frame>(&closed).ok().and_then(|frame| frame.metadata);
        self.told = head.is_some();
        Ok(head)
    }

    fn object<V: View>(&mut self) -> Result<Option<Part<V>>, Broken> {
        let between = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        self.held.advance(self.held.rest().iter().take_while(|byte| between(byte)).count());
        if self.held.rest().first() == Some(&b']') {
            self.place = Place::After;
            return Ok(None);
        }
        let Some((object, length)) = first_of(self.held.rest())? else { return Ok(None) };
        self.held.advance(length);
        Ok(Some(Part::Object(object)))
    }
}

/// The first object of these bytes and its length; none when its end has not come yet.
fn first_of<V: View>(bytes: &[u8]) -> Result<Option<(Tolerant<V>, usize)>, Error> {
    let mut objects = Deserializer::from_slice(bytes).into_iter::<V>();
    match objects.next() {
        Some(Ok(object)) => Ok(Some((Tolerant::Read(object), objects.byte_offset()))),
        // Perhaps JSON and no `V`.
        Some(Err(error)) if error.is_data() => whole(bytes),
        Some(Err(error)) if !error.is_eof() => Err(error),
        Some(Err(_)) | None => Ok(None),
    }
}

/// The same of one that cannot be read as a `V`.
fn whole<V: View>(bytes: &[u8]) -> Result<Option<(Tolerant<V>, usize)>, Error> {
    let mut objects = Deserializer::from_slice(bytes).into_iter::<&RawValue>();
    match objects.next() {
        // Where a number or a word ends is told by what follows it.
        Some(Ok(_)) if objects.byte_offset() == bytes.len() && !closes_itself(bytes) => Ok(None),
        Some(Ok(object)) => {
            Ok(Some((Tolerant::read(object.get().as_bytes()), objects.byte_offset())))
        }
        Some(Err(error)) if !error.is_eof() => Err(error),
        Some(Err(_)) | None => Ok(None),
    }
}

/// Whether the value that the bytes begin with has an end of its own.
fn closes_itself(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(b'{' | b'[' | b'"'))
}

/// How much of the answer stands before the first object: all up to `"items":[`, which no text in
/// JSON can hold, as its quotes would be escaped.
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
