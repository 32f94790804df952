//! The mark of an open call: our finalizer on the claim, and the record in an annotation.
//!
//! Owns their names, what a mark on a claim means ([`judge`], pure), and the edits that put a mark on
//! and take it off (safety rule 11: pure functions of the object that is put back). Promises that a
//! record counts only where all of it follows from the claim and from this process's flags; whether
//! its class fits is found out when the claim is worked on. Leaves when to write to `mod`.

use serde_json::{Map, Value, json};

use crate::{
    controller::{model::record::Record, ownership::ProvisionerIdentity},
    kube::{
        Edit,
        client::finalizers,
        objects::{Claim, View as _},
    },
    mutations,
    mutations::Mutation,
};

/// On a claim while its CreateVolume may still be running and nobody has saved its outcome.
pub const FINALIZER: &str = "provisioner.storage.kubernetes.io/provisioning-protection";

/// What was asked for, as a [`Record`].
pub const RECORD: &str = "provisioner.storage.kubernetes.io/open-request";

/// What the mark on a claim means to this process. Another driver's is left alone and means nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordStatus {
    /// The finalizer stands without a record: nothing is open.
    Closed,
    /// A call is open, and the record follows from the claim and our flags.
    Open(Record),
    /// The record does not: it is no obstacle, and makes no call.
    Void(Record),
    /// The process of another node has a call open.
    Elsewhere(Record),
}

/// By what a mark is judged.
#[derive(Debug, Clone, Copy)]
pub struct Standpoint<'a> {
    /// Whose process this is.
    pub identity: &'a ProvisionerIdentity,
    /// The node that is gone and whose call for the claim this process follows instead.
    pub adopted: Option<&'a str>,
}

/// What the mark on the claim means; `None`: there is none, or none of ours. `volume` is the name
/// that the claim's volume gets.
pub fn judge(
    claim: &Claim,
    standpoint: Standpoint<'_>,
    volume: Option<&str>,
) -> Option<RecordStatus> {
    if !claim.has_finalizer(FINALIZER) {
        return None;
    }
    let Standpoint { identity, adopted } = standpoint;
    let text = claim.annotation(RECORD).unwrap_or_default();
    let record = Record::decode(text).unwrap_or_default();
    if !record.driver.is_empty() && record.driver != identity.driver {
        return None;
    }
    // What names no driver is the claim's provisioner's.
    if record.driver.is_empty() && !identity.is_for_driver(claim) {
        return None;
    }
    let is_ours = identity.is_provisioner_of(claim);
    let was_adopted = record.node.is_some() && record.node.as_deref() == adopted;
    let is_here = match &record.node {
        _ if identity.node.is_none() || was_adopted => true,
        Some(node) => identity.is_on(node),
        None => is_ours,
    };
    if !is_here {
        return Some(RecordStatus::Elsewhere(record));
    }
    if text.is_empty() {
        return Some(RecordStatus::Closed);
    }
    // What a node has asked for it follows whichever node is selected by now.
    let is_for_us = is_ours || record.node.is_some() && identity.is_for_driver(claim);
    let is_named =
        volume == Some(&record.volume) || mutations::is_on(Mutation::RecordedNameBelieved);
    let is_unbound = claim.is_unbound() || mutations::is_on(Mutation::RecordOnBoundClaim);
    if !(is_unbound && is_for_us && is_named) {
        return Some(RecordStatus::Void(record));
    }
    // Where the gone node has asked for its volume, nobody can ask now.
    let topology = record.topology.clone().filter(|_| !was_adopted);
    Some(RecordStatus::Open(Record { topology, ..record }))
}

/// The record of a claim that carries our finalizer, an empty one where it lacks.
pub fn read(claim: &Claim) -> Option<Record> {
    let marked = claim.has_finalizer(FINALIZER);
    marked.then(|| claim.annotation(RECORD).and_then(Record::decode).unwrap_or_default())
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
    is_changed(old, new)
        && old.spec == new.spec
        && old.status == new.status
        && bare(old) == bare(new)
}

/// Whether the mark is another one.
pub fn is_changed(old: &Claim, new: &Claim) -> bool {
    let mark = |claim: &Claim| {
        (claim.has_finalizer(FINALIZER), claim.annotation(RECORD).map(str::to_owned))
    };
    mark(old) != mark(new)
}

/// Whether the claim is deleted and would be gone but for the mark: for everybody else it is.
pub fn is_all_that_holds(claim: &Claim) -> bool {
    let finalizers = claim.metadata.finalizers.as_deref().unwrap_or_default();
    claim.is_terminating() && finalizers.iter().all(|name| name == FINALIZER)
}

