//! A fake API server with one Lease, clients with network failures, and drifting clocks.

use std::{sync::Arc, time::Duration};

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{api::WatchEvent, core::Status};
use parking_lot::Mutex;
use serde_json::{Value, from_value, json, to_value};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::{ElectionDeps, Leases};
use crate::{
    kube::ApiError,
    metrics::Metrics,
    runtime::{Clock, Gate, Generator},
};

/// The server's refusal with this HTTP status code.
fn refusal(code: u16) -> ApiError {
    Status { code, ..Status::default() }.into()
}

/// The API server's one Lease.
#[derive(Default)]
pub(super) struct Store {
    pub(super) lease: Option<Value>,
    version: u64,
    changed: Arc<Notify>,
    /// Whether watches are forbidden.
    pub(super) watch_refused: bool,
    /// Whether watches yield no events.
    pub(super) watch_is_silent: bool,
    /// Whether writes fail.
    pub(super) writes_fail: bool,
    /// Every request that arrived, in order.
    pub(super) requests: Vec<&'static str>,
}

impl Store {
    /// Changes the Lease from outside the election.
    pub(super) fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        if let Some(lease) = &mut self.lease {
            edit(lease);
        }
        self.stamp();
    }

    /// Deletes the Lease.
    pub(super) fn delete(&mut self) {
        self.lease = None;
        self.stamp();
    }

    pub(super) fn holder(&self) -> Option<&str> {
        self.lease.as_ref()?.pointer("/spec/holderIdentity")?.as_str()
    }

    pub(super) fn transitions(&self) -> Option<i64> {
        self.lease.as_ref()?.pointer("/spec/leaseTransitions")?.as_i64()
    }

    fn stamp(&mut self) -> Value {
        self.version += 1;
        self.changed.notify_waiters();
        let version = self.version.to_string();
        match &mut self.lease {
            Some(lease) => {
                lease["metadata"]["resourceVersion"] = json!(version);
                lease.clone()
            }
            None => Value::Null,
        }
    }

    fn get(&mut self) -> Result<Value, ApiError> {
        self.requests.push("get");
        self.lease.clone().ok_or_else(|| refusal(404))
    }

    fn create(&mut self, lease: &Value) -> Result<Value, ApiError> {
        self.requests.push("create");
        if self.lease.is_some() {
            return Err(refusal(409));
        }
        self.lease = Some(lease.clone());
        Ok(self.stamp())
    }

    fn replace(&mut self, lease: &Value) -> Result<Value, ApiError> {
        self.requests.push("replace");
        if self.writes_fail {
            return Err(refusal(500));
        }
        let Some(current) = &self.lease else { return Err(refusal(404)) };
        if current["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
            return Err(refusal(409));
        }
        self.lease = Some(lease.clone());
        Ok(self.stamp())
    }
}

/// The state of a client's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    Up,
    /// Requests fail at once.
    Down,
    /// Requests do not arrive and are not answered.
    Hanging,
    /// Requests are carried out, but their responses are lost.
    ResponsesLost,
}

/// A candidate's client.
#[derive(Clone)]
pub(super) struct FakeClient {
    pub(super) store: Arc<Mutex<Store>>,
    pub(super) network: Arc<Mutex<Network>>,
    pub(super) latency: Arc<Mutex<Duration>>,
}

impl FakeClient {
    pub(super) fn new(store: &Arc<Mutex<Store>>) -> Self {
        Self {
            store: store.clone(),
            network: Arc::new(Mutex::new(Network::Up)),
            latency: Arc::new(Mutex::new(Duration::from_millis(20))),
        }
    }

    async fn request(
        &self,
        act: impl FnOnce(&mut Store) -> Result<Value, ApiError> + Send,
    ) -> Result<Lease, ApiError> {
        let half = *self.latency.lock() / 2;
        sleep(half).await;
        let network = *self.network.lock();
        match network {
            Network::Down => return Err(ApiError::NoAnswer("no route".into())),
            Network::Hanging => std::future::pending().await,
            Network::Up | Network::ResponsesLost => {}
        }
        let answer = act(&mut self.store.lock());
        sleep(half).await;
        let network = *self.network.lock();
        match network {
            Network::Up => answer.map(lease_of),
            Network::Down | Network::Hanging | Network::ResponsesLost => {
                std::future::pending().await
            }
        }
    }
}

impl FakeClient {
    /// Waits for a state after `version` that this client receives. Skips earlier ones.
    async fn next_after(&self, version: u64) -> (WatchEvent<Lease>, u64) {
        loop {
            let changed = self.store.lock().changed.clone();
            let changed = changed.notified();
            let (lease, newest) = {
                let store = self.store.lock();
                (store.lease.clone(), store.version)
            };
            let clear = *self.network.lock() == Network::Up;
            if clear && newest > version && !self.store.lock().watch_is_silent {
                let half = *self.latency.lock() / 2;
                sleep(half).await;
                let deleted = || WatchEvent::Deleted(Lease::default());
                let event = lease.map(lease_of).map_or_else(deleted, WatchEvent::Modified);
                return (event, newest);
            }
            // Checks the network again.
            let _ = timeout(Duration::from_secs(1), changed).await;
        }
    }
}

/// The Lease, from the JSON of the API server.
fn lease_of(json: Value) -> Lease {
    from_value(json).unwrap()
}

impl Leases for FakeClient {
    async fn get(&self, _: &str, _: &str) -> Result<Lease, ApiError> {
        self.request(Store::get).await
    }

    async fn write(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let json = to_value(lease).unwrap();
        match lease.metadata.resource_version {
            None => self.request(|store| store.create(&json)).await,
            Some(_) => self.request(|store| store.replace(&json)).await,
        }
    }

    fn watch(
        &self,
        _: &str,
        _: &str,
        version: &str,
    ) -> BoxStream<'static, Result<WatchEvent<Lease>, ApiError>> {
        if self.store.lock().watch_refused {
            self.store.lock().requests.push("watch");
            return stream::iter([Err(refusal(403))]).boxed();
        }
        let (client, version) = (self.clone(), version.parse().unwrap());
        stream::unfold((client, version), |(client, version)| async move {
            let (event, version) = client.next_after(version).await;
            Some((Ok(event), (client, version)))
        })
        .boxed()
    }
}

/// A clock whose boot time runs at its own rate, and whose wall-clock time is arbitrary.
pub(super) struct Drifting {
    origin: Instant,
    rate: f64,
    wall_offset: i64,
}

impl Drifting {
    pub(super) fn new(rate: f64, wall_offset: i64) -> Self {
        Self { origin: Instant::now(), rate, wall_offset }
    }
}

impl Clock for Drifting {
    fn wall(&self) -> jiff::Timestamp {
        let micros = i64::try_from(self.origin.elapsed().as_micros()).unwrap();
        jiff::Timestamp::from_microsecond(
            1_700_000_000_000_000 + self.wall_offset * 1_000_000 + micros,
        )
        .unwrap()
    }

    fn boot(&self) -> Duration {
        let awake = self.origin.elapsed().mul_f64(self.rate);
        Duration::from_secs(1000) + awake
    }
}

pub(super) fn deps(clock: Arc<dyn Clock>, seed: u64) -> ElectionDeps {
    ElectionDeps {
        gate: Gate::shut(clock.clone()),
        clock,
        random: Arc::new(Generator::from_seed(seed)),
        metrics: Metrics::new().leader,
    }
}
