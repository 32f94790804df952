//! What the in-memory server and a real one are compared in: the same assertions hold for whichever server the
//! environment offers.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used)]

use futures::StreamExt as _;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use testkit::control_plane::ControlPlane;

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
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "PersistentVolume"));
    let volumes: Api<DynamicObject> = Api::all_with(client, &resource);
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
