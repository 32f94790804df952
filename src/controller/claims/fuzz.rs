//! The fuzz target of records: whatever stands in the annotation of an open call.

use std::sync::Arc;

use serde_json::json;

use super::plan::{Ask, Plan, plan};
use crate::{
    controller::{
        claims::{
            call_record::{
                RECORD, Record,
                status::{FINALIZER, RecordStatus, Standpoint, judge},
            },
            index::{ClaimSnapshot, Verification},
            state::Demand,
        },
        model::{
            record::MAX_BYTES,
            topology::{Pinned, Recorded, Requirement, Segments},
        },
        ownership::ProvisionerIdentity,
        provisioner::ProvisionRequest,
    },
    fuzzing::{is_dns_name, text},
    kube::objects::{Claim, StorageClass, View as _},
};

const DRIVER: &str = "d.example.com";
const VOLUME: &str = "pvc-u";
const DIGEST: &str = "0123456789abcdef";

/// Of a record nothing is shown but DNS names, and nothing is asked for that would not be asked for
/// without it: no other volume name, class or source, and no place beside the allowed ones.
///
/// # Panics
/// Where that does not hold.
pub fn record(data: &[u8]) {
    let text = text(data);
    if let Some(record) = Record::decode(&text) {
        check_size(&record, &text);
        check_shown(&record);
    }
    for node in [None, Some("n1".to_owned())] {
        let identity = ProvisionerIdentity { driver: DRIVER.to_owned(), in_tree: None, node };
        for bound in [false, true] {
            check_claim(&identity, &Arc::new(claim(&text, bound)));
        }
    }
}

/// What is read is no larger than what was written, and is the same when it is written again.
fn check_size(record: &Record, text: &str) {
    assert!(text.len() <= MAX_BYTES, "a record of {} bytes was read", text.len());
    let node = record.node.as_deref().unwrap_or_default();
    let texts = [&*record.driver, &record.volume, node, &record.class_uid, &record.digest];
    let terms = record.topology.iter().flat_map(|topology| terms(topology));
    let terms = terms.flatten().map(|(key, value)| key.len() + value.len());
    let size = texts.iter().map(|text| text.len()).chain(terms).sum::<usize>();
    assert!(size <= text.len(), "{size} bytes of {}", text.len());
    if let Some(written) = record.encode() {
        assert_eq!(Record::decode(&written).as_ref(), Some(record));
    }
}

fn terms(topology: &Recorded) -> &[Segments] {
    match topology {
        Recorded::Terms { terms, .. } => terms,
        Recorded::Preferred { best } => std::slice::from_ref(best),
    }
}

fn check_shown(record: &Record) {
    for shown in [record.volume_shown(), record.node_shown()] {
        let plain = shown.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        assert!(plain && shown.len() <= 253, "{shown:?} is shown");
    }
    if is_dns_name(&record.volume) {
        assert_eq!(record.volume_shown(), record.volume);
    }
}

/// A claim of ours that carries the record.
fn claim(record: &str, bound: bool) -> Claim {
    let annotations = json!({"volume.kubernetes.io/storage-provisioner": DRIVER, RECORD: record});
    let claim = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "finalizers": [FINALIZER], "annotations": annotations},
        "spec": {"storageClassName": "fast", "volumeName": if bound { "pv" } else { "" }},
    });
    serde_json::from_value(claim).unwrap_or_default()
}

fn class(provisioner: &str, uid: &str) -> Arc<StorageClass> {
    let class = json!({"metadata": {"name": "fast", "uid": uid}, "provisioner": provisioner, "reclaimPolicy": "Delete"});
    Arc::new(serde_json::from_value(class).unwrap_or_default())
}

/// A record counts only where it fits the claim, and then leads to the usual order of its class.
fn check_claim(identity: &ProvisionerIdentity, claim: &Arc<Claim>) {
    let standpoint = Standpoint { identity, adopted: None };
    let Some(RecordStatus::Open(record)) = judge(claim, standpoint, Some(VOLUME)) else { return };
    assert!(claim.is_unbound(), "a record counts on a bound claim");
    assert_eq!(record.volume, VOLUME);
    assert!(record.driver.is_empty() || record.driver == DRIVER, "{record:?}");
    let node = record.node.as_deref();
    assert!(identity.node.is_none() || node.is_none_or(|node| identity.is_on(node)), "{record:?}");
    for class in [class(DRIVER, "class-1"), class(DRIVER, "class-2"), class("foreign", "class-1")] {
        check_order(identity, claim, &record, &class);
    }
}

fn check_order(
    identity: &ProvisionerIdentity,
    claim: &Arc<Claim>,
    record: &Record,
    class: &Arc<StorageClass>,
) {
    let order = |ask: Ask| ask.order(identity, claim, false, || Ok(format!("pvc-{}", claim.uid())));
    let usual = order(Ask::New(Arc::clone(class)));
    let fits = |record: &Record, _: &Arc<StorageClass>| record.is_of_class(&usual, DIGEST);
    let planned = plan(identity, &glance(claim, record), Some(Arc::clone(class)), fits);
    let Plan::Provision(ask) = planned else { return };
    assert_eq!(class.provisioner, DRIVER, "a class of another driver");
    let says_nothing = record.class_uid.is_empty() && record.digest.is_empty();
    let is_same = record.class_uid == class.uid() || record.digest == DIGEST;
    assert!(says_nothing || is_same, "a class that is not the recorded one: {record:?}");
    let asked = order(ask);
    assert_eq!(asked.volume_name, Ok(VOLUME.to_owned()));
    assert_eq!(asked.source, None);
    assert!(Arc::ptr_eq(&asked.class, class) && Arc::ptr_eq(&asked.claim, claim));
    let own = identity.node.as_deref().filter(|_| record.node.is_some());
    assert_eq!(asked.selected_node.as_deref(), own.or(usual.selected_node.as_deref()));
    check_places(&asked);
}

/// No place is asked for beside those that would be asked for without the record.
fn check_places(order: &ProvisionRequest) {
    let Some(Pinned::Recorded(recorded)) = order.topology.as_deref() else {
        return assert!(order.topology.is_none(), "{:?}", order.topology);
    };
    let zone = |zone: &str| Segments::from([("zone".to_owned(), zone.to_owned())]);
    let now = Requirement::new(vec![zone("a"), zone("b"), zone("c")], 0);
    if let Ok(asked) = recorded.restrict(now.as_ref()) {
        let places = asked.iter().flat_map(Requirement::requisite).collect::<Vec<_>>();
        let allowed = now.iter().flat_map(Requirement::requisite).collect::<Vec<_>>();
        assert!(!places.is_empty() && places.iter().all(|it| allowed.contains(it)), "{places:?}");
    }
    assert!(!matches!(recorded.restrict(None), Ok(Some(_))), "a place for a driver without any");
}

fn glance(claim: &Arc<Claim>, record: &Record) -> ClaimSnapshot {
    ClaimSnapshot {
        claim: Arc::clone(claim),
        demand: Demand::Wanted,
        may_call: true,
        verification: Verification::None,
        doubted: 0,
        order: None,
        loosened: false,
        recorded: Some(record.clone()),
        elsewhere: None,
        leftover: None,
        bared: None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_record_brings_another_name_class_source_or_place() {
        crate::fuzzing::run("record", 2000, super::record);
    }
}
