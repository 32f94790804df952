//! Shadow mode beside the processes that work: `kubectl-csi_provisioner shadow`, which runs for the whole seed and
//! has the troubles that they have.
//!
//! Checked at each act: it only reads, and connects to no driver. It ends as soon as it is asked to. At rest it
//! keeps no more than there is to compare. Whether what it finds is true is checked where a case is recorded, and
//! in `tests/simulation/shadow.rs`.

use std::{io, sync::Arc, time::Duration};

use csi_provisioner::csi::Connector;
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use testkit::{
    apiserver::request_info::RequestInfo,
    binder::{PROVISIONER, annotation},
    driver::Description,
};
use tokio::time::{sleep, timeout};

use super::{
    core::{Core, DRIVER},
    dice::Dice,
    driver,
    ledger::text,
    naming::Naming,
    process::{Life, Process},
    replica, sizes,
};

/// Its host, and what its names in the trace begin with.
pub(crate) const SHADOW: &str = "shadow";

/// The verbs of requests that change nothing.
const READS: [&str; 3] = ["get", "list", "watch"];

/// How long it may take to end: it has nothing to finish.
const END: Duration = Duration::from_secs(2);

/// Shadow mode of one seed.
pub(crate) struct Shadow {
    pub process: Mutex<Option<Process>>,
    naming: Naming,
}

impl Shadow {
    pub(crate) fn new(core: &Arc<Core>) -> Arc<Self> {
        let dice = Dice::new(core.seed, SHADOW);
        let naming = Naming::of(core.plan.names, &dice);
        Arc::new(Self { process: Mutex::default(), naming })
    }

    fn start(&self, core: &Arc<Core>, number: u64) -> Process {
        let name = format!("{SHADOW}#{number}");
        let Description { plugin, controller, .. } = driver::description(&core.plan);
        let capabilities = [plugin, controller].concat().join(",");
        let flags = [format!("--driver={DRIVER}"), format!("--capabilities={capabilities}")];
        core.ledger.log(&format!("{name} starts, {:?}", self.naming));
        Process::start_shadow(core, &Life::apart(&name), nowhere(core), self.naming, &flags)
    }
}

/// Refuses to connect, as nobody has asked for that.
fn nowhere(core: &Arc<Core>) -> Connector {
    let core = Arc::clone(core);
    Arc::new(move |_| {
        core.ledger.wrong("shadow mode connects to a driver");
        async { Err(io::Error::other("there is no driver")) }.boxed()
    })
}

/// Runs until the seed's end.
pub(crate) async fn run(core: Arc<Core>, shadow: Arc<Shadow>) {
    let dice = Dice::new(core.seed, "keeper shadow");
    for number in 1.. {
        let process = shadow.start(&core, number);
        let (life, stop) = (Arc::clone(&process.life), process.stopper());
        *shadow.process.lock() = Some(process);
        replica::trouble(&core, &dice, &shadow.process).await;
        if stop.is_cancelled() && timeout(END, life.over()).await.is_err() {
            core.ledger.wrong(&format!("{} does not end when it is asked to", life.name()));
            life.kill();
        }
        life.over().await;
        core.ledger.log(&format!("{} has ended: {:?}", life.name(), life.outcome()));
        sleep(dice.stretch(500..if core.is_healed() { 1_000 } else { 30_000 })).await;
    }
}

/// A process sends this request, whatever becomes of it.
pub(crate) fn check_request(core: &Core, life: &Life, info: &RequestInfo) {
    if life.is_shadow() && !READS.contains(&info.verb.as_str()) {
        let RequestInfo { verb, resource, name, .. } = info;
        core.ledger.wrong(&format!("{} writes: {verb} {resource} {name}", life.name()));
    }
}

/// What the process keeps that it must not keep at rest. A claim that is gone it keeps for a little more than a minute.
pub(crate) fn unrest(core: &Core, process: &Process) -> Vec<String> {
    let figures = process.metrics.text();
    let kept = |kind| sizes::sum(&figures, &format!("provisioner_shadow_kept{{kind=\"{kind}\"}}"));
    let (claims, deletions) = (waiting(core), leaving(core));
    let mut unrest = Vec::new();
    if kept("claims") > claims as u64 {
        unrest.push(format!("shadow mode keeps {} claims, and {claims} wait", kept("claims")));
    }
    if kept("deletions") > deletions as u64 {
        let kept = kept("deletions");
        unrest.push(format!("shadow mode keeps {kept} deletions, and {deletions} are due"));
    }
    unrest
}

/// How many claims wait for a volume of the driver.
fn waiting(core: &Core) -> usize {
    let claims = core.api.list("PersistentVolumeClaim", "");
    let waits = |claim: &&Value| {
        annotation(claim, PROVISIONER) == Some(DRIVER) && text(claim, "/spec/volumeName").is_empty()
    };
    claims.iter().filter(waits).count()
}

/// How many PersistentVolumes are to go.
fn leaving(core: &Core) -> usize {
    let volumes = core.api.list("PersistentVolume", "");
    let leaves = |volume: &&Value| {
        text(volume, "/status/phase") == "Released"
            || volume["metadata"]["deletionTimestamp"].is_string()
    };
    volumes.iter().filter(leaves).count()
}
