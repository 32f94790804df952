//! The fuzz target of watches: any answer, received in any pieces.

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tower::BoxError;

use super::events;
use crate::{
    fuzzing::same_in_pieces,
    kube::objects::{Claim, View, Volume},
};

/// At how many places an answer is cut.
const CUTS: usize = 256;

/// Checks that an answer gives the same events and the same errors in whatever pieces it is received.
///
/// # Panics
/// If it does not.
pub fn watch(data: &[u8]) {
    watch_of::<Claim>(data);
    watch_of::<Volume>(data);
}

fn watch_of<V: View>(data: &[u8]) {
    let events = same_in_pieces(data, CUTS, read::<V>);
    let count = events.map(|events| events.len());
    assert!(count.is_some_and(|count| count <= data.len()), "{count:?} events");
}

/// Reads an answer in these pieces. Returns a text for each event; none if it waits for more than there is.
fn read<V: View>(pieces: &[&[u8]]) -> Option<Vec<String>> {
    let pieces: Vec<Bytes> = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
    let frames = pieces.into_iter().map(|piece| Ok::<_, BoxError>(Frame::data(piece)));
    let events = events::<V>(StreamBody::new(stream::iter(frames)).boxed_unsync());
    events.map(|event| format!("{event:?}")).collect().now_or_never()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_watch_is_the_same_wherever_it_is_cut() {
        crate::fuzzing::run("watch", 40, super::watch);
    }
}
