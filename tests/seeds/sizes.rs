//! What a process holds in memory, by its own metrics: at the end nothing of deleted objects.

use std::collections::BTreeSet;

use super::{
    core::{Core, DRIVER},
    ledger::{is_recorded, text},
    process::Process,
};

/// What the process holds that it must not hold at rest.
pub(crate) fn unrest(core: &Core, process: &Process) -> Vec<String> {
    if process.life.is_dead() {
        return Vec::new();
    }
    let figures = process.metrics.text();
    let who = process.life.name();
    let mut unrest = Vec::new();
    let (held, standing) = (sum(&figures, "provisioner_claims"), claims(core));
    // A claim that is gone is held until its volume is saved or removed; and one with an open call,
    // of this process or recorded by another, until its end can be asked after.
    let unended = core.ledger.left_open_by(who);
    let followed = core.ledger.followed_behind_others(who);
    if held > standing.union(&followed).count() as u64 + unended {
        unrest.push(format!("{who} holds {held} claims, and there are {}", standing.len()));
    }
    // A standby's queues wait for its term.
    let queued = sum(&figures, "workqueue_depth");
    if queued > 0 && core.ledger.may_work(process.life.elected_host()) {
        unrest.push(format!("{who} has {queued} in its queues"));
    }
    let dependencies = sum(&figures, "provisioner_awaited_objects");
    if dependencies > 0 && standing.is_empty() && released(core) == 0 {
        unrest.push(format!("{who} waits for {dependencies} objects, and no claim or volume does"));
    }
    unrest
}

/// The sum of a family's gauges.
pub(crate) fn sum(figures: &str, family: &str) -> u64 {
    let of_family = figures.lines().filter_map(|line| line.strip_prefix(family));
    let gauges = of_family.filter(|rest| rest.starts_with(['{', ' ']));
    gauges.filter_map(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// The claims that there may be something to do for, by UID.
fn claims(core: &Core) -> BTreeSet<String> {
    let mut claims = core.api.list("PersistentVolumeClaim", "");
    claims.retain(|claim| {
        let provisioner = "/metadata/annotations/volume.kubernetes.io~1storage-provisioner";
        let waits =
            text(claim, provisioner) == DRIVER && text(claim, "/spec/volumeName").is_empty();
        waits || is_recorded(claim)
    });
    claims.iter().map(|claim| text(claim, "/metadata/uid").to_owned()).collect()
}

/// The PersistentVolumes that there may be something to do for.
fn released(core: &Core) -> usize {
    let mut volumes = core.api.list("PersistentVolume", "");
    volumes.retain(|volume| text(volume, "/status/phase") == "Released");
    volumes.len()
}