impl Standpoint<'_> {
    /// Whether another driver, or the process of another node, has written this record.
    fn is_anothers(self, text: &str) -> bool {
        let Some(record) = Record::decode(text) else { return false };
        let other_driver = !record.driver.is_empty() && record.driver != self.identity.driver;
        other_driver || self.is_of_other_node(&record)
    }

    /// Whether our driver's process on another node has written this record.
    pub(super) fn is_of_other_node(self, record: &Record) -> bool {
        let is_ours = record.driver.is_empty() || record.driver == self.identity.driver;
        let other_node = |node: &str| {
            self.identity.node.is_some() && !self.identity.is_on(node) && self.adopted != Some(node)
        };
        is_ours && record.node.as_deref().is_some_and(other_node)
    }
}

/// Puts the mark on a claim that still waits for its volume; on one that is bound or being
/// deleted it would come too late. Another's record stays.
pub(super) fn put_on(claim: &mut Value, standpoint: Standpoint<'_>, text: &str) -> Edit {
    let given = |pointer| claim.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if !given("/metadata/deletionTimestamp").is_empty() || !given("/spec/volumeName").is_empty() {
        return Edit::Nothing;
    }
    if standpoint.is_anothers(record_text(claim)) {
        return Edit::Nothing;
    }
    let marked = finalizers::add(claim, FINALIZER) == Edit::Write;
    let metadata = claim.get_mut("metadata").and_then(Value::as_object_mut);
    let recorded = metadata.is_some_and(|metadata| set_record(metadata, text));
    if marked || recorded { Edit::Write } else { Edit::Nothing }
}

/// Writes the record, unless it stands there already; whether it did.
fn set_record(metadata: &mut Map<String, Value>, text: &str) -> bool {
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = json!({});
    }
    let Some(annotations) = annotations.as_object_mut() else { return false };
    let before = annotations.insert(RECORD.to_owned(), text.into());
    before.is_none_or(|before| before.as_str() != Some(text))
}

fn record_text(claim: &Value) -> &str {
    let annotations = claim.pointer("/metadata/annotations");
    annotations.and_then(|it| it.get(RECORD)?.as_str()).unwrap_or_default()
}

/// Says on the claim that nothing is open: the record goes, and the finalizer stays.
pub(super) fn close(claim: &mut Value, standpoint: Standpoint<'_>) -> Edit {
    if standpoint.is_anothers(record_text(claim)) { Edit::Nothing } else { remove_record(claim) }
}

/// Takes out of the record where the volume is asked to be: the selected node is given back.
pub(in crate::controller) fn forget_place(claim: &mut Value, standpoint: Standpoint<'_>) {
    let text = record_text(claim);
    if standpoint.is_anothers(text) {
        return;
    }
    let Some(record) = Record::decode(text) else { return };
    let anywhere = Record { node: None, topology: None, ..record }.encode();
    let metadata = claim.get_mut("metadata").and_then(Value::as_object_mut);
    if let (Some(metadata), Some(text)) = (metadata, anywhere) {
        set_record(metadata, &text);
    }
}

/// Takes the mark off, unless it is of another's call.
pub(in crate::controller) fn take_off_own(claim: &mut Value, standpoint: Standpoint<'_>) -> Edit {
    if standpoint.is_anothers(record_text(claim)) { Edit::Nothing } else { take_off(claim) }
}

/// Takes the mark off, if it still is of this call.
pub(super) fn take_off_of(claim: &mut Value, record: &Record) -> Edit {
    let written = Record::decode(record_text(claim)).unwrap_or_default();
    if written == *record { take_off(claim) } else { Edit::Nothing }
}

/// Takes the mark off, whoever's it is.
pub(crate) fn take_off(claim: &mut Value) -> Edit {
    let edits = [finalizers::remove(claim, FINALIZER), remove_record(claim)];
    if edits.contains(&Edit::Write) { Edit::Write } else { Edit::Nothing }
}

