//! Saves PersistentVolumes.
//!
//! Keeps each volume that the driver has made until its PersistentVolume exists (safety rule 7). A
//! save is a POST. If its answer is unclear, the next attempt reads first; if the name is taken,
//! the object that has it decides. An event says why a save waits. Nothing is deleted here: a
//! volume whose PersistentVolume is invalid and whose claim is gone goes to
//! `discard`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};
use tokio::time::Duration;
use tracing::Instrument as _;

use super::{
    index::{ClaimGuard, ClaimIndex, Entry, KnownClaim},
    reporting::labels,
    state::{ClaimState, Transition},
    worker::ClaimWorker,
};
use crate::{
    controller::{
        Key,
        events::claim_key,
        model::{
            finalizer,
            unsaved_volume::{Seen, Setback, UnsavedVolume},
            unusable_volume::UnusableVolume,
        },
        ownership::{PROVISIONED_BY, class_of_claim},
        provisioner::{Failure, ProvisionRequest, Provisioner},
    },
    kube::{
        ApiError,
        objects::{Claim, View as _, Volume},
    },
    metrics::SuspectedLeak,
    workqueue::{Action, Worker},
};

/// The reclaim policy of volumes that are kept.
const RETAIN: &str = "Retain";

/// A volume to save, as it was known when a worker took it.
struct ToSave {
    /// Of the call that made it.
    request: Arc<ProvisionRequest>,
    unsaved: Arc<UnsavedVolume>,
}

impl ToSave {
    /// Of a claim whose volume is not saved.
    fn of(known: KnownClaim) -> Option<Self> {
        match (known.state, known.request) {
            (ClaimState::Saving(unsaved), Some(request)) => Some(Self { request, unsaved }),
            _ => None,
        }
    }

    fn claim(&self) -> &Claim {
        &self.request.claim
    }

    /// The volume without its PersistentVolume, which the API server refuses for the reason `why`.
    fn unusable_volume(&self, why: &str) -> UnusableVolume {
        let name = self.unsaved.name();
        UnusableVolume {
            handle: self.unsaved.handle.clone(),
            credentials: self.unsaved.credentials.clone(),
            defect: Failure::new(why),
            orphaned: Failure::new(format!(
                "{why}. Cleanup of volume {name} failed, volume is orphaned"
            )),
        }
    }
}

/// Adds the fields that are the controller's: claimRef, class, provisioner and protection
/// finalizer.
pub fn complete(mut volume: PersistentVolume, request: &ProvisionRequest) -> PersistentVolume {
    let claim = &request.claim;
    let spec = volume.spec.get_or_insert_default();
    spec.claim_ref = Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: Some(claim.namespace().to_owned()),
        name: Some(claim.name().to_owned()),
        uid: Some(claim.uid().to_owned()),
        resource_version: claim.metadata.resource_version.clone().map(String::from),
        field_path: None,
    });
    spec.storage_class_name =
        Some(class_of_claim(claim).to_owned()).filter(|class| !class.is_empty());
    let annotations = volume.metadata.annotations.get_or_insert_default();
    annotations.insert(PROVISIONED_BY.to_owned(), request.class.provisioner.clone());
    volume.metadata.finalizers.get_or_insert_default().push(finalizer::PROTECTION.to_owned());
    volume
}

/// The result of one attempt to save.
#[derive(Debug)]
enum Attempt {
    /// The PersistentVolume exists and is of this volume.
    Saved,
    /// The claim's PersistentVolume is of another volume, which has this ID at the driver.
    Superseded(String),
    /// The PersistentVolume was saved, and somebody has deleted it since. It is not gone yet.
    PvTerminating(Box<Volume>),
    /// The PersistentVolume that had, or may have had, this volume is gone.
    PvGone,
    /// Not saved, with the text for the claim's user.
    NotSaved(NotSaved, String),
}

