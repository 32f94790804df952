//! What the program holds in memory for each object in the cluster: nothing for those it has no
//! work with, little for the others. Live bytes, counted by the allocator, so that neither the
//! machine nor the time of day matters.
//!
//! The whole program runs on an API server that makes its objects up while it sends them: all that stays in memory
//! is the program's.

mod cluster;
mod nodes;

use std::{collections::BTreeMap, env, fmt::Write as _, sync::Arc, time::Duration};

use cluster::{Maker, Show};
use csi_provisioner::{
    app::{self, Env, Host},
    flags::Flags,
    metrics::Metrics,
    runtime::Generator,
};
use futures::FutureExt as _;
use serde_json::{Value, json};
use support::{
    connector::connector,
    runtime::{SimulatedClock, Tasks},
};
use testkit::{
    driver::{self, Script, Scripted},
    load::objects::{ARCHIVED, Family, IN_USE, Standing},
};
use tokio_util::sync::CancellationToken;

use crate::live;

/// Objects of a kind in the cluster: enough for the maps' slack to average out.
const OBJECTS: usize = 1_000;

/// Bytes an object that is not kept may cost on average, for buffers that have grown.
const NOTHING: u64 = 16;

/// Bytes that a volume of the driver may cost for its place in the index of handles.
const A_HANDLE: u64 = 24;

/// Simulated time within which the program has taken everything in.
const SETTLES: Duration = Duration::from_secs(30);

const DRIVER: &str = "rbd.csi.ceph.com";

// === What is in the cluster ===

/// One kind of objects, and what one of them may cost.
struct Load {
    name: &'static str,
    plural: &'static str,
    at_most: u64,
    /// Events before the list is whole, and all, of one object.
    events: (usize, usize),
    event: Maker,
    /// The class of the objects, if it exists.
    class: Option<Value>,
    /// What the driver says of its plugin.
    services: &'static [&'static str],
}

/// A driver with topology, so that nodes are watched.
const WITH_TOPOLOGY: &[&str] = &["CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"];

impl Load {
    /// Objects that are there from the start.
    fn listed(
        name: &'static str,
        plural: &'static str,
        at_most: u64,
        object: impl Fn(usize) -> Value + Send + Sync + 'static,
    ) -> Self {
        let event: Maker = Arc::new(move |number| ("ADDED", object(number)));
        Self { name, plural, at_most, events: (1, 1), event, class: None, services: WITH_TOPOLOGY }
    }

    /// Objects that are there from the start, and then all change or go.
    fn changing(
        name: &'static str,
        plural: &'static str,
        before: impl Fn(usize) -> Value + Send + Sync + 'static,
        then: &'static str,
        after: impl Fn(usize) -> Value + Send + Sync + 'static,
    ) -> Self {
        let event: Maker = Arc::new(move |number| match number.checked_sub(OBJECTS) {
            None => ("ADDED", before(number)),
            Some(number) => (then, after(number)),
        });
        Self {
            name,
            plural,
            at_most: NOTHING,
            events: (1, 2),
            event,
            class: None,
            services: WITH_TOPOLOGY,
        }
    }

    /// The same with this class.
    fn of_class(self, class: Value) -> Self {
        Self { class: Some(class), ..self }
    }

    /// The same with a driver without topology.
    fn without_topology(self) -> Self {
        Self { services: &["CONTROLLER_SERVICE"], ..self }
    }

    /// All that the cluster shows, with so many of the objects.
    fn shows(&self, objects: usize) -> BTreeMap<&'static str, Show> {
        let class = self.class.clone().map(|class| {
            let event: Maker = Arc::new(move |_| ("ADDED", class.clone()));
            ("storageclasses", Show { listed: 1, total: 1, event })
        });
        let shown = [("csinodes", a_csi_node()), (self.plural, self.show(objects))];
        shown.into_iter().chain(class).collect()
    }

    fn show(&self, objects: usize) -> Show {
        let (listed, total) = self.events;
        Show { listed: listed * objects, total: total * objects, event: Arc::clone(&self.event) }
    }
}

fn family(driver: &str, prefix: &str) -> Family {
    Family {
        driver: driver.to_owned(),
        class: "fast".to_owned(),
        namespace: "shop".to_owned(),
        prefix: prefix.to_owned(),
        labels: BTreeMap::new(),
    }
}

