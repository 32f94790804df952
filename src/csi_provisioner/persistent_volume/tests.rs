use serde_json::{Value, json};

use super::*;
use crate::{
    csi::proto::{Topology, VolumeContentSource},
    csi_provisioner::{
        request::{Prepared, draft},
        testing::{map, refusal, request, settings, settings_with},
    },
};

/// The PersistentVolume, as JSON, for a request and the driver's response.
fn built(
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
    answer: &Volume,
    secrets: SecretReferences,
) -> Value {
    let prepared = Prepared { secrets, ..draft(settings, request, None).map_err(refusal).unwrap() };
    serde_json::to_value(build(settings, request, &prepared, answer)).unwrap()
}

fn answer() -> Volume {
    Volume { volume_id: "handle".into(), ..Volume::default() }
}

fn plain(spec: &Value, class: &Value) -> Value {
    built(&settings(&[]), &request(spec, class), &answer(), SecretReferences::default())
}

#[test]
fn a_plain_volume_is_what_claim_class_and_answer_say() {
    let volume = plain(&json!({}), &json!({"reclaimPolicy": "Delete"}));
    assert_eq!(
        volume,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "pvc-u", "annotations": {DELETION_SECRET_NAME: "", DELETION_SECRET_NAMESPACE: ""}},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "csi": {"driver": "disk.example.com", "volumeHandle": "handle",
                        "volumeAttributes": {IDENTITY: "me"}},
                "persistentVolumeReclaimPolicy": "Delete",
            },
        })
    );
}

/// Nothing is rounded: exact bytes, with binary suffixes if they fit.
#[test]
fn the_size_is_the_drivers_and_else_the_claims() {
    for (requested, answered, expected) in [
        ("1Gi", 0, "1Gi"),
        ("1G", 0, "1000000000"),
        ("1500M", 0, "1500000000"),
        ("1025", 0, "1025"),
        ("1000", 0, "1k"),
        ("100m", 0, "1"),
        ("1.5", 0, "2"),
        ("1Gi", 1 << 30, "1Gi"),
        ("1Gi", (1 << 30) + 1, "1073741825"),
        ("1Gi", 5 << 40, "5Ti"),
        ("1Gi", i64::MAX, "9223372036854775807"),
        ("16Ei", 0, "9223372036854775807"),
        // It overflows a request: no size is requested.
        ("20E", 0, "0"),
    ] {
        let request =
            request(&json!({"resources": {"requests": {"storage": requested}}}), &json!({}));
        let answer = Volume { capacity_bytes: answered, ..answer() };
        let volume = built(&settings(&[]), &request, &answer, SecretReferences::default());
        assert_eq!(volume["spec"]["capacity"]["storage"], expected, "{requested} {answered}");
    }
}

#[test]
fn modes_and_options_are_copied() {
    let mounted = plain(
        &json!({"volumeMode": "Filesystem", "accessModes": ["ReadWriteMany", "ReadOnlyMany"]}),
        &json!({"mountOptions": ["discard", "nodiratime", "discard"], "reclaimPolicy": "Retain"}),
    );
    let spec = &mounted["spec"];
    assert_eq!(spec["volumeMode"], "Filesystem");
    assert_eq!(spec["accessModes"], json!(["ReadWriteMany", "ReadOnlyMany"]));
    assert_eq!(spec["mountOptions"], json!(["discard", "nodiratime", "discard"]));
    assert_eq!(spec["persistentVolumeReclaimPolicy"], "Retain");
    let bare = plain(&json!({}), &json!({}));
    for absent in ["volumeMode", "mountOptions", "persistentVolumeReclaimPolicy"] {
        assert_eq!(bare["spec"].get(absent), None, "{absent}");
    }
}

#[test]
fn a_file_system_is_named_for_mounted_volumes_only() {
    let fs_type = |spec: Value, class: Value, default: &str| {
        let settings = settings_with(&[], |it| it.flags.default_fstype = default.into());
        let volume =
            built(&settings, &request(&spec, &class), &answer(), SecretReferences::default());
        volume["spec"]["csi"]["fsType"].clone()
    };
    let xfs = || json!({"parameters": {"csi.storage.k8s.io/fstype": "xfs"}});
    let old = || json!({"parameters": {"FSType": "ext3"}});
    let block = || json!({"volumeMode": "Block"});
    assert_eq!(fs_type(json!({}), json!({}), ""), Value::Null);
    assert_eq!(fs_type(json!({}), json!({}), "ext4"), "ext4");
    assert_eq!(fs_type(json!({}), xfs(), "ext4"), "xfs");
    assert_eq!(fs_type(json!({}), old(), "ext4"), "ext3");
    assert_eq!(fs_type(json!({"volumeMode": "Filesystem"}), xfs(), ""), "xfs");
    assert_eq!(fs_type(block(), xfs(), "ext4"), Value::Null);
    // Any other word is no block device.
    assert_eq!(fs_type(json!({"volumeMode": "block"}), xfs(), ""), "xfs");
}

