//! Whether what a scenario waits for has come.
//!
//! Owns the conditions' meaning; what the cluster contains comes through [`ClusterView`].

use std::{collections::BTreeMap, future::Future};

use serde_json::Value;

use super::{
    python,
    scenario::{Condition, ObjectState, ProcessName, Should},
};

/// What a waiting scenario can look at.
pub(super) trait ClusterView {
    /// All objects of a kind.
    fn list(&self, kind: &str) -> impl Future<Output = Vec<Value>>;
    /// One object, or the API server's word on it, with the HTTP status.
    fn get(
        &self,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> impl Future<Output = (u16, Value)>;
    /// A path of the process's own HTTP server: status and body; `None` when it does not answer.
    fn http(&self, path: &str) -> impl Future<Output = Option<(u16, String)>>;
    /// How many calls a method of the driver had.
    fn calls(&self, method: &str) -> usize;
    /// How many it had for each value of a parameter or field.
    fn calls_by(&self, method: &str, by: Option<&str>) -> BTreeMap<String, usize>;
    /// The exit code of a process; `None` while it runs.
    fn exit(&self, process: &ProcessName) -> Option<i32>;
}

/// Whether `condition` holds now.
pub(super) async fn met(condition: &Condition, view: &impl ClusterView) -> bool {
    match condition {
        Condition::Calls { method, n } => view.calls(method) >= *n,
        Condition::CallsBy { method, by, n, of } => {
            let counts = view.calls_by(method, by.as_deref());
            counts.values().filter(|count| *count >= n).count() >= *of
        }
        Condition::Exit(process) => view.exit(process).is_some(),
        Condition::Volumes(n) => view.list("PersistentVolume").await.len() >= *n,
        Condition::NoVolumes => view.list("PersistentVolume").await.is_empty(),
        Condition::Event { reason, on, text, n } => {
            occurrences(&view.list("Event").await, reason, on.as_deref(), text) >= *n
        }
        Condition::Http { path, status } => {
            view.http(path).await.is_some_and(|(code, _)| code == *status)
        }
        Condition::Metric(pattern) => {
            let page = view.http("/metrics").await;
            page.is_some_and(|(_, page)| page.lines().any(|line| pattern.is_match(line)))
        }
        Condition::Object(state) => holds(state, view).await,
        Condition::Capacities(n) => view.list("CSIStorageCapacity").await.len() == *n,
    }
}

/// How often events of that reason, object and part of a message occurred.
fn occurrences(events: &[Value], reason: &str, on: Option<&str>, text: &str) -> u64 {
    let matches = |event: &Value, pointer: &str, test: &dyn Fn(&str) -> bool| {
        test(event.pointer(pointer).and_then(Value::as_str).unwrap_or_default())
    };
    let meant = |event: &&Value| {
        matches(event, "/reason", &|r| r == reason)
            && matches(event, "/involvedObject/name", &|name| on.is_none_or(|on| on == name))
            && matches(event, "/message", &|message| message.contains(text))
    };
    let times = |event: &Value| match event.get("count").and_then(Value::as_u64) {
        None | Some(0) => 1,
        Some(count) => count,
    };
    events.iter().filter(meant).map(times).sum()
}

async fn holds(state: &ObjectState, view: &impl ClusterView) -> bool {
    let name = named(&state.name, view).await;
    let (code, object) = view.get(&state.kind, state.namespace.as_deref(), &name).await;
    let value = walk(&object, &state.path).filter(|value| !value.is_null());
    match &state.should {
        Should::BeGone => code == 404,
        Should::BeAbsent => value.is_none(),
        Should::BePresent => value.is_some(),
        Should::Equal(wanted) => python::equal(value.unwrap_or(&Value::Null), wanted),
    }
}

/// The value that `path` leads to.
pub(super) fn walk<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.as_object()?.get(key))
}

/// The name that is meant: of `pv-of:CLAIM` that of the PV whose `claimRef` names the claim.
pub(super) async fn named(name: &str, view: &impl ClusterView) -> String {
    let Some(claim) = name.strip_prefix("pv-of:") else { return name.to_owned() };
    let volumes = view.list("PersistentVolume").await;
    let text = |volume: &Value, pointer: &str| {
        volume.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
    };
    let bound = volumes.iter().find(|v| text(v, "/spec/claimRef/name").as_deref() == Some(claim));
    bound.and_then(|volume| text(volume, "/metadata/name")).unwrap_or_else(|| "none".to_owned())
}
