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
    let ours = |mode| Some(class(DRIVER, mode));
    let immediate = || ours("Immediate");
    let late = || ours("WaitForFirstConsumer");
    let on = |node| snapshot(claim(node));
    let with = |change: &dyn Fn(&mut Claim)| {
        let mut claim = (*claim(None)).clone();
        change(&mut claim);
        snapshot(Arc::new(claim))
    };
    let suspect = || KnownClaim { state: ClaimState::SuspectedLeak, ..on(None) };
    let withdrawn = |known| KnownClaim { interest: Interest::None, ..known };
    let foreign = r#"storage class "fast" is for the provisioner "other", but the claim is annotated for "d.example.com""#;
    for (known, class, expected) in [
        (on(None), immediate(), "provision"),
        (on(None), late(), "drop"),
        (on(Some("")), late(), "drop"),
        (on(Some("n")), late(), "provision"),
        (on(None), None, r#"storageclass.storage.k8s.io "fast" not found"#),
        (with(&|it| it.spec.storage_class_name = None), None, "the claim names no storage class"),
        (on(None), Some(self::class("other", "Immediate")), foreign),
        (withdrawn(on(None)), immediate(), "drop"),
        (KnownClaim { state: ClaimState::Done, ..on(None) }, immediate(), "drop"),
        (suspect(), immediate(), "a volume that was made"),
        (withdrawn(suspect()), immediate(), "drop"),
        (with(&|it| it.metadata.annotations.clear()), immediate(), "drop"),
    ] {
        let planned = planned(&known, class);
        let is_suspect = expected.starts_with("a volume") && planned.starts_with(expected);
        assert!(planned == expected || is_suspect, "{planned}, not {expected}");
    }
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
    let planned = planned_by(&on_node, &live(None), class());
    assert_eq!(planned, "provision", "no other process follows it");
    let mut deleted = (*claim(Some("n2"))).clone();
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let (waiting, interest) = (ClaimState::Waiting, Interest::Protected);
    for (node, state) in [(Some("n2"), waiting.clone()), (None, waiting), (None, ClaimState::Done)]
    {
        let claim = Arc::new(deleted.clone());
        let deleted =
            KnownClaim { record_status: record(node), interest, state, ..snapshot(claim) };
        let planned = planned_by(&on_node, &deleted, class());
        assert_eq!(planned, format!("elsewhere {node:?}"), "{node:?}");
    }
}
