//! The mark of an open call: our finalizer on the claim, and the record in an annotation.
//!
//! Owns their names, telling a marked claim, and the edits that put the mark on and take it off
//! (safety rule 11: pure functions of the object that is put back). Leaves when to `mod`.

use serde_json::{Map, Value, json};

use super::record::Record;
use crate::{
    controller::ownership::Identity,
    kube_api::{
        Edit, finalizers,
        views::{Claim, View as _},
    },
};

/// On a claim while its CreateVolume may still be running and nobody has saved its outcome.
pub const FINALIZER: &str = "provisioner.storage.kubernetes.io/provisioning-protection";

/// What was asked for, as a [`Record`].
pub const RECORD: &str = "provisioner.storage.kubernetes.io/open-request";

/// The record of a marked claim, an empty one where it lacks; `None`: the claim is not marked.
pub fn read(claim: &Claim) -> Option<Record> {
    let marked = claim.has_finalizer(FINALIZER);
    marked.then(|| claim.annotation(RECORD).map(Record::decode).unwrap_or_default())
}

/// Whether two views of one claim differ in the mark alone, besides the version: no news for
/// anybody but the mark's keeper.
pub fn is_all_that_differs(old: &Claim, new: &Claim) -> bool {
    let bare = |claim: &Claim| {
        let mut metadata = claim.metadata.clone();
        metadata.resource_version = None;
        metadata.annotations.get_or_insert_default().remove(RECORD);
        metadata.finalizers.get_or_insert_default().retain(|name| name != FINALIZER);
        metadata
    };
    read(old) != read(new)
        && old.spec == new.spec
        && old.status == new.status
        && bare(old) == bare(new)
}

/// Whether the claim is deleted and would be gone but for the mark: for everybody else it is.
pub fn is_all_that_holds(claim: &Claim) -> bool {
    let finalizers = claim.metadata.finalizers.as_deref().unwrap_or_default();
    claim.is_terminating() && finalizers.iter().all(|name| name == FINALIZER)
}

/// Puts the mark on a claim that still waits for its volume; on one that is bound or being
/// deleted it would come too late. The record of another than `identity` stays.
pub(super) fn put_on(claim: &mut Value, identity: &Identity, text: &str) -> Edit {
    let given = |pointer| claim.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if !given("/metadata/deletionTimestamp").is_empty() || !given("/spec/volumeName").is_empty() {
        return Edit::Nothing;
    }
    let marked = finalizers::add(claim, FINALIZER) == Edit::Write;
    let metadata = claim.get_mut("metadata").and_then(Value::as_object_mut);
    let recorded = metadata.is_some_and(|metadata| set_record(metadata, identity, text));
    if marked || recorded { Edit::Write } else { Edit::Nothing }
}

/// Writes the record, unless it stands there already or another's does; whether it did.
fn set_record(metadata: &mut Map<String, Value>, identity: &Identity, text: &str) -> bool {
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = json!({});
    }
    let Some(annotations) = annotations.as_object_mut() else { return false };
    let written = annotations.get(RECORD).and_then(Value::as_str).unwrap_or_default();
    if written == text || Record::decode(written).is_anothers(identity) {
        return false;
    }
    annotations.insert(RECORD.to_owned(), text.into());
    true
}

/// Takes the mark off, unless it is of another's call than that of `identity`.
pub(super) fn take_off_own(claim: &mut Value, identity: &Identity) -> Edit {
    let record = claim.pointer("/metadata/annotations").and_then(|it| it.get(RECORD)?.as_str());
    let anothers = record.is_some_and(|text| Record::decode(text).is_anothers(identity));
    if anothers { Edit::Nothing } else { take_off(claim) }
}

