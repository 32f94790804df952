use proptest::prelude::*;
use prost::Message;
use serde_json::{Value, json};
use testkit::apiserver::protobuf::object;

use super::*;
use crate::kube::objects::Claim;

/// An envelope as servers write it, and a list of objects.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", optional, tag = "2")]
    raw: Option<Vec<u8>>,
    #[prost(string, required, tag = "3")]
    encoding: String,
    #[prost(string, required, tag = "4")]
    media: String,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, required, tag = "1")]
    api_version: String,
    #[prost(string, required, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    items: Vec<Vec<u8>>,
    /// What a later server may write.
    #[prost(string, optional, tag = "9")]
    later: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, required, tag = "1")]
    self_link: String,
    #[prost(string, required, tag = "2")]
    version: String,
    #[prost(string, required, tag = "3")]
    next: String,
}

fn metadata() -> Metadata {
    Metadata { self_link: String::new(), version: "7".to_owned(), next: "n".to_owned() }
}

fn answer(kind: &str, list: &List) -> Vec<u8> {
    let type_meta = Some(TypeMeta { api_version: "v1".to_owned(), kind: kind.to_owned() });
    let raw = Some(list.encode_to_vec());
    let envelope = Envelope { type_meta, raw, encoding: String::new(), media: String::new() };
    [MAGIC, &envelope.encode_to_vec()].concat()
}

/// An answer with these objects.
fn of(items: &[Vec<u8>]) -> Vec<u8> {
    let list = List { metadata: Some(metadata()), items: items.to_vec(), later: None };
    answer("PersistentVolumeClaimList", &list)
}

fn encoded(claim: &Value) -> Vec<u8> {
    object("PersistentVolumeClaim", claim).unwrap()
}

fn claim(name: &str) -> Vec<u8> {
    encoded(&json!({"metadata": {"name": name, "namespace": "ns", "uid": "u"}}))
}

/// A claim with a name whose `spec` is no message.
fn bad(name: &str) -> Vec<u8> {
    let metadata = encoded(&json!({"metadata": {"name": name}}));
    let end = 2 + usize::from(metadata[1]);
    [&metadata[..end], b"\x12\x03\x0a\x7fa"].concat()
}

/// What is read of an answer that comes in these pieces, one word a part.
fn read(pieces: &[&[u8]]) -> Result<Vec<String>, AnswerError> {
    let mut reader = Reader::default();
    let mut words = Vec::new();
    for piece in pieces.iter().copied().chain([&b""[..]]) {
        reader.push(piece)?;
        while let Some(part) = reader.next::<Claim>()? {
            words.push(match part {
                Part::Head(head) => {
                    let [version, next] = [head.resource_version, head.continue_];
                    format!("{}>{}", version.unwrap_or_default(), next.unwrap_or_default())
                }
                Part::Object(Tolerant::Read(claim)) => claim.name().to_owned(),
                Part::Object(Tolerant::Unreadable { metadata, fault }) => {
                    format!("unreadable {}: {fault}", metadata.name.unwrap_or_default())
                }
                Part::End => return Ok(words),
            });
        }
    }
    panic!("neither an end nor an error: {words:?}");
}

fn fault(answer: &[u8]) -> String {
    read(&[answer]).unwrap_err().to_string()
}

#[test]
fn objects_come_after_their_lists_version() {
    assert_eq!(read(&[&of(&[claim("a"), claim("b")])]).unwrap(), ["7>n", "a", "b"]);
    assert_eq!(read(&[&of(&[])]).unwrap(), ["7>n"]);
}

#[test]
fn what_a_later_server_adds_is_skipped() {
    let list =
        List { metadata: Some(metadata()), items: vec![claim("a")], later: Some("x".to_owned()) };
    let answer = answer("PersistentVolumeClaimList", &list);
    assert_eq!(read(&[&answer]).unwrap(), ["7>n", "a"]);
}

#[test]
fn a_list_without_version_is_whole_nevertheless() {
    let list = List { metadata: None, items: vec![claim("a")], later: None };
    let answer = answer("PersistentVolumeClaimList", &list);
    assert_eq!(read(&[&answer]).unwrap(), ["a", ">"]);
}

#[test]
fn an_object_that_cannot_be_read_costs_itself_and_keeps_its_name() {
    let nameless = b"\x0a\x7f".to_vec();
    let answer = of(&[claim("a"), bad("b"), nameless, claim("c")]);
    let unreadable = ["unreadable b: cut short", "unreadable : cut short"];
    assert_eq!(read(&[&answer]).unwrap(), ["7>n", "a", unreadable[0], unreadable[1], "c"]);
}

#[test]
fn an_answer_of_another_kind_is_refused() {
    let list = List { metadata: Some(metadata()), items: Vec::new(), later: None };
    for kind in ["PersistentVolumeList", "PersistentVolumeClaim", "Status", ""] {
        assert_eq!(
            fault(&answer(kind, &list)),
            "the answer is about another kind than the one asked for"
        );
    }
    for other in [&b"{\"kind\":\"List\"}"[..], b"k8s\x01", b"k8s\0\0\0\0"] {
        assert_eq!(fault(other), "the answer is no protobuf as expected: not protobuf");
    }
}

#[test]
fn an_object_longer_than_its_list_is_no_object() {
    let mut answer = answer("PersistentVolumeClaimList", &List::default());
    // The length of the list stands before the last two fields, which are empty.
    let at = answer.len() - 5;
    answer[at] = 2;
    answer.truncate(at + 1);
    answer.extend(b"\x12\x05abcde");
    assert_eq!(fault(&answer), "the answer is no protobuf as expected: cut short");
}

#[test]
fn what_ends_early_is_an_error() {
    let whole = of(&[claim("a"), claim("b")]);
    // The two fields behind the list say nothing.
    for end in 0..whole.len() - 4 {
        assert!(matches!(read(&[&whole[..end]]), Err(AnswerError::Ends)), "{end}");
    }
}

proptest! {
    #[test]
    fn an_answer_is_the_same_in_whatever_pieces_it_comes(
        objects in prop::collection::vec((any::<bool>(), "\\PC{0,12}"), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let item = |(good, name): &(bool, String)| if *good { claim(name) } else { bad(name) };
        let answer = of(&objects.iter().map(item).collect::<Vec<_>>());
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(answer.len())).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([answer.len()]);
        let pieces = std::iter::once(0).chain(cuts.iter().copied()).zip(ends);
        let pieces: Vec<&[u8]> =
            pieces.map(|(from, to)| &answer[from..to]).filter(|piece| !piece.is_empty()).collect();
        let word = |(good, name): &(bool, String)| {
            if *good { name.clone() } else { format!("unreadable {name}: cut short") }
        };
        let expected: Vec<String> =
            std::iter::once("7>n".to_owned()).chain(objects.iter().map(word)).collect();
        prop_assert_eq!(read(&pieces).unwrap(), expected);
    }

    /// Whatever comes is read to its end or refused, and never a panic.
    #[test]
    fn any_answer_ends(
        bytes in any::<Vec<u8>>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let _ = read(&[&bytes]);
        let _ = read(&[&[MAGIC, &bytes].concat()]);
        let mut changed = of(&[claim("a"), bad("b"), claim("c")]);
        let at = at.index(changed.len());
        changed[at] = byte;
        let _ = read(&[&changed]);
    }
}
