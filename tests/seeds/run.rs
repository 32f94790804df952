//! One seed from start to end.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::{
    admins, adversary, attacher, cluster, coincidences, copiers,
    core::Core,
    disruptions, machines,
    naming::Names,
    neighbour, nodes,
    process::Process,
    replica::{self, Replica},
    rest,
    shadow::{self, Shadow},
    sizes, snapshotter, suspects, users, victims,
};

/// How long everything may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(90 * 60);

/// What came of a seed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub wrong: Vec<String>,
    pub trace: String,
}

/// Plays one seed, on a thread of its own runtime with simulated time.
pub(crate) fn play(seed: u64) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let core = Core::new(seed);
        let listening = suspects::listen(&core);
        live(&core).await;
        drop(listening);
        core.end();
        Report { wrong: core.ledger.verdict(), trace: core.ledger.trace() }
    })
}

async fn live(core: &Arc<Core>) {
    core.ledger.log(&format!("seed {}: {:?}", core.seed, core.plan));
    users::provide(core);
    if core.plan.copies {
        snapshotter::install(core);
    }
    if core.plan.adversary {
        victims::provide(core);
        core.spawn(adversary::run(Arc::clone(core)));
        if core.plan.grants {
            core.spawn(victims::run(Arc::clone(core)));
        }
    }
    core.observe();
    let hosts: &[&str] = match (core.plan.local, core.plan.elected) {
        (true, _) => nodes::all(&core.plan),
        (_, true) => &["left", "right"],
        _ => &["left"],
    };
    let replicas: Vec<_> = hosts.iter().map(|host| Replica::new(core, host)).collect();
    for replica in &replicas {
        core.spawn(replica::run(Arc::clone(core), Arc::clone(replica)));
        if core.plan.outages {
            let (host, driver) = (replica.host.clone(), Arc::clone(&replica.driver));
            let again = Arc::clone(&driver);
            let down = move || {
                driver.stop();
                driver.backend().forget();
            };
            core.spawn(disruptions::outages(Arc::clone(core), host, down, move || again.start()));
        }
    }
    let shadow = core.plan.shadow.then(|| Shadow::new(core));
    if let Some(shadow) = &shadow {
        core.spawn(shadow::run(Arc::clone(core), Arc::clone(shadow)));
    }
    core.spawn(cluster::run(Arc::clone(core)));
    if core.plan.local {
        core.spawn(machines::run(Arc::clone(core), replicas.clone()));
    }
    if core.plan.attaches {
        core.spawn(attacher::run(Arc::clone(core)));
    }
    if core.plan.copies {
        core.spawn(snapshotter::run(Arc::clone(core)));
        core.spawn(copiers::run(Arc::clone(core)));
        core.spawn(neighbour::run(Arc::clone(core)));
    }
    if core.plan.nodes {
        core.spawn(nodes::run(Arc::clone(core)));
    }
    if core.plan.quota {
        core.spawn(disruptions::quota(Arc::clone(core)));
    }
    if core.plan.disruptions {
        core.spawn(disruptions::run(Arc::clone(core)));
    }
    if core.plan.lease {
        core.spawn(disruptions::of_lease(Arc::clone(core)));
    }
    futures::future::join(users::run(core), coincidences::run(core)).await;
    core.heal();
    adversary::retire(core);
    victims::take_back(core);
    users::provide(core);
    if core.plan.local {
        machines::heal(core, &replicas);
    } else if core.plan.topology {
        nodes::provide(&core.api, &core.plan);
    }
    admins::clear_names(core);
    come_to_rest(core, &replicas, shadow.as_deref()).await;
    for replica in &replicas {
        stop(core, &replica.process).await;
    }
    if let Some(shadow) = shadow {
        stop(core, &shadow.process).await;
    }
}

/// Waits until nothing is as it must not be, and stays so.
async fn come_to_rest(core: &Core, replicas: &[Arc<Replica>], shadow: Option<&Shadow>) {
    let start = Instant::now();
    let mut quiet = 0;
    while quiet < 6 {
        sleep(Duration::from_secs(10)).await;
        core.observe();
        let mut unrest = rest::unrest(core);
        for replica in replicas {
            let process = replica.process.lock();
            unrest.extend(process.iter().flat_map(|process| sizes::unrest(core, process)));
        }
        let process = shadow.map(|shadow| shadow.process.lock());
        let process = process.as_ref().and_then(|process| process.as_ref());
        unrest.extend(process.iter().flat_map(|process| shadow::unrest(core, process)));
        if !unrest.is_empty() && start.elapsed().as_secs() % 120 < 10 {
            users::mend(core);
        }
        quiet = if unrest.is_empty() { quiet + 1 } else { 0 };
        if start.elapsed() > PATIENCE {
            for what in unrest {
                core.ledger.wrong(&format!("at rest: {what}"));
            }
            log_what_stays(core);
            return;
        }
    }
}

/// What is being deleted and cannot go, as a namespace waits for all that is in it.
fn log_what_stays(core: &Core) {
    for kind in ["Namespace", "PersistentVolumeClaim", "VolumeSnapshot", "PersistentVolume"] {
        for object in core.api.objects(kind) {
            let metadata = &object.value()["metadata"];
            if metadata["deletionTimestamp"].is_string() {
                let (name, finalizers) = (object.meta("name"), &metadata["finalizers"]);
                let (phase, spec) = (&object.value()["status"]["phase"], &object.value()["spec"]);
                core.ledger.log(&format!("the {kind} {name} stays, {phase}: {finalizers} {spec}"));
            }
        }
    }
}

/// At rest a process has no work, and ends at once on SIGTERM; but where names
/// collide or are taken it may wait for one.
async fn stop(core: &Core, process: &Mutex<Option<Process>>) {
    let Some((life, stop)) = process.lock().as_ref().map(|it| (Arc::clone(&it.life), it.stopper()))
    else {
        return;
    };
    stop.cancel();
    let may_wait = matches!(core.plan.names, Names::Cut) || core.ledger.is_a_name_taken();
    let patience = if may_wait { 30 } else { 10 };
    if timeout(Duration::from_secs(patience), life.over()).await.is_err() {
        core.ledger.wrong(&format!("{} does not end at rest", life.name()));
    }
}
