use proptest::prelude::*;
use serde_json::{Value as Json, json};
use testkit::apiserver::protobuf::object;

use super::{
    samples::{claim, sources, volume},
    tables::{Table, Value, embedded, list, map, plain, pointer},
    *,
};
use crate::kube::objects::{Claim, CloneSource, InTreeSource, Node, View, Volume};

/// Reads a message as JSON.
fn to_json(message: &[u8], table: Table) -> Result<Json, Fault> {
    read(message, table)
}

/// The view of an object, read from JSON and from protobuf.
fn both<V: View>(object: &Json, table: Table) -> [V; 2] {
    let message = self::object(V::KIND, object).unwrap();
    [serde_json::from_value(object.clone()).unwrap(), read(&message, table).unwrap()]
}

#[test]
fn a_claim_reads_the_same_from_json_and_protobuf() {
    let referring = json!({"spec": {"dataSourceRef": {
        "apiGroup": "", "kind": "PersistentVolumeClaim", "name": "s", "namespace": "other",
    }}});
    let bare = [json!({"metadata": {"name": "a"}}), json!({"spec": {"selector": {}}})];
    for object in [claim("n"), referring].into_iter().chain(bare) {
        let [json, protobuf] = both::<Claim>(&object, CLAIM)
            .map(|Claim { metadata, spec, status }| (metadata, spec, status));
        assert_eq!(json, protobuf);
        let [json, protobuf] = both::<CloneSource>(&object, CLAIM)
            .map(|CloneSource { metadata, spec, status }| (metadata, spec, status));
        assert_eq!(json, protobuf);
    }
}

#[test]
fn a_volume_of_any_plugin_reads_the_same_from_json_and_protobuf() {
    for (source, part) in sources() {
        for part in [part, json!({})] {
            let object = volume("n", source, &part);
            let [json, protobuf] = both::<Volume>(&object, VOLUME)
                .map(|Volume { metadata, spec, status }| (metadata, spec, status));
            assert_eq!(json, protobuf, "{source}");
        }
    }
}

#[test]
fn each_in_tree_plugin_has_a_sample() {
    let read = |(source, part): (&str, Json)| {
        serde_json::from_value::<Volume>(volume("n", source, &part)).unwrap().spec.in_tree
    };
    assert_eq!(sources().into_iter().filter_map(read).count(), InTreeSource::PLUGINS);
}

/// The paths of members of `object` that `read` lacks.
fn missing(object: &Json, read: &Json) -> Vec<String> {
    let mut missing = Vec::new();
    collect_missing(object, read, "", &mut missing);
    missing
}

fn collect_missing(object: &Json, read: &Json, path: &str, missing: &mut Vec<String>) {
    let Json::Object(members) = object else {
        return assert_eq!(object, read, "{path}");
    };
    for (name, value) in members {
        let path = format!("{path}.{name}");
        match read.get(name) {
            Some(read) => collect_missing(value, read, &path, missing),
            None => missing.push(path),
        }
    }
}

/// The paths of members of an object that are skipped.
fn skipped<V: View>(object: &Json, table: Table) -> String {
    let message = self::object(V::KIND, object).unwrap();
    missing(object, &to_json(&message, table).unwrap()).join(" ")
}

#[test]
fn only_fields_that_no_view_reads_are_skipped() {
    let unread = [".deletionGracePeriodSeconds", ".generateName", ".generation", ".selfLink"];
    let of_metadata = unread.map(|name| format!(".metadata{name}")).join(" ");
    let mut object = claim("n");
    // Protobuf has no zero times.
    object["status"]["conditions"].as_array_mut().unwrap().pop();
    assert_eq!(
        skipped::<Claim>(&object, CLAIM),
        format!(".apiVersion .kind {of_metadata} .spec.resources.limits")
    );
    let source = json!({"driver": "d", "volumeHandle": "h", "fsType": "ext4"});
    assert_eq!(
        skipped::<Volume>(&volume("n", "csi", &source), VOLUME),
        format!(
            ".apiVersion .kind {of_metadata} .spec.accessModes .spec.capacity .spec.claimRef.apiVersion \
             .spec.claimRef.kind .spec.claimRef.resourceVersion .spec.csi.fsType .spec.mountOptions \
             .status.message .status.reason"
        )
    );
}

