//! An in-memory Kubernetes API server.
//!
//! It has what clients of the storage APIs rely on: optimistic concurrency, lists in pages, watches
//! with bookmarks and expiry, merge patches, finalizers, status subresources, selectors, defaults, validation, and
//! the words of refusals. It is deterministic: time is tokio's and the clock given, chance is the seed's. A request
//! goes from [`serve`] (sockets, identities) to `service` (rights, [`faults`], the record), `verbs` and [`watch`],
//! and the `store`.
//!
//! What a real server has and this one lacks: controllers (nothing binds, schedules or collects garbage), admission
//! plugins but that of namespaces, schemas (unknown fields are kept), protobuf, dry runs, JSON patches and
//! server-side apply (which are refused), streaming lists (refused too), and conversion (the versions of a kind differ
//! only in name).

pub mod access;
pub mod audit;
mod body;
mod chance;
mod defaults;
mod documents;
pub mod faults;
pub mod hooks;
mod latest;
pub mod object;
mod parameters;
mod patch;
mod quantity;
mod representation;
pub mod request_info;
pub mod resources;
mod selectors;
pub mod serve;
mod service;
pub mod status;
mod store;
mod strategy;
pub(crate) mod tree;
mod validation;
mod verbs;
pub mod watch;

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};

pub use self::service::{ApiService, Body, Disconnected, refuse, respond};
use self::{
    audit::Requests,
    chance::Chance,
    faults::Faults,
    hooks::Hooks,
    object::{Key, Object},
    resources::{Kind, Kinds, ServerVersion},
    status::Status,
    store::Store,
    verbs::{State, Target, delete::DeleteOptions},
    watch::Watches,
};

/// Who sends a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
}

impl User {
    /// A user in no group.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), groups: Vec::new() }
    }
}

/// Returns the time that is written into objects.
pub type WallClock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// What a server is made with.
#[derive(Clone)]
pub struct Options {
    /// The release it behaves like.
    pub version: ServerVersion,
    /// Its clock; by default it stands at 2024-01-01 and goes with tokio's.
    pub clock: WallClock,
    /// The seed of UIDs and generated names.
    pub seed: u64,
    /// How many changes of each kind watches can go back.
    pub history: usize,
    /// The most objects in a page of a list, however many are asked for.
    pub page: usize,
    /// What it asks others.
    pub hooks: Hooks,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: ServerVersion::default(),
            clock: paused_clock(),
            seed: 1,
            history: 100_000,
            page: usize::MAX,
            hooks: Hooks::default(),
        }
    }
}

/// A clock that starts at 2024-01-01T00:00:00Z and goes with tokio's, paused or not.
fn paused_clock() -> WallClock {
    let start = std::sync::OnceLock::new();
    Arc::new(move || {
        let start = start.get_or_init(tokio::time::Instant::now);
        let elapsed = i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(1_704_067_200_000_i64.saturating_add(elapsed))
            .unwrap_or(jiff::Timestamp::MAX)
    })
}

/// The server; clones are the same server.
#[derive(Clone)]
pub struct ApiServer(Arc<Inner>);

struct Inner {
    state: Arc<Mutex<State>>,
    version: ServerVersion,
    clock: WallClock,
    hooks: Hooks,
    faults: Faults,
    requests: Requests,
    watches: Watches,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("version", &self.0.version).finish_non_exhaustive()
    }
}