impl Attempt {
    /// What the attempt comes to if the watch has shown the PersistentVolume meanwhile (`is_seen`): then it is
    /// saved, whatever the API server has answered.
    fn beside_watch(self, is_seen: bool) -> Self {
        match self {
            Self::PvTerminating(_) => self,
            _ if is_seen => Self::Saved,
            _ => self,
        }
    }
}

/// Why a PersistentVolume is not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotSaved {
    /// Refused as invalid: it can never be saved as it is.
    Invalid,
    /// Refused for missing permissions.
    Forbidden,
    /// A PersistentVolume of another volume, not for this claim, has the name.
    NameTaken,
    /// A PersistentVolume of the name, not for this claim, has this very volume.
    HandleInUse,
    /// A PersistentVolume of the name exists that may have this very volume, and that this process
    /// may not read if `refused`.
    HandleMaybeInUse { refused: bool },
    /// Not saved now. If `unclear`, it may have been saved, so that the next attempt reads first.
    NotYet { unclear: bool },
}

impl NotSaved {
    /// What this attempt has shown.
    fn setback(self) -> Setback {
        let (unclear, refused, may_share_handle) = match self {
            Self::Invalid | Self::Forbidden => (false, true, false),
            Self::NameTaken => (true, true, false),
            Self::HandleInUse => (true, false, true),
            Self::HandleMaybeInUse { refused } => (true, refused, true),
            Self::NotYet { unclear } => (unclear, false, false),
        };
        Setback { unclear, refused, may_share_handle }
    }
}

/// Decides what a PersistentVolume of the name means for the one to save. `None`: there is none.
fn judge(found: Option<&Volume>, to_save: &ToSave) -> Option<Attempt> {
    let found = found?;
    let ours =
        found.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid == to_save.claim().uid());
    let taken =
        || format!("PersistentVolume {:?} exists already and is not for this claim", found.name());
    let same = found.source_id() == to_save.unsaved.source_id();
    Some(match (ours, same) {
        (true, true) if !found.is_terminating() => Attempt::Saved,
        (true, true) => Attempt::PvTerminating(Box::new(found.clone())),
        (true, false) => Attempt::Superseded(found.source_id().to_owned()),
        (false, true) if is_of_same_driver(found, &to_save.unsaved.volume) && !is_going(found) => {
            Attempt::NotSaved(NotSaved::HandleInUse, taken())
        }
        (false, true) => Attempt::NotSaved(NotSaved::HandleMaybeInUse { refused: false }, taken()),
        (false, false) => Attempt::NotSaved(NotSaved::NameTaken, taken()),
    })
}

/// Whether the PersistentVolume is being deleted or soon will be. The volume of that handle may
/// have been made after the one of this PersistentVolume was deleted.
fn is_going(found: &Volume) -> bool {
    found.is_terminating() || finalizer::due(found) == finalizer::Due::Delete
}

/// Whether both are of the same CSI driver. Handles of different drivers are not comparable.
fn is_of_same_driver(found: &Volume, volume: &PersistentVolume) -> bool {
    let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    csi.is_some_and(|csi| found.spec.csi.as_ref().is_some_and(|it| it.driver == csi.driver))
}

impl ClaimIndex {
    /// Logs the unsaved volumes, so that an admin can find them if their claims are deleted, too, and the open calls
    /// that end with this process: nobody wants their volumes, and no record shows the next leader that they were made.
    pub fn log_unfinished(&self) {
        for uid in self.uids(|known| known.unsaved().is_some()) {
            let Some(to_save) = self.known(&uid).and_then(ToSave::of) else { continue };
            tracing::warn!(
                claim = %claim_key(to_save.claim()),
                uid = &*uid,
                pv = to_save.unsaved.name(),
                handle = to_save.unsaved.handle.id(),
                "A volume has no PersistentVolume yet; the next leader asks the driver for it again"
            );
        }
        let is_left = |known: &KnownClaim| {
            let is_followed = known.is_wanted() || known.is_protected();
            known.state.is_open() && known.unsaved().is_none() && !is_followed
        };
        for known in self.uids(is_left).iter().filter_map(|uid| self.known(uid)) {
            tracing::error!(
                claim = %claim_key(&known.claim),
                uid = known.claim.uid(),
                pv = known.key(),
                error = "no process follows its CreateVolume any more",
                "suspected leak"
            );
        }
    }