fn ours() -> Family {
    family(DRIVER, "ours-")
}

fn foreign() -> Family {
    family("ebs.csi.aws.com", "foreign-")
}

/// The class of our claims, with a secret.
fn class_with_a_secret() -> Value {
    let mut class = ours().storage_class(0);
    let secret = [("name", "admin"), ("namespace", "csi")].map(|(key, value)| {
        (format!("csi.storage.k8s.io/provisioner-secret-{key}"), Value::from(value))
    });
    let parameters = class.get_mut("parameters").and_then(Value::as_object_mut).unwrap();
    parameters.extend(secret);
    class
}

fn volume(family: &Family, number: usize, standing: Standing) -> Value {
    family.volume(number, &family.uid("claim", number), standing)
}

/// What is published for one of 200 classes in a zone.
fn capacity(number: usize, driver: &str) -> Value {
    let (class, zone) = (number % 200, number / 200);
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {
            "name": format!("csisc-{number:016x}"), "namespace": "csi", "uid": format!("u-{number:034}"),
            "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"csi.storage.k8s.io/drivername": driver, "csi.storage.k8s.io/managed-by": "external-provisioner"},
        },
        "storageClassName": format!("class-{class:03}"), "capacity": "100Gi", "maximumVolumeSize": "10Gi",
        "nodeTopology": {"matchLabels": {"topology.kubernetes.io/zone": format!("eu-central-1-{zone:03}")}},
    })
}

const RELEASED: Standing = Standing { phase: "Released", policy: "Delete" };

/// Everything that a cluster can be full of.
fn loads() -> Vec<Load> {
    let (claims, volumes) = ("persistentvolumeclaims", "persistentvolumes");
    vec![
        Load::listed("foreign claims, waiting", claims, NOTHING, |n| foreign().waiting_claim(n)),
        Load::listed("foreign claims, bound", claims, NOTHING, |n| foreign().bound_claim(n)),
        Load::listed("foreign volumes, in use", volumes, NOTHING, |n| {
            volume(&foreign(), n, IN_USE)
        }),
        Load::listed("foreign volumes, released", volumes, NOTHING, |n| {
            volume(&foreign(), n, RELEASED)
        }),
        Load::listed("our claims, bound", claims, NOTHING, |n| ours().bound_claim(n)),
        Load::listed("our volumes, in use", volumes, A_HANDLE, |n| volume(&ours(), n, IN_USE)),
        Load::listed("our volumes, archived", volumes, A_HANDLE, |n| volume(&ours(), n, ARCHIVED)),
        Load::changing(
            "our claims, waiting then bound",
            claims,
            |n| ours().waiting_claim(n),
            "MODIFIED",
            |n| ours().bound_claim(n),
        ),
        Load::changing(
            "our volumes, released then gone",
            volumes,
            |n| volume(&ours(), n, RELEASED),
            "DELETED",
            |n| volume(&ours(), n, RELEASED),
        ),
        Load::listed("our claims, annotated apart", claims, 2_500, |n| {
            let mut claim = ours().waiting_claim(n);
            let annotations = claim.pointer_mut("/metadata/annotations").unwrap().as_object_mut();
            annotations.unwrap().insert("example.com/number".to_owned(), n.to_string().into());
            claim
        }),
        Load::listed("our claims, whose class is missing", claims, 2_500, |n| {
            ours().waiting_claim(n)
        }),
        Load::listed("our claims, whose secret is missing", claims, 2_500, |n| {
            ours().waiting_claim(n)
        })
        .of_class(class_with_a_secret())
        .without_topology(),
        Load::listed("our claims, that lack a node", claims, 2_500, |n| ours().waiting_claim(n))
            .of_class(ours().storage_class(0)),
        Load::listed("our volumes, that cannot be deleted", volumes, 2_800, |n| {
            volume(&ours(), n, RELEASED)
        }),
        Load::listed("attachments", "volumeattachments", 48, |n| foreign().attachment(n)),
        Load::listed("nodes, in three zones", "nodes", 200, |n| nodes::node(n, false)),
        Load::listed("nodes, a place each", "nodes", 350, |n| nodes::node(n, true)),
        Load::changing(
            "nodes, that came and went",
            "nodes",
            |n| nodes::node(n, true),
            "DELETED",
            |n| nodes::node(n, true),
        ),
        // The one that is always there has the keys, and is counted in both runs.
        Load::listed("CSINodes", "csinodes", 250, |n| nodes::csi_node(n + 1)),
        Load::listed(
            "capacity objects, that cannot be deleted",
            "csistoragecapacities",
            2_100,
            |n| capacity(n, DRIVER),
        ),
        Load::listed("classes", "storageclasses", 1_250, |n| foreign().storage_class(n)),
    ]
}

