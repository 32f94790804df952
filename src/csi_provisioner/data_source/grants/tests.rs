use serde_json::{Value, json};

use super::*;
use crate::csi_provisioner::{
    data_source::testing::{cluster, dependencies, find},
    testing::request,
};

const GRANTS: &str =
    "/apis/gateway.networking.k8s.io/v1beta1/namespaces/other/referencegrants?limit=500";

fn from(group: &str, kind: &str, namespace: &str) -> Value {
    json!({"group": group, "kind": kind, "namespace": namespace})
}

fn to(group: &str, kind: &str, name: Option<&str>) -> Value {
    json!({"group": group, "kind": kind, "name": name})
}

fn snapshot() -> SourceReference<'static> {
    let group = "snapshot.storage.k8s.io";
    SourceReference { group, kind: "VolumeSnapshot", namespace: "other", name: "snap" }
}

/// A claim of namespace shop whose source is in `namespace`.
fn spec(namespace: &str) -> Value {
    json!({"dataSourceRef": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap", "namespace": namespace}})
}

#[tokio::test]
async fn the_grants_of_the_sources_namespace_are_read_and_no_others() {
    let grant = json!({"spec": {
        "from": [from("", "PersistentVolumeClaim", "shop")],
        "to": [to("snapshot.storage.k8s.io", "VolumeSnapshot", None)],
    }});
    let server = cluster(vec![(GRANTS.into(), json!({"items": [{"spec": {}}, grant]}))]);
    let reported = find(&server, &spec("other")).await.unwrap_err().to_string();
    assert!(
        reported.contains("error getting snapshot snap"),
        "the grant was not enough: {reported}"
    );
    assert_eq!(server.requests()[0].url, GRANTS);
}

#[tokio::test]
async fn without_a_grant_the_source_is_refused_and_not_read() {
    let server = cluster(vec![(GRANTS.into(), json!({"items": []}))]);
    let failure = find(&server, &spec("other")).await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "accessing other/snap of VolumeSnapshot dataSource from shop/data isn't allowed"
    );
    assert_eq!(dependencies(&failure), ["referencegrants other/*"]);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn unreadable_grants_do_not_count() {
    let server = cluster(vec![(GRANTS.into(), json!("you may not"))]);
    let reported = find(&server, &spec("other")).await.unwrap_err().to_string();
    assert_eq!(
        reported,
        "error getting ReferenceGrants in other namespace from api server: you may not"
    );
}

#[tokio::test]
async fn an_invalid_namespace_is_not_read() {
    let server = cluster(vec![]);
    let request = request(&json!({}), &json!({}));
    let odd = SourceReference { namespace: "../kube-system", ..snapshot() };
    let client = crate::kube::testing::client(&server);
    let Grant::Denied(refusal) = check(&client, &request.claim, &odd).await.unwrap() else {
        panic!("nothing of such a namespace is granted");
    };
    let reported = refusal.to_string();
    assert!(reported.starts_with("accessing ../kube-system/snap"), "{reported}");
    assert_eq!(server.requests().len(), 0);
}
