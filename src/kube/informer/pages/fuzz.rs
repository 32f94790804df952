//! The fuzz target of lists: whatever a server answers, in whatever pieces it comes.

use super::{Broken, Part, Reader};
use crate::kube::{
    informer::tolerant::Tolerant,
    objects::{Claim, View, Volume, protobuf::MAGIC},
};

/// Up to so many bytes an answer is cut at every place; of a longer one at so many.
const CUTS: usize = 512;

/// An answer gives the same parts and the same end in whatever pieces it comes.
///
/// # Panics
/// Where that does not hold.
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

/// What is read of an answer in these pieces, a text for each part, and how it ends.
fn read<'a, V: View>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, &'static str) {
    let mut pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).peekable();
    let in_protobuf = pieces.peek().is_some_and(|piece| piece.first() == MAGIC.first());
    let (mut reader, mut parts) = (Reader::of(in_protobuf), Vec::new());
    for piece in pieces.chain([&b""[..]]) {
        if let Err(broken) = reader.take_in(piece) {
            return (parts, kind(&broken));
        }
        loop {
            match reader.next::<V>() {
                Ok(Some(Part::End)) => return (parts, "end"),
                Ok(Some(part)) => parts.push(shown(&part)),
                Ok(None) => break,
                Err(broken) => return (parts, kind(&broken)),
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

/// Without the place of an error, which is counted from the start of what was held.
fn kind(broken: &Broken) -> &'static str {
    match broken {
        Broken::Json(_) => "no JSON",
        Broken::Protobuf(_) => "no protobuf",
        Broken::OtherKind => "another kind",
        Broken::Ends => "ends early",
        Broken::TooLarge => "too large",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_list_is_the_same_wherever_it_is_cut() {
        crate::fuzzing::run("lists", 40, super::lists);
    }
}
