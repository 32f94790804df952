//! What must hold at the end, once all faults are over.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{
    admins::BY_HAND,
    adversary::{is_ours, is_owed},
    copying::is_guarded,
    core::{Core, DRIVER, NAMESPACE},
    ledger::{Abandoned, is_recorded, text},
    naming::{NAMINGS, may_be_of},
    plan::Plan,
    storage::image_of,
};

/// What is not as it must be.
pub(crate) fn unrest(core: &Core) -> Vec<String> {
    let volumes = core.api.list("PersistentVolume", "");
    let claims = core.api.list("PersistentVolumeClaim", "");
    let events = core.api.list("Event", "");
    let reported = |object: &Value| {
        events.iter().any(|event| event["involvedObject"]["uid"] == object["metadata"]["uid"])
    };
    let mut unrest = leaks(core, &volumes);
    for volume in &volumes {
        unrest.extend(about_volume(core, volume, reported(volume)));
    }
    unrest.extend(doubled(&volumes));
    for claim in claims.iter().filter(|claim| !is_bound(claim) || is_held(claim)) {
        let (name, reported) = (text(claim, "/metadata/name"), reported(claim));
        let is_due = !reported && !is_mute(core, claim) || core.plan.patience.is_some();
        if is_held(claim) && is_ours(core, claim) && is_due {
            let how = if reported { "" } else { " without an event" };
            unrest.push(format!("the claim {name} is being deleted for ever{how}"));
        }
        let tampered = core.ledger.is_tampered(text(claim, "/metadata/uid"));
        if is_half_bound(&volumes, claim) {
            continue;
        }
        if is_bound(claim) || tampered && !is_owed(core, claim, reported) {
            continue;
        }
        if !reported {
            unrest.push(format!("the claim {name} is unbound without an event"));
        }
        unrest.extend(unbound(core, &volumes, claim));
    }
    // If nothing is copied, nothing removes what a user has put there.
    let stuck = |source: &&Value| {
        let deleted = source["metadata"]["deletionTimestamp"].is_string();
        core.plan.copies && deleted && is_guarded(source)
    };
    let snapshots = core.api.list("VolumeSnapshot", "");
    for source in claims.iter().chain(&snapshots).filter(stuck) {
        let (kind, name) = (text(source, "/kind"), text(source, "/metadata/name"));
        unrest.push(format!("the {kind} {name} is being deleted for ever as a source"));
    }
    if core.plan.elected && !core.ledger.is_led() {
        unrest.push("nobody leads".to_owned());
    }
    unrest
}

/// Whether the claim's PersistentVolume is bound to it and being deleted, before the claim names it:
/// kube-controller-manager passes over such a one, and people must end what they began.
fn is_half_bound(volumes: &[Value], claim: &Value) -> bool {
    volumes.iter().any(|volume| {
        volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
            && text(volume, "/status/phase") == "Bound"
            && volume["metadata"]["deletionTimestamp"].is_string()
    })
}

fn is_bound(claim: &Value) -> bool {
    !text(claim, "/spec/volumeName").is_empty()
}

/// KNOWN (5804): whether no event about the claim can be created, as its namespace is being deleted.
fn is_mute(core: &Core, claim: &Value) -> bool {
    is_terminating(core, text(claim, "/metadata/namespace"))
}

/// Whether nobody can create the secret that the claim waits for, as its namespace is being deleted.
fn lacks_secret(core: &Core, uid: &str) -> bool {
    let is_missing = last_message(core, uid).contains("secrets \"key\" not found");
    is_missing && is_terminating(core, NAMESPACE)
}

fn is_terminating(core: &Core, namespace: &str) -> bool {
    let namespace = core.api.get("Namespace", "", namespace);
    namespace.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string())
}

/// Whether the claim is gone but for our record.
fn is_held(claim: &Value) -> bool {
    claim["metadata"]["deletionTimestamp"].is_string() && is_recorded(claim)
}

/// A claim may only go without a volume when something that only people can mend is in its way.
fn unbound(core: &Core, volumes: &[Value], claim: &Value) -> Option<String> {
    let uid = text(claim, "/metadata/uid");
    let taken = volumes.iter().any(|volume| may_be_of(text(volume, "/metadata/name"), uid));
    let excused = taken
        || copies_nothing(core, volumes, claim)
        || lacks_secret(core, uid)
        || NAMINGS.iter().any(|naming| core.ledger.is_suspect(&naming.name(uid)));
    let name = text(claim, "/metadata/name");
    (!excused).then(|| format!("the claim {name} waits, {uid}: {}", last_message(core, uid)))
}

/// What the object's newest event says.
fn last_message(core: &Core, uid: &str) -> String {
    let mut events = core.api.list("Event", "");
    events.retain(|event| text(event, "/involvedObject/uid") == uid);
    events.sort_by_key(|event| text(event, "/lastTimestamp").to_owned());
    events.last().map_or("", |event| text(event, "/message")).to_owned()
}

/// Whether the claim is to be a copy of another's volume that was never made: that one's
/// PersistentVolume was put there by hand or from a backup.
fn copies_nothing(core: &Core, volumes: &[Value], claim: &Value) -> bool {
    let named = (text(claim, "/spec/dataSource/kind"), text(claim, "/spec/dataSource/name"));
    let ("PersistentVolumeClaim", source) = named else { return false };
    let namespace = text(claim, "/metadata/namespace");
    let Some(source) = core.api.get("PersistentVolumeClaim", namespace, source) else {
        return false;
    };
    let of_source = |volume: &&Value| {
        volume["metadata"]["name"] == source["spec"]["volumeName"]
            && volume["metadata"]["annotations"][BY_HAND].is_string()
    };
    let handle = |volume: &Value| text(volume, "/spec/csi/volumeHandle").to_owned();
    let volume = volumes.iter().find(of_source).map(handle);
    volume.is_some_and(|handle| core.storage.get(image_of(&handle)).is_none())
}

