use serde_json::json;

use super::*;
use crate::controller::{
    claims::{fuzz::snapshot, index::Interest, record_status::RecordStatus, state::OpenCall},
    model::{
        source::{NamedSource, Source, SourceKind},
        topology::Requirement,
    },
};

const DRIVER: &str = "d.example.com";

fn identity() -> ProvisionerIdentity {
    ProvisionerIdentity::of_driver(DRIVER)
}

fn claim(node: Option<&str>) -> Arc<Claim> {
    let mut annotations = json!({"volume.kubernetes.io/storage-provisioner": DRIVER});
    if let Some(node) = node {
        annotations[SELECTED_NODE] = json!(node);
    }
    let claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u", "annotations": annotations},
                       "spec": {"storageClassName": "fast"}});
    Arc::new(serde_json::from_value(claim).unwrap())
}

fn class(provisioner: &str, mode: &str) -> Arc<StorageClass> {
    let class = json!({"metadata": {"name": "fast"}, "provisioner": provisioner, "volumeBindingMode": mode});
    Arc::new(serde_json::from_value(class).unwrap())
}

/// What is planned: `provision`, `drop`, or the message for the user.
fn planned(snapshot: &KnownClaim, class: Option<Arc<StorageClass>>) -> String {
    planned_by(&identity(), snapshot, class)
}

fn planned_by(
    identity: &ProvisionerIdentity,
    known: &KnownClaim,
    class: Option<Arc<StorageClass>>,
) -> String {
    let class_uid = |request: &ProvisionRequest| request.class.uid().to_owned();
    let facts =
        Facts { identity, class, fits: &|record, request| record.class_uid == class_uid(request) };
    if is_record_void(known, &facts) {
        return "void".into();
    }
    match plan(known, &facts) {
        Plan::Provision(request) if request.topology.is_some() => "as recorded".into(),
        Plan::Provision(request) if request.source.is_some() => "again".into(),
        Plan::Provision(_) => "provision".into(),
        Plan::Elsewhere(record) => format!("elsewhere {:?}", record.node),
        Plan::Drop => "drop".into(),
        Plan::Blocked { why, .. } => why,
        Plan::Discard(_, unusable) => format!("discard {}", unusable.handle.id()),
        Plan::SuspectedLeak(handle) => format!("suspect {handle}"),
    }
}

