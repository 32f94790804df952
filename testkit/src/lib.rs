//! Test doubles for csi-provisioner: a cluster's control plane and CSI drivers, small enough to run in a test, and the
//! player of recorded scenarios. Never shipped.
//!
//! Listed from top to bottom: a module uses modules further down, not further up.
//!
//! | module | content |
//! |---|---|
//! | `main.rs` | the program `testkit`: `serve`, `play`, `driver`, `binder` |
//! | [`load`] | the load bench, whose program is `bin/load.rs` |
//! | [`player`] | replays `tests/conformance/*.yaml` on a provisioner's binary and judges what comes of it |
//! | [`control_plane`] | a real or in-memory API server, whichever the environment offers, laid out in a directory |
//! | [`binder`] | binds claims to volumes, as kube-controller-manager does: an ordinary client |
//! | [`apiserver`] | the in-memory Kubernetes API server |
//! | [`driver`] | CSI drivers: one answers by rules, one keeps volumes on disk, one is of a node |
//! | [`kubectl`] | which kubectl binaries tests are played with |
//! | [`program`] | programs as processes |
//! | [`web`] | GETs what a process serves |
//! | [`ports`] | ports for programs that are yet to be started |
//!
//! The product takes this crate for its tests and this crate does not depend on the product: the two meet only at the
//! Kubernetes API, at `proto/csi.proto` and at the program's command line.

pub mod apiserver;
pub mod binder;
pub mod control_plane;
pub mod driver;
pub mod kubectl;
pub mod load;
pub mod player;
pub mod ports;
pub mod program;
pub mod web;

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

/// What is found as soon as there is something; nothing where that takes longer than `patience`.
pub async fn until<T>(
    patience: Duration,
    every: Duration,
    look: impl AsyncFn() -> Option<T>,
) -> Option<T> {
    let last = Instant::now() + patience;
    loop {
        let found = look().await;
        if found.is_some() || Instant::now() > last {
            return found;
        }
        sleep(every).await;
    }
}

/// An object changed by a JSON merge patch: recursively; null removes a field.
pub fn merged(mut object: Value, change: &Value) -> Value {
    json_patch::merge(&mut object, change);
    object
}

/// What went wrong, for people.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