/// The namespaces every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl ApiServer {
    /// A server with nothing in it but the namespaces every cluster has.
    pub fn new(options: Options) -> Self {
        let Options { version, clock, seed, history, page, hooks } = options;
        let state = State {
            store: Store::new(history),
            kinds: Kinds::of(version),
            chance: Chance::new(seed),
            page,
            lists: VecDeque::new(),
        };
        let server = Self(Arc::new(Inner {
            state: Arc::new(Mutex::new(state)),
            version,
            clock,
            hooks,
            faults: Faults::default(),
            requests: Requests::default(),
            watches: Watches::default(),
        }));
        for name in NAMESPACES {
            server.namespace(name);
        }
        server
    }

    /// The transport of a kube client that acts as `user`.
    pub fn service(&self, user: User) -> ApiService {
        ApiService { server: self.clone(), user }
    }

    /// A kube client that acts as `user`.
    pub fn client(&self, user: User) -> kube::Client {
        kube::Client::new(self.service(user), "default")
    }

    /// The rules of what goes wrong.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// The record of all requests.
    pub fn requests(&self) -> &Requests {
        &self.0.requests
    }

    /// The running watches.
    pub fn watches(&self) -> &Watches {
        &self.0.watches
    }

    /// The release the server behaves like.
    pub fn version(&self) -> ServerVersion {
        self.0.version
    }

    /// The kinds served now.
    pub fn kinds(&self) -> Vec<Arc<Kind>> {
        self.0.state.lock().kinds.iter().cloned().collect()
    }

    /// Forgets all history: watches and continue tokens from before have expired.
    pub fn compact(&self) {
        self.0.state.lock().store.compact();
    }

    /// The revision of the latest write.
    pub fn revision(&self) -> u64 {
        self.0.state.lock().store.revision()
    }

    fn hooks(&self) -> &Hooks {
        &self.0.hooks
    }

    fn state(&self) -> &Arc<Mutex<State>> {
        &self.0.state
    }

    /// The server's time.
    pub fn now(&self) -> jiff::Timestamp {
        (self.0.clock)()
    }

    /// The server's time as it is written into objects: whole seconds.
    pub fn timestamp(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    // === Direct access, for tests and hooks; not authorized, not recorded ===

    /// Makes a namespace, unless it is there.
    pub fn namespace(&self, name: &str) {
        // An error can only say that it is there.
        let _ = self.create(&json!({"kind": "Namespace", "metadata": {"name": name}}));
    }

    /// An object with its `TypeMeta`; `namespace` is empty for kinds without.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.0.state.lock();
        let kind = state.kinds.by_name(kind)?;
        Some(state.store.get(&kind.group_resource(), &Key::new(namespace, name))?.typed(kind))
    }

    /// All objects of a kind, of one namespace or (empty) all, in order, with their `TypeMeta`.
    pub fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let state = self.0.state.lock();
        let Some(kind) = state.kinds.by_name(kind) else { return Vec::new() };
        let namespace = Some(namespace).filter(|ns| !ns.is_empty());
        state
            .store
            .range(&kind.group_resource(), namespace)
            .map(|(_, object)| object.typed(kind))
            .collect()
    }

    /// The objects of a kind as they are stored, shared: for hooks that read many.
    pub fn objects(&self, kind: &str) -> Vec<Arc<Object>> {
        let state = self.0.state.lock();
        let Some(kind) = state.kinds.by_name(kind) else { return Vec::new() };
        state
            .store
            .range(&kind.group_resource(), None)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// How many objects of a kind there are.
    pub fn count(&self, kind: &str) -> usize {
        let state = self.0.state.lock();
        state.kinds.by_name(kind).map_or(0, |kind| state.store.count(&kind.group_resource()))
    }

    /// Creates an object; its status, where it has one, is written too.
    pub fn create(&self, object: &Value) -> Result<Value, Status> {
        let target = self.target_of(object)?;
        let mut state = self.0.state.lock();
        let created = state.create(&target, object.clone())?;
        let Some(status) = object.get("status").filter(|_| target.kind.status) else {
            return Ok(created.typed(&target.kind));
        };
        let target = Target { key: created.key(), ..target };
        let mut with_status = created.typed(&target.kind);
        tree::set(&mut with_status, &["status"], status.clone());
        Ok(state.update(&target, true, with_status)?.object.typed(&target.kind))
    }

    /// Merges a JSON merge patch into an object, or into its status.
    pub fn merge(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, Status> {
        let target = self.target(kind, namespace, name)?;
        let body = patch.to_string();
        let patched =
            patch::Patch::parse(&target.kind, "application/merge-patch+json", body.as_bytes())?;
        let status = target.kind.status && patch.get("status").is_some();
        Ok(self.0.state.lock().patch(&target, status, &patched)?.object.typed(&target.kind))
    }

    /// Deletes an object as a client would: finalizers hold it.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<(), Status> {
        let target = self.target(kind, namespace, name)?;
        self.0.state.lock().delete(&target, &DeleteOptions::default()).map(|_| ())
    }

    fn target_of(&self, object: &Value) -> Result<Target, Status> {
        let metadata = tree::at(object, &["metadata"]);
        let namespace = tree::text(metadata, &["namespace"]);
        let mut target = self.target(tree::text(object, &["kind"]), namespace, "")?;
        if let Some(version) = object.get("apiVersion").and_then(Value::as_str) {
            let kinds = &self.0.state.lock().kinds;
            let same = kinds
                .iter()
                .find(|kind| kind.kind == target.kind.kind && kind.api_version() == version);
            target.kind = Arc::clone(same.ok_or_else(Status::no_such_path)?);
        }
        Ok(target)
    }

    fn target(&self, kind: &str, namespace: &str, name: &str) -> Result<Target, Status> {
        let kind =
            self.0.state.lock().kinds.by_name(kind).cloned().ok_or_else(Status::no_such_path)?;
        Ok(Target { kind, key: Key::new(namespace, name), now: self.timestamp() })
    }
}

#[cfg(test)]
mod tests;
