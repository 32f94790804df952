//! The fuzz target for the text of a record annotation.

use std::sync::Arc;

use serde_json::json;

use super::plan::{Facts, Plan, is_record_void, plan};
use crate::{
    controller::{
        claims::{
            index::{Interest, KnownClaim},
            record_status::{FINALIZER, RECORD, RecordStatus, judge},
            state::ClaimState,
        },
        model::{
            record::{MAX_BYTES, Record},
            topology::{Pinned, Recorded, Requirement, Segments},
        },
        ownership,
        ownership::ProvisionerIdentity,
        provisioner::ProvisionRequest,
    },
    fuzzing::{is_dns_name, text},
    kube::objects::{Claim, StorageClass, View as _},
};

const DRIVER: &str = "d.example.com";
const VOLUME: &str = "pvc-u";
const DIGEST: &str = "0123456789abcdef";

/// Checks that only DNS names of a record are printed, and that a record adds nothing to a request:
/// no other volume name, class or source, and no topology term beside the allowed ones.
///
/// # Panics
/// If a check fails.
pub fn record(data: &[u8]) {
    let text = text(data);
    if let Some(record) = Record::decode(&text) {
        check_size(&record, &text);
        check_printable(&record);
    }
    for node in [None, Some("n1".to_owned())] {
        let identity = ProvisionerIdentity { node, ..ProvisionerIdentity::of_driver(DRIVER) };
        for bound in [false, true] {
            check_claim(&identity, &Arc::new(claim(&text, bound)));
        }
    }
}

/// A record that was read is no larger than its text, and is the same after it is written and read
/// again.
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

fn check_printable(record: &Record) {
    for printable in [record.printable_volume(), record.printable_node()] {
        let plain =
            printable.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        assert!(plain && printable.len() <= 253, "{printable:?} is printed");
    }
    if is_dns_name(&record.volume) {
        assert_eq!(record.printable_volume(), record.volume);
    }
}

/// A claim of our driver that carries the record.
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

/// A record counts only if it fits the claim, and then leads to the usual request of its class.
fn check_claim(identity: &ProvisionerIdentity, claim: &Arc<Claim>) {
    let Some(RecordStatus::Open(record)) = judge(claim, identity, Some(VOLUME)) else { return };
    assert!(claim.is_unbound(), "a record counts on a bound claim");
    assert_eq!(record.volume, VOLUME);
    assert!(record.driver.is_empty() || record.driver == DRIVER, "{record:?}");
    let node = record.node.as_deref();
    assert!(identity.node.is_none() || node.is_none_or(|node| identity.is_on(node)), "{record:?}");
    for class in [class(DRIVER, "class-1"), class(DRIVER, "class-2"), class("foreign", "class-1")] {
        check_request(identity, claim, &record, &class);
    }
}

fn check_request(
    identity: &ProvisionerIdentity,
    claim: &Arc<Claim>,
    record: &Record,
    class: &Arc<StorageClass>,
) {
    let planned = |known: &KnownClaim, fits: &dyn Fn(&Record, &ProvisionRequest) -> bool| {
        let class = Some(Arc::clone(class));
        let facts = Facts { identity, class, fits };
        match plan(known, &facts) {
            Plan::Provision(request) if !is_record_void(known, &facts) => Some(*request),
            _ => None,
        }
    };
    let recorded = KnownClaim {
        state: ClaimState::Recorded,
        record_status: Some(Arc::new(RecordStatus::Open(record.clone()))),
        ..snapshot(Arc::clone(claim))
    };
    let selected_node = ownership::selected_node(claim);
    let fits = |record: &Record, request: &ProvisionRequest| record.is_of_class(request, DIGEST);
    let Some(made) = planned(&recorded, &fits) else { return };
    assert_eq!(class.provisioner, DRIVER, "a class of another driver");
    let says_nothing = record.class_uid.is_empty() && record.digest.is_empty();
    let is_same = record.class_uid == class.uid() || record.digest == DIGEST;
    assert!(says_nothing || is_same, "a class that is not the recorded one: {record:?}");
    assert_eq!(made.volume_name, Ok(VOLUME.to_owned()));
    assert_eq!(made.source, None);
    assert!(Arc::ptr_eq(&made.class, class) && Arc::ptr_eq(&made.claim, claim));
    let own = identity.node.as_deref().filter(|_| record.node.is_some());
    assert_eq!(made.selected_node.as_deref(), own.or(selected_node));
    check_topology(&made);
}

/// The request has only topology terms that it would have without the record.
fn check_topology(request: &ProvisionRequest) {
    let Some(Pinned::Recorded(recorded)) = request.topology.as_deref() else {
        return assert!(request.topology.is_none(), "{:?}", request.topology);
    };
    let zone = |zone: &str| Segments::from([("zone".to_owned(), zone.to_owned())]);
    let now = Requirement::new(vec![zone("a"), zone("b"), zone("c")], 0);
    if let Ok(made) = recorded.restrict(now.as_ref()) {
        let places = made.iter().flat_map(Requirement::requisite).collect::<Vec<_>>();
        let allowed = now.iter().flat_map(Requirement::requisite).collect::<Vec<_>>();
        assert!(!places.is_empty() && places.iter().all(|it| allowed.contains(it)), "{places:?}");
    }
    assert!(!matches!(recorded.restrict(None), Ok(Some(_))), "a place for a driver without any");
}

/// A snapshot of a claim that may be provisioned. Unit tests use it, too.
pub(super) fn snapshot(claim: Arc<Claim>) -> KnownClaim {
    KnownClaim {
        claim,
        interest: Interest::Unbound,
        volume_name: Some(VOLUME.into()),
        ..KnownClaim::default()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_record_adds_a_name_class_source_or_term() {
        crate::fuzzing::run("record", 2000, super::record);
    }
}
