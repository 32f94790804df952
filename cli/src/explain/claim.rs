//! Why a claim stands where it stands: a pure function of what was read.
//!
//! The first of these that applies is the cause: something is wrong with the volume that the claim names;
//! the claim is being deleted; it is bound, or lost; nobody provisions it; the plan; live reads; the checks
//! before a call; what the leader says; the last event. What remains is the driver.

use super::{
    events::{last_attempt, message, quoted, reason, reported, since},
    observe::{ObservedClaim, found},
    report::{Cause, Explanation, State},
    runbook,
};
use csi_provisioner::{
    controller::{
        claims::{
            plan::{Plan, missing_class, waits_for_a_node},
            record_status,
            verification::{Found, name_taken, unverified},
        },
        model::overview::Stage,
        ownership,
        provisioner::NotPrepared,
    },
    csi_provisioner::is_infeasible,
    kube::objects::{Claim, ClaimReference, StorageClass, View as _, Volume},
    status::{Blocked, ListedClaim, Place},
};

use crate::{
    duration::{duration as age, when},
    objects::last_time,
};

/// Explains the claim.
pub(super) fn explain(observed: &ObservedClaim) -> Explanation {
    let claim = &observed.claim;
    let object = format!("PersistentVolumeClaim {}/{}", claim.namespace(), claim.name());
    let mut explanation = Explanation::new(&object, cause(observed));
    describe_wait(observed, &mut explanation);
    describe_failure(observed, &mut explanation);
    describe_attempts(observed, &mut explanation);
    if explanation.state != State::Served {
        describe_leader(observed, &mut explanation);
    }
    add_details(observed, &mut explanation);
    explanation
}

/// Why the claim stands where it stands.
fn cause(observed: &ObservedClaim) -> Cause {
    bound_or_deleted(observed)
        .or_else(|| lost(observed))
        .or_else(|| unassigned(observed))
        .or_else(|| unread_class(observed))
        .or_else(|| planned(observed))
        .or_else(|| verified(observed))
        .or_else(|| checked(observed))
        .or_else(|| known_to_leader(observed))
        .or_else(|| last_event(observed))
        .unwrap_or_else(nothing_found)
}

// === The claim and its PersistentVolume ===

/// The claim names a PersistentVolume, or is being deleted. What is wrong with its volume comes first: that
/// has to be corrected, while a deletion goes on by itself.
fn bound_or_deleted(observed: &ObservedClaim) -> Option<Cause> {
    match bound(observed) {
        Some(cause) if cause.state == State::Wrong => Some(cause),
        bound => deleted(observed).or(bound),
    }
}

/// The claim names a PersistentVolume.
fn bound(observed: &ObservedClaim) -> Option<Cause> {
    let claim = &observed.claim;
    let name = claim.spec.volume_name.as_deref().filter(|name| !name.is_empty())?;
    Some(match &observed.bound {
        Ok(Some(volume)) => bound_to(observed, volume),
        Ok(None) => Cause::new(State::Wrong, format!("It is bound to the PersistentVolume {name}, which does not exist."))
            .advise("Restore the PersistentVolume if the volume still exists at the driver, or delete the claim."),
        Err(why) => unread(&format!("the PersistentVolume {name}"), why),
    })
}

fn bound_to(observed: &ObservedClaim, volume: &Volume) -> Cause {
    let (claim, name) = (&observed.claim, volume.name());
    match volume.spec.claim_ref.as_ref() {
        Some(owner) if !is_owner(owner, claim) => Cause::new(
            State::Wrong,
            format!(
                "It names the PersistentVolume {name}, which is for the claim {}/{}.",
                owner.namespace, owner.name
            ),
        )
        .advise("Delete the claim and create it again, without volumeName."),
        Some(owner) if !owner.uid.is_empty() && &*claim.status.phase == "Bound" => {
            let handle = volume.source_id();
            Cause::new(
                State::Served,
                format!("Its volume is the PersistentVolume {name}, {handle:?} at the driver."),
            )
        }
        _ => refused_by_the_controller(observed).unwrap_or_else(|| unbound_volume(name)),
    }
}