/// Only with the flag, and only for claims that request nothing else.
#[test]
fn a_volume_is_read_only_where_nobody_may_write() {
    for (modes, flag, expected) in [
        (json!(["ReadOnlyMany"]), true, json!(true)),
        (json!(["ReadOnlyMany"]), false, Value::Null),
        (json!(["ReadOnlyMany", "ReadOnlyMany"]), true, Value::Null),
        (json!(["ReadOnlyMany", "ReadWriteOnce"]), true, Value::Null),
        (json!(["ReadWriteOnce"]), true, Value::Null),
        (json!([]), true, Value::Null),
    ] {
        let settings = settings_with(&[], |it| it.flags.controller_publish_readonly = flag);
        let request = request(&json!({"accessModes": modes}), &json!({}));
        let volume = built(&settings, &request, &answer(), SecretReferences::default());
        assert_eq!(volume["spec"]["csi"].get("readOnly").cloned().unwrap_or_default(), expected);
    }
}

#[test]
fn the_drivers_context_wins_even_over_our_identity() {
    let answer = Volume {
        volume_context: map(&[("pool", "rbd"), (IDENTITY, "the driver's"), ("", "empty key")]),
        ..answer()
    };
    let volume = built(
        &settings(&[]),
        &request(&json!({}), &json!({})),
        &answer,
        SecretReferences::default(),
    );
    assert_eq!(
        volume["spec"]["csi"]["volumeAttributes"],
        json!({"": "empty key", "pool": "rbd", IDENTITY: "the driver's"})
    );
}

#[test]
fn a_handle_is_not_changed() {
    for handle in ["/subscriptions/x/disks/y", "größe#☃", " a b ", "{\"pool\":\"a\"}"] {
        let answer = Volume { volume_id: handle.into(), ..Volume::default() };
        let request = request(&json!({}), &json!({}));
        let volume = built(&settings(&[]), &request, &answer, SecretReferences::default());
        assert_eq!(volume["spec"]["csi"]["volumeHandle"], handle);
    }
}

/// A driver without topology may return topology and a source that were not requested.
#[test]
fn unrequested_topology_and_source_are_ignored() {
    let answer = Volume {
        accessible_topology: vec![Topology { segments: map(&[("zone", "a")]) }],
        content_source: Some(VolumeContentSource::default()),
        ..answer()
    };
    let request = request(&json!({}), &json!({}));
    let odd = built(&settings(&[]), &request, &answer, SecretReferences::default());
    assert_eq!(odd, plain(&json!({}), &json!({})));
}

/// Each secret has its place, and only the provisioner's annotations are always set.
#[test]
fn secret_references_are_set() {
    let secret = |name: &str| Some(SecretReference { namespace: "ns".into(), name: name.into() });
    let secrets = SecretReferences {
        deletion: secret("p"),
        controller_publish: secret("cp"),
        node_stage: secret("ns"),
        node_publish: secret("np"),
        controller_expand: secret("ce"),
        node_expand: secret("ne"),
        controller_modify: secret("cm"),
    };
    let volume = built(&settings(&[]), &request(&json!({}), &json!({})), &answer(), secrets);
    let csi = &volume["spec"]["csi"];
    for (field, name) in [
        ("controllerPublishSecretRef", "cp"),
        ("nodeStageSecretRef", "ns"),
        ("nodePublishSecretRef", "np"),
        ("controllerExpandSecretRef", "ce"),
        ("nodeExpandSecretRef", "ne"),
    ] {
        assert_eq!(csi[field], json!({"name": name, "namespace": "ns"}), "{field}");
    }
    assert_eq!(
        volume["metadata"]["annotations"],
        json!({DELETION_SECRET_NAME: "p", DELETION_SECRET_NAMESPACE: "ns",
               MODIFY_SECRET_NAME: "cm", MODIFY_SECRET_NAMESPACE: "ns"})
    );
}

#[test]
fn an_attributes_class_is_set_while_the_feature_is_on() {
    use crate::csi::proto::controller_service_capability::rpc::Type as Rpc;
    for (looked_at, name, expected) in [
        (true, json!("gold"), json!("gold")),
        (true, json!(""), Value::Null),
        (true, Value::Null, Value::Null),
        (false, json!("gold"), Value::Null),
    ] {
        let settings = settings_with(&[Rpc::ModifyVolume], |settings| {
            settings.driver.volume_attributes_classes = looked_at;
        });
        let request = request(&json!({"volumeAttributesClassName": name}), &json!({}));
        let volume = built(&settings, &request, &answer(), SecretReferences::default());
        let named = volume["spec"].get("volumeAttributesClassName").cloned().unwrap_or_default();
        assert_eq!(named, expected, "{looked_at} {name}");
    }
}
