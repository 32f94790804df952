//! The same client against every release: what an unmodified flow needs is there in each.

use std::collections::BTreeSet;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::json;

use super::{client, get, typed, volume};
use crate::apiserver::{ApiServer, Options, resources::ServerVersion};

/// A release for each way in which servers differ.
const RELEASES: [u8; 5] = [20, 27, 31, 33, 36];

fn release(minor: u8) -> ServerVersion {
    ServerVersion::minor(minor)
}

fn server(version: ServerVersion) -> ApiServer {
    ApiServer::new(Options { version, ..Options::default() })
}

/// A watcher's next event: `init-done`, `apply NAME FINALIZERS`, `delete NAME`.
async fn next_event(
    events: &mut (impl Stream<Item = watcher::Result<Event<PersistentVolume>>> + Unpin),
) -> String {
    loop {
        let event = events.next().await.expect("a watcher goes on").expect("the server serves it");
        return match event {
            Event::Init | Event::InitApply(_) => continue,
            Event::InitDone => "init-done".to_owned(),
            Event::Apply(pv) => format!("apply {} {:?}", pv.name_any(), pv.finalizers()),
            Event::Delete(pv) => format!("delete {}", pv.name_any()),
        };
    }
}

#[tokio::test(start_paused = true)]
async fn a_volumes_life_is_the_same_on_every_release() {
    for minor in RELEASES {
        let server = server(release(minor));
        let api: Api<PersistentVolume> = Api::all(client(&server));
        let mut events = watcher(api.clone(), watcher::Config::default()).boxed();
        assert_eq!(next_event(&mut events).await, "init-done", "1.{minor}");

        api.create(&PostParams::default(), &typed(volume("v"))).await.unwrap();
        assert_eq!(next_event(&mut events).await, "apply v []", "1.{minor}");
        let finalizer = json!({"metadata": {"finalizers": ["example.com/a"]}});
        let parameters = PatchParams::default();
        api.patch("v", &parameters, &Patch::Strategic(finalizer)).await.unwrap();
        assert_eq!(next_event(&mut events).await, "apply v [\"example.com/a\"]", "1.{minor}");
        let released = json!({"status": {"phase": "Released"}});
        api.patch_status("v", &parameters, &Patch::Merge(released)).await.unwrap();
        assert_eq!(next_event(&mut events).await, "apply v [\"example.com/a\"]", "1.{minor}");

        api.delete("v", &DeleteParams::default()).await.unwrap();
        assert_eq!(next_event(&mut events).await, "apply v [\"example.com/a\"]", "1.{minor}");
        let mut last = api.get("v").await.unwrap();
        last.finalizers_mut().clear();
        api.replace("v", &PostParams::default(), &last).await.unwrap();
        assert_eq!(next_event(&mut events).await, "delete v", "1.{minor}");
        assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty(), "1.{minor}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_release_serves_its_own_versions_of_an_api() {
    let group = "/apis/storage.k8s.io";
    for (minor, path, code) in [
        (20, "v1alpha1/csistoragecapacities", 200),
        (20, "v1/csistoragecapacities", 404),
        (27, "v1/csistoragecapacities", 200),
        (27, "v1beta1/csistoragecapacities", 404),
        (33, "v1/volumeattributesclasses", 404),
        (36, "v1/volumeattributesclasses", 200),
    ] {
        let server = server(release(minor));
        assert_eq!(get(&server, &format!("{group}/{path}")).await.0, code, "1.{minor} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_whose_past_is_compacted_begins_anew_on_every_release() {
    for minor in RELEASES {
        let server = server(release(minor));
        server.create(&volume("a")).unwrap();
        let api: Api<PersistentVolume> = Api::all(client(&server));
        let mut events = watcher(api, watcher::Config::default()).boxed();
        assert_eq!(next_event(&mut events).await, "init-done", "1.{minor}");
        server.watches().cut(None);
        server.create(&volume("b")).unwrap();
        server.compact();
        let mut names = BTreeSet::new();
        // First the errors, of the cut and of the compacted version; then a list.
        loop {
            match events.next().await.expect("a watcher goes on") {
                Ok(Event::InitApply(pv)) => names.insert(pv.name_any()),
                Ok(Event::InitDone) => break,
                Ok(_) | Err(_) => continue,
            };
        }
        assert_eq!(names, ["a", "b"].map(str::to_owned).into(), "1.{minor}");
        assert_eq!(server.requests().count("list", "persistentvolumes"), 2, "1.{minor}");
    }
}