/// What is measured: all loads with the usual number of objects, or with `MEMORY_OBJECTS` objects those
/// that are only listed; with `MEMORY_OF` the load of this name.
fn chosen() -> (Vec<Load>, usize) {
    let objects = env::var("MEMORY_OBJECTS").map_or(OBJECTS, |text| text.parse().unwrap());
    let name = env::var("MEMORY_OF").ok();
    let mut loads = loads();
    loads.retain(|load| {
        let fits = objects == OBJECTS || load.events == (1, 1);
        fits && name.as_deref().is_none_or(|name| name == load.name)
    });
    (loads, objects)
}

// === The program ===

/// A process that watches everything that this program can watch.
const ALL: [&str; 3] = ["csi-provisioner", "--enable-capacity", "--capacity-ownerref-level=-1"];

/// One CSINode, for which the labels of nodes are kept.
fn a_csi_node() -> Show {
    Show { listed: 1, total: 1, event: Arc::new(|number| ("ADDED", nodes::csi_node(number))) }
}

/// A driver that attaches volumes, so that attachments are watched.
fn attaching_driver(services: &[&str]) -> driver::Host<Scripted> {
    let capabilities = ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"];
    driver::Host::new(Scripted::new(Script {
        name: Some(DRIVER.to_owned()),
        controller_capabilities: Some(capabilities.map(str::to_owned).into()),
        plugin_capabilities: Some(services.iter().map(ToString::to_string).collect()),
        ..Script::default()
    }))
}

/// How often the tasks of a program that has ended are polled: more often than there are layers of tasks.
const POLLS: usize = 1_000;

/// The bytes that the program holds once it has taken in `objects` of a load.
async fn held(load: &Load, objects: usize) -> u64 {
    let before = live();
    let namespace = |variable: &str| (variable == "NAMESPACE").then(|| "csi".into());
    let flags = Flags::parse(ALL.iter().map(Into::into), namespace).unwrap().flags;
    let tasks = Tasks::default();
    let env = Env {
        connections: cluster::connections(load.shows(objects)),
        connector: connector(&Arc::new(attaching_driver(load.services))),
        clock: Arc::new(SimulatedClock::new(jiff::Timestamp::from_second(1_767_225_600).unwrap())),
        random: Arc::new(Generator::from_seed(1)),
        spawner: Arc::new(tasks.clone()),
        metrics: Metrics::new(),
        host: Host { name: "pod".to_owned(), ..Host::default() },
    };
    let mut program = app::run(flags, env, CancellationToken::new()).boxed();
    // It has settled when this time is over, and must not have ended by itself.
    tokio::time::timeout(SETTLES, &mut program).await.expect_err("the program goes on");
    // What is left of tasks that have ended is not the program's.
    while tasks.0.lock().try_join_next().is_some() {}
    // What the program before had shared may have gone meanwhile.
    let held = live().saturating_sub(before);
    drop(program);
    tasks.0.lock().abort_all();
    // What was aborted, and the task of each of kube-rs's clients whose users have gone, ends once it is
    // polled; the next measurement begins with what is left.
    for _ in 0..POLLS {
        tokio::task::yield_now().await;
    }
    held
}

pub(crate) async fn memory_follows_the_work_and_not_the_cluster() {
    let mut table = String::new();
    let mut fat = Vec::new();
    let (loads, objects) = chosen();
    // What is made once in a process belongs to no load.
    held(&loads[0], OBJECTS).await;
    for load in loads {
        let (none, all) = (held(&load, 0).await, held(&load, objects).await);
        let each = all.saturating_sub(none) / objects as u64;
        let Load { name, at_most, .. } = load;
        writeln!(table, "{name:34} {each:6} bytes each, at most {at_most}").unwrap();
        if each > at_most {
            fat.push(name);
        }
    }
    println!("{table}");
    assert!(fat.is_empty(), "these cost more than they may: {fat:?}\n{table}");
}