/// Claims that have several PersistentVolumes of provisioners' making.
fn doubled(volumes: &[Value]) -> Vec<String> {
    let mut served = BTreeMap::<&str, Vec<&str>>::new();
    for volume in volumes {
        let by_hand = volume["metadata"]["annotations"][BY_HAND].is_string();
        let phase = text(volume, "/status/phase");
        if !by_hand && !["Released", "Failed"].contains(&phase) {
            let claim = text(volume, "/spec/claimRef/uid");
            served.entry(claim).or_default().push(text(volume, "/metadata/name"));
        }
    }
    let several = served.into_iter().filter(|(claim, of)| !claim.is_empty() && of.len() > 1);
    several.map(|(claim, of)| format!("the claim {claim} has {of:?}")).collect()
}

/// Volumes at the driver that no PersistentVolume has.
fn leaks(core: &Core, volumes: &[Value]) -> Vec<String> {
    let images = core.storage.all();
    let held = |image: &str| {
        volumes.iter().any(|volume| image_of(text(volume, "/spec/csi/volumeHandle")) == image)
    };
    let leaks = images.iter().filter(|(name, image)| {
        !held(name)
            && !core.ledger.is_suspect(name)
            && !image.late
            && !core.ledger.was_given_up(name)
            && !core.ledger.was_taken(name)
            && !core.ledger.is_kept_waiting(name)
            && !is_excused(core, name)
    });
    leaks.map(|(name, _)| format!("{name} is left at the driver")).collect()
}

/// Whether a leak is one that the claims' protection in use does not close.
pub(crate) fn is_excused(core: &Core, name: &str) -> bool {
    let stripped = core.ledger.was_stripped(name);
    core.ledger
        .abandoned(name)
        .is_some_and(|how| stripped || too_late(core, name) || protects_not(&core.plan, how))
}

/// Whether the claim was deleted before a record could be put on it: with `auto` that is when the
/// first call has ended without a word of the driver's.
fn too_late(core: &Core, name: &str) -> bool {
    let plan = &core.plan;
    plan.protection == "auto" && core.ledger.was_deleted_within(name, until_recorded(plan))
}

/// For how long after its beginning a claim's first call may lack a record with `auto`: until its
/// end is unknown, and until the record is written: what is refused is tried again with back-off, at
/// least once a minute.
fn until_recorded(plan: &Plan) -> Duration {
    plan.timeout + Duration::from_secs(if is_troubled(plan) { 120 } else { 2 })
}

/// Whether writing a record may fail.
fn is_troubled(plan: &Plan) -> bool {
    plan.refused + plan.unanswered + plan.slow + plan.hung > 0 || plan.disruptions || plan.quota
}

/// Whether a volume abandoned so is not protected. The finalizer of open calls closes what it
/// says in the documentation of `--claim-protection`; a process that is stopped records what
/// it leaves open, if it can.
fn protects_not(plan: &Plan, how: Abandoned) -> bool {
    match (plan.protection, how) {
        (_, Abandoned::ByOriginal) | ("off", _) | ("auto", Abandoned::InFirstCall) => true,
        ("auto", Abandoned::Unrecorded { killed, after }) => {
            (killed || is_troubled(plan)) && after < until_recorded(plan)
        }
        _ => false,
    }
}

fn about_volume(core: &Core, volume: &Value, reported: bool) -> Vec<String> {
    let name = text(volume, "/metadata/name");
    let ours = text(volume, "/metadata/annotations/pv.kubernetes.io~1provisioned-by") == DRIVER;
    let mut unrest = Vec::new();
    let by_hand = volume["metadata"]["annotations"][BY_HAND].is_string();
    // With its node the driver has gone that could delete it.
    if !ours || by_hand || core.is_lost(text(volume, "/spec/csi/volumeHandle")) {
        return unrest;
    }
    let (handle, phase) = (text(volume, "/spec/csi/volumeHandle"), text(volume, "/status/phase"));
    let policy = text(volume, "/spec/persistentVolumeReclaimPolicy");
    let terminating = volume["metadata"]["deletionTimestamp"].is_string();
    if policy == "Delete" && phase == "Released" && !reported {
        unrest.push(format!("{name} is to be deleted and stays without an event"));
    }
    // KNOWN: as in external-provisioner nothing is due for one that was deleted while no claim is meant to have it,
    // and whose policy became Delete when nothing could take its finalizer off.
    let is_unclaimed = phase == "Available" && text(volume, "/spec/claimRef/uid").is_empty();
    if terminating && phase != "Bound" && !is_unclaimed && !reported {
        unrest.push(format!("{name} is being deleted for ever without an event"));
    }
    let is_lost =
        core.storage.get(image_of(handle)).is_none() && !core.ledger.went_by_another_handle(handle);
    let is_lost = is_lost && !core.ledger.was_removed_late(handle);
    let is_lost = is_lost && !core.ledger.was_kept_too_late(text(volume, "/metadata/uid"));
    if is_lost && policy == "Delete" && phase == "Bound" {
        unrest.push(format!("{name} is bound and its volume {handle} is gone"));
    }
    unrest
}
