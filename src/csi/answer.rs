//! What answers take in memory: counted before they are decoded, and shared by all that are in flight.
//!
//! An element of four bytes, as a topology of one short segment is, takes seven hundred once it is decoded.
//! So an answer whose elements would take more than [`MOST`] times its size is not decoded, and answers wait
//! for each other once those in flight may take more than [`BUDGET`].

use std::sync::Arc;

use prost::encoding::{WireType, decode_key, decode_varint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Code;

use super::status::CallError;

/// What all answers in flight may take, in bytes.
const BUDGET: usize = 48 << 20;

/// How many times its size an answer may take.
const MOST: usize = 8;

/// What any answer may take, in bytes: more than a PersistentVolume holds.
const ALWAYS: usize = 4 << 20;

/// An answer of the shortest elements takes so many times its size.
const WORST: usize = 200;

/// What an answer takes beside its elements, in times its size: as received, and its texts.
const TEXTS: usize = 2;

/// A message in a list, in bytes: its place, in the list that grows and in the one before.
const MESSAGE: usize = 72;
/// A map that is not empty: a node of its tree.
const MAP: usize = 544;
/// An entry of a map: two texts, and its share of further nodes.
const ENTRY: usize = 172;

/// The unit in which the budget is counted, in bytes.
const UNIT: usize = 1 << 10;

/// What an answer has elements in, by the number of the field.
enum Elements {
    /// A map of texts.
    Map(u32),
    /// A message, in a list or not, with elements of its own.
    Messages(u32, &'static [Self]),
}

const TOPOLOGY: &[Elements] = &[Elements::Map(1)];
const VOLUME: &[Elements] = &[Elements::Map(3), Elements::Messages(5, TOPOLOGY)];

/// The elements of the answer to this method.
fn elements(method: &str) -> &'static [Elements] {
    match method.rsplit('/').next().unwrap_or_default() {
        "CreateVolume" => &[Elements::Messages(1, VOLUME)],
        "NodeGetInfo" => &[Elements::Messages(3, TOPOLOGY)],
        "GetPluginInfo" => &[Elements::Map(3)],
        "GetPluginCapabilities" | "ControllerGetCapabilities" => &[Elements::Messages(1, &[])],
        _ => &[],
    }
}

/// The memory of all answers in flight. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct AnswerMemory(Arc<Semaphore>);

/// The memory of one answer, taken until this is dropped.
pub(super) type Taken = Arc<OwnedSemaphorePermit>;

impl Default for AnswerMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET / UNIT)))
    }
}

impl AnswerMemory {
    /// Waits until an answer of so many bytes may be read and decoded.
    pub(super) async fn take(&self, length: usize) -> Option<Taken> {
        let most = (length * WORST).min(allowed(length)).min(BUDGET).div_ceil(UNIT);
        // Cannot fail, as the semaphore is never closed.
        let taken = Arc::clone(&self.0).acquire_many_owned(u32::try_from(most).ok()?).await;
        taken.ok().map(Arc::new)
    }
}

/// What an answer of so many bytes may take.
fn allowed(length: usize) -> usize {
    ALWAYS.max(length * MOST)
}

/// Refuses an answer to `method` whose elements would take too much memory.
pub(super) fn check(method: &str, message: &[u8]) -> Result<(), CallError> {
    let takes = TEXTS * message.len() + cost(message, elements(method));
    let most = allowed(message.len());
    if takes <= most {
        return Ok(());
    }
    let text = format!(
        "grpc: received message with too many elements: {} bytes would take {takes} in memory (at most {most})",
        message.len()
    );
    Err(CallError::local(Code::ResourceExhausted, text))
}

/// What the elements of a message take once it is decoded. What can't be decoded ends it, as it ends decoding.
fn cost(mut message: &[u8], elements: &[Elements]) -> usize {
    let (mut cost, mut entries) = (0, 0);
    while let Some((number, value)) = next_field(&mut message) {
        for element in elements {
            match element {
                Elements::Map(map) if *map == number => entries += 1,
                Elements::Messages(messages, inner) if *messages == number => {
                    cost += MESSAGE + self::cost(value, inner);
                }
                _ => {}
            }
        }
    }
    cost + entries * ENTRY + if entries > 0 { MAP } else { 0 }
}