/// A field of each shape, by its number.
const SHAPES: Table = &[
    plain(1, "t", Value::Text),
    plain(2, "b", Value::Bool),
    plain(3, "n", Value::Number),
    plain(4, "at", Value::Time),
    pointer(5, "text", Value::Text),
    pointer(6, "bool", Value::Bool),
    pointer(7, "time", Value::Time),
    map(8, "map", Value::Quantity),
    list(9, "list", Value::Text),
    embedded(10, &[pointer(1, "within", Value::Text)]),
];

#[test]
fn empty_fields_are_read_only_if_they_are_pointers() {
    for (message, json) in [
        (&b"\x0a\0\x10\0\x18\0\x22\0"[..], json!({})),
        (b"\x2a\0\x30\0\x3a\0", json!({"text": "", "bool": false, "time": null})),
        (
            b"\x0a\x01a\x10\x01\x18\x05\x22\x02\x08\x3c",
            json!({"t": "a", "b": true, "n": 5, "at": "1970-01-01T00:01:00Z"}),
        ),
        (b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", json!({"n": -1})),
        (b"\x42\0\x42\x05\x0a\x01k\x12\0\x4a\0", json!({"map": {"": "0", "k": "0"}, "list": [""]})),
        (b"\x0a\x02\xff\x7b", json!({"t": "\u{fffd}{"})),
    ] {
        assert_eq!(to_json(message, SHAPES), Ok(json), "{message:?}");
    }
}

#[test]
fn members_of_an_embedded_message_belong_to_the_outer_one() {
    assert_eq!(to_json(b"\x52\x02\x0a\0", SHAPES), Ok(json!({"within": ""})));
}

#[test]
fn unknown_fields_are_skipped() {
    assert_eq!(
        to_json(b"\x0a\x01a\xa2\x06\x02\xff\xff\xa8\x06\x05", SHAPES),
        Ok(json!({"t": "a"}))
    );
}

#[test]
fn repeated_fields_and_invalid_messages_are_faults() {
    for (message, fault) in [
        (&b"\x0a\x01a\x0a\x01b"[..], Fault::Repeated(1)),
        (b"\x4a\x01a\x0a\x01b\x4a\x01c", Fault::Repeated(9)),
        (b"\x42\0\x0a\x01b\x42\0", Fault::Repeated(8)),
        (b"\x08\x01", Fault::UnexpectedType(1)),
        (b"\x12\0", Fault::UnexpectedType(2)),
        (b"\x10\x02\x4a", Fault::CutShort),
        (b"\x4a\x01a\x4a\x05a", Fault::CutShort),
        (b"\x22\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", Fault::Time),
    ] {
        assert_eq!(to_json(message, SHAPES), Err(fault), "{message:?}");
    }
}

#[test]
fn tables_have_each_field_once_and_in_order() {
    fn check(table: Table) {
        assert!(table.len() < 64);
        assert!(table.windows(2).all(|pair| pair[0].number < pair[1].number), "{table:?}");
        for field in table {
            if let Value::Message(table) = field.value {
                check(table);
            }
        }
    }
    for table in [CLAIM, VOLUME, LIST_META, STATUS, NAMES] {
        check(table);
    }
}

#[test]
fn only_claims_and_volumes_are_read_from_protobuf() {
    assert!(Claim::from_protobuf().is_some() && Volume::from_protobuf().is_some());
    assert!(Node::from_protobuf().is_none());
}

proptest! {
    #[test]
    fn any_bytes_are_json_or_a_fault(bytes in any::<Vec<u8>>()) {
        for table in [SHAPES, CLAIM, VOLUME, STATUS] {
            let _ = to_json(&bytes, table);
        }
        let _ = (Envelope::of(&bytes), kind_of(&bytes));
    }

    /// A message with a changed byte, or truncated.
    #[test]
    fn broken_objects_are_json_or_a_fault(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let message = object("PersistentVolumeClaim", &claim("n")).unwrap();
        let mut changed = message.clone();
        changed[at.index(message.len())] = byte;
        let _ = to_json(&changed, CLAIM);
        let _ = to_json(&message[..at.index(message.len())], CLAIM);
    }
}
