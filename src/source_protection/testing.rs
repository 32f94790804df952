//! What the tests of this room share.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{Deps, Protection, Settings};
use crate::{
    kube::{
        events::Recorder,
        testing::{Answer, Server, client, paused_clock, random},
    },
    metrics::Metrics,
    runtime::{Tasks, TokioSpawner},
};

/// The driver whose calls are guarded.
pub(super) const DRIVER: &str = "disk.example.com";

/// How sources are guarded, unless a test says otherwise.
pub(super) const SETTINGS: Settings = Settings {
    restores: true,
    clones: true,
    workers: 1,
    sweep_interval: None,
    retry_start: Duration::from_secs(1),
    retry_max: Duration::from_secs(1),
    peers: false,
    cross_namespace_sources: true,
    timeout: Some(Duration::from_secs(3600)),
};

/// A guard with these settings on the server; events go to another one.
pub(super) fn protection(server: &Server, settings: Settings) -> Protection {
    let (tasks, metrics) = (Tasks::new(Arc::new(TokioSpawner)).0, Metrics::new().unwrap());
    let events = client(&Server::new(|_, _| Answer::json(201, &json!({}))));
    let events = Recorder::start(events, &tasks, paused_clock(), random(), &metrics).from("test");
    Protection::new(Deps {
        client: client(server),
        metrics,
        random: random(),
        clock: paused_clock(),
        events,
        driver: DRIVER.to_owned(),
        tasks,
        settings,
    })
}
