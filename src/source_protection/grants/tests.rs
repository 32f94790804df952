use serde_json::{Value, json};

use super::*;
use crate::kube::testing::{Answer, Server, client};

fn from(group: &str, kind: &str, namespace: &str) -> Value {
    json!({"group": group, "kind": kind, "namespace": namespace})
}

fn to(group: &str, kind: &str, name: Option<&str>) -> Value {
    json!({"group": group, "kind": kind, "name": name})
}

fn snapshot() -> GrantTarget<'static> {
    let group = "snapshot.storage.k8s.io";
    GrantTarget { group, kind: "VolumeSnapshot", namespace: "other", name: "snap" }
}

fn judged(from: &[Value], to: &[Value], source: &GrantTarget<'_>) -> bool {
    let grant = json!({"metadata": {"namespace": "other"}, "spec": {"from": from, "to": to}});
    let grant: ReferenceGrant = serde_json::from_value(grant).unwrap();
    let mut grants = Grants::default();
    grants.keep(grant.spec);
    grants.allow(|namespace| namespace == "shop", source)
}

#[test]
fn a_grant_must_be_from_claims_of_the_namespace_to_the_very_source() {
    const GROUP: &str = "snapshot.storage.k8s.io";
    let claims = || from("", "PersistentVolumeClaim", "shop");
    let snapshots = || to(GROUP, "VolumeSnapshot", None);
    let granted = [
        (vec![claims()], vec![snapshots()]),
        (vec![claims()], vec![to(GROUP, "VolumeSnapshot", Some(""))]),
        (vec![claims()], vec![to(GROUP, "VolumeSnapshot", Some("snap"))]),
        (vec![from("", "Pod", "shop"), claims()], vec![to("", "Secret", None), snapshots()]),
    ];
    for (from, to) in granted {
        assert!(judged(&from, &to, &snapshot()), "{from:?} {to:?}");
    }
    let refused = [
        (vec![], vec![snapshots()]),
        (vec![claims()], vec![]),
        (vec![from("example.com", "PersistentVolumeClaim", "shop")], vec![snapshots()]),
        (vec![from("", "Pod", "shop")], vec![snapshots()]),
        (vec![from("", "PersistentVolumeClaim", "other")], vec![snapshots()]),
        (vec![claims()], vec![to("", "VolumeSnapshot", None)]),
        (vec![claims()], vec![to(GROUP, "PersistentVolumeClaim", None)]),
        (vec![claims()], vec![to(GROUP, "VolumeSnapshot", Some("other"))]),
    ];
    for (from, to) in refused {
        assert!(!judged(&from, &to, &snapshot()), "{from:?} {to:?}");
    }
}

#[test]
fn the_core_group_is_the_empty_one() {
    let claims = [from("", "PersistentVolumeClaim", "shop")];
    let source =
        GrantTarget { group: "", kind: "PersistentVolumeClaim", namespace: "other", name: "a" };
    assert!(judged(&claims, &[to("", "PersistentVolumeClaim", None)], &source));
    assert!(!judged(&claims, &[to("v1", "PersistentVolumeClaim", None)], &source));
}

/// Several lists of a namespace's grants can be in memory.
#[tokio::test]
async fn grants_that_say_too_much_about_claims_are_refused() {
    let list = |kind: &str, grants: usize| {
        let named =
            |number: usize| to("", "PersistentVolumeClaim", Some(&format!("{number:0>200}")));
        let spec =
            json!({"from": [from("", kind, "shop")], "to": (0..16).map(named).collect::<Vec<_>>()});
        let grant = json!({"metadata": {"namespace": "other"}, "spec": spec});
        json!({"metadata": {}, "items": vec![grant; grants]})
    };
    for (kind, grants, is_read) in [
        ("PersistentVolumeClaim", 200, true),
        ("PersistentVolumeClaim", 400, false),
        ("Pod", 400, true),
    ] {
        let list = list(kind, grants);
        let server = Server::new(move |_, _| Answer::json(200, &list));
        let read = Grants::read(&client(&server), Some("other"), "").await;
        assert_eq!(read.is_ok(), is_read, "{kind} {grants}");
    }
}