    /// The driver deletes the volume of the PersistentVolume `name`. An unsaved volume of that name
    /// may be the same volume. The caller holds the lock of the volume.
    pub fn on_volume_deletion(&self, name: &str) {
        self.update_unsaved(|unsaved| {
            if unsaved.name() == name {
                unsaved.setback.unclear = true;
                unsaved.setback.may_share_handle = true;
            }
        });
    }
}

/// The worker of the queue of volumes that are not saved.
pub struct Saver<P>(pub Arc<ClaimWorker<P>>);

impl<P: Provisioner> Worker<Key> for Saver<P> {
    /// Tries again to save the PersistentVolume of the claim with this UID.
    async fn sync(&self, uid: &Key) -> Action {
        let Self(worker) = self;
        let held = worker.index.hold(uid).await;
        let Some(known) = held.known() else { return Action::Done };
        let claim = claim_key(&known.claim);
        let span = tracing::info_span!("save", %claim, uid = &**uid, pv = known.key());
        worker.attempt_and_queue(&held).instrument(span).await
    }
}

impl<P: Provisioner> ClaimWorker<P> {
    /// Saves the PersistentVolume of the volume that a call has brought; after a failure, the queue does.
    pub(super) async fn save(&self, held: &ClaimGuard) {
        if self.attempt_and_queue(held).await == Action::Retry {
            self.unsaved_queue.add_rate_limited(held.uid().clone());
        }
    }

    /// Tries to save all volumes once more before the process exits. Returns when only volumes are
    /// left that the API server refuses and that the records on their claims lead the next process
    /// to.
    pub async fn save_before_exit(&self) {
        self.index.update_unsaved(|unsaved| unsaved.setback.refused = false);
        self.unsaved_queue.add_all(self.index.unsaved(|_| true));
        let is_left = |known: &KnownClaim| {
            let is_tried = |it: &UnsavedVolume| !(it.setback.refused && known.is_protected());
            known.unsaved().is_some_and(is_tried)
        };
        while !self.index.unsaved(is_left).is_empty() {
            self.save_attempted.notified().await;
        }
    }

    /// Tries to save the claim's PersistentVolume.
    async fn attempt_and_queue(&self, held: &ClaimGuard) -> Action {
        let Some(to_save) = held.known().and_then(ToSave::of) else { return Action::Done };
        let action = self.attempt_once(held, &to_save).await;
        self.save_attempted.notify_one();
        // A turn of the claim follows: for its record, to discard or to ask again, or to give up the claim
        // after `--claim-protection-timeout`.
        if held.is(|known| known.state.is_open() || known.is_protected()) {
            self.queue.add(held.uid().clone());
        }
        action
    }

    async fn attempt_once(&self, held: &ClaimGuard, to_save: &ToSave) -> Action {
        // Its PersistentVolume was seen, and may be deleted together with the volume by now.
        let attempt = match to_save.unsaved.seen {
            Seen::Nothing => self.try_to_save(to_save).await,
            Seen::Exists | Seen::Gone => Attempt::Saved,
        };
        let is_seen = held.is(|it| it.unsaved().is_some_and(|it| it.seen != Seen::Nothing));
        let is_wanted = !held.is(KnownClaim::is_gone_or_bound);
        match attempt.beside_watch(is_seen) {
            Attempt::Saved => self.on_saved(held, to_save),
            Attempt::Superseded(volume) => self.on_superseded(held, to_save, &volume),
            Attempt::PvTerminating(volume) => self.on_pv_terminating(held, to_save, &volume),
            Attempt::PvGone => self.on_pv_gone(held, to_save),
            Attempt::NotSaved(NotSaved::Invalid | NotSaved::NameTaken, why) if !is_wanted => {
                // It can never be saved (safety rule 8).
                let refused = Transition::PvRefused(Box::new(to_save.unusable_volume(&why)));
                held.update(|it| it.advance(refused));
                Action::Done
            }
            Attempt::NotSaved(NotSaved::HandleInUse, _) if !is_wanted => on_not_needed(held),
            Attempt::NotSaved(reason, why) => self.not_saved(held, to_save, &why, reason.setback()),
        }
    }

