//! A control plane as tests and players meet it: over TLS, with tokens, roles and an audit log.
//!
//! The same assertions hold for whichever server the environment offers.

use std::fs;

use futures::StreamExt as _;
use http::Request;
use kube::{
    Api, Client, Error,
    api::{
        DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
        WatchEvent, WatchParams,
    },
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use testkit::control_plane::ControlPlane;

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn secrets(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &resource("", "v1", "Secret"))
}

fn named(name: &str, resource: &ApiResource) -> DynamicObject {
    let mut object = DynamicObject::new(name, resource);
    object.metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    object
}

/// The server's answer to a plain request with a bearer token, or none.
async fn code_with(plane: &ControlPlane, token: Option<&str>, path: &str) -> u16 {
    let mut config = kube::Config::new(plane.url().parse().unwrap());
    let authority = fs::read(plane.layout().authority()).unwrap();
    let der = rustls::pki_types::pem::PemObject::from_pem_slice(&authority)
        .map(|der: rustls::pki_types::CertificateDer<'_>| der.to_vec());
    config.root_cert = Some(vec![der.unwrap()]);
    config.auth_info.token = token.map(|token| token.to_owned().into());
    let client = Client::try_from(config).unwrap();
    let request = Request::get(path).body(Vec::new()).unwrap();
    match client.request_text(request).await {
        Ok(_) => 200,
        Err(Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn the_service_account_may_do_what_its_role_says_and_no_more() {
    let plane = ControlPlane::start().await.unwrap();
    let client = plane.client("sa").await.unwrap();
    assert!(secrets(&client).list(&ListParams::default()).await.is_ok());
    let refused = secrets(&client)
        .create(&PostParams::default(), &named("s", &resource("", "v1", "Secret")))
        .await;
    let Err(Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert_eq!(
        status.message,
        "secrets is forbidden: User \"system:serviceaccount:default:csi-provisioner\" cannot \
         create resource \"secrets\" in API group \"\" in the namespace \"default\""
    );
}

#[tokio::test]
async fn unknown_tokens_are_refused_and_no_token_reads_public_paths_only() {
    let plane = ControlPlane::start().await.unwrap();
    assert_eq!(code_with(&plane, Some("wrong"), "/version").await, 401);
    assert_eq!(code_with(&plane, None, "/version").await, 200);
    assert_eq!(code_with(&plane, None, "/api/v1/secrets").await, 403);
}

#[tokio::test]
async fn every_request_stands_in_the_audit_log() {
    let plane = ControlPlane::start().await.unwrap();
    let Some(audit) = plane.audit() else { return }; // a cluster of others keeps its own
    let client = plane.client("sa").await.unwrap();
    let _ = secrets(&client).get("absent").await;
    let pods: Api<DynamicObject> = Api::all_with(client, &resource("", "v1", "Service"));
    let _ = pods.list(&ListParams::default()).await;
    let text = fs::read_to_string(audit).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let logged = |verb: &str, resource: &str, code: u16| {
        lines.iter().any(|line| {
            line["user"]["username"] == "system:serviceaccount:default:csi-provisioner"
                && line["verb"] == verb
                && line["objectRef"]["resource"] == resource
                && line["responseStatus"]["code"] == code
        })
    };
    assert!(logged("get", "secrets", 404), "{text}");
    assert!(logged("list", "services", 403), "{text}");
}

/// An object's version, as a number.
fn version(object: &DynamicObject) -> u64 {
    object.metadata.resource_version.as_ref().unwrap().parse().unwrap()
}

fn with_finalizers(finalizers: &[&str]) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"finalizers": finalizers}}))
}

/// A PersistentVolume with these finalizers and no others.
async fn volume(volumes: &Api<DynamicObject>, name: &str, finalizers: &[&str]) -> DynamicObject {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                 "csi": {"driver": "d", "volumeHandle": name}},
    });
    let volume = serde_json::from_value(volume).unwrap();
    volumes.create(&PostParams::default(), &volume).await.unwrap();
    // The server adds one of its own when it is created.
    volumes.patch(name, &PatchParams::default(), &with_finalizers(finalizers)).await.unwrap()
}

/// The version in which a watch that begins at `since` shows the object's end.
async fn version_of_the_end(volumes: &Api<DynamicObject>, since: u64) -> u64 {
    let parameters = WatchParams::default();
    let mut events = volumes.watch(&parameters, &since.to_string()).await.unwrap().boxed();
    loop {
        if let WatchEvent::Deleted(gone) = events.next().await.unwrap().unwrap() {
            return version(&gone);
        }
    }
}

/// Which answers to the writes of a deletion have a newer version: all but that of the last one,
/// where it takes the last finalizer off.
#[tokio::test]
async fn the_write_that_takes_the_last_finalizer_off_is_answered_with_the_version_before() {
    let plane = ControlPlane::start().await.unwrap();
    let client = plane.client("admin").await.unwrap();
    let volumes: Api<DynamicObject> =
        Api::all_with(client, &resource("", "v1", "PersistentVolume"));
    let (plain, patching) = (DeleteParams::default(), PatchParams::default());
    for puts in [false, true] {
        let stood = volume(&volumes, "held", &["example.com/a", "example.com/b"]).await;
        let held = volumes.delete("held", &plain).await.unwrap().left().unwrap();
        assert!(version(&held) > version(&stood));
        let again = volumes.delete("held", &plain).await.unwrap().left().unwrap();
        assert_eq!(version(&again), version(&held));
        let one = with_finalizers(&["example.com/b"]);
        let mut one_left = volumes.patch("held", &patching, &one).await.unwrap();
        assert!(version(&one_left) > version(&held));
        let before = version(&one_left);
        let last = if puts {
            one_left.metadata.finalizers = None;
            volumes.replace("held", &PostParams::default(), &one_left).await.unwrap()
        } else {
            volumes.patch("held", &patching, &with_finalizers(&[])).await.unwrap()
        };
        assert_eq!((version(&last), &last.metadata.finalizers), (before, &None));
        assert!(version_of_the_end(&volumes, before).await > before);
    }
    let free = volume(&volumes, "free", &[]).await;
    let gone = volumes.delete("free", &plain).await.unwrap().left().unwrap();
    assert_eq!(version(&gone), version_of_the_end(&volumes, version(&free)).await);
}
