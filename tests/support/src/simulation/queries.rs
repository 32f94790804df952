//! What tests read from a simulated cluster.

use std::sync::atomic::Ordering;

use serde_json::Value;

use super::{Process, Simulation};

impl Simulation {
    // === API server ===

    /// Every PersistentVolume.
    pub fn volumes(&self) -> Vec<Value> {
        self.api.list("PersistentVolume", "")
    }

    /// Whether the claim's PersistentVolume exists and is for it.
    pub fn is_saved(&self, uid: &str) -> bool {
        let volume = self.api.get("PersistentVolume", "", &format!("pvc-{uid}"));
        volume.is_some_and(|volume| volume["spec"]["claimRef"]["uid"] == uid)
    }

    /// How many requests the API server received.
    pub fn api_requests(&self, verb: &str, resource: &str) -> usize {
        self.api.requests().count(verb, resource)
    }

    /// Whether there is an event with this reason about the object of this name.
    pub fn has_event(&self, about: &str, reason: &str) -> bool {
        !self.events("sc", about, reason).is_empty()
    }

    /// Waits until a failure is reported on the claim of this name.
    pub async fn until_failed(&self, claim: &str) {
        self.until("the failure is reported", |s| s.has_event(claim, "ProvisioningFailed")).await;
    }

    /// Whether there is an event with this reason about the object of this name, which has no
    /// namespace.
    pub fn has_cluster_event(&self, about: &str, reason: &str) -> bool {
        !self.events("default", about, reason).is_empty()
    }

    /// The messages of the events with this reason about the object of this name.
    pub fn event_messages(&self, about: &str, reason: &str) -> Vec<String> {
        let events = self.events("sc", about, reason);
        events.iter().map(|it| it["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn events(&self, namespace: &str, about: &str, reason: &str) -> Vec<Value> {
        // There may be many, and this is asked again and again.
        let all = self.api.objects("Event");
        let all = all.iter().filter(|it| it.meta("namespace") == namespace).map(|it| it.value());
        let is_asked_for =
            |it: &&Value| it["involvedObject"]["name"] == about && it["reason"] == reason;
        all.filter(is_asked_for).cloned().collect()
    }

    /// The holder of the Lease.
    pub fn lease_holder(&self) -> Option<String> {
        let lease = self.api.list("Lease", "default").pop()?;
        Some(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
    }

    // === Driver ===

    /// The IDs of the volumes that the driver has.
    pub fn left_at_driver(&self) -> Vec<String> {
        self.driver.backend().volumes().into_iter().collect()
    }

    /// How often the driver's method was called.
    pub fn calls(&self, method: &str) -> usize {
        self.driver.journal().count(method)
    }

    /// How many calls of the driver's method run now.
    pub fn calls_under_way(&self, method: &str) -> usize {
        self.driver.backend().flight(method).map_or(0, |flight| flight.now)
    }

    /// How often a process tried to connect to the driver.
    pub fn connection_attempts(&self) -> usize {
        self.connection_attempts.load(Ordering::Relaxed)
    }

    /// The requests of all calls of the driver's method.
    pub fn requests(&self, method: &str) -> Vec<Value> {
        let calls = self.driver.journal().calls();
        calls.into_iter().filter(|call| call.method == method).map(|call| call.request).collect()
    }

    // === Processes ===

    /// How the process started last ended.
    pub fn last_outcome(&self) -> Option<Result<(), String>> {
        self.processes.lock().last().and_then(Process::outcome)
    }

    /// Whether the process started last is running.
    pub fn is_running(&self) -> bool {
        self.processes.lock().last().is_some_and(|process| process.outcome().is_none())
    }

    /// Every request to the API server, then every call of the driver, each in order.
    pub fn trace(&self) -> String {
        let requests = self.api.requests().all();
        let calls = self.driver.journal().calls();
        let requests =
            requests.iter().map(|r| format!("{} {} -> {}", r.received, r.what(), r.code));
        let calls = calls.iter().map(|call| format!("{} {}", call.method, call.request));
        requests.chain(calls).collect::<Vec<_>>().join("\n")
    }
}
