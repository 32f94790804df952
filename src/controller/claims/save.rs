//! Saves PersistentVolumes.
//!
//! Keeps each volume that the driver has made until its PersistentVolume exists (safety rule 7). A
//! save is a POST. If its answer is unclear, the next attempt reads first; if the name is taken,
//! the object that has it decides. An event says why a save waits. Nothing is deleted here: a
//! volume whose PersistentVolume is invalid and whose claim is gone goes to
//! `discard`.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};
use tokio::{
    sync::watch,
    time::{Duration, Instant},
};
use tracing::Instrument as _;

use super::{
    index::{ClaimGuard, Entry, Existence, KnownClaim, Topic},
    reporting::source_label,
    state::Transition,
    worker::ClaimWorker,
};
use crate::{
    controller::{
        events::claim_key,
        item::Key,
        model::{
            finalizer,
            unusable_volume::{Credentials, UnusableVolume},
        },
        ownership::{PROVISIONED_BY, class_of_claim},
        provisioner::{Failure, ProvisionRequest, ProvisionedVolume, Provisioner, VolumeHandle},
    },
    kube::{
        ApiError,
        objects::{Claim, View as _, Volume},
    },
    metrics::{Panicked, SuspectedLeak},
    workqueue::Action,
};

/// The reclaim policy of volumes that are kept.
const RETAIN: &str = "Retain";

/// The unsaved volumes, by claim UID. Clones share them. Not in the index of claims: the entry of a claim
/// may be gone before its volume is saved, and the end of the process waits until all are.
#[derive(Clone, Default)]
pub struct UnsavedVolumes(watch::Sender<BTreeMap<Key, Arc<Unsaved>>>);

/// A volume that exists at the driver and has no PersistentVolume yet.
#[derive(Debug, Clone)]
pub struct Unsaved {
    claim: Arc<Claim>,
    /// Whether the claim still exists.
    existence: Existence,
    volume: PersistentVolume,
    /// The driver's ID of the volume. An in-tree PersistentVolume does not contain it.
    handle: VolumeHandle,
    /// The credentials with which the volume was made.
    credentials: Credentials,
    /// When the attempt that made the volume started.
    started: Instant,
    /// How the attempts to save it have failed.
    setback: Setback,
}

/// What failed attempts to save have shown.
#[derive(Debug, Clone, Copy, Default)]
struct Setback {
    /// Whether an earlier POST may have been carried out, so that the next attempt reads first.
    unclear: bool,
    /// Whether the API server refused the last attempt and will refuse the next one until somebody
    /// acts.
    refused: bool,
    /// Whether a PersistentVolume of the name has, or may have, this very volume: when that
    /// PersistentVolume is deleted, the volume may be deleted with it.
    may_share_handle: bool,
}

impl Unsaved {
    /// Completes the PersistentVolume that the call with `request` brought, `provisioned`.
    pub fn new(
        request: ProvisionRequest,
        provisioned: ProvisionedVolume,
        started: Instant,
        existence: Existence,
    ) -> Self {
        let ProvisionedVolume { volume, handle, credentials } = provisioned;
        let volume = complete(volume, &request);
        let setback = Setback::default();
        Self { claim: request.claim, existence, volume, handle, credentials, started, setback }
    }

    /// The volume without its PersistentVolume, which the API server refuses for the reason `why`.
    fn unusable_volume(&self, why: &str) -> UnusableVolume {
        let name = self.name();
        UnusableVolume {
            handle: self.handle.clone(),
            credentials: self.credentials.clone(),
            defect: Failure::new(why),
            orphaned: Failure::new(format!(
                "{why}. Cleanup of volume {name} failed, volume is orphaned"
            )),
        }
    }

    fn name(&self) -> &str {
        self.volume.metadata.name.as_deref().unwrap_or_default()
    }

    /// The label `source` of the metrics.
    fn source(&self) -> &'static str {
        source_label(&self.claim)
    }

    fn class(&self) -> &str {
        self.claim.spec.storage_class_name.as_deref().unwrap_or_default()
    }
}

