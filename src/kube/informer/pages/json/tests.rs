use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::kube::objects::Claim;

/// What is read of an answer that comes in these pieces, one word a part.
fn read(pieces: &[&[u8]]) -> Result<Vec<String>, AnswerError> {
    let (mut reader, mut words) = (Reader::default(), Vec::new());
    for piece in pieces.iter().copied().chain([&b""[..]]) {
        reader.push(piece)?;
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

/// Its end shows only by what follows it.
#[test]
fn a_number_among_the_objects_is_one_wherever_it_is_cut() {
    let answer = r#"{"items":[12,{"metadata":{"name":"a"}}],"metadata":{"resourceVersion":"7"}}"#;
    let (start, end) = answer.split_at(11);
    assert!(start.ends_with('1'));
    for pieces in [&[answer.as_bytes()][..], &[start.as_bytes(), end.as_bytes()]] {
        assert_eq!(read(pieces).unwrap(), ["unreadable ", "a", "7>"]);
    }
}

#[test]
fn a_number_within_an_object_is_one_wherever_it_is_cut() {
    let answer = r#"{"items":[{"other":[-1,2.5,-3e-7,4E+8],"metadata":{"name":"a"}}]}"#;
    for cut in 0..answer.len() {
        let (start, end) = answer.as_bytes().split_at(cut);
        let pieces: Vec<&[u8]> = [start, end].into_iter().filter(|it| !it.is_empty()).collect();
        assert_eq!(read(&pieces).unwrap(), ["a", ">"], "cut at {cut}");
    }
    for broken in [r#"{"items":[{"other":-x}]}"#, r#"{"items":[{"other":1e}]}"#] {
        assert!(matches!(read(&[broken.as_bytes()]), Err(AnswerError::Json(_))), "{broken}");
    }
}

#[test]
fn what_follows_the_objects_without_end_is_not_held_for_ever() {
    let mut reader = Reader::default();
    let mut takes = |came: &[u8]| {
        reader.push(came)?;
        while reader.next::<Claim>()?.is_some() {}
        Ok::<_, AnswerError>(())
    };
    takes(br#"{"items":[],"metadata":{"a":""#).unwrap();
    let more = vec![b'x'; 1 << 20];
    assert_eq!((0..64).take_while(|_| takes(&more).is_ok()).count(), 31);
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