/// The number of the next field, and its value if that has a length.
fn next_field<'a>(message: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
    let (number, wire_type) = decode_key(message).ok()?;
    let length = match wire_type {
        WireType::Varint => decode_varint(message).map(|_| 0).ok()?,
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::LengthDelimited => usize::try_from(decode_varint(message).ok()?).ok()?,
        // What is in a group is counted as if it stood here.
        WireType::StartGroup | WireType::EndGroup => 0,
    };
    let (value, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some((number, value))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::csi::proto::{CreateVolumeResponse, NodeGetInfoResponse, Topology, Volume};

    const CREATE: &str = "/csi.v1.Controller/CreateVolume";

    fn place(segments: &[(&str, &str)]) -> Topology {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Topology { segments: segments.iter().map(owned).collect() }
    }

    fn answer(volume: Volume) -> Vec<u8> {
        CreateVolumeResponse { volume: Some(volume) }.encode_to_vec()
    }

    fn with_places(place: &Topology, count: usize) -> Vec<u8> {
        answer(Volume { accessible_topology: vec![place.clone(); count], ..Volume::default() })
    }

    fn with_context(count: usize, value: &str) -> Vec<u8> {
        let volume_context = (0..count).map(|key| (key.to_string(), value.to_owned())).collect();
        answer(Volume { volume_context, ..Volume::default() })
    }

    #[test]
    fn what_elements_take_is_counted() {
        let zone = place(&[("zone", "a")]);
        for (message, expected) in [
            (answer(Volume::default()), MESSAGE),
            (with_places(&place(&[]), 3), 4 * MESSAGE),
            (with_places(&zone, 2), MESSAGE + 2 * (MESSAGE + MAP + ENTRY)),
            (with_places(&place(&[("a", "b"), ("c", "d")]), 1), 2 * MESSAGE + MAP + 2 * ENTRY),
            (with_context(5, "x"), MESSAGE + MAP + 5 * ENTRY),
        ] {
            assert_eq!(cost(&message, elements(CREATE)), expected);
        }
        let node = NodeGetInfoResponse { accessible_topology: Some(zone), ..Default::default() };
        let method = "/csi.v1.Node/NodeGetInfo";
        assert_eq!(cost(&node.encode_to_vec(), elements(method)), MESSAGE + MAP + ENTRY);
        // Other fields, and what is cut, don't matter.
        let id = answer(Volume { volume_id: "\u{1}".repeat(1000), ..Volume::default() });
        assert_eq!(cost(&id, elements(CREATE)), MESSAGE);
        assert_eq!(cost(&[0x0a, 0xff, 0xff, 1], elements(CREATE)), 0);
    }

    #[test]
    fn answers_of_many_elements_are_refused() {
        for (message, is_ok) in [
            (with_places(&place(&[("topology.example.com/zone", "zone-1")]), 4_000), true),
            (with_places(&place(&[("zone", "a")]), 300_000), false),
            (with_places(&place(&[]), 1_000_000), false),
            (with_context(430_000, ""), false),
            (with_context(20_000, "x"), true),
            (with_context(40_000, &"x".repeat(80)), true),
            (answer(Volume { volume_id: "x".repeat(4 << 20), ..Volume::default() }), true),
        ] {
            let checked = check(CREATE, &message);
            assert_eq!(checked.is_ok(), is_ok, "{} bytes: {checked:?}", message.len());
        }
    }

    /// No element takes more than is taken for the answer before it is read.
    #[test]
    fn the_worst_is_the_worst() {
        for message in [
            with_places(&place(&[("", "")]), 1000),
            with_places(&place(&[]), 1000),
            with_context(1000, ""),
        ] {
            let takes = TEXTS * message.len() + cost(&message, elements(CREATE));
            assert!(takes <= WORST * message.len(), "{takes} of {}", message.len());
        }
    }

    #[tokio::test]
    async fn answers_wait_for_the_memory_of_others() {
        use futures::FutureExt as _;
        let memory = AnswerMemory::default();
        let large = memory.take(4 << 20).await;
        let mut second = Box::pin(memory.take(4 << 20));
        assert!(second.as_mut().now_or_never().is_none(), "two of 32 MiB");
        drop(large);
        assert!(second.now_or_never().is_some());
    }
}