/// Adds the fields that are the controller's: claimRef, class, provisioner and protection
/// finalizer.
pub(crate) fn complete(
    mut volume: PersistentVolume,
    request: &ProvisionRequest,
) -> PersistentVolume {
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
    /// The claim has a PersistentVolume of another volume, which has this ID there.
    Superseded(String),
    /// The PersistentVolume was saved, and somebody has deleted it since. It is not gone yet.
    PvTerminating(Box<Volume>),
    /// The PersistentVolume that had, or may have had, this volume is gone.
    PvGone,
    /// Not saved, with the text for the claim's user.
    NotSaved(NotSaved, String),
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
fn judge(found: Option<&Volume>, unsaved: &Unsaved) -> Option<Attempt> {
    let found = found?;
    let ours = found.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid == unsaved.claim.uid());
    let taken =
        || format!("PersistentVolume {:?} exists already and is not for this claim", found.name());
    let same = found.source_id() == Volume::source_id_of(&unsaved.volume);
    Some(match (ours, same) {
        (true, true) if !found.is_terminating() => Attempt::Saved,
        (true, true) => Attempt::PvTerminating(Box::new(found.clone())),
        (true, false) => Attempt::Superseded(found.source_id().to_owned()),
        (false, true) if is_of_same_driver(found, &unsaved.volume) && !is_going(found) => {
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

impl UnsavedVolumes {
    /// The UIDs of the claims whose PersistentVolume is not saved.
    pub fn all(&self) -> Vec<Key> {
        self.0.borrow().keys().cloned().collect()
    }

    /// Logs the unsaved volumes, so that an admin can find them if their claims are deleted, too.
    pub fn log(&self) {
        for (uid, unsaved) in &*self.0.borrow() {
            tracing::warn!(
                claim = %claim_key(&unsaved.claim),
                uid = &**uid,
                pv = unsaved.name(),
                handle = unsaved.handle.id(),
                "A volume has no PersistentVolume yet; the next leader asks the driver for it again"
            );
        }
    }

    /// Whether the volume is not saved.
    pub fn holds(&self, handle: &VolumeHandle) -> bool {
        self.0.borrow().values().any(|unsaved| unsaved.handle == *handle)
    }

    /// Whether the volume is not saved and has another name than `name`.
    pub fn holds_as_another(&self, handle: &VolumeHandle, name: &str) -> bool {
        let same = |unsaved: &Arc<Unsaved>| unsaved.handle == *handle && unsaved.name() != name;
        self.0.borrow().values().any(same)
    }

    /// The driver deletes the volume of the PersistentVolume `name`. An unsaved volume of that name
    /// may be the same volume. The caller holds the lock of the volume.
    pub fn on_volume_deletion(&self, name: &str) {
        self.0.send_if_modified(|all| {
            for unsaved in all.values_mut().filter(|unsaved| unsaved.name() == name) {
                let setback = &mut Arc::make_mut(unsaved).setback;
                setback.unclear = true;
                setback.may_share_handle = true;
            }
            false
        });
    }

    fn get(&self, uid: &str) -> Option<Arc<Unsaved>> {
        self.0.borrow().get(uid).cloned()
    }

    fn keep(&self, uid: &Key, unsaved: Arc<Unsaved>) {
        self.0.send_modify(|all| drop(all.insert(uid.clone(), unsaved)));
    }

    fn remove(&self, uid: &Key) {
        self.0.send_modify(|all| drop(all.remove(uid)));
    }
}

impl<P: Provisioner> ClaimWorker<P> {
    /// Saves the PersistentVolume of the volume that the call with `request` brought, or keeps it for
    /// [`ClaimWorker::sync_unsaved`].
    pub(super) async fn save(
        &self,
        held: &ClaimGuard,
        request: ProvisionRequest,
        provisioned: ProvisionedVolume,
        started: Instant,
    ) {
        let uid = held.uid();
        let existence = held.known().unwrap_or_default().existence;
        let unsaved = Arc::new(Unsaved::new(request, provisioned, started, existence));
        // Kept first, so that the volume is not forgotten if the attempt is cancelled.
        self.unsaved.keep(uid, Arc::clone(&unsaved));
        if self.attempt_and_report(held, &unsaved).await == Action::Retry {
            self.unsaved_queue.add_rate_limited(uid.clone());
        }
    }

    /// Tries again to save the PersistentVolume of the claim with this UID.
    pub async fn sync_unsaved(&self, uid: &Key) -> Action {
        let held = self.index.hold(uid).await;
        let Some(unsaved) = self.unsaved.get(uid) else { return Action::Done };
        let claim = claim_key(&unsaved.claim);
        let span = tracing::info_span!("save", %claim, uid = &**uid, pv = unsaved.name());
        self.attempt_and_report(&held, &unsaved).instrument(span).await
    }

    /// The task that saved the PersistentVolume of the claim with this UID has panicked.
    pub fn saving_panicked(&self, uid: &Key, panic: &str) {
        tracing::error!(
            uid = &**uid,
            panic,
            "saving a PersistentVolume panicked; this is a bug. It is tried again at the next resync"
        );
        self.metrics.panicked(Panicked::UnsavedVolumes);
    }

    /// Tries to save all volumes once more before the process exits. Returns when only volumes are
    /// left that the API server refuses and that the records on their claims lead the next process
    /// to.
    pub async fn save_before_exit(&self) {
        self.unsaved.0.send_modify(|all| {
            for unsaved in all.values_mut() {
                Arc::make_mut(unsaved).setback.refused = false;
            }
        });
        self.unsaved.all().into_iter().for_each(|uid| self.unsaved_queue.add(uid));
        let left = |all: &BTreeMap<Key, Arc<Unsaved>>| {
            all.iter().all(|(uid, unsaved)| {
                unsaved.setback.refused && self.index.is(uid, KnownClaim::is_protected)
            })
        };
        // The sender lives as long as `self`.
        let _ = self.unsaved.0.subscribe().wait_for(left).await;
    }

    async fn attempt_and_report(&self, held: &ClaimGuard, unsaved: &Unsaved) -> Action {
        let action = self.attempt_once(held, unsaved).await;
        // A turn of the claim follows: for its record, to discard or to ask again, or to give up the claim
        // after `--claim-protection-timeout`.
        if held.is(|known| known.state.is_open() || known.is_protected()) {
            self.queue.add(held.uid().clone());
        }
        action
    }

    async fn attempt_once(&self, held: &ClaimGuard, unsaved: &Unsaved) -> Action {
        // Its PersistentVolume was seen, and may be deleted together with the volume by now.
        if !held.is(KnownClaim::is_saving) {
            return self.on_saved(held, unsaved);
        }
        match self.try_to_save(unsaved).await {
            Attempt::Saved => self.on_saved(held, unsaved),
            Attempt::Superseded(volume) => self.on_superseded(held, unsaved, &volume),
            Attempt::PvTerminating(volume) => self.on_pv_terminating(held, unsaved, &volume),
            Attempt::PvGone => self.on_pv_gone(held, unsaved),
            Attempt::NotSaved(NotSaved::Invalid | NotSaved::NameTaken, why)
                if is_gone_or_bound(held) =>
            {
                self.discard_volume(held, unsaved, &why)
            }
            Attempt::NotSaved(NotSaved::HandleInUse, _) if is_gone_or_bound(held) => {
                self.on_not_needed(held)
            }
            Attempt::NotSaved(reason, why) => self.not_saved(held, unsaved, &why, reason.setback()),
        }
    }

    fn not_saved(
        &self,
        held: &ClaimGuard,
        unsaved: &Unsaved,
        why: &str,
        setback: Setback,
    ) -> Action {
        tracing::warn!(
            error = why,
            handle = unsaved.handle.id(),
            "the PersistentVolume is not saved yet"
        );
        if held.report(Topic::Blocked(why, Duration::ZERO)) {
            self.events.blocked(&unsaved.claim, why);
        }
        self.metrics.provision_failed(unsaved.class(), unsaved.source());
        let unclear = setback.unclear || unsaved.setback.unclear;
        let may_share_handle = setback.may_share_handle || unsaved.setback.may_share_handle;
        let setback = Setback { unclear, may_share_handle, ..setback };
        self.unsaved.keep(held.uid(), Arc::new(Unsaved { setback, ..unsaved.clone() }));
        Action::Retry
    }

    /// Gives the volume, which can never be saved, to `discard` (safety rule 8).
    fn discard_volume(&self, held: &ClaimGuard, unsaved: &Unsaved, why: &str) -> Action {
        held.update(|it| {
            it.advance(Transition::PvRefused(Box::new(unsaved.unusable_volume(why))));
        });
        self.unsaved.remove(held.uid());
        Action::Done
    }

    fn on_saved(&self, held: &ClaimGuard, unsaved: &Unsaved) -> Action {
        tracing::info!("volume provisioned");
        self.metrics.provisioned(unsaved.class(), unsaved.source(), unsaved.started.elapsed());
        if let Some(claim) = held.known() {
            self.metrics.served(unsaved.class(), unsaved.source(), claim.age());
        }
        // Like external-provisioner, emits no event on a claim that is gone.
        if !unsaved.existence.is_over() {
            self.events.provisioned(&unsaved.claim, unsaved.name());
        }
        self.forget(held)
    }

    /// The PersistentVolume was saved and is being deleted. It is never saved again, as the volume
    /// may be deleted with it. Once it is gone, a claim that still waits is provisioned again
    /// (safety rules 6 and 7).
    fn on_pv_terminating(&self, held: &ClaimGuard, unsaved: &Unsaved, volume: &Volume) -> Action {
        let why =
            format!("waiting for PersistentVolume {:?} to go: somebody deleted it", volume.name());
        self.metrics.provisioned(unsaved.class(), unsaved.source(), unsaved.started.elapsed());
        self.events.blocked(&unsaved.claim, &why);
        held.update(|it| it.pv_terminating(volume, &self.identity));
        self.forget(held)
    }

    /// The claim has another volume, so this one is a suspected leak (safety rule 14).
    fn on_superseded(&self, held: &ClaimGuard, unsaved: &Unsaved, volume: &str) -> Action {
        let why = format!(
            "PersistentVolume {:?} has the volume {volume:?} already; the volume {:?} may be left at the driver",
            unsaved.name(),
            unsaved.handle
        );
        tracing::error!(error = why, "suspected leak");
        self.metrics.suspected_leak(SuspectedLeak::Superseded);
        self.events.blocked(&unsaved.claim, &why);
        self.forget(held)
    }

    /// Nobody waits for the volume any more, and another PersistentVolume has it: nothing is left
    /// over.
    fn on_not_needed(&self, held: &ClaimGuard) -> Action {
        tracing::info!("not saved: its claim is gone, and another PersistentVolume has the volume");
        self.forget(held)
    }

    /// The PersistentVolume that had the name is gone, perhaps with this very volume. The volume is
    /// not saved; a claim that still waits is provisioned again.
    fn on_pv_gone(&self, held: &ClaimGuard, unsaved: &Unsaved) -> Action {
        held.update(|it| it.pv_gone(unsaved.handle.id()));
        self.unsaved.remove(held.uid());
        if is_gone_or_bound(held) {
            self.suspect_gone(held, &unsaved.claim, unsaved.handle.id());
        }
        Action::Done
    }

    /// The volume with this handle may have been deleted with another PersistentVolume. Nobody
    /// waits for it any more, so no further call would show whether it was (safety rule 14).
    pub(super) fn suspect_gone(&self, held: &ClaimGuard, claim: &Claim, handle: &str) {
        let why = format!(
            "the volume {handle:?} may be left at the driver: another PersistentVolume of its name is gone, perhaps with it, and nobody waits for it any more"
        );
        tracing::error!(error = why, "suspected leak");
        self.metrics.suspected_leak(SuspectedLeak::Superseded);
        if held.known().is_none_or(|known| !known.existence.is_over()) {
            self.events.blocked(claim, &why);
        }
        held.update(|it| it.advance(Transition::LeakSuspected));
    }

    fn forget(&self, held: &ClaimGuard) -> Action {
        self.unsaved.remove(held.uid());
        held.update(Entry::saved);
        Action::Done
    }

    async fn try_to_save(&self, unsaved: &Unsaved) -> Attempt {
        let found =
            if unsaved.setback.unclear { self.read_taken_name(unsaved).await } else { None };
        match found {
            Some(attempt) => attempt,
            None if unsaved.setback.may_share_handle => Attempt::PvGone,
            None => self.post(unsaved).await,
        }
    }

    /// The PersistentVolume with the reclaim policy that its class has now (safety rule 9).
    fn with_policy<'a>(&self, unsaved: &'a Unsaved) -> Cow<'a, PersistentVolume> {
        let spec = unsaved.volume.spec.as_ref();
        let then = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
        let class = class.and_then(|class| self.classes.get(class));
        let now = class.as_deref().and_then(|class| class.reclaim_policy.as_deref());
        let claim = self.index.known(unsaved.claim.uid());
        let is_live =
            claim.is_some_and(|it| !it.is_gone_or_terminating() && !it.is_gone_or_bound());
        match policy(then, now, is_live) {
            policy if policy == then => Cow::Borrowed(&unsaved.volume),
            policy => {
                let mut volume = unsaved.volume.clone();
                volume.spec.get_or_insert_default().persistent_volume_reclaim_policy =
                    policy.map(str::to_owned);
                Cow::Owned(volume)
            }
        }
    }

    async fn post(&self, unsaved: &Unsaved) -> Attempt {
        let volume = self.with_policy(unsaved);
        match self.client.create::<Volume>(None, &*volume).await {
            Ok(_) => Attempt::Saved,
            Err(taken) if taken.is_already_exists() => {
                after_conflict(self.read_taken_name(unsaved).await, &taken)
            }
            Err(error) if error.is_invalid() => {
                Attempt::NotSaved(NotSaved::Invalid, error.to_string())
            }
            Err(error) => not_saved_yet(&error),
        }
    }

    /// Reads the PersistentVolume of the name and decides what it means.
    async fn read_taken_name(&self, unsaved: &Unsaved) -> Option<Attempt> {
        match self.read_volume(unsaved.name()).await {
            Ok(found) => judge(found.as_ref(), unsaved),
            Err(error) => Some(not_saved_yet(&error)),
        }
    }
}

/// Whether nobody is left who could change what the API server refuses.
fn is_gone_or_bound(held: &ClaimGuard) -> bool {
    held.known().is_none_or(|known| known.is_gone_or_bound())
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