/// Whether the volume is for the claim. Users who reserve one for a claim leave the UID out.
fn is_owner(owner: &ClaimReference, claim: &Claim) -> bool {
    if owner.uid.is_empty() {
        (&*owner.namespace, &*owner.name) == (claim.namespace(), claim.name())
    } else {
        owner.uid == claim.uid()
    }
}

/// kube-controller-manager has said last that it does not bind the claim to the volume that it names.
fn refused_by_the_controller(observed: &ObservedClaim) -> Option<Cause> {
    let events = observed.events.as_ref().ok()?;
    let newest = events.iter().max_by_key(|event| last_time(event))?;
    let driver = observed.identity.as_ref().map_or("", |identity| identity.driver.as_str());
    let says = quoted(std::slice::from_ref(newest), driver, observed.now)?;
    matches!(reason(newest), "VolumeMismatch" | "FailedBinding").then(|| {
        Cause::new(State::Wrong, says)
            .advise("Correct what the event names: create the claim again, or name another volume.")
    })
}

/// The PersistentVolume exists, and kube-controller-manager has not bound it.
fn unbound_volume(name: &str) -> Cause {
    let text = format!(
        "Its PersistentVolume {name} exists, and kube-controller-manager has not bound the two yet."
    );
    Cause::new(State::Waiting, text).see("provisioned")
}

/// The annotation by which kube-controller-manager knows that it has bound a claim.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// kube-controller-manager takes the claim for bound, and it names no PersistentVolume.
fn lost(observed: &ObservedClaim) -> Option<Cause> {
    let claim = &observed.claim;
    let is_lost = claim.annotation(BIND_COMPLETED).is_some() || &*claim.status.phase == "Lost";
    is_lost.then(|| {
        let text = format!(
            "It has the annotation {BIND_COMPLETED} and names no PersistentVolume, so kube-controller-manager takes it for lost: no volume is ever bound to it."
        );
        Cause::new(State::Wrong, text).advise(format!(
            "Delete the claim and create it again without the annotations {BIND_COMPLETED} and pv.kubernetes.io/bound-by-controller. If its data is in a PersistentVolume, name that in volumeName."
        ))
    })
}

/// The claim is being deleted, with a volume or before it got one.
fn deleted(observed: &ObservedClaim) -> Option<Cause> {
    let claim = &observed.claim;
    let deleted = claim.metadata.deletion_timestamp.as_ref()?;
    let when = since(observed.now, deleted.0);
    let is_open = observed.preview.as_ref().is_some_and(|it| it.known.may_have_open_call());
    if is_open {
        let text = format!(
            "Its deletion began {when} ago, and an earlier CreateVolume for it may still run. It stays until that call is closed."
        );
        return Some(Cause::new(State::Waiting, text).see("still-provisioning"));
    }
    let identity = observed.identity.as_ref();
    if let Some(record) = identity.and_then(|it| record_status::of_other_driver(it, claim)) {
        let driver = record.printable_driver();
        let text = format!(
            "Its deletion began {when} ago, and the record of an open call of the CSI driver {driver:?} holds it."
        );
        return Some(Cause::new(State::Waiting, text).see("record-foreign-holds"));
    }
    let finalizers = claim.metadata.finalizers.join(", ");
    let so = if claim.is_unbound() { ", so it gets no volume" } else { "" };
    let text = format!("Its deletion began {when} ago{so}. Its finalizers are: {finalizers}.");
    Some(Cause::new(State::Waiting, text).advise("Whoever put a finalizer on the claim has to remove it; kubernetes.io/pvc-protection stays while a pod uses the claim."))
}

// === Whose the claim is ===

