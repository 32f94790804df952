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

#[tokio::test]
async fn a_good_claim_is_cloned_by_its_volumes_handle() {
    let found = found(&json!({}), &json!({}), &json!({})).await.unwrap();
    let named =
        NamedSource { kind: SourceKind::Claim, namespace: "shop".into(), name: "origin".into() };
    let expected = Source { named, uid: "origin-uid".into(), handle: "handle".into() };
    assert_eq!(found, expected);
}

/// Provisioning reads the old annotation first, so a clone does as well.
#[tokio::test]
async fn a_class_that_only_the_old_annotation_names_is_a_class() {
    let by_annotation = json!({
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "fast"}},
        "spec": {"storageClassName": null},
    });
    assert!(found(&by_annotation, &json!({}), &json!({})).await.is_ok(), "the source's");

    let mut request = request(
        &merged(spec(), &json!({"storageClassName": null})),
        &json!({"provisioner": DRIVER}),
    );
    let claim = Arc::make_mut(&mut request.claim);
    claim.metadata.annotations =
        serde_json::from_value(json!({"volume.beta.kubernetes.io/storage-class": "fast"})).unwrap();
    let found = find_for(&cluster(objects(source(), volume())), &gated(), &request).await;
    assert!(found.is_ok(), "the claim's: {found:?}");
}

#[tokio::test]
async fn errors_have_external_provisioners_texts_and_order() {
    let nothing = || json!({});
    let pending = json!({"status": {"phase": "Pending"}});
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let classless = json!({"spec": {"storageClassName": null}});
    let large = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let table = [
        (
            merged(pending, &going),
            nothing(),
            nothing(),
            "the PVC DataSource origin must have a status of Bound.  Got {Pending [] map[] [] map[] map[] <nil> nil}",
        ),
        (
            merged(going, &classless),
            nothing(),
            nothing(),
            "the PVC DataSource origin is currently being deleted",
        ),
        (
            classless,
            nothing(),
            json!({"storageClassName": null}),
            "the source PVC (origin) storageclass cannot be empty",
        ),
        (
            large.clone(),
            nothing(),
            json!({"storageClassName": null}),
            "the requested PVC (data) storageclass cannot be empty",
        ),
        (
            merged(large, &json!({"spec": {"volumeName": null}})),
            nothing(),
            nothing(),
            "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested 1073741824 but source is 2147483648",
        ),
        (
            nothing(),
            nothing(),
            json!({"resources": {}}),
            "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested 0 but source is 1073741824",
        ),
        (
            nothing(),
            nothing(),
            json!({"resources": {"requests": {"storage": "20E"}}}),
            "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested 0 but source is 1073741824",
        ),
        (
            json!({"spec": {"volumeName": null}}),
            nothing(),
            nothing(),
            "volume name is empty in source PVC origin",
        ),
        (
            json!({"spec": {"volumeName": ""}}),
            nothing(),
            nothing(),
            "volume name is empty in source PVC origin",
        ),
        (
            nothing(),
            json!({"spec": {"volumeMode": "Block"}}),
            nothing(),
            "the source PVC and destination PVCs must have the same volume mode for cloning.  Source is Block, but new PVC requested Filesystem",
        ),
        (
            nothing(),
            nothing(),
            json!({"volumeMode": "Block"}),
            "the source PVC and destination PVCs must have the same volume mode for cloning.  Source is Filesystem, but new PVC requested Block",
        ),
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

#[tokio::test]
async fn fields_that_are_not_checked_may_differ() {
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for (source, volume, claim) in [
        (
            json!({"spec": {"resources": null, "storageClassName": "other"}}),
            going,
            json!({"resources": {}}),
        ),
        (
            json!({"status": {"capacity": {"storage": "9Gi"}}}),
            json!({"spec": {"volumeMode": "Filesystem"}}),
            json!({"storageClassName": ""}),
        ),
        (json!({}), json!({"spec": {"volumeMode": "Block"}}), json!({"volumeMode": "Block"})),
    ] {
        assert_eq!(found(&source, &volume, &claim).await.unwrap().handle, "handle", "{source}");
    }
}

/// external-provisioner reads a cache, which does not validate names.
#[tokio::test]
async fn a_missing_claim_is_reported_in_external_provisioners_words() {
    for (name, requests) in
        [("missing", 1), ("../../other/persistentvolumeclaims/x", 0), ("..", 0), ("a%2f", 0)]
    {
        let server = cluster(vec![]);
        let spec = merged(spec(), &json!({"dataSource": {"name": name}}));
        let reported = find(&server, &spec).await.unwrap_err().to_string();
        assert_eq!(
            reported,
            format!(
                "error getting handle for DataSource Type PersistentVolumeClaim by Name {name}: error getting PVC {name} (namespace \"shop\") from api server: persistentvolumeclaim \"{name}\" not found"
            )
        );
        assert_eq!(server.requests().len(), requests, "{name}");
    }
    let forbidden = cluster(vec![(SOURCE_URL.into(), json!("you may not"))]);
    let reported = find(&forbidden, &spec()).await.unwrap_err().to_string();
    assert!(reported.ends_with("from api server: you may not"), "{reported}");
}

#[tokio::test]
async fn a_volume_name_from_the_source_reaches_no_other_object() {
    let odd = merged(source(), &json!({"spec": {"volumeName": "pv/status"}}));
    let server = cluster(objects(odd, volume()));
    let reported = find(&server, &spec()).await.unwrap_err().to_string();
    assert!(reported.ends_with("claim in dataSource not bound or invalid"), "{reported}");
    assert_eq!(server.requests().len(), 1);
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