fn remove_record(claim: &mut Value) -> Edit {
    let annotations = claim.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    match annotations.and_then(|annotations| annotations.remove(RECORD)) {
        Some(_) => Edit::Write,
        None => Edit::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: &str = "volume.kubernetes.io/storage-provisioner";
    const NODE: &str = "volume.kubernetes.io/selected-node";

    #[test]
    fn a_record_of_another_nodes_call_is_told_from_another_drivers() {
        let record = |driver: &str, node: Option<&str>| Record {
            driver: driver.to_owned(),
            node: node.map(str::to_owned),
            ..Record::default()
        };
        let of_other = |own, adopted, record: &Record| {
            let identity = identity(own);
            Standpoint { identity: &identity, adopted }.is_of_other_node(record)
        };
        assert!(of_other(Some("n1"), None, &record("d", Some("n2"))));
        assert!(of_other(Some("n1"), None, &record("", Some("n2"))));
        assert!(!of_other(Some("n1"), None, &record("d", Some("n1"))));
        assert!(!of_other(Some("n1"), Some("n2"), &record("d", Some("n2"))), "adopted");
        assert!(!of_other(Some("n1"), None, &record("d", None)));
        assert!(!of_other(Some("n1"), None, &record("other", Some("n2"))));
        assert!(!of_other(None, None, &record("d", Some("n2"))), "one process for all nodes");
    }

    fn claim(metadata: &Value, volume: Option<&str>) -> Value {
        json!({"metadata": metadata, "spec": {"volumeName": volume}})
    }

    fn view(object: &Value) -> Claim {
        serde_json::from_value(object.clone()).unwrap()
    }

    fn identity(node: Option<&str>) -> ProvisionerIdentity {
        ProvisionerIdentity { driver: "d".into(), in_tree: None, node: node.map(str::to_owned) }
    }

    fn here(identity: &ProvisionerIdentity) -> Standpoint<'_> {
        Standpoint { identity, adopted: None }
    }

    const TEXT: &str = r#"{"driver":"d"}"#;

    /// What a mark with this record means, in a letter, on a claim with these changes.
    fn judged(record: Option<&str>, node: Option<&str>, change: impl Fn(&mut Value)) -> char {
        let mut object =
            claim(&json!({"finalizers": [FINALIZER], "annotations": {DRIVER: "d"}}), None);
        if let Some(record) = record {
            object["metadata"]["annotations"][RECORD] = json!(record);
        }
        change(&mut object);
        match judge(&view(&object), here(&identity(node)), Some("pvc-u")) {
            None => '-',
            Some(RecordStatus::Closed) => 'C',
            Some(RecordStatus::Open(_)) => 'O',
            Some(RecordStatus::Void(_)) => 'V',
            Some(RecordStatus::Elsewhere(_)) => 'E',
        }
    }

    type Change<'a> = &'a dyn Fn(&mut Value);

    #[test]
    fn a_record_counts_only_where_all_of_it_follows() {
        let own = r#"{"driver":"d","volume":"pvc-u"}"#;
        let as_is = |_: &mut Value| {};
        assert_eq!(judged(Some(own), None, as_is), 'O');
        assert_eq!(judged(None, None, as_is), 'C');
        assert_eq!(judged(Some(""), None, as_is), 'C');
        for (record, meaning) in [
            (r#"{"driver":"d","volume":"x-u"}"#, 'V'),
            (r#"{"driver":"d"}"#, 'V'),
            ("garbled", 'V'),
            ("{}", 'V'),
            (r#"{"driver":"other","volume":"pvc-u"}"#, '-'),
        ] {
            assert_eq!(judged(Some(record), None, as_is), meaning, "{record}");
        }
        let table: [(&str, Change<'_>, char); 5] = [
            ("bound", &|it| it["spec"]["volumeName"] = json!("pvc-u"), 'V'),
            ("another driver's", &|it| it["metadata"]["annotations"][DRIVER] = json!("x"), 'V'),
            ("nobody's", &|it| it["metadata"]["annotations"][DRIVER] = json!(""), 'V'),
            ("unmarked", &|it| it["metadata"]["finalizers"] = json!(["x"]), '-'),
            (
                "deleted",
                &|it| it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
                'O',
            ),
        ];
        for (name, change, meaning) in table {
            assert_eq!(judged(Some(own), None, change), meaning, "{name}");
        }
        let foreign = |it: &mut Value| it["metadata"]["annotations"][DRIVER] = json!("x");
        assert_eq!(judged(None, None, foreign), '-', "its own provisioner clears it away");
        assert_eq!(judged(Some("garbled"), None, foreign), '-');
    }

    #[test]
    fn with_node_deployment_a_record_is_its_nodes() {
        let of = |node: &str| json!({"driver": "d", "volume": "pvc-u", "node": node}).to_string();
        let selected = |node: &'static str| {
            move |it: &mut Value| it["metadata"]["annotations"][NODE] = json!(node)
        };
        let plain = r#"{"driver":"d","volume":"pvc-u"}"#.to_owned();
        for (record, node, meaning) in [
            (of("n1"), "n1", 'O'),
            (of("n1"), "n2", 'O'),
            (of("n2"), "n1", 'E'),
            (of("n2"), "n2", 'E'),
            (plain.clone(), "n1", 'O'),
            (plain, "n2", 'E'),
            (String::new(), "n1", 'C'),
            (String::new(), "n2", 'E'),
            ("garbled".into(), "n2", 'E'),
        ] {
            assert_eq!(
                judged(Some(&record), Some("n1"), selected(node)),
                meaning,
                "{record} {node}"
            );
        }
        assert_eq!(judged(Some(&of("n2")), None, selected("n1")), 'O', "no nodes any more");
        let mut object = claim(&json!({"finalizers": [FINALIZER]}), None);
        object["metadata"]["annotations"] = json!({DRIVER: "d", NODE: "n1", RECORD:
            r#"{"driver":"d","volume":"pvc-u","node":"n2","topology":{"terms":[]}}"#});
        let own = identity(Some("n1"));
        let adopting = Standpoint { identity: &own, adopted: Some("n2") };
        let Some(RecordStatus::Open(record)) = judge(&view(&object), adopting, Some("pvc-u"))
        else {
            panic!("it is followed here");
        };
        assert_eq!(record.topology, None, "the gone node's place cannot be asked for");
        assert_eq!(put_on(&mut object.clone(), adopting, TEXT), Edit::Write);
        assert_eq!(put_on(&mut object, here(&own), TEXT), Edit::Nothing);
    }

    #[test]
    fn a_claim_is_marked_beside_what_others_put_there_and_unmarked_again() {
        let own = identity(None);
        for metadata in [
            json!({}),
            json!({"finalizers": null, "annotations": null}),
            json!({"finalizers": ["kubernetes.io/pvc-protection"], "annotations": {"a": "b"}}),
        ] {
            let mut object = claim(&metadata, None);
            assert_eq!(put_on(&mut object, here(&own), TEXT), Edit::Write, "{metadata}");
            assert_eq!(read(&view(&object)).unwrap().driver, "d");
            assert_eq!(put_on(&mut object, here(&own), TEXT), Edit::Nothing, "again");
            assert_eq!(close(&mut object, here(&own)), Edit::Write);
            assert_eq!(read(&view(&object)), Some(Record::default()));
            assert_eq!(put_on(&mut object, here(&own), TEXT), Edit::Write, "opened again");
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
    fn a_claim_that_is_bound_or_being_deleted_is_not_marked() {
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        for mut object in [claim(&deleted, None), claim(&json!({}), Some("pv"))] {
            let before = object.clone();
            assert_eq!(put_on(&mut object, here(&identity(None)), TEXT), Edit::Nothing);
            assert_eq!(object, before);
        }
    }

    #[test]
    fn anothers_record_is_neither_replaced_nor_taken_off() {
        let marked = |record: &str| {
            claim(&json!({"finalizers": [FINALIZER], "annotations": {RECORD: record}}), None)
        };
        for (record, node, ours) in [
            ("", None, true),
            ("garbled", None, true),
            (r#"{"driver":"d","node":"n"}"#, None, true),
            (r#"{"driver":"other"}"#, None, false),
            (r#"{"driver":"d","node":"n"}"#, Some("n"), true),
            (r#"{"driver":"d"}"#, Some("n"), true),
            (r#"{"driver":"d","node":"n"}"#, Some("other"), false),
            (r#"{"driver":"other","node":"n"}"#, Some("n"), false),
        ] {
            let own = identity(node);
            let edit = if ours { Edit::Write } else { Edit::Nothing };
            let text = r#"{"driver":"d","volume":"v"}"#;
            assert_eq!(put_on(&mut marked(record), here(&own), text), edit, "{record}");
            assert_eq!(take_off_own(&mut marked(record), here(&own)), edit, "{record}");
            if !record.is_empty() {
                assert_eq!(close(&mut marked(record), here(&own)), edit, "{record}");
            }
        }
    }

    #[test]
    fn with_its_node_a_record_loses_its_place_and_nothing_else() {
        let record = r#"{"driver":"d","volume":"v","node":"n","topology":{"terms":[{"a":"b"}]}}"#;
        let mut object =
            claim(&json!({"finalizers": [FINALIZER], "annotations": {RECORD: record}}), None);
        forget_place(&mut object, here(&identity(Some("n"))));
        let left = Record { driver: "d".into(), volume: "v".into(), ..Record::default() };
        assert_eq!(read(&view(&object)), Some(left));
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