/// The claim is not annotated for this provisioner.
fn unassigned(observed: &ObservedClaim) -> Option<Cause> {
    let claim = &observed.claim;
    let identity = observed.identity.as_ref();
    if identity.is_some_and(|identity| identity.is_for_driver(claim)) {
        return None;
    }
    if let Some(identity) = identity.filter(|identity| identity.is_for_another(claim)) {
        let named = ownership::provisioner(claim).unwrap_or_default();
        let text =
            format!("Its annotation names the provisioner {named:?}, not {:?}.", identity.driver);
        return Some(
            Cause::new(State::Unknown, text)
                .advise("If another provisioner serves the claim, name its driver by --driver."),
        );
    }
    Some(match &observed.class {
        Ok(Some(class)) => unassigned_of_class(observed, class),
        Ok(None) if ownership::class_of_claim(claim).is_empty() => {
            let text = "It names no class, and no provisioner serves it: it waits for a PersistentVolume made by hand or, unless its storageClassName is \"\", for a default class.";
            Cause::new(State::Waiting, text)
                .advise("Create that PersistentVolume, or create the claim again with a class.")
        }
        Ok(None) => Cause::event(State::Wrong, missing_class(claim)),
        Err(why) => unread("its storage class", why),
    })
}

/// kube-controller-manager has not asked a provisioner for this claim.
fn unassigned_of_class(observed: &ObservedClaim, class: &StorageClass) -> Cause {
    if waits_for_a_node(&observed.claim, class) {
        return waits_for_first_consumer();
    }
    let events = observed.events.as_deref().unwrap_or_default();
    let says = quoted(events, &class.provisioner, observed.now).unwrap_or_default();
    let text = format!(
        "kube-controller-manager has not asked a provisioner for it yet: it has no annotation volume.kubernetes.io/storage-provisioner. {says}"
    );
    Cause::new(State::Waiting, text.trim_end())
        .advise("If that lasts, look at the log of kube-controller-manager.")
}

fn waits_for_first_consumer() -> Cause {
    let text = "Its class binds late (WaitForFirstConsumer), and the scheduler has not selected a node: no pod uses the claim yet, or no node fits the pod.";
    Cause::new(State::Waiting, text)
        .advise("Create a pod that uses the claim. If there is one, look at the pod's events.")
}

/// The class cannot be read, so no plan can be made.
fn unread_class(observed: &ObservedClaim) -> Option<Cause> {
    Some(unread("its storage class", observed.class.as_ref().err()?))
}

fn unread(what: &str, why: &str) -> Cause {
    let text = format!("Cannot be found out, as {what} cannot be read: {why}");
    Cause::new(State::Unknown, text)
        .see("rights")
        .advise("Run it with the rights that the message names.")
}

// === The program's own rules ===

/// What a new leader plans.
fn planned(observed: &ObservedClaim) -> Option<Cause> {
    let preview = observed.preview.as_ref()?;
    match &preview.plan {
        Plan::Blocked { why, .. } => Some(Cause::event(State::Wrong, why)),
        Plan::Drop => {
            let class = found(&observed.class)?;
            waits_for_a_node(&observed.claim, class).then(waits_for_first_consumer)
        }
        Plan::Provision(_) | Plan::Discard(..) | Plan::SuspectedLeak(_) | Plan::Elsewhere(_) => {
            None
        }
    }
}

/// What live reads before the first call show.
fn verified(observed: &ObservedClaim) -> Option<Cause> {
    match &observed.named {
        Ok(Found::HasVolume(volume)) if volume.is_terminating() => {
            let name = volume.name();
            let text = format!("waiting for PersistentVolume {name:?} to go: somebody deleted it");
            Some(Cause::event(State::Waiting, text))
        }
        Ok(Found::HasVolume(volume)) => Some(unbound_volume(volume.name())),
        Ok(Found::NameTaken { name, owner }) => {
            Some(Cause::event(State::Wrong, name_taken(name, owner)))
        }
        Ok(Found::Clear) => None,
        Err(why) => Some(Cause::event(State::Unknown, unverified(why))),
    }
}

