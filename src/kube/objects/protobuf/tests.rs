use proptest::prelude::*;
use serde_json::{Value as Json, json};
use testkit::apiserver::protobuf::object;

use super::{
    samples::{claim, sources, volume},
    tables::{Table, Value, embedded, list, map, plain, pointer},
    *,
};
use crate::kube::objects::{Claim, CloneSource, Node, View, Volume};

/// What is shown of a message.
fn written(message: &[u8], table: Table) -> Result<Json, Fault> {
    read(message, table)
}

/// What a view reads of an object in JSON and in protobuf.
fn both<V: View>(object: &Json, table: Table) -> [V; 2] {
    let message = self::object(&V::kind(&()), object).unwrap();
    [serde_json::from_value(object.clone()).unwrap(), read(&message, table).unwrap()]
}

#[test]
fn a_claim_reads_the_same_as_its_json() {
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
fn a_volume_of_any_plugin_reads_the_same_as_its_json() {
    for (source, part) in sources() {
        for part in [part, json!({})] {
            let object = volume("n", source, &part);
            let [json, protobuf] = both::<Volume>(&object, VOLUME)
                .map(|Volume { metadata, spec, status }| (metadata, spec, status));
            assert_eq!(json, protobuf, "{source}");
        }
    }
}

/// Paths of members that `written` lacks.
fn unread(object: &Json, written: &Json) -> Vec<String> {
    let mut unread = Vec::new();
    lacks(object, written, "", &mut unread);
    unread
}

fn lacks(object: &Json, written: &Json, path: &str, unread: &mut Vec<String>) {
    let Json::Object(members) = object else {
        return assert_eq!(object, written, "{path}");
    };
    for (name, value) in members {
        let path = format!("{path}.{name}");
        match written.get(name) {
            Some(written) => lacks(value, written, &path, unread),
            None => unread.push(path),
        }
    }
}

/// What is not written of an object, for nobody reads it.
fn left_out<V: View>(object: &Json, table: Table) -> String {
    let message = self::object(&V::kind(&()), object).unwrap();
    unread(object, &written(&message, table).unwrap()).join(" ")
}

#[test]
fn what_is_not_read_is_left_out_and_nothing_else() {
    let unread = [".deletionGracePeriodSeconds", ".generateName", ".generation", ".selfLink"];
    let of_metadata = unread.map(|name| format!(".metadata{name}")).join(" ");
    let mut object = claim("n");
    // A time that there is none of is left out as well.
    object["status"]["conditions"].as_array_mut().unwrap().pop();
    assert_eq!(
        left_out::<Claim>(&object, CLAIM),
        format!(".apiVersion .kind {of_metadata} .spec.resources.limits")
    );
    let source = json!({"driver": "d", "volumeHandle": "h", "fsType": "ext4"});
    assert_eq!(
        left_out::<Volume>(&volume("n", "csi", &source), VOLUME),
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
fn of_empty_fields_only_pointers_are_written() {
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
        assert_eq!(written(message, SHAPES), Ok(json), "{message:?}");
    }
}

#[test]
fn an_embedded_messages_members_are_the_outer_ones() {
    assert_eq!(written(b"\x52\x02\x0a\0", SHAPES), Ok(json!({"within": ""})));
}

#[test]
fn fields_of_no_table_are_skipped_whatever_they_hold() {
    assert_eq!(
        written(b"\x0a\x01a\xa2\x06\x02\xff\xff\xa8\x06\x05", SHAPES),
        Ok(json!({"t": "a"}))
    );
}

#[test]
fn nothing_is_lost_silently() {
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
        assert_eq!(written(message, SHAPES), Err(fault), "{message:?}");
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
fn only_kinds_of_which_there_are_many_have_a_table() {
    assert!(Claim::from_protobuf().is_some() && Volume::from_protobuf().is_some());
    assert!(Node::from_protobuf().is_none());
}

proptest! {
    /// Whatever the bytes are, they are JSON afterwards or a fault, and never a panic.
    #[test]
    fn any_bytes_are_json_or_a_fault(bytes in any::<Vec<u8>>()) {
        for table in [SHAPES, CLAIM, VOLUME, STATUS] {
            let _ = written(&bytes, table);
        }
        let _ = (unwrapped(&bytes), kind_of(&bytes));
    }

    /// A message with a byte changed, or cut.
    #[test]
    fn broken_objects_are_json_or_a_fault(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let message = object("PersistentVolumeClaim", &claim("n")).unwrap();
        let mut changed = message.clone();
        changed[at.index(message.len())] = byte;
        let _ = written(&changed, CLAIM);
        let _ = written(&message[..at.index(message.len())], CLAIM);
    }
}
