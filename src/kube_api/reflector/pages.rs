//! One page of a list, object by object while it comes.
//!
//! Owns reading a list's answer from the bytes as they arrive: no more of it is held than one object
//! and what came with its last bytes, so that a page may be large. It should be: a kube-apiserver
//! spends as much on a page as on hundreds of objects. Promises what [`Tolerant`] does, that an
//! answer which ends early or is not JSON is an error, and that the page's version is known as soon
//! as it came: before the objects, where the server is written in Go. Leaves the order of pages and
//! watch to `overlapped`.

use std::pin::Pin;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use kube::{
    Api, Client,
    api::{ListMeta, ListParams, Request},
};
use serde::{Deserialize, de::Error as _};
use serde_json::{Deserializer, Error, value::RawValue};

use super::tolerant::Tolerant;
use crate::kube_api::views::View;

/// The most that is held of an answer, in bytes: far more than a server takes for one object.
const MAX_HELD: usize = 32 << 20;

/// A page on its way.
pub(super) struct Page {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    reader: Reader,
}

/// What comes of a page next.
pub(super) enum Part<V> {
    /// Its version: once, before or after the objects.
    Head(ListMeta),
    /// An object.
    Object(Tolerant<V>),
    /// Nothing more.
    End,
}

impl Page {
    /// Asks for the page that `params` name. It has begun to come when this returns.
    pub(super) async fn ask<V: View>(
        api: Api<Tolerant<V>>,
        params: ListParams,
    ) -> kube::Result<Self> {
        let request = Request::new(api.resource_url()).list(&params);
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert("list");
        let body = Client::from(api).request_stream(request).await?;
        Ok(Self { body: Box::pin(body), reader: Reader::default() })
    }

    /// What has come already.
    pub(super) fn at_hand<V: View>(&mut self) -> kube::Result<Option<Part<V>>> {
        self.reader.next().map_err(kube::Error::SerdeError)
    }

    /// Waits for more of it. Nothing is lost when this is dropped.
    pub(super) async fn comes(&mut self) -> kube::Result<()> {
        let came =
            self.body.fill_buf().await.map_err(|error| kube::Error::Service(error.into()))?;
        let length = came.len();
        self.reader.take_in(came).map_err(kube::Error::SerdeError)?;
        self.body.as_mut().consume(length);
        Ok(())
    }
}

/// The bytes of an answer on their way to objects.
#[derive(Default)]
struct Reader {
    /// What has come and is not read yet, from `read` on.
    held: Vec<u8>,
    read: usize,
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
    fn take_in(&mut self, came: &[u8]) -> Result<(), Error> {
        self.held.drain(..self.read);
        self.read = 0;
        if self.held.len() + came.len() > MAX_HELD {
            return Err(Error::custom("larger than 32 MiB"));
        }
        self.held.extend_from_slice(came);
        match self.place {
            _ if !came.is_empty() => {}
            Place::Among => return Err(Error::custom("the list ends in the middle")),
            Place::Before | Place::After | Place::End => self.place = Place::End,
        }
        Ok(())
    }

    /// The next part, where enough has come for it.
    fn next<V: View>(&mut self) -> Result<Option<Part<V>>, Error> {
        loop {
            let place = self.place;
            let part = self.step()?;
            if part.is_some() || place == self.place {
                return Ok(part);
            }
        }
    }

    fn step<V: View>(&mut self) -> Result<Option<Part<V>>, Error> {
        match self.place {
            Place::Before => Ok(self.begins().map(Part::Head)),
            Place::Among => self.object(),
            Place::After => {
                self.frame_goes_on(self.held.len());
                Ok(None)
            }
            Place::End => {
                self.frame_goes_on(self.held.len());
                let frame: Frame = serde_json::from_slice(&self.frame)?;
                let untold = !std::mem::replace(&mut self.told, true);
                let head = Part::Head(frame.metadata.unwrap_or_default());
                Ok(Some(if untold { head } else { Part::End }))
            }
        }
    }

    fn rest(&self) -> &[u8] {
        self.held.get(self.read..).unwrap_or_default()
    }

    /// What has come up to `end` belongs to the frame.
    fn frame_goes_on(&mut self, end: usize) {
        self.frame.extend_from_slice(self.held.get(self.read..end).unwrap_or_default());
        self.read = end;
    }

    /// Reads as far as the objects begin; gives the version, where it stands before them.
    fn begins(&mut self) -> Option<ListMeta> {
        let items = self.read + items_begin(self.rest())?;
        self.frame_goes_on(items);
        self.place = Place::Among;
        let closed = [&self.frame[..], b"]}"].concat();
        let head = serde_json::from_slice::<Frame>(&closed).ok()?.metadata?;
        self.told = true;
        Some(head)
    }

