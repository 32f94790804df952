use serde_json::{Value, json};

use super::*;
use crate::{
    kube::{
        objects::MIGRATED_TO,
        testing::{Answer, Server},
    },
    source_protection::testing::{DRIVER, SETTINGS, protection},
};

const OTHER: &str = "other.example.com";

/// A server with the claim `s`, whose volume is `volume`, and with the snapshot `s`, whose content
/// is `content`; null is none.
fn server(volume: Value, content: Value) -> Server {
    Server::new(move |_, seen| {
        let object = match seen.url.rsplit_once('/').unwrap_or_default() {
            (path, "s") if path.ends_with("persistentvolumeclaims") => {
                &json!({"metadata": {"uid": "u"}, "spec": {"volumeName": "pv"}})
            }
            (_, "s") => &json!({"status": {"boundVolumeSnapshotContentName": "content"}}),
            (_, "pv") => &volume,
            (_, "content") => &content,
            _ => &Value::Null,
        };
        if object.is_null() {
            Answer::refusal(404, "NotFound", "no")
        } else {
            Answer::json(200, object)
        }
    })
}

fn source(kind: SourceKind, name: &str) -> NamedSource {
    NamedSource { kind, namespace: "ns".into(), name: name.into() }
}

fn volume(driver: &str, uid: &str) -> Value {
    json!({"spec": {"csi": {"driver": driver, "volumeHandle": "h"}, "claimRef": {"uid": uid}}})
}

fn content(driver: &str, uid: &str) -> Value {
    json!({"spec": {"driver": driver, "volumeSnapshotRef": {"uid": uid}}})
}

/// A claim's user can write the name of any volume into it.
#[tokio::test]
async fn a_source_is_its_volumes_drivers_where_the_volume_is_bound_to_it() {
    let in_tree = |migrated_to: &str| {
        json!({
            "metadata": {"annotations": {MIGRATED_TO: migrated_to}},
            "spec": {"awsElasticBlockStore": {"volumeID": "v"}, "claimRef": {"uid": "u"}},
        })
    };
    let table = [
        (volume(OTHER, "u"), content(OTHER, "u"), true),
        (volume(DRIVER, "u"), content(DRIVER, "u"), false),
        (volume(OTHER, "another"), content(OTHER, "another"), false),
        (Value::Null, Value::Null, false),
        (in_tree(OTHER), content(OTHER, "u"), true),
        (in_tree(DRIVER), Value::Null, false),
    ];
    for (volume, content, expected) in table {
        let server = server(volume.clone(), content);
        let protection = protection(&server, SETTINGS);
        for kind in [SourceKind::Claim, SourceKind::Snapshot] {
            let another = protection.is_of_another_driver(&source(kind, "s"), "u").await.unwrap();
            assert_eq!(another, expected, "{kind:?} {volume}");
            assert!(!protection.is_of_another_driver(&source(kind, "gone"), "u").await.unwrap());
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_not_known() {
    let server = Server::new(|_, _| Answer::refusal(403, "Forbidden", "no"));
    let protection = protection(&server, SETTINGS);
    for kind in [SourceKind::Claim, SourceKind::Snapshot] {
        assert!(protection.is_of_another_driver(&source(kind, "s"), "u").await.is_err());
    }
}