#[test]
fn a_claim_is_provisioned_when_it_and_its_class_are_ours() {
    let immediate = class(DRIVER, "Immediate");
    let late = class(DRIVER, "WaitForFirstConsumer");
    let here = snapshot(claim(None));
    assert_eq!(planned(&here, Some(immediate.clone())), "provision");
    assert_eq!(planned(&here, Some(late.clone())), "drop");
    assert_eq!(planned(&snapshot(claim(Some(""))), Some(late.clone())), "drop");
    assert_eq!(planned(&snapshot(claim(Some("n"))), Some(late)), "provision");
    assert_eq!(planned(&here, None), r#"storageclass.storage.k8s.io "fast" not found"#);
    let mut classless = (*here.claim).clone();
    classless.spec.storage_class_name = None;
    assert_eq!(planned(&snapshot(Arc::new(classless)), None), "the claim names no storage class");
    let foreign = planned(&here, Some(class("other", "Immediate")));
    assert_eq!(
        foreign,
        r#"storage class "fast" is for the provisioner "other", but the claim is annotated for "d.example.com""#
    );
    let withdrawn = KnownClaim { interest: Interest::None, ..here.clone() };
    assert_eq!(planned(&withdrawn, Some(immediate.clone())), "drop");
    let in_flight = KnownClaim { state: ClaimState::Done, ..here.clone() };
    assert_eq!(planned(&in_flight, Some(immediate.clone())), "drop");
    let suspect = KnownClaim { state: ClaimState::SuspectedLeak, ..here.clone() };
    assert!(planned(&suspect, Some(immediate.clone())).starts_with("a volume that was made"));
    let unwanted = KnownClaim { interest: Interest::None, ..suspect };
    assert_eq!(planned(&unwanted, Some(immediate.clone())), "drop");
    let mut handed_on = (*here.claim).clone();
    handed_on.metadata.annotations = std::collections::BTreeMap::default();
    assert_eq!(planned(&snapshot(Arc::new(handed_on)), Some(immediate)), "drop");
}

fn request() -> ProvisionRequest {
    let named = NamedSource { kind: SourceKind::Claim, namespace: "ns".into(), name: "s".into() };
    ProvisionRequest {
        claim: claim(Some("n")),
        class: class(DRIVER, "Immediate"),
        volume_name: Ok("pvc-u".into()),
        selected_node: Some("n".into()),
        withdrawn: false,
        // Only what was asked for before has one.
        source: Some(Source { named, uid: "s".into(), handle: "h".into() }),
        topology: None,
    }
}

#[test]
fn an_open_call_is_repeated_unchanged_whatever_has_changed() {
    let open = KnownClaim {
        interest: Interest::None,
        state: ClaimState::Background(OpenCall::default()),
        request: Some(Arc::new(request())),
        ..snapshot(claim(None))
    };
    for class in [None, Some(class("other", "WaitForFirstConsumer"))] {
        assert_eq!(planned(&open, class), "again");
    }
    let pv_gone = KnownClaim { state: ClaimState::PvGone("h".into()), ..open };
    assert_eq!(planned(&pv_gone, None), "suspect h", "it may be gone, and nobody wants it");
    let wanted = KnownClaim { interest: Interest::Unbound, ..pv_gone };
    assert_eq!(planned(&wanted, None), "again");
}

#[test]
fn after_enough_refusals_another_node_and_a_changed_class_are_accepted() {
    let later = |uid: &str, mode: &str| {
        let mut class = (*class(DRIVER, mode)).clone();
        class.metadata.uid = Some(uid.into());
        Some(Arc::new(class))
    };
    let open = |node: Option<&str>, accepts_changes| KnownClaim {
        request: Some(Arc::new(request())),
        state: ClaimState::Background(OpenCall::accepting(accepts_changes)),
        ..snapshot(claim(node))
    };
    let same = || Some(class(DRIVER, "Immediate"));
    for (node, class, firm, accepts_changes) in [
        (Some("n"), same(), "again", "again"),
        (Some("m"), same(), "again", "provision"),
        (Some("n"), later("2", "Immediate"), "again", "provision"),
        (None, later("2", "WaitForFirstConsumer"), "again", "drop"),
        (Some("n"), None, "again", "again"),
        (Some("n"), Some(self::class("other", "Immediate")), "again", "again"),
    ] {
        assert_eq!(planned(&open(node, false), class.clone()), firm, "{node:?}");
        assert_eq!(planned(&open(node, true), class.clone()), accepts_changes, "{node:?}");
        let withdrawn = KnownClaim { interest: Interest::None, ..open(node, true) };
        assert_eq!(planned(&withdrawn, class), "again", "{node:?}");
    }
}

#[test]
fn a_recorded_call_is_repeated_only_with_its_class() {
    // Only what was recorded has a topology.
    let topology = Some(Box::new(Requirement::record(None)));
    let record = Record { class_uid: "1".into(), topology, ..Record::default() };
    let of = |uid: &str, provisioner: &str, mode: &str| {
        let mut class = (*class(provisioner, mode)).clone();
        class.metadata.uid = Some(uid.into());
        Some(Arc::new(class))
    };
    let status = Arc::new(RecordStatus::Open(record));
    let recorded = |node| KnownClaim {
        state: ClaimState::Recorded,
        record_status: Some(Arc::clone(&status)),
        ..snapshot(claim(node))
    };
    let late = "WaitForFirstConsumer";
    for (node, class, expected) in [
        (None, of("1", DRIVER, "Immediate"), "as recorded"),
        (Some("n"), of("1", DRIVER, late), "as recorded"),
        (None, of("1", DRIVER, late), "drop"),
        (None, of("1", "other", "Immediate"), "void"),
        (None, of("2", DRIVER, "Immediate"), "was replaced by another"),
        (None, None, "is gone"),
    ] {
        for interest in [Interest::Unbound, Interest::Protected] {
            let snapshot = KnownClaim { interest, ..recorded(node) };
            let planned = planned(&snapshot, class.clone());
            let restore = "restore the class, and the call is followed to its end";
            assert!(
                planned == expected || planned.contains(expected) && planned.contains(restore),
                "{planned}"
            );
        }
    }
}

#[test]
fn a_claim_whose_call_is_open_on_another_node_is_left_to_it() {
    let on_node = ProvisionerIdentity { node: Some("n1".into()), ..identity() };
    let class = || Some(class(DRIVER, "Immediate"));
    let record = |node: Option<&str>| {
        let record = Record { node: node.map(str::to_owned), ..Record::default() };
        Some(Arc::new(RecordStatus::Elsewhere(record)))
    };
    let live = |node| KnownClaim { record_status: record(node), ..snapshot(claim(Some("n1"))) };
    assert_eq!(planned_by(&on_node, &live(Some("n2")), class()), "elsewhere Some(\"n2\")");
    assert_eq!(
        planned_by(&on_node, &live(None), class()),
        "provision",
        "no other process follows it"
    );
    let mut deleted = (*claim(Some("n2"))).clone();
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let waiting = ClaimState::Waiting;
    for (node, state) in [(Some("n2"), waiting.clone()), (None, waiting), (None, ClaimState::Done)]
    {
        let deleted = KnownClaim {
            record_status: record(node),
            interest: Interest::Protected,
            state,
            ..snapshot(Arc::new(deleted.clone()))
        };
        let planned = planned_by(&on_node, &deleted, class());
        assert_eq!(planned, format!("elsewhere {node:?}"), "{node:?}");
    }
}