    fn object<V: View>(&mut self) -> Result<Option<Part<V>>, Error> {
        let between = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        self.read += self.rest().iter().take_while(|byte| between(byte)).count();
        if self.rest().first() == Some(&b']') {
            self.place = Place::After;
            return Ok(None);
        }
        let Some((object, length)) = first_of(self.rest())? else { return Ok(None) };
        self.read += length;
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
        Some(Ok(object)) => Ok(Some((Tolerant::read(object.get()), objects.byte_offset()))),
        Some(Err(error)) if !error.is_eof() => Err(error),
        Some(Err(_)) | None => Ok(None),
    }
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
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::kube_api::views::Claim;

    /// What is read of an answer that comes in these pieces, one word a part.
    fn read(pieces: &[&[u8]]) -> Result<Vec<String>, Error> {
        let (mut reader, mut words) = (Reader::default(), Vec::new());
        for piece in pieces.iter().copied().chain([&b""[..]]) {
            reader.take_in(piece)?;
            while let Some(part) = reader.next::<Claim>()? {
                words.push(match part {
                    Part::Head(head) => format!(
                        "{}>{}",
                        head.resource_version.unwrap_or_default(),
                        head.continue_.unwrap_or_default()
                    ),
                    Part::Object(Tolerant::Read(claim)) => claim.name().to_owned(),
                    Part::Object(Tolerant::Unreadable { metadata, .. }) => {
                        format!("unreadable {}", metadata.name.unwrap_or_default())
                    }
                    Part::End => return Ok(words),
                });
            }
        }
        panic!("neither an end nor an error: {words:?}");
    }

    /// As Go writes it: the version before the objects.
    fn as_go(items: &[Value]) -> String {
        let items = serde_json::to_string(items).unwrap();
        format!(
            "{{\"kind\":\"L\",\"metadata\":{{\"resourceVersion\":\"7\",\"continue\":\"n\"}},\"items\":{items}}}\n"
        )
    }

    fn claim(name: &str) -> Value {
        json!({"metadata": {"name": name, "annotations": {"\"items\":[": "]}, \\\" {["}}})
    }

    #[test]
    fn the_version_comes_before_the_objects_where_it_stands_there() {
        let go = as_go(&[claim("a"), claim("b")]);
        assert_eq!(read(&[go.as_bytes()]).unwrap(), ["7>n", "a", "b"]);
        let sorted = json!({"items": [claim("a")], "metadata": {"resourceVersion": "7"}});
        assert_eq!(read(&[sorted.to_string().as_bytes()]).unwrap(), ["a", "7>"]);
        let spaced = serde_json::to_string_pretty(&sorted).unwrap();
        assert_eq!(read(&[spaced.as_bytes()]).unwrap(), ["a", "7>"]);
    }

    #[test]
    fn lists_without_objects_are_read() {
        for items in [r#""items":[],"#, r#""items":null,"#, r#""items": [ ] ,"#, ""] {
            let answer = format!(r#"{{{items}"metadata":{{"resourceVersion":"7"}}}}"#);
            assert_eq!(read(&[answer.as_bytes()]).unwrap(), ["7>"], "{answer}");
        }
        assert_eq!(read(&[b"{}"]).unwrap(), [">"]);
    }

    #[test]
    fn what_ends_early_or_is_not_json_is_an_error() {
        let whole = as_go(&[claim("a")]);
        let whole = whole.trim_end();
        for end in 0..whole.len() {
            assert!(read(&[&whole.as_bytes()[..end]]).is_err(), "{}", &whole[..end]);
        }
        for broken in [r#"{"items":[{"metadata":}]}"#, r#"{"items":[]]"#, "<html>"] {
            assert!(read(&[broken.as_bytes()]).is_err(), "{broken}");
        }
    }

    #[test]
    fn an_object_without_end_is_not_held_for_ever() {
        let mut reader = Reader::default();
        let more = vec![b'x'; 1 << 20];
        reader.take_in(br#"{"items":[{"a":""#).unwrap();
        while reader.next::<Claim>().unwrap().is_some() {}
        let taken = (0..64).take_while(|_| reader.take_in(&more).is_ok()).count();
        assert_eq!(taken, 31);
    }

    proptest! {
        #[test]
        fn an_answer_is_the_same_in_whatever_pieces_it_comes(
            objects in prop::collection::vec((any::<bool>(), "\\PC{0,12}"), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let object = |(good, name): &(bool, String)| match good {
                true => claim(name),
                false => json!({"metadata": {"name": name}, "spec": "no spec"}),
            };
            let answer = as_go(&objects.iter().map(object).collect::<Vec<_>>());
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(answer.len())).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([answer.len()]);
            let pieces = std::iter::once(0).chain(cuts.iter().copied()).zip(ends);
            let pieces: Vec<&[u8]> =
                pieces.map(|(from, to)| &answer.as_bytes()[from..to]).filter(|piece| !piece.is_empty()).collect();
            let word = |(good, name): &(bool, String)| {
                if *good { name.clone() } else { format!("unreadable {name}") }
            };
            let expected: Vec<String> =
                std::iter::once("7>n".to_owned()).chain(objects.iter().map(word)).collect();
            prop_assert_eq!(read(&pieces).unwrap(), expected);
        }
    }
}
