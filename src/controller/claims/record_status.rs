//! What a record on a claim means, and the edits that write and remove it.
//!
//! [`judge`] decides what a record means. A record counts only if all of it follows from the claim
//! and from the flags of this process; whether its class fits is checked when the claim is planned.
//! The edits are pure functions of the object that is written back (safety rule 11).

use serde_json::Value;

use crate::{
    controller::{
        model::record::Record,
        ownership::{ProvisionerIdentity, SELECTED_NODE},
    },
    kube::{
        Edit,
        client::{annotations, finalizers},
        objects::{Claim, View as _},
    },
};

/// The finalizer that keeps a claim while the outcome of its CreateVolume is unknown or not saved.
pub const FINALIZER: &str = "provisioner.storage.kubernetes.io/provisioning-protection";

/// The annotation with the request of the open call, a [`Record`].
pub const RECORD: &str = "provisioner.storage.kubernetes.io/open-request";

/// What the finalizer and the record on a claim mean to this process. Those of another driver mean
/// nothing: `claims::others_records` is about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordStatus {
    /// There is a finalizer without a record: nothing is open.
    Closed,
    /// A call is open, and the record follows from the claim and our flags.
    Open(Record),
    /// The record does not follow from the claim and our flags: no call is made for it. Without its topology.
    Void(Record),
    /// The process of another node has a call open.
    Elsewhere(Record),
}

impl RecordStatus {
    /// That of a void record. Nobody asks for its topology, which takes more memory than its text.
    pub fn void(record: Record) -> Self {
        Self::Void(Record { topology: None, ..record })
    }
}

/// Decides what the record on the claim means. `None`: there is none, or it is another driver's.
/// `volume` is the name that the claim's volume gets.
pub fn judge(
    claim: &Claim,
    identity: &ProvisionerIdentity,
    volume: Option<&str>,
) -> Option<RecordStatus> {
    if !claim.has_finalizer(FINALIZER) {
        return None;
    }
    let text = claim.annotation(RECORD).unwrap_or_default();
    let record = Record::decode(text).unwrap_or_default();
    // A record without a driver belongs to the provisioner of the claim.
    if record.is_of_other_driver(identity)
        || record.driver.is_empty() && !identity.is_for_driver(claim)
    {
        return None;
    }
    // One without a node belongs to the process that provisions for the claim.
    let is_ours = identity.is_provisioner_of(claim);
    let is_unclaimed = identity.node.is_some() && record.node.is_none() && !is_ours;
    if record.is_of_other_node(identity) || is_unclaimed {
        return Some(RecordStatus::Elsewhere(record));
    }
    if text.is_empty() {
        return Some(RecordStatus::Closed);
    }
    // A node repeats its own call whichever node is selected by now.
    let is_for_us = is_ours || record.node.is_some() && identity.is_for_driver(claim);
    let is_named = volume == Some(&record.volume);
    if !(claim.is_unbound() && is_for_us && is_named) {
        return Some(RecordStatus::void(record));
    }
    Some(RecordStatus::Open(record))
}

/// Returns the record of a claim that carries our finalizer; an empty one if it has none.
pub fn read(claim: &Claim) -> Option<Record> {
    let is_protected = claim.has_finalizer(FINALIZER);
    is_protected.then(|| claim.annotation(RECORD).and_then(Record::decode).unwrap_or_default())
}

/// Returns the record of another driver that may hold the deleted claim for ever: that driver's provisioner
/// does not look after a claim that asks for ours, or is bound to a volume of ours.
pub fn of_other_driver(identity: &ProvisionerIdentity, claim: &Claim) -> Option<Record> {
    let may_be_ours = identity.is_for_driver(claim) || !claim.is_unbound();
    let record = read(claim).filter(|_| claim.is_terminating() && may_be_ours);
    record.filter(|it| it.is_of_other_driver(identity))
}

/// Whether two versions of a claim differ only in finalizer and record, apart from the resource
/// version.
pub fn differs_only_in_record(old: &Claim, new: &Claim) -> bool {
    let bare = |claim: &Claim| {
        let mut metadata = claim.metadata.clone();
        metadata.resource_version = None;
        metadata.annotations.remove(RECORD);
        metadata.finalizers.retain(|name| **name != *FINALIZER);
        metadata
    };
    is_changed(old, new)
        && old.spec == new.spec
        && old.status == new.status
        && bare(old) == bare(new)
}

/// Whether the finalizer or the record has changed.
pub fn is_changed(old: &Claim, new: &Claim) -> bool {
    let record_status = |claim: &Claim| {
        (claim.has_finalizer(FINALIZER), claim.annotation(RECORD).map(str::to_owned))
    };
    record_status(old) != record_status(new)
}

/// Whether the claim is being deleted and only our finalizer keeps it.
pub fn is_held_only_by_record(claim: &Claim) -> bool {
    claim.is_terminating() && claim.metadata.finalizers.iter().all(|name| **name == *FINALIZER)
}

