use std::sync::Arc;

use serde_json::{Value, json};
use testkit::merged;

use super::*;
use crate::{
    controller::provisioner::ProvisionRequest,
    csi_provisioner::{
        data_source::testing::{cluster, dependencies, find, find_for, gated},
        testing::{DRIVER, request},
    },
};

const SOURCE_URL: &str = "/api/v1/namespaces/shop/persistentvolumeclaims/origin";

fn source() -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "origin", "uid": "origin-uid"},
        "spec": {"storageClassName": "fast", "volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"},
    })
}

fn volume() -> Value {
    json!({
        "metadata": {"name": "pv"},
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": "handle"},
                 "claimRef": {"namespace": "shop", "name": "origin", "uid": "origin-uid"}},
        "status": {"phase": "Bound"},
    })
}

/// A claim of 1Gi that names the source.
fn spec() -> Value {
    json!({"storageClassName": "fast", "dataSource": {"kind": "PersistentVolumeClaim", "name": "origin"}})
}

fn objects(source: Value, volume: Value) -> Vec<(String, Value)> {
    vec![(SOURCE_URL.into(), source), ("/api/v1/persistentvolumes/pv".into(), volume)]
}

/// The source of a claim, with these changes to valid objects.
async fn found(source: &Value, volume: &Value, claim: &Value) -> Result<Source, Failure> {
    let objects = objects(merged(self::source(), source), merged(self::volume(), volume));
    find(&cluster(objects), &merged(spec(), claim)).await
}

async fn refusal(source: &Value, volume: &Value, claim: &Value) -> String {
    let failure = found(source, volume, claim).await.unwrap_err();
    assert_eq!(dependencies(&failure), ["persistentvolumeclaims shop/origin"]);
    let reported = failure.to_string();
    let prefix = "error getting handle for DataSource Type PersistentVolumeClaim by Name origin: ";
    reported.strip_prefix(prefix).unwrap_or_else(|| panic!("{reported}")).to_owned()
}

/// Where two things are wrong, the one that is named first.
#[tokio::test]
async fn errors_have_external_provisioners_texts_and_order() {
    let nothing = || json!({});
    let pending = json!({"status": {"phase": "Pending"}});
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let classless = || json!({"spec": {"storageClassName": null}});
    let large = || json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let unnamed = json!({"spec": {"volumeName": null}});
    let for_no_class = || json!({"storageClassName": null});
    let wants = |storage: &str| json!({"resources": {"requests": {"storage": storage}}});
    let block = json!({"spec": {"volumeMode": "Block"}});
    let bound = "the PVC DataSource origin must have a status of Bound.  Got {Pending [] map[] [] map[] map[] <nil> nil}";
    let smaller = |requested: &str| {
        format!(
            "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested {requested}"
        )
    };
    let (small, unsized_) =
        (smaller("1073741824 but source is 2147483648"), smaller("0 but source is 1073741824"));
    let unlike = "the source PVC and destination PVCs must have the same volume mode for cloning.  Source is Block, but new PVC requested Filesystem";
    let table = [
        (merged(pending, &going), nothing(), nothing(), bound),
        (
            merged(going, &classless()),
            nothing(),
            nothing(),
            "the PVC DataSource origin is currently being deleted",
        ),
        (
            classless(),
            nothing(),
            for_no_class(),
            "the source PVC (origin) storageclass cannot be empty",
        ),
        (
            large(),
            nothing(),
            for_no_class(),
            "the requested PVC (data) storageclass cannot be empty",
        ),
        (merged(large(), &unnamed), nothing(), nothing(), &small),
        (nothing(), nothing(), json!({"resources": {}}), &unsized_),
        (nothing(), nothing(), wants("20E"), &unsized_),
        (
            merged(unnamed, &block),
            nothing(),
            nothing(),
            "volume name is empty in source PVC origin",
        ),
        (nothing(), block, nothing(), unlike),
    ];
    for (source, volume, claim, expected) in table {
        assert_eq!(refusal(&source, &volume, &claim).await, expected, "{source} {volume} {claim}");
    }
}

#[tokio::test]
async fn a_volume_that_is_not_the_sources_own_and_ours_is_refused_without_details() {
    let of = |field: &str, value: Value| json!({"spec": {field: value, "volumeMode": "Block"}});
    for volume in [
        of("csi", Value::Null),
        of("csi", json!({"driver": "other"})),
        of("claimRef", Value::Null),
        of("claimRef", json!({"uid": "other"})),
        of("claimRef", json!({"namespace": "other"})),
        of("claimRef", json!({"name": "other"})),
        json!({"status": {"phase": "Released"}}),
        json!({"status": null}),
    ] {
        let reported = refusal(&json!({}), &volume, &json!({})).await;
        assert_eq!(reported, "claim in dataSource not bound or invalid", "{volume}");
    }
    let nowhere = json!({"spec": {"volumeName": "nowhere"}});
    let reported = refusal(&nowhere, &json!({}), &json!({})).await;
    assert_eq!(reported, "claim in dataSource not bound or invalid");
}

/// A source that is being deleted serves only claims that are not newer. Otherwise it would wait
/// for its clone and the clone for it, or for one clone after another.
#[tokio::test]
async fn a_terminating_source_serves_the_claims_it_is_held_for() {
    let deleted = "2026-01-01T00:00:10Z";
    let cases = [
        (PROTECTION, "2026-01-01T00:00:09Z", true),
        // It may have been created before or after the deletion: the times are whole seconds.
        (PROTECTION, "2026-01-01T00:00:10Z", true),
        (PROTECTION, "2026-01-01T00:00:11Z", false),
        ("kubernetes.io/pvc-protection", "2026-01-01T00:00:09Z", false),
        ("kubernetes.io/pvc-protection", "2026-01-01T00:00:10Z", false),
    ];
    for (finalizer, born, served) in cases {
        let going = json!({"metadata": {"deletionTimestamp": deleted, "finalizers": [finalizer]}});
        let server = cluster(objects(merged(source(), &going), volume()));
        let request = request(&spec(), &json!({}));
        let mut claim = (*request.claim).clone();
        claim.metadata.creation_timestamp = serde_json::from_value(json!(born)).unwrap();
        let request = ProvisionRequest { claim: Arc::new(claim), ..request };
        let found = find_for(&server, &gated(), &request).await;
        assert_eq!(found.is_ok(), served, "{finalizer} {born}");
    }
}