    fn not_saved(
        &self,
        held: &ClaimGuard,
        to_save: &ToSave,
        why: &str,
        setback: Setback,
    ) -> Action {
        let handle = to_save.unsaved.handle.id();
        tracing::warn!(error = why, handle, "the PersistentVolume is not saved yet");
        self.blocked(to_save.claim(), why, why, Duration::ZERO);
        self.count_failure(to_save.claim());
        held.update(|it| it.update_unsaved(|unsaved| unsaved.setback.add(setback)));
        Action::Retry
    }

    fn on_saved(&self, held: &ClaimGuard, to_save: &ToSave) -> Action {
        tracing::info!("volume provisioned");
        let (class, source) = labels(to_save.claim());
        self.deps.metrics.controller.provisioned(class, source, to_save.unsaved.started.elapsed());
        if let Some(claim) = held.known() {
            self.deps.metrics.controller.served(class, source, claim.age());
        }
        // Like external-provisioner, emits no event on a claim that is gone.
        if !held.is(|known| known.is_gone) {
            self.deps.events.provisioned(to_save.claim(), to_save.unsaved.name());
        }
        finish(held)
    }

    /// The PersistentVolume was saved and is being deleted. It is never saved again, as the volume
    /// may be deleted with it. Once it is gone, a claim that still waits is provisioned again
    /// (safety rules 6 and 7).
    fn on_pv_terminating(&self, held: &ClaimGuard, to_save: &ToSave, volume: &Volume) -> Action {
        let why =
            format!("waiting for PersistentVolume {:?} to go: somebody deleted it", volume.name());
        let (class, source) = labels(to_save.claim());
        self.deps.metrics.controller.provisioned(class, source, to_save.unsaved.started.elapsed());
        self.deps.events.blocked(to_save.claim(), &why);
        held.update(|it| it.pv_terminating(volume, &self.deps.identity));
        finish(held)
    }

    /// The claim has another volume, so this one is a suspected leak (safety rule 14).
    fn on_superseded(&self, held: &ClaimGuard, to_save: &ToSave, volume: &str) -> Action {
        let why = format!(
            "PersistentVolume {:?} has the volume {volume:?} already; the volume {:?} may be left at the driver",
            to_save.unsaved.name(),
            to_save.unsaved.handle
        );
        self.suspect(to_save.claim(), SuspectedLeak::SUPERSEDED, &why);
        finish(held)
    }

    /// The PersistentVolume that had the name is gone, perhaps with this very volume. The volume is
    /// not saved; a claim that still waits is provisioned again.
    fn on_pv_gone(&self, held: &ClaimGuard, to_save: &ToSave) -> Action {
        let handle = to_save.unsaved.handle.id();
        held.update(|it| it.pv_gone(handle));
        if held.is(KnownClaim::is_gone_or_bound) {
            self.suspect_gone(held, to_save.claim(), handle);
        }
        Action::Done
    }

    /// The volume with this handle may have been deleted with a PersistentVolume. Nobody
    /// waits for it any more, so no further call would show whether it was (safety rule 14).
    pub(super) fn suspect_gone(&self, held: &ClaimGuard, claim: &Claim, handle: &str) {
        let why = format!(
            "the volume {handle:?} may be left at the driver: the PersistentVolume of its name is gone, perhaps with it, and nobody waits for it any more"
        );
        tracing::error!(error = why, "suspected leak");
        self.deps.metrics.controller.suspected_leak(SuspectedLeak::SUPERSEDED);
        if !held.is(|known| known.is_gone) {
            self.deps.events.blocked(claim, &why);
        }
        held.update(|it| it.advance(Transition::LeakSuspected));
    }

