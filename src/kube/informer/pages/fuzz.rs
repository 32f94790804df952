//! The fuzz target of lists: any answer, received in any pieces.

use super::{AnswerError, Part, json::Reader};
use crate::{
    fuzzing::same_in_pieces,
    kube::{
        informer::tolerant::Tolerant,
        objects::{Claim, View, Volume},
    },
};

/// At how many places an answer is cut.
const CUTS: usize = 512;

/// Checks that an answer gives the same parts and the same end in whatever pieces it is received.
///
/// # Panics
/// If it does not.
pub fn lists(data: &[u8]) {
    lists_of::<Claim>(data);
    lists_of::<Volume>(data);
}

fn lists_of<V: View>(data: &[u8]) {
    let (parts, _) = same_in_pieces(data, CUTS, read::<V>);
    assert!(parts.len() <= data.len() + 2, "{} parts of {} bytes", parts.len(), data.len());
}

/// Reads an answer in these pieces; returns a text for each part, and how it ends.
fn read<V: View>(pieces: &[&[u8]]) -> (Vec<String>, &'static str) {
    let pieces = pieces.iter().copied().filter(|piece| !piece.is_empty());
    let (mut reader, mut parts) = (Reader::default(), Vec::new());
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
fn kind(error: &AnswerError) -> &'static str {
    match error {
        AnswerError::Api(_) => "no answer",
        AnswerError::Json(_) => "no JSON",
        AnswerError::Ends => "ends early",
        AnswerError::TooLarge => "too large",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_list_is_the_same_wherever_it_is_cut() {
        crate::fuzzing::run("lists", 40, super::lists);
    }
}
