//! Why a volume stands where it stands: a pure function of what was read. What is due for it is decided by
//! the controller's own rule.

use super::{
    events::{last, reported},
    observe::ObservedVolume,
    report::{Cause, Explanation, State},
};
use csi_provisioner::{
    controller::{
        events::attached,
        model::finalizer::{Due, PROTECTION, due},
    },
    kube::objects::{View as _, Volume},
    status::ListedVolume,
};

use crate::duration::when;

/// Explains the volume.
pub(super) fn explain(observed: &ObservedVolume) -> Explanation {
    let volume = &observed.volume;
    let object = format!("PersistentVolume {}", volume.name());
    let mut explanation = Explanation::new(&object, cause(observed));
    if explanation.state != State::Served {
        describe_attempts(observed, &mut explanation);
        observed.leader.describe(&mut explanation);
        let arguments = format!("pv {}", volume.name());
        observed.leader.describe_status(&mut explanation, &arguments);
    }
    explanation.detail("phase", &volume.status.phase);
    explanation.detail("handle", volume.source_id());
    if let Some(identity) = &observed.identity {
        explanation.detail("driver", &identity.driver);
    }
    explanation
}

fn cause(observed: &ObservedVolume) -> Cause {
    let volume = &observed.volume;
    let is_own = observed.identity.as_ref().is_some_and(|it| it.owns_volume(volume));
    if !is_own {
        let text = "It is not a volume of this driver: neither its CSI source nor its annotations name it.";
        return Cause::new(State::Unknown, text)
            .advise("If another provisioner has made it, ask that one: leave --driver out, or name the driver.");
    }
    match due(volume) {
        Due::Delete => deletion(observed),
        Due::UnprotectUnbound => Cause::event(
            State::Waiting,
            "deleted before its claim was bound to it: the volume stays, and the claim gets another PersistentVolume",
        ),
        Due::Unprotect => Cause::new(
            State::Waiting,
            format!("Its reclaim policy keeps the volume, and the finalizer {PROTECTION} is removed next."),
        )
        .see("delete-finalizer"),
        Due::Nothing | Due::Protect => kept(volume),
    }
}

// === A volume to delete ===

fn deletion(observed: &ObservedVolume) -> Cause {
    unusable_handle(observed)
        .or_else(|| attachment(observed))
        .or_else(|| failure(observed))
        .unwrap_or_else(|| {
            Cause::new(
                State::Waiting,
                "It is released, and its volume is to be deleted at the driver.",
            )
            .advise("If that lasts, look at the provisioner's log and at the driver's.")
        })
}

fn unusable_handle(observed: &ObservedVolume) -> Option<Cause> {
    let failure = observed.handle.as_ref().err()?;
    Some(Cause::event(State::Wrong, failure.to_string()))
}

fn attachment(observed: &ObservedVolume) -> Option<Cause> {
    match &observed.attached {
        Ok(Some(node)) => Some(Cause::event(State::Waiting, attached(&observed.volume, node))),
        Err(why) => {
            let text =
                format!("Cannot be found out, as the VolumeAttachments cannot be read: {why}");
            Some(Cause::new(State::Unknown, text).see("rights"))
        }
        Ok(None) => None,
    }
}

fn failure(observed: &ObservedVolume) -> Option<Cause> {
    let driver = observed.identity.as_ref().map_or("", |identity| identity.driver.as_str());
    let event = last(observed.events.as_ref().ok()?, driver, &["VolumeFailedDelete"])?;
    Some(Cause::event(State::Waiting, reported(event, observed.now)))
}

/// The volume as the leader has it in work.
fn in_work(observed: &ObservedVolume) -> Option<&ListedVolume> {
    let volumes = &observed.leader.of_leader()?.work.volumes.listed;
    volumes.iter().find(|volume| volume.name == observed.volume.name())
}

/// The attempt's number, and when the next one is.
fn describe_attempts(observed: &ObservedVolume, explanation: &mut Explanation) {
    let Some(ListedVolume { is_deleted_at_driver, attempt, next, .. }) = in_work(observed) else {
        return;
    };
    if *is_deleted_at_driver {
        explanation.say("The driver has deleted the volume; the PersistentVolume goes next.");
    }
    explanation.say(format!("Attempt {attempt} of the leader comes {}.", when(*next)));
    explanation.detail("attempt", attempt.to_string());
}

// === A volume that stays ===

/// A volume for which nothing is due.
fn kept(volume: &Volume) -> Cause {
    let owner = volume.spec.claim_ref.as_ref();
    let owner = owner.map(|it| format!("{}/{}", it.namespace, it.name)).unwrap_or_default();
    let policy = volume.spec.persistent_volume_reclaim_policy.as_str();
    let is_terminating = volume.is_terminating();
    match (volume.status.phase.as_str(), policy) {
        ("Bound", _) if is_terminating => Cause::new(
            State::Waiting,
            format!("Somebody has deleted it, and it stays while it is bound to the claim {owner}."),
        )
        .advise("Delete the claim if the volume is not needed any more."),
        ("Bound", _) => Cause::new(State::Served, format!("It is bound to the claim {owner}.")),
        ("Released", "Retain") if !is_terminating => Cause::new(
            State::Served,
            "It is released, and its reclaim policy Retain keeps it: there is nothing to wait for. Delete it yourself, and the volume at the driver if you do not need it.",
        ),
        ("Released", "Delete") => Cause::new(
            State::Wrong,
            format!("It was deleted without the finalizer {PROTECTION}, so its volume stays at the driver."),
        )
        .advise("Other finalizers keep the PersistentVolume. Look for its volume at the driver, and delete it there if nobody needs it."),
        ("Failed", _) => Cause::new(
            State::Wrong,
            "Its phase is Failed, which only another provisioner or an admin sets: nothing is done for it.",
        )
        .advise("Delete the PersistentVolume, and its volume at the driver, by hand."),
        _ if is_terminating => terminating(volume),
        _ if owner.is_empty() => Cause::new(State::Served, "It is available, and for no claim yet."),
        _ => Cause::new(
            State::Waiting,
            format!("It is for the claim {owner}, and kube-controller-manager has not bound the two yet."),
        )
        .advise(format!("Explain the claim: csi-provisioner explain pvc, with the claim {owner}.")),
    }
}

/// A volume that somebody has deleted, and that is not deleted at the driver.
fn terminating(volume: &Volume) -> Cause {
    let finalizers = volume.metadata.finalizers.join(", ");
    let text = format!("Somebody has deleted it. Its finalizers are: {finalizers}.");
    if volume.has_finalizer(PROTECTION) {
        Cause::new(State::Wrong, text).advise(format!(
            "It is for no claim, so nothing is done for it: remove the finalizer {PROTECTION} once you have looked for its volume at the driver."
        ))
    } else {
        Cause::new(State::Waiting, text)
            .advise("Whoever put a finalizer on it has to remove it, such as csi-attacher once it is detached.")
    }
}