/// Takes the mark off, whoever's it is.
pub(crate) fn take_off(claim: &mut Value) -> Edit {
    let edit = finalizers::remove(claim, FINALIZER);
    let annotations = claim.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    match annotations.and_then(|annotations| annotations.remove(RECORD)) {
        Some(_) => Edit::Write,
        None => edit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(metadata: &Value, volume: Option<&str>) -> Value {
        json!({"metadata": metadata, "spec": {"volumeName": volume}})
    }

    fn view(object: &Value) -> Claim {
        serde_json::from_value(object.clone()).unwrap()
    }

    fn identity(node: Option<&str>) -> Identity {
        Identity { driver: "d".into(), in_tree: None, node: node.map(str::to_owned) }
    }

    const TEXT: &str = r#"{"driver":"d"}"#;

    #[test]
    fn a_claim_is_marked_beside_what_others_put_there_and_unmarked_again() {
        for metadata in [
            json!({}),
            json!({"finalizers": null, "annotations": null}),
            json!({"finalizers": ["kubernetes.io/pvc-protection"], "annotations": {"a": "b"}}),
        ] {
            let mut object = claim(&metadata, None);
            assert_eq!(put_on(&mut object, &identity(None), TEXT), Edit::Write, "{metadata}");
            assert_eq!(read(&view(&object)).unwrap().driver, "d");
            assert_eq!(put_on(&mut object, &identity(None), TEXT), Edit::Nothing, "again");
            assert_eq!(take_off(&mut object), Edit::Write);
            assert_eq!(take_off(&mut object), Edit::Nothing, "again");
            let (left, before) = (view(&object).metadata, view(&claim(&metadata, None)).metadata);
            assert_eq!(left.finalizers.unwrap_or_default(), before.finalizers.unwrap_or_default());
            assert_eq!(
                left.annotations.unwrap_or_default(),
                before.annotations.unwrap_or_default()
            );
        }
    }

    #[test]
    fn what_is_bound_or_being_deleted_is_not_marked() {
        let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        for mut object in [claim(&terminating, None), claim(&json!({}), Some("pv"))] {
            let before = object.clone();
            assert_eq!(
                (put_on(&mut object, &identity(None), TEXT), object),
                (Edit::Nothing, before)
            );
        }
    }

    #[test]
    fn a_new_request_takes_the_records_place_unless_another_driver_wrote_it() {
        let marked = |record: &str| {
            claim(&json!({"finalizers": [FINALIZER], "annotations": {RECORD: record}}), None)
        };
        for (record, edit) in [
            ("", Edit::Write),
            ("garbled", Edit::Write),
            (r#"{"driver":"d","node":"n"}"#, Edit::Write),
            (r#"{"driver":"other"}"#, Edit::Nothing),
            (TEXT, Edit::Nothing),
        ] {
            assert_eq!(put_on(&mut marked(record), &identity(None), TEXT), edit, "{record}");
        }
        for (node, edit) in [("n", Edit::Write), ("other", Edit::Nothing)] {
            let mut written = marked(r#"{"driver":"d","node":"n"}"#);
            assert_eq!(put_on(&mut written, &identity(Some(node)), TEXT), edit, "{node}");
        }
    }

    #[test]
    fn the_mark_of_another_nodes_call_is_left_to_it() {
        for (record, edit) in [
            (r#"{"driver":"d","node":"n"}"#, Edit::Write),
            (r#"{"driver":"d"}"#, Edit::Write),
            (r#"{"driver":"d","node":"other"}"#, Edit::Nothing),
            (r#"{"driver":"other","node":"n"}"#, Edit::Nothing),
        ] {
            let metadata = json!({"finalizers": [FINALIZER], "annotations": {RECORD: record}});
            let taken = take_off_own(&mut claim(&metadata, None), &identity(Some("n")));
            assert_eq!(taken, edit, "{record}");
        }
    }

    #[test]
    fn a_finalizer_whose_record_lacks_is_a_mark_and_a_record_without_finalizer_is_none() {
        let lost = claim(&json!({"finalizers": [FINALIZER]}), None);
        assert_eq!(read(&view(&lost)), Some(Record::default()));
        assert_eq!(read(&view(&claim(&json!({"annotations": {RECORD: TEXT}}), None))), None);
    }

    #[test]
    fn a_deleted_claim_that_only_the_mark_holds_counts_as_gone() {
        let deleted = "2026-01-01T00:00:00Z";
        for (deleted, finalizers, gone) in [
            (Some(deleted), json!([FINALIZER]), true),
            (Some(deleted), json!([FINALIZER, "kubernetes.io/pvc-protection"]), false),
            (None, json!([FINALIZER]), false),
        ] {
            let metadata = json!({"deletionTimestamp": deleted, "finalizers": finalizers});
            assert_eq!(is_all_that_holds(&view(&claim(&metadata, None))), gone, "{metadata}");
        }
    }

    #[test]
    fn the_mark_alone_is_no_news() {
        let bare = view(&claim(&json!({"resourceVersion": "1"}), None));
        let marked = json!({"resourceVersion": "2", "finalizers": [FINALIZER], "annotations": {RECORD: TEXT}});
        let marked_view = view(&claim(&marked, None));
        assert!(
            is_all_that_differs(&bare, &marked_view) && is_all_that_differs(&marked_view, &bare)
        );
        assert!(!is_all_that_differs(&bare, &bare), "nothing differs");
        assert!(!is_all_that_differs(&bare, &view(&claim(&marked, Some("pv")))), "bound");
        let mut more = marked;
        more["annotations"]["node"] = json!("n");
        assert!(!is_all_that_differs(&bare, &view(&claim(&more, None))));
    }
}