/// What the checks before a call show.
fn checked(observed: &ObservedClaim) -> Option<Cause> {
    let not_prepared = observed.checks.as_ref()?.as_ref().err()?;
    let cause = not_prepared.failure().and_then(|failure| failure.cause.as_deref());
    let with_cause = |message: &dyn std::fmt::Display| match cause {
        Some(cause) => format!("{message}. {cause}"),
        None => message.to_string(),
    };
    Some(match not_prepared {
        NotPrepared::Ignored { reason, .. } => Cause::new(
            State::Waiting,
            format!("csi-provisioner leaves it to a populator: {reason}"),
        )
        .see("populator"),
        // The checks were made with the rights of whoever runs this.
        NotPrepared::Failed(failure) if failure.to_string().contains(" is forbidden: ") => {
            unread("what a call needs", &failure.to_string())
        }
        NotPrepared::Failed(failure) if failure.is_lasting => {
            Cause::event(State::Wrong, with_cause(failure))
        }
        NotPrepared::Failed(failure) | NotPrepared::Unrepeatable(failure) => {
            Cause::event(State::Waiting, with_cause(failure))
        }
        NotPrepared::Reschedule(failure) => Cause::event(
            State::Waiting,
            format!("{failure}. The node is given back, and the scheduler chooses again."),
        ),
    })
}

// === What was tried ===

/// The claim as the leader has it in work.
fn in_work(observed: &ObservedClaim) -> Option<&ListedClaim> {
    let claims = &observed.leader.of_leader()?.work.claims.listed;
    claims.iter().find(|claim| claim.uid == observed.claim.uid())
}

/// What the leader says about the claim.
fn known_to_leader(observed: &ObservedClaim) -> Option<Cause> {
    let claim = in_work(observed)?;
    let is_leak = claim.stage == Stage::SuspectedLeak;
    if let Some(failure) = claim.last_failure.as_ref().filter(|_| !is_leak) {
        let state = state_after(&failure.code);
        let text = format!(
            "The last attempt failed {} ago: {}",
            age(failure.seconds_ago),
            failure.message
        );
        return Some(Cause::event(state, text));
    }
    if let Some(Blocked { reason, seconds }) = &claim.blocked {
        let text = format!("It has waited for {} for this: {reason}", age(*seconds));
        return Some(Cause::event(if is_leak { State::Wrong } else { State::Waiting }, text));
    }
    Some(match (claim.stage, claim.next) {
        (Stage::InFlight, Place::Processing { seconds }) => {
            let text = format!("CreateVolume has been running for {}.", age(seconds));
            Cause::new(State::Waiting, text).see("provisioning-begun")
        }
        _ => return None,
    })
}

/// By the program's own meaning of the driver's code.
fn state_after(code: &str) -> State {
    if is_infeasible(code) { State::Wrong } else { State::Waiting }
}

/// Rows about what fails after the checks, and what only a person ends.
const ENDED_BY_A_PERSON: [&str; 3] = ["after-suspected-leak", "driver-no-volume", "driver-no-id"];

/// Whether the API server has refused a PersistentVolume so.
fn is_refusal(text: &str) -> bool {
    let is_of_volume = text.to_ascii_lowercase().starts_with("persistentvolume");
    is_of_volume && [" is forbidden: ", " is invalid: "].iter().any(|how| text.contains(how))
        || text.contains(" denied the request")
}

