//! The fuzz target of lists: any answer, received in any pieces.

use super::{Encoding, PageError, Part, Reader};
use crate::kube::{
    informer::tolerant::Tolerant,
    objects::{Claim, View, Volume, protobuf::MAGIC},
};

/// An answer of up to so many bytes is cut at every place, a longer one at so many places.
const CUTS: usize = 512;

/// Checks that an answer gives the same parts and the same end in whatever pieces it is received.
///
/// # Panics
/// If it does not.
pub fn lists(data: &[u8]) {
    same_in_pieces::<Claim>(data);
    same_in_pieces::<Volume>(data);
}

fn same_in_pieces<V: View>(data: &[u8]) {
    let whole = read::<V>([data]);
    assert!(whole.0.len() <= data.len() + 2, "{} parts of {} bytes", whole.0.len(), data.len());
    for cut in (0..data.len()).step_by(data.len() / CUTS + 1) {
        let (start, end) = data.split_at(cut);
        assert_eq!(read::<V>([start, end]), whole, "cut at {cut}");
    }
    if data.len() <= CUTS {
        assert_eq!(read::<V>(data.chunks(1)), whole, "byte by byte");
    }
}

/// Reads an answer in these pieces; returns a text for each part, and how it ends.
fn read<'a, V: View>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, &'static str) {
    let mut pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).peekable();
    let in_protobuf = pieces.peek().is_some_and(|piece| piece.first() == MAGIC.first());
    let encoding = if in_protobuf { Encoding::Protobuf } else { Encoding::Json };
    let (mut reader, mut parts) = (Reader::new(encoding), Vec::new());
    for piece in pieces.chain([&b""[..]]) {
        if let Err(error) = reader.push(piece) {
            return (parts, kind(&error));
        }
        loop {
            match reader.next::<V>() {
                Ok(Some(Part::End)) => return (parts, "end"),
                Ok(Some(part)) => parts.push(shown(&part)),
                Ok(None) => break,
                Err(error) => return (parts, kind(&error)),
            }
        }
    }
    (parts, "neither an end nor an error")
}

fn shown<V: View>(part: &Part<V>) -> String {
    match part {
        Part::Head(head) => format!("{:?} {:?}", head.resource_version, head.continue_),
        Part::Object(Tolerant::Read(object)) => format!("{object:?}"),
        Part::Object(Tolerant::Unreadable { metadata, fault }) => format!("{metadata:?} {fault}"),
        Part::End => String::new(),
    }
}

/// The kind of an error, without its place, which depends on the pieces.
fn kind(error: &PageError) -> &'static str {
    match error {
        PageError::Json(_) => "no JSON",
        PageError::Protobuf(_) => "no protobuf",
        PageError::OtherKind => "another kind",
        PageError::Ends => "ends early",
        PageError::TooLarge => "too large",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_list_is_the_same_wherever_it_is_cut() {
        crate::fuzzing::run("lists", 40, super::lists);
    }
}
