//! Test helpers of this module.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{Protection, ProtectionDeps, ProtectionSettings};
use crate::{
    kube::{
        events::Recorder,
        testing::{Answer, Server, client, event_lane, random},
    },
    metrics::Metrics,
    runtime::{Backoff, Tasks, TokioSpawner, testing::paused_clock},
};

/// The driver whose calls are protected.
pub(super) const DRIVER: &str = "disk.example.com";

/// The default configuration of tests.
pub(super) const SETTINGS: ProtectionSettings = ProtectionSettings {
    restores: true,
    clones: true,
    workers: 1,
    sweep_interval: None,
    retry: Backoff::new(Duration::from_secs(1), Duration::from_secs(1)),
    peers: false,
    cross_namespace_sources: true,
    timeout: Some(Duration::from_secs(3600)),
};

/// Source protection with this configuration on the server; events go to another server.
pub(super) fn protection(server: &Server, settings: ProtectionSettings) -> Protection {
    let tasks = Tasks::new(Arc::new(TokioSpawner)).0;
    let metrics = Metrics::new();
    let lane = event_lane(&Server::new(|_, _| Answer::json(201, &json!({}))));
    let events =
        Recorder::start(lane, &tasks, paused_clock(), random(), &metrics).for_component("test");
    Protection::new(ProtectionDeps {
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