/// Whether another node than that of this process is selected for the claim.
pub(super) fn is_for_other_node(claim: &Value, identity: &ProvisionerIdentity) -> bool {
    let selected = annotations::get(claim, SELECTED_NODE);
    !selected.is_empty() && identity.node.is_some() && !identity.is_on(selected)
}

/// Whether the record on the claim is of another driver, or of the process of another node.
fn is_of_another(claim: &Value, identity: &ProvisionerIdentity) -> bool {
    Record::decode(annotations::get(claim, RECORD))
        .is_some_and(|it| it.is_of_other_driver(identity) || it.is_of_other_node(identity))
}

/// Adds finalizer and record to a claim that still waits for its volume. A claim that is bound or
/// being deleted, or that carries the record of another process, is not changed.
pub(super) fn add(claim: &mut Value, identity: &ProvisionerIdentity, text: &str) -> Edit {
    let given = |pointer| claim.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if !given("/metadata/deletionTimestamp").is_empty() || !given("/spec/volumeName").is_empty() {
        return Edit::Nothing;
    }
    if is_of_another(claim, identity) {
        return Edit::Nothing;
    }
    let edits = [finalizers::add(claim, FINALIZER), annotations::set(claim, RECORD, text)];
    if edits.contains(&Edit::Write) { Edit::Write } else { Edit::Nothing }
}

/// Removes node and topology from the record, as the selected node is given back.
pub(in crate::controller) fn forget_topology(claim: &mut Value, identity: &ProvisionerIdentity) {
    if is_of_another(claim, identity) {
        return;
    }
    let Some(record) = Record::decode(annotations::get(claim, RECORD)) else { return };
    if let Some(anywhere) = (Record { node: None, topology: None, ..record }).encode() {
        annotations::set(claim, RECORD, &anywhere);
    }
}

/// Removes finalizer and record, unless the record is of another process.
pub(in crate::controller) fn remove_own(claim: &mut Value, identity: &ProvisionerIdentity) -> Edit {
    if is_of_another(claim, identity) { Edit::Nothing } else { remove(claim) }
}

/// Removes finalizer and record, if the record is this one.
pub(super) fn remove_recorded(claim: &mut Value, record: &Record) -> Edit {
    let written = Record::decode(annotations::get(claim, RECORD)).unwrap_or_default();
    if written == *record { remove(claim) } else { Edit::Nothing }
}

