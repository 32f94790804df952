//! What all actors of a seed share.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::json;
use testkit::apiserver::{ApiServer, Options};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    asking::Asking,
    calls::Calls,
    copying::Copying,
    ledger::Ledger,
    looks::Looks,
    nodes,
    plan::Plan,
    storage::{Storage, node_of},
};

/// The driver's name.
pub(crate) const DRIVER: &str = "disk.example.com";

/// The namespace of claims and secrets.
pub(crate) const NAMESPACE: &str = "work";

/// The namespace of a user who means harm.
pub(crate) const TENANT: &str = "tenant";

/// The namespace of those whom he means it.
pub(crate) const VAULT: &str = "vault";

/// Where the cluster's controllers work.
pub(crate) const NAMESPACES: [&str; 3] = [NAMESPACE, TENANT, VAULT];

/// The cluster, the storage and the truth about them.
pub(crate) struct Core {
    pub seed: u64,
    pub plan: Plan,
    pub api: ApiServer,
    pub storage: Storage,
    pub copying: Copying,
    pub calls: Calls,
    pub ledger: Ledger,
    pub looks: Looks,
    pub asking: Asking,
    /// The nodes that have left for ever, and all that was on them.
    pub lost: Mutex<BTreeSet<String>>,
    /// Whether all trouble is over.
    healed: AtomicBool,
    /// What may not be done until when, by verb and resource.
    forbidden: Mutex<BTreeMap<(&'static str, &'static str), Instant>>,
    /// The kinds whose watches show nothing until then.
    held_up: Mutex<BTreeMap<&'static str, Instant>>,
    /// Until when there is no quota left.
    used_up: Mutex<Option<Instant>>,
    /// Until when the drivers take their time.
    dragging: Mutex<Option<Instant>>,
    tasks: Mutex<JoinSet<()>>,
}

/// Makes the namespace, which goes only when it is empty.
pub(crate) fn namespace(api: &ApiServer) {
    api.namespace(NAMESPACE);
    let content = json!({"metadata": {"finalizers": ["kubernetes.io/content"]}});
    api.merge("Namespace", "", NAMESPACE, &content).unwrap();
}

impl Core {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let api = ApiServer::new(Options { seed, ..Options::default() });
        namespace(&api);
        let plan = Plan::new(seed);
        if plan.topology {
            nodes::provide(&api, &plan);
        }
        Arc::new(Self {
            seed,
            plan,
            api,
            storage: Storage::default(),
            copying: Copying::default(),
            calls: Calls::default(),
            ledger: Ledger::new(),
            looks: Looks::default(),
            asking: Asking::default(),
            lost: Mutex::default(),
            healed: AtomicBool::new(false),
            forbidden: Mutex::default(),
            held_up: Mutex::default(),
            used_up: Mutex::default(),
            dragging: Mutex::default(),
            tasks: Mutex::default(),
        })
    }

    /// Starts something that no process of the program owns.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Ends all of that.
    pub(crate) fn end(&self) {
        self.tasks.lock().abort_all();
    }

    /// All trouble is over from now on.
    pub(crate) fn heal(&self) {
        self.ledger.log("=== all trouble is over");
        self.healed.store(true, Ordering::Relaxed);
        self.forbidden.lock().clear();
        // What waits already waits on.
        self.held_up.lock().clear();
        *self.used_up.lock() = None;
        self.ledger.quota_used_up(Instant::now());
        *self.dragging.lock() = None;
        self.api.faults().clear();
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    /// Waits for so long. Returns whether there is more trouble to make.
    pub(crate) async fn troubles_after(&self, time: Duration) -> bool {
        sleep(time).await;
        !self.is_healed()
    }

    /// Brings the truth up to date.
    pub(crate) fn observe(&self) {
        self.ledger.catch_up(&self.api);
        self.asking.catch_up(&self.api, self.plan.copies);
    }

    /// Whether what has this handle was on a node that has left for ever.
    pub(crate) fn is_lost(&self, handle: &str) -> bool {
        node_of(handle).is_some_and(|node| self.lost.lock().contains(node))
    }

    pub(crate) fn forbid(&self, verb: &'static str, resource: &'static str, time: Duration) {
        self.ledger.log(&format!("disruption: no right to {verb} {resource} for {time:?}"));
        self.forbidden.lock().insert((verb, resource), Instant::now() + time);
    }

    pub(crate) fn is_forbidden(&self, verb: &str, resource: &str) -> bool {
        let forbidden = self.forbidden.lock();
        let mut fits = forbidden.iter().filter(|((v, r), _)| *v == verb && *r == resource);
        fits.any(|(_, until)| *until > Instant::now())
    }

    /// No quota is left for so long.
    pub(crate) fn use_up(&self, time: Duration) {
        self.ledger.log(&format!("disruption: the quota is used up for {time:?}"));
        *self.used_up.lock() = Some(Instant::now() + time);
        self.ledger.quota_used_up(Instant::now() + time);
    }

    /// Whether quota refuses this.
    pub(crate) fn exceeds_quota(&self, verb: &str, resource: &str) -> bool {
        let writes = matches!(
            (verb, resource),
            ("create", "persistentvolumes") | ("update", "persistentvolumeclaims")
        );
        writes && self.used_up.lock().is_some_and(|until| until > Instant::now())
    }

    pub(crate) fn hold_up(&self, resource: &'static str, time: Duration) {
        self.ledger.log(&format!("disruption: watches of {resource} show nothing for {time:?}"));
        self.held_up.lock().insert(resource, Instant::now() + time);
        self.ledger.watching.held_up(resource, time);
    }

    /// What is asked of the drivers from now on is not done before this time is over.
    pub(crate) fn drag(&self, time: Duration) {
        self.ledger.log(&format!("the drivers take {time:?}"));
        *self.dragging.lock() = Some(Instant::now() + time);
    }

    /// How long the drivers still take.
    pub(crate) fn drags_for(&self) -> Duration {
        let until = *self.dragging.lock();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// How long the watches of this kind still show nothing.
    pub(crate) fn held_up_for(&self, resource: &str) -> Duration {
        let until = self.held_up.lock().get(resource).copied();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}