/// The last failure that an event reports. The checks pass now, so only what comes after them still counts.
fn last_event(observed: &ObservedClaim) -> Option<Cause> {
    let events = observed.events.as_ref().ok()?;
    let driver = observed.identity.as_ref().map_or("", |identity| identity.driver.as_str());
    let Some(event) = last_attempt(events, driver) else {
        let quoted = Cause::new(State::Waiting, quoted(events, driver, observed.now)?);
        return Some(quoted.advise("The provisioner has reported nothing: look at its log, and at the component that wrote the event."));
    };
    let text = message(event);
    let reported = reported(event, observed.now);
    if let Some(code) = runbook::grpc_code(text) {
        return Some(Cause::event(state_after(code), reported));
    }
    let row = runbook::look_up(text).map_or("", |row| row.anchor);
    Some(if is_refusal(text) {
        Cause::event(State::Wrong, reported).see("api-refused")
    } else if ENDED_BY_A_PERSON.contains(&row) {
        Cause::event(State::Wrong, reported)
    } else if reason(event) == "Provisioning" {
        Cause::event(State::Waiting, reported)
    } else {
        // Another attempt ends a conflict, whoever wrote the object meanwhile.
        let text = format!("{reported} All that can be checked here is in order now.");
        Cause::event(State::Waiting, text)
    })
}

fn nothing_found() -> Cause {
    Cause::new(
        State::Waiting,
        "All that can be checked is in order: the provisioner has yet to begin, or the driver works on it.",
    )
    .see("provisioning-begun")
}

// === More about it ===

/// Since when a claim waits.
fn describe_wait(observed: &ObservedClaim, explanation: &mut Explanation) {
    let created = observed.claim.metadata.creation_timestamp.as_ref();
    if let Some(created) = created.filter(|_| explanation.state != State::Served) {
        explanation.say(format!("The claim was created {} ago.", since(observed.now, created.0)));
    }
}

/// What the provisioner, which has other rights, has said of its last attempt, where the rules cannot say more.
fn describe_failure(observed: &ObservedClaim, explanation: &mut Explanation) {
    if explanation.state != State::Unknown {
        return;
    }
    let by_leader = known_to_leader(observed).map(|cause| cause.text);
    let by_event = || {
        let driver = &observed.identity.as_ref()?.driver;
        let event = last_attempt(observed.events.as_ref().ok()?, driver)?;
        Some(reported(event, observed.now))
    };
    if let Some(text) = by_leader.or_else(by_event) {
        explanation.say(text);
    }
}

/// The attempt's number, and when the next one is.
fn describe_attempts(observed: &ObservedClaim, explanation: &mut Explanation) {
    let Some(claim) = in_work(observed) else { return };
    let next = when(claim.next);
    let attempts = claim.attempts;
    explanation
        .say(format!("Attempts of the leader so far: {attempts}. The next one comes {next}."));
    explanation.detail("attempts", attempts.to_string());
    if let Some(failure) = claim.last_failure.as_ref().filter(|failure| !failure.code.is_empty()) {
        explanation.detail("code", &failure.code);
    }
}

fn describe_leader(observed: &ObservedClaim, explanation: &mut Explanation) {
    let claim = &observed.claim;
    observed.leader.describe(explanation);
    let arguments = format!("pvc {} --namespace {}", claim.name(), claim.namespace());
    observed.leader.describe_status(explanation, &arguments);
    if let Err(why) = &observed.events {
        explanation.say(format!("Its events cannot be read: {why}"));
    }
}

fn add_details(observed: &ObservedClaim, explanation: &mut Explanation) {
    let claim = &observed.claim;
    explanation.detail("uid", claim.uid());
    explanation.detail("class", ownership::class_of_claim(claim));
    if let Some(identity) = &observed.identity {
        explanation.detail("driver", &identity.driver);
    }
    if let Some(node) = ownership::selected_node(claim) {
        explanation.detail("node", node);
    }
    let record = observed.preview.as_ref().and_then(|preview| preview.known.open_record());
    if let Some(record) = record {
        explanation.say("It carries the record of an open CreateVolume: the call is repeated until its end is known.");
        explanation.detail("openVolume", record.printable_volume());
    }
}
