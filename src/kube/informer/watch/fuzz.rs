//! The fuzz target of watches: any answer, received in any pieces.

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use tower::BoxError;

use super::{Encoding, events};
use crate::kube::objects::{Claim, View, Volume};

/// An answer of up to so many bytes is cut at every place, a longer one at so many places.
const CUTS: usize = 256;

/// Checks that an answer gives the same events and the same errors in whatever pieces it is received.
///
/// # Panics
/// If it does not.
pub fn watch(data: &[u8]) {
    same_in_pieces::<Claim>(data);
    same_in_pieces::<Volume>(data);
}

fn same_in_pieces<V: View>(data: &[u8]) {
    let whole = read::<V>(data, [data]);
    let count = whole.as_ref().map(Vec::len);
    assert!(count.is_some_and(|count| count <= data.len()), "{count:?} events");
    for cut in (0..data.len()).step_by(data.len() / CUTS + 1) {
        let (start, end) = data.split_at(cut);
        assert_eq!(read::<V>(data, [start, end]), whole, "cut at {cut}");
    }
    if data.len() <= CUTS {
        assert_eq!(read::<V>(data, data.chunks(1)), whole, "byte by byte");
    }
}

/// Reads an answer in these pieces. Returns a text for each event; none if it waits for more than there is.
fn read<'a, V: View>(
    whole: &[u8],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Option<Vec<String>> {
    // A frame begins with its length, and no event has 16 MiB here. No JSON begins with a zero byte.
    let encoding = if whole.starts_with(&[0]) { Encoding::Protobuf } else { Encoding::Json };
    let pieces = pieces.into_iter().map(Bytes::copy_from_slice).collect::<Vec<_>>();
    let frames = pieces.into_iter().map(|piece| Ok::<_, BoxError>(Frame::data(piece)));
    let events = events::<V, _>(encoding, StreamBody::new(stream::iter(frames)));
    events.map(|event| format!("{event:?}")).collect().now_or_never()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_watch_is_the_same_wherever_it_is_cut() {
        crate::fuzzing::run("watch", 40, super::watch);
    }
}
