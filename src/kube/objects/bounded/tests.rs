use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::*;
use crate::kube::objects::{Claim, Secret, View as _};

/// The approximate size of a claim with these fields.
fn size(claim: &Value) -> usize {
    format!("{:?}", read(claim)).len()
}

fn read(claim: &Value) -> Claim {
    serde_json::from_value(claim.clone()).unwrap()
}

fn long(length: usize) -> String {
    "ä".repeat(length / 2)
}

#[test]
fn the_size_of_a_claim_is_limited_whatever_users_write() {
    let many: Vec<String> = (0..50_000).map(|number| format!("example.com/{number}")).collect();
    let map: BTreeMap<&str, &str> = many.iter().map(|key| (key.as_str(), "x")).collect();
    let known: BTreeMap<String, String> =
        many.iter().map(|key| (format!("volume.kubernetes.io/{key}"), long(100))).collect();
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let claims = [
        json!({"spec": {"dataSource": {"kind": long(450_000), "name": long(450_000)}}}),
        json!({"spec": {"dataSourceRef": {"apiGroup": long(900_000), "kind": "a", "name": "b", "namespace": long(900_000)}}}),
        json!({"spec": {"volumeName": long(900_000), "storageClassName": long(900_000),
                        "volumeMode": long(900_000), "volumeAttributesClassName": long(900_000)}}),
        json!({"spec": {"selector": {"matchLabels": map}}}),
        json!({"spec": {"accessModes": many, "resources": {"requests": {"storage": long(900_000)}}}}),
        json!({"metadata": {"annotations": map}}),
        json!({"metadata": {"annotations": known}}),
        json!({"metadata": {"annotations": {"a": long(900_000), "volume.kubernetes.io/a": long(900_000)}}}),
        json!({"metadata": {"finalizers": many}}),
        json!({"metadata": {"ownerReferences": vec![owner; 10_000]}}),
        json!({"status": {"phase": long(900_000)}}),
    ];
    for claim in claims {
        let kept = size(&claim);
        assert!(kept < 100 << 10, "{kept} of {}", claim.to_string().get(..60).unwrap());
    }
}

/// A short entry takes more memory than its texts.
#[test]
fn few_entries_are_kept_of_tiny_annotations() {
    for (prefixes, most) in [(vec![""], 256), (vec![KNOWN[0]], 256), (vec!["", KNOWN[0]], 512)] {
        let keys =
            (0..12_000).flat_map(|number| prefixes.iter().map(move |it| format!("{it}{number}")));
        let map: BTreeMap<String, &str> = keys.map(|key| (key, "")).collect();
        let kept = read(&json!({"metadata": {"annotations": map}})).metadata.annotations.len();
        assert!((most / 2..=most).contains(&kept), "{kept} of {prefixes:?}");
    }
}

#[test]
fn an_ordinary_claim_keeps_all_its_annotations() {
    let mut annotations: BTreeMap<String, String> =
        (0..20).map(|number| (format!("example.com/team-{number}"), long(200))).collect();
    annotations.insert("kubectl.kubernetes.io/last-applied-configuration".into(), "x".repeat(4000));
    for (key, length) in [
        ("provisioner.storage.kubernetes.io/open-request", 8 << 10),
        ("pv.kubernetes.io/bind-completed", 3),
        ("volume.beta.kubernetes.io/storage-class", 253),
        ("volume.beta.kubernetes.io/storage-provisioner", 63),
        ("volume.kubernetes.io/selected-node", 253),
        ("volume.kubernetes.io/storage-provisioner", 63),
        ("volume.kubernetes.io/storage-resizer", 63),
    ] {
        annotations.insert(key.into(), "x".repeat(length));
    }
    let kept = read(&json!({"metadata": {"annotations": annotations}})).metadata.annotations;
    assert!(annotations.keys().eq(kept.keys()), "{kept:?}");
}

#[test]
fn a_truncated_name_is_too_long_for_a_name() {
    for (length, expected) in [(253, 253), (254, 256), (900_000, 256)] {
        let claim = read(&json!({"spec": {"volumeName": "x".repeat(length)}}));
        assert_eq!(claim.spec.volume_name.unwrap().len(), expected);
    }
    let mut whole_characters = long(300);
    truncate(&mut whole_characters, MAX_NAME);
    assert!(whole_characters.len() > MAX_NAME);
}

#[test]
fn what_this_program_writes_is_not_truncated() {
    let record = "r".repeat(8 << 10);
    let mut annotations: BTreeMap<String, String> =
        (0..1000).map(|number| (format!("a{number}"), long(100))).collect();
    annotations.insert("provisioner.storage.kubernetes.io/open-request".into(), record.clone());
    let mut finalizers: Vec<String> = (0..100).map(|number| format!("f{number}")).collect();
    finalizers.extend(FINALIZERS.map(str::to_owned));
    finalizers.extend(FINALIZERS.map(str::to_owned));
    let claim = read(&json!({"metadata": {"annotations": annotations, "finalizers": finalizers}}));
    assert_eq!(claim.annotation("provisioner.storage.kubernetes.io/open-request"), Some(&*record));
    assert!(FINALIZERS.iter().all(|name| claim.has_finalizer(name)));
    assert_eq!(claim.metadata.finalizers.len(), MAX_ENTRIES + FINALIZERS.len());
}

#[test]
fn a_long_annotation_is_cut() {
    let annotations = json!({"a": "x".repeat(5000), "volume.kubernetes.io/a": "x".repeat(20_000)});
    let claim = read(&json!({"metadata": {"annotations": annotations}}));
    let length = |key| claim.annotation(key).map(str::len);
    let cut = |max: usize| Some(max + ELLIPSIS.len_utf8());
    assert_eq!(length("a"), cut(MAX_OTHER));
    assert_eq!(length("volume.kubernetes.io/a"), cut(MAX_KNOWN));
}

#[test]
fn a_secret_is_read_up_to_a_limit() {
    let read = |data: Value| serde_json::from_value::<Secret>(json!({"data": data})).unwrap().data;
    let keys = |count: usize| (0..count).map(|key| (format!("{key:03}"), json!(""))).collect();
    let value = |length: usize| json!({"k": ByteString(vec![0xff; length])});
    let longest = MAX_SECRET - ENTRY - "k".len();
    for (data, kept) in [
        (Value::Null, Some(0)),
        (keys(500), Some(500)),
        (keys(501), None),
        (keys(20_000), None),
        (value(longest), Some(1)),
        (value(longest + 1), None),
    ] {
        match read(data) {
            SecretData::Values(values) => assert_eq!(Some(values.len()), kept),
            SecretData::TooLarge => assert_eq!(kept, None),
        }
    }
    assert_eq!(serde_json::from_value::<Secret>(json!({})).unwrap().data, SecretData::default());
}