/// Removes finalizer and record, whoever has written them.
pub fn remove(claim: &mut Value) -> Edit {
    let edits = [finalizers::remove(claim, FINALIZER), annotations::remove(claim, RECORD)];
    if edits.contains(&Edit::Write) { Edit::Write } else { Edit::Nothing }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DRIVER: &str = "volume.kubernetes.io/storage-provisioner";
    const NODE: &str = "volume.kubernetes.io/selected-node";
    const DELETED: &str = "2026-01-01T00:00:00Z";

    fn claim(metadata: &Value, volume: Option<&str>) -> Value {
        json!({"metadata": metadata, "spec": {"volumeName": volume}})
    }

    fn view(object: &Value) -> Claim {
        serde_json::from_value(object.clone()).unwrap()
    }

    fn identity(node: Option<&str>) -> ProvisionerIdentity {
        ProvisionerIdentity { node: node.map(str::to_owned), ..ProvisionerIdentity::of_driver("d") }
    }

    const TEXT: &str = r#"{"driver":"d"}"#;

    /// What this record means, as a letter, on a claim with these changes.
    fn judged(record: Option<&str>, node: Option<&str>, change: impl Fn(&mut Value)) -> char {
        let mut object =
            claim(&json!({"finalizers": [FINALIZER], "annotations": {DRIVER: "d"}}), None);
        if let Some(record) = record {
            object["metadata"]["annotations"][RECORD] = json!(record);
        }
        change(&mut object);
        match judge(&view(&object), &identity(node), Some("pvc-u")) {
            None => '-',
            Some(RecordStatus::Closed) => 'C',
            Some(RecordStatus::Open(_)) => 'O',
            Some(RecordStatus::Void(_)) => 'V',
            Some(RecordStatus::Elsewhere(_)) => 'E',
        }
    }

    type Change<'a> = &'a dyn Fn(&mut Value);

    #[test]
    fn a_record_counts_only_if_all_of_it_follows_from_claim_and_flags() {
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
            ("deleted", &|it| it["metadata"]["deletionTimestamp"] = json!(DELETED), 'O'),
        ];
        for (name, change, meaning) in table {
            assert_eq!(judged(Some(own), None, change), meaning, "{name}");
        }
        let foreign = |it: &mut Value| it["metadata"]["annotations"][DRIVER] = json!("x");
        assert_eq!(judged(None, None, foreign), '-', "its own provisioner clears it away");
        assert_eq!(judged(Some("garbled"), None, foreign), '-');
    }

    #[test]
    fn of_a_void_record_no_topology_is_kept() {
        let record = |volume: &str| {
            let record =
                json!({"driver": "d", "volume": volume, "topology": {"best": {"zone": "a"}}});
            let annotations = json!({DRIVER: "d", RECORD: record.to_string()});
            let object =
                claim(&json!({"finalizers": [FINALIZER], "annotations": annotations}), None);
            judge(&view(&object), &identity(None), Some("pvc-u"))
        };
        let Some(RecordStatus::Open(open)) = record("pvc-u") else { panic!("it counts") };
        let Some(RecordStatus::Void(void)) = record("x-u") else { panic!("it is void") };
        assert!(open.topology.is_some() && void.topology.is_none(), "{void:?}");
    }

    #[test]
    fn with_node_deployment_a_record_belongs_to_its_node() {
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
            let judged = judged(Some(&record), Some("n1"), selected(node));
            assert_eq!(judged, meaning, "{record} {node}");
        }
        assert_eq!(judged(Some(&of("n2")), None, selected("n1")), 'O', "no nodes any more");
    }

    #[test]
    fn adding_and_removing_a_record_keeps_other_finalizers_and_annotations() {
        let own = identity(None);
        for metadata in [
            json!({}),
            json!({"finalizers": null, "annotations": null}),
            json!({"finalizers": ["kubernetes.io/pvc-protection"], "annotations": {"a": "b"}}),
        ] {
            let mut object = claim(&metadata, None);
            assert_eq!(add(&mut object, &own, TEXT), Edit::Write, "{metadata}");
            assert_eq!(read(&view(&object)).unwrap().driver, "d");
            assert_eq!(add(&mut object, &own, TEXT), Edit::Nothing, "again");
            assert_eq!(remove(&mut object), Edit::Write);
            assert_eq!(remove(&mut object), Edit::Nothing, "again");
            let (left, before) = (view(&object).metadata, view(&claim(&metadata, None)).metadata);
            assert_eq!(left.finalizers, before.finalizers);
            assert_eq!(left.annotations, before.annotations);
        }
    }

    #[test]
    fn a_bound_or_terminating_claim_gets_no_record() {
        let deleted = json!({"deletionTimestamp": DELETED});
        for mut object in [claim(&deleted, None), claim(&json!({}), Some("pv"))] {
            let before = object.clone();
            assert_eq!(add(&mut object, &identity(None), TEXT), Edit::Nothing);
            assert_eq!(object, before);
        }
    }

    #[test]
    fn a_record_of_another_process_is_neither_replaced_nor_removed() {
        let protected = |record: &str| {
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
            assert_eq!(add(&mut protected(record), &own, text), edit, "{record}");
            assert_eq!(remove_own(&mut protected(record), &own), edit, "{record}");
        }
    }

    #[test]
    fn another_drivers_record_may_hold_a_deleted_claim_of_ours() {
        let other = r#"{"driver":"other"}"#;
        for (record, provisioner, volume, deleted, may) in [
            (other, "d", None, true, true),
            (other, "d", Some("pv"), true, true),
            (other, "other", Some("pv"), true, true),
            (other, "other", None, true, false),
            (other, "d", None, false, false),
            (TEXT, "d", Some("pv"), true, false),
            ("", "d", Some("pv"), true, false),
            ("garbled", "d", Some("pv"), true, false),
        ] {
            let mut metadata = json!({"finalizers": [FINALIZER], "annotations": {DRIVER: provisioner, RECORD: record}});
            if deleted {
                metadata["deletionTimestamp"] = json!(DELETED);
            }
            let held = of_other_driver(&identity(None), &view(&claim(&metadata, volume)));
            assert_eq!(held.is_some(), may, "{record} {provisioner} {volume:?} {deleted}");
        }
    }

    #[test]
    fn a_deleted_claim_that_only_our_finalizer_keeps_counts_as_gone() {
        for (deleted, finalizers, gone) in [
            (Some(DELETED), json!([FINALIZER]), true),
            (Some(DELETED), json!([FINALIZER, "kubernetes.io/pvc-protection"]), false),
            (None, json!([FINALIZER]), false),
        ] {
            let metadata = json!({"deletionTimestamp": deleted, "finalizers": finalizers});
            assert_eq!(is_held_only_by_record(&view(&claim(&metadata, None))), gone, "{metadata}");
        }
    }

    #[test]
    fn a_change_of_only_the_record_is_recognised() {
        let bare = view(&claim(&json!({"resourceVersion": "1"}), None));
        let protected = json!({"resourceVersion": "2", "finalizers": [FINALIZER], "annotations": {RECORD: TEXT}});
        let protected_view = view(&claim(&protected, None));
        assert!(differs_only_in_record(&bare, &protected_view));
        assert!(differs_only_in_record(&protected_view, &bare));
        assert!(!differs_only_in_record(&bare, &bare), "nothing differs");
        assert!(!differs_only_in_record(&bare, &view(&claim(&protected, Some("pv")))), "bound");
        let mut more = protected;
        more["annotations"]["node"] = json!("n");
        assert!(!differs_only_in_record(&bare, &view(&claim(&more, None))));
    }
}