    async fn try_to_save(&self, to_save: &ToSave) -> Attempt {
        let found = if to_save.unsaved.setback.unclear {
            self.read_taken_name(to_save).await
        } else {
            None
        };
        match found {
            Some(attempt) => attempt,
            None if to_save.unsaved.setback.may_share_handle => Attempt::PvGone,
            None => self.post(to_save).await,
        }
    }

    /// The PersistentVolume with the reclaim policy that its class has now (safety rule 9).
    fn with_policy(&self, to_save: &ToSave) -> PersistentVolume {
        let mut volume = complete(to_save.unsaved.volume.clone(), &to_save.request);
        let spec = volume.spec.get_or_insert_default();
        let class =
            spec.storage_class_name.as_deref().and_then(|class| self.deps.classes.get(class));
        let now = class.as_deref().and_then(|class| class.reclaim_policy.as_deref());
        let then = spec.persistent_volume_reclaim_policy.as_deref();
        let claim = self.index.known(to_save.claim().uid());
        let is_live =
            claim.is_some_and(|it| !it.is_gone_or_terminating() && !it.is_gone_or_bound());
        spec.persistent_volume_reclaim_policy = policy(then, now, is_live).map(str::to_owned);
        volume
    }

    async fn post(&self, to_save: &ToSave) -> Attempt {
        let volume = self.with_policy(to_save);
        match self.deps.client.create::<Volume>(None, &volume).await {
            Ok(_) => Attempt::Saved,
            Err(taken) if taken.is_already_exists() => {
                after_conflict(self.read_taken_name(to_save).await, &taken)
            }
            Err(error) if error.is_invalid() => {
                Attempt::NotSaved(NotSaved::Invalid, error.to_string())
            }
            Err(error) => not_saved_yet(&error),
        }
    }

    /// Reads the PersistentVolume of the name and decides what it means.
    async fn read_taken_name(&self, to_save: &ToSave) -> Option<Attempt> {
        match self.read_volume(to_save.unsaved.name()).await {
            Ok(found) => judge(found.as_ref(), to_save),
            Err(error) => Some(not_saved_yet(&error)),
        }
    }
}

/// Nobody waits for the volume any more, and another PersistentVolume has it: nothing is left
/// over.
fn on_not_needed(held: &ClaimGuard) -> Action {
    tracing::info!("not saved: its claim is gone, and another PersistentVolume has the volume");
    finish(held)
}

/// There is nothing to save any more.
fn finish(held: &ClaimGuard) -> Action {
    held.update(Entry::saved);
    Action::Done
}

/// The reclaim policy of a PersistentVolume (safety rule 9): that of its class `now`, or, without a
/// class, that of the class at the call (`then`). If the claim does not exist any more (`is_live`
/// is false), the volume is about to be released, and Retain wins if either says so.
fn policy<'a>(then: Option<&'a str>, now: Option<&'a str>, is_live: bool) -> Option<&'a str> {
    let retain = Some(RETAIN);
    if !is_live && (then == retain || now == retain) { retain } else { now.or(then) }
}

/// Decides what the read of the PersistentVolume that has the name means, after a POST failed
/// because the name is taken. A PersistentVolume that could not be read may have this very volume.
fn after_conflict(found: Option<Attempt>, taken: &ApiError) -> Attempt {
    let maybe_in_use =
        |why, refused| Attempt::NotSaved(NotSaved::HandleMaybeInUse { refused }, why);
    match found {
        None => maybe_in_use(taken.to_string(), false),
        Some(Attempt::NotSaved(NotSaved::NotYet { .. }, why)) => maybe_in_use(why, false),
        Some(Attempt::NotSaved(NotSaved::Forbidden, why)) => maybe_in_use(why, true),
        Some(attempt) => attempt,
    }
}

fn not_saved_yet(error: &ApiError) -> Attempt {
    let unclear = error.is_unclear();
    let reason =
        if error.is_forbidden() { NotSaved::Forbidden } else { NotSaved::NotYet { unclear } };
    Attempt::NotSaved(reason, error.to_string())
}

#[cfg(test)]
mod tests;
