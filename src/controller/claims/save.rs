//! Saving PersistentVolumes: a volume that the driver has made is never forgotten.
//!
//! Owns what was made and is not saved yet, and the protocol of saving (safety rule 7): POST;
//! where its outcome is unclear, look before the next POST; where the name is taken, judge by
//! whose it is. Promises that an unsaved volume is tried again until it is saved or turns out to
//! have been saved, that its user hears why it waits, and that nothing is deleted here: a volume
//! whose PersistentVolume is refused as invalid and whose claim is gone goes to `discard`.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};
use tokio::{
    sync::watch,
    time::{Duration, Instant},
};
use tracing::Instrument as _;

use super::index::{ClaimIndex, Existence};
use crate::{
    controller::{
        classes::Classes,
        events::{ClaimEvents, claim_key},
        model::unusable_volume::{Credentials, UnusableVolume},
        ownership::{PROVISIONED_BY, class_of_claim},
        provisioner::{Failure, ProvisionRequest, ProvisionedVolume},
        volumes::finalizer,
    },
    kube::{
        ApiError, Client, Name,
        objects::{Claim, View as _, Volume},
    },
    metrics::{ControllerMetrics, SuspectedLeak},
    mutations,
    mutations::Mutation,
    workqueue::{Action, KeyedMutex, Queue},
};

/// The policy of volumes that are kept.
const RETAIN: &str = "Retain";

/// Saves PersistentVolumes. Clones share what is unsaved.
#[derive(Clone)]
pub struct PvStore {
    /// Writes them.
    pub client: Client,
    /// Learns which claims have theirs.
    pub book: ClaimIndex,
    /// The classes as they are now.
    pub classes: Classes,
    /// Tells users.
    pub events: ClaimEvents,
    /// Counts.
    pub metrics: ControllerMetrics,
    /// One actor a volume.
    pub exclusive: KeyedMutex,
    /// The claims whose PersistentVolume must be tried again.
    pub queue: Queue<String>,
    /// The claims to look at.
    pub claims: Queue<String>,
    /// What is unsaved, by claim UID.
    pub unsaved: watch::Sender<BTreeMap<String, Arc<Unsaved>>>,
}

/// A volume that exists at the driver and has no PersistentVolume yet.
#[derive(Debug, Clone)]
pub struct Unsaved {
    claim: Arc<Claim>,
    /// Whether the claim is still there to be told.
    existence: Existence,
    volume: PersistentVolume,
    /// The driver's id of the volume; one that is saved as an in-tree volume does not tell it.
    handle: String,
    /// The credentials with which it was made.
    credentials: Credentials,
    /// The label `source` of the metrics.
    source: &'static str,
    /// When the attempt that made it started.
    started: Instant,
    /// How the attempts so far failed.
    setback: Setback,
}

/// What failed attempts leave behind.
#[derive(Debug, Clone, Copy, Default)]
struct Setback {
    /// Whether an earlier POST may have been carried out: look before the next.
    unclear: bool,
    /// Whether the API server refused the last one, as it will until somebody changes something.
    refused: bool,
    /// Whether a PersistentVolume of the name was there that has this very volume, or may have: when
    /// that goes, the volume may go with it.
    shadowed: bool,
}

impl Unsaved {
    /// What `order` ended in: what was `made`, completed by what the controller adds to it.
    pub fn new(
        order: ProvisionRequest,
        made: ProvisionedVolume,
        source: &'static str,
        started: Instant,
        existence: Existence,
    ) -> Self {
        let ProvisionedVolume { volume, handle, credentials } = made;
        let volume = complete(volume, &order);
        let setback = Setback::default();
        Self {
            claim: order.claim,
            existence,
            volume,
            handle,
            credentials,
            source,
            started,
            setback,
        }
    }

    /// The volume without its PersistentVolume, which the API server refuses for this reason.
    fn leftover(&self, why: &str) -> UnusableVolume {
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

    fn class(&self) -> &str {
        self.claim.spec.storage_class_name.as_deref().unwrap_or_default()
    }
}

/// Adds what is the controller's: whose volume it is, of which class, made by whom, protected.
fn complete(mut volume: PersistentVolume, order: &ProvisionRequest) -> PersistentVolume {
    let claim = &order.claim;
    let spec = volume.spec.get_or_insert_default();
    spec.claim_ref = Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: Some(claim.namespace().to_owned()),
        name: Some(claim.name().to_owned()),
        uid: Some(claim.uid().to_owned()),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    });
    spec.storage_class_name =
        Some(class_of_claim(claim).to_owned()).filter(|class| !class.is_empty());
    let annotations = volume.metadata.annotations.get_or_insert_default();
    annotations.insert(PROVISIONED_BY.to_owned(), order.class.provisioner.clone());
    volume.metadata.finalizers.get_or_insert_default().push(finalizer::PROTECTION.to_owned());
    volume
}

/// What came of one attempt to save.
#[derive(Debug)]
enum Attempt {
    /// The PersistentVolume is there, and it is this one.
    Saved,
    /// The claim has another PersistentVolume: this volume is one too many.
    Superseded {
        /// What that PersistentVolume calls its volume.
        volume: String,
    },
    /// It was saved, and somebody has deleted the PersistentVolume, which is not gone yet.
    PvTerminating {
        /// The PersistentVolume as it was found.
        volume: Box<Volume>,
    },
    /// Refused as invalid: it will never be saved as it is.
    Invalid {
        /// Why, for the claim's user.
        why: String,
    },
    /// Refused for want of rights.
    Forbidden {
        /// Why, for the claim's user.
        why: String,
    },
    /// The name is another claim's PersistentVolume's, of another volume.
    NameTaken {
        /// Why, for the claim's user.
        why: String,
    },
    /// A PersistentVolume of the name, not for this claim, is there that has this very volume.
    Shared {
        /// Why, for the claim's user.
        why: String,
    },
    /// A PersistentVolume of the name is there that may have this very volume.
    Shadowed {
        /// Why, for the claim's user.
        why: String,
        /// Whether its owner may not be read.
        refused: bool,
    },
    /// What shadowed it is gone.
    PvGone,
    /// Not saved now; `unclear` when it may have been.
    NotYet {
        /// Why, for the claim's user.
        why: String,
        /// Whether to look before the next POST.
        unclear: bool,
    },
}

/// What a PersistentVolume of the name means for the one to be saved; `None`: there is none.
fn judge(found: Option<&Volume>, unsaved: &Unsaved) -> Option<Attempt> {
    let found = found?;
    let ours = found.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid == unsaved.claim.uid());
    let taken =
        || format!("PersistentVolume {:?} exists already and is not for this claim", found.name());
    let same = found.source_id() == Volume::source_id_of(&unsaved.volume);
    Some(match (ours, same) {
        (true, true) if !found.is_terminating() => Attempt::Saved,
        (true, true) => Attempt::PvTerminating { volume: Box::new(found.clone()) },
        (true, false) => Attempt::Superseded { volume: found.source_id().to_owned() },
        (false, true) if is_of_same_driver(found, &unsaved.volume) && !is_going(found) => {
            Attempt::Shared { why: taken() }
        }
        (false, true) => Attempt::Shadowed { why: taken(), refused: false },
        (false, false) => Attempt::NameTaken { why: taken() },
    })
}

/// Whether the PersistentVolume goes, or soon will: what stands for its volume may have been made after that
/// was deleted.
fn is_going(found: &Volume) -> bool {
    found.is_terminating() || finalizer::due(found) == finalizer::Due::Delete
}

/// Whether both are of the same CSI driver; what others call their volumes tells less.
fn is_of_same_driver(found: &Volume, volume: &PersistentVolume) -> bool {
    let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    csi.is_some_and(|csi| found.spec.csi.as_ref().is_some_and(|it| it.driver == csi.driver))
}

impl PvStore {
    /// Saves a PersistentVolume now, or keeps it for [`PvStore::sync`]. The caller holds its key.
    pub async fn save(&self, unsaved: Unsaved) {
        let (uid, unsaved) = (unsaved.claim.uid().to_owned(), Arc::new(unsaved));
        // Kept first: whatever happens to the attempt, the volume is not forgotten.
        self.keep(&uid, Arc::clone(&unsaved));
        if self.attempt_and_tell(&uid, &unsaved).await == Action::Retry {
            self.queue.add_rate_limited(uid);
        }
    }

    /// Tries again to save the PersistentVolume of the claim with this UID.
    pub async fn sync(&self, uid: &str) -> Action {
        let Some(waiting) = self.get(uid) else { return Action::Done };
        let _held = self.exclusive.hold(waiting.name()).await;
        // Looked at under the key: another attempt may have saved it meanwhile.
        let Some(unsaved) = self.get(uid) else { return Action::Done };
        let claim = claim_key(&unsaved.claim);
        let span = tracing::info_span!("save", %claim, uid, pv = unsaved.name());
        self.attempt_and_tell(uid, &unsaved).instrument(span).await
    }

    /// The claims whose PersistentVolume waits to be saved, by UID.
    pub fn all(&self) -> Vec<String> {
        self.unsaved.borrow().keys().cloned().collect()
    }

    /// Names what is left unsaved, for whoever must find it should its claim go, too.
    pub fn tell_unsaved(&self) {
        for (uid, unsaved) in &*self.unsaved.borrow() {
            tracing::warn!(
                claim = %claim_key(&unsaved.claim),
                uid,
                pv = unsaved.name(),
                handle = unsaved.handle,
                "A volume has no PersistentVolume yet; the next leader asks the driver for it again"
            );
        }
    }

    /// Whether a volume with such a handle waits to be saved.
    pub fn holds(&self, such: impl Fn(&str) -> bool) -> bool {
        self.unsaved.borrow().values().any(|unsaved| such(&unsaved.handle))
    }

    /// Whether a volume with such a handle waits to be saved as another PersistentVolume.
    pub fn holds_as_another(&self, such: impl Fn(&str) -> bool, name: &str) -> bool {
        let same = |unsaved: &Arc<Unsaved>| such(&unsaved.handle) && unsaved.name() != name;
        self.unsaved.borrow().values().any(same)
    }

    /// At the end of work: tries all once more, and waits until nothing is left to this process.
    /// What the API server refuses even now is left to the next one, where its claim bears the
    /// record that leads that one to it.
    pub async fn ended(&self) {
        self.unsaved.send_modify(|all| {
            for unsaved in all.values_mut() {
                Arc::make_mut(unsaved).setback.refused = false;
            }
        });
        self.all().into_iter().for_each(|uid| self.queue.add(uid));
        let recorded = |uid: &str| self.book.is_marked(uid);
        let left = |all: &BTreeMap<String, Arc<Unsaved>>| {
            all.iter().all(|(uid, unsaved)| unsaved.setback.refused && recorded(uid))
        };
        // The sender lives as long as `self`.
        let _ = self.unsaved.subscribe().wait_for(left).await;
    }

    /// The driver deletes the volume of the PersistentVolume `name`, which others may have put there:
    /// what waits to be saved under it may be that very volume. The caller holds the volume's key.
    pub fn volume_goes(&self, name: &str) {
        self.unsaved.send_if_modified(|all| {
            for unsaved in all.values_mut().filter(|unsaved| unsaved.name() == name) {
                let setback = &mut Arc::make_mut(unsaved).setback;
                (setback.unclear, setback.shadowed) = (true, true);
            }
            false
        });
    }

    fn get(&self, uid: &str) -> Option<Arc<Unsaved>> {
        self.unsaved.borrow().get(uid).cloned()
    }

    fn keep(&self, uid: &str, unsaved: Arc<Unsaved>) {
        self.unsaved.send_modify(|all| drop(all.insert(uid.to_owned(), unsaved)));
    }

    async fn attempt_and_tell(&self, uid: &str, unsaved: &Unsaved) -> Action {
        // Its PersistentVolume was seen: it may even be gone again by now, volume and all.
        if !self.book.is_saving(uid) {
            return self.settled(uid, unsaved);
        }
        match self.attempt(unsaved).await {
            Attempt::Saved => self.settled(uid, unsaved),
            Attempt::Superseded { volume } => self.superseded(uid, unsaved, &volume),
            Attempt::PvTerminating { volume } => self.leaving(uid, unsaved, &volume),
            Attempt::Invalid { why } | Attempt::NameTaken { why } if self.is_hopeless(uid) => {
                self.hand_over(uid, unsaved, &why)
            }
            Attempt::NameTaken { why } => {
                let setback = Setback { unclear: true, refused: true, shadowed: false };
                self.not_saved(uid, unsaved, &why, setback)
            }
            Attempt::Shared { .. } if self.book.is_gone(uid) => self.needless(uid),
            Attempt::Shared { why } => {
                let setback = Setback { unclear: true, refused: false, shadowed: true };
                self.not_saved(uid, unsaved, &why, setback)
            }
            Attempt::Shadowed { why, refused } => {
                let setback = Setback { unclear: true, refused, shadowed: true };
                self.not_saved(uid, unsaved, &why, setback)
            }
            Attempt::PvGone => self.bared(uid, unsaved),
            Attempt::Invalid { why } | Attempt::Forbidden { why } => {
                let setback = Setback { refused: true, ..Setback::default() };
                self.not_saved(uid, unsaved, &why, setback)
            }
            Attempt::NotYet { why, unclear } => {
                self.not_saved(uid, unsaved, &why, Setback { unclear, ..Setback::default() })
            }
        }
    }

    fn not_saved(&self, uid: &str, unsaved: &Unsaved, why: &str, setback: Setback) -> Action {
        tracing::warn!(
            error = why,
            handle = unsaved.handle,
            "the PersistentVolume is not saved yet"
        );
        if self.book.tells(uid, why, Duration::ZERO) {
            self.events.blocked(&unsaved.claim, why);
        }
        self.metrics.provision_failed(unsaved.class(), unsaved.source);
        let unclear = setback.unclear || unsaved.setback.unclear;
        let shadowed = setback.shadowed || unsaved.setback.shadowed;
        let setback = Setback { unclear, shadowed, ..setback };
        self.keep(uid, Arc::new(Unsaved { setback, ..unsaved.clone() }));
        // A claim that is being deleted is kept for a time only.
        self.claims.add(uid.to_owned());
        Action::Retry
    }

    /// Whether nobody is left to mend what the API server refuses.
    fn is_hopeless(&self, uid: &str) -> bool {
        self.book.is_gone(uid) || mutations::is_on(Mutation::ConflictIsDelete)
    }

    /// Nobody is left to mend what the API server refuses: the volume must go (safety rule 8).
    fn hand_over(&self, uid: &str, unsaved: &Unsaved, why: &str) -> Action {
        self.book.refused(uid, unsaved.leftover(why));
        self.unsaved.send_modify(|all| drop(all.remove(uid)));
        self.claims.add(uid.to_owned());
        Action::Done
    }

    fn settled(&self, uid: &str, unsaved: &Unsaved) -> Action {
        tracing::info!("volume provisioned");
        self.metrics.provisioned(unsaved.class(), unsaved.source, unsaved.started.elapsed());
        if let Some(waited) = self.book.waited(uid) {
            self.metrics.served(unsaved.class(), unsaved.source, waited);
        }
        // Nobody reads of success on a claim that is gone; the original is silent then, too.
        if !unsaved.existence.is_over() {
            self.events.provisioned(&unsaved.claim, unsaved.name());
        }
        self.forget(uid)
    }

    /// It was saved, and its PersistentVolume is about to go: never saved again, as the volume may
    /// go with it. Once it is gone the claim, if it still waits, asks anew (safety rules 6 and 7).
    fn leaving(&self, uid: &str, unsaved: &Unsaved, volume: &Volume) -> Action {
        let why =
            format!("waiting for PersistentVolume {:?} to go: somebody deleted it", volume.name());
        tracing::warn!(error = why, "the PersistentVolume does not stay");
        self.metrics.provisioned(unsaved.class(), unsaved.source, unsaved.started.elapsed());
        self.events.blocked(&unsaved.claim, &why);
        self.book.volume_leaves(uid, volume);
        self.forget(uid)
    }

    /// The claim has another volume; this one is suspected to be left over (safety rule 14).
    fn superseded(&self, uid: &str, unsaved: &Unsaved, volume: &str) -> Action {
        let why = format!(
            "PersistentVolume {:?} has the volume {volume:?} already; the volume {:?} may be left at the driver",
            unsaved.name(),
            unsaved.handle
        );
        tracing::error!(error = why, "suspected leak");
        self.metrics.suspected_leak(SuspectedLeak::Superseded);
        self.events.blocked(&unsaved.claim, &why);
        self.forget(uid)
    }

    /// Nobody waits for it any more, and what stands under its name is of this very volume: what
    /// becomes of it is decided there, and nothing is left over.
    fn needless(&self, uid: &str) -> Action {
        tracing::info!("not saved: its claim is gone, and another PersistentVolume has the volume");
        self.forget(uid)
    }

    /// What stood under its name is gone, perhaps with this very volume: it is not saved, and who
    /// still waits asks anew.
    fn bared(&self, uid: &str, unsaved: &Unsaved) -> Action {
        self.book.bared(uid, &unsaved.handle);
        self.unsaved.send_modify(|all| drop(all.remove(uid)));
        if self.book.is_gone(uid) {
            self.suspect_bared(uid, &unsaved.claim, &unsaved.handle);
        }
        self.claims.add(uid.to_owned());
        Action::Done
    }

    /// The volume with this handle may have gone with another's PersistentVolume, and nobody waits for
    /// it any more, so that asking again would not tell (safety rule 14).
    pub fn suspect_bared(&self, uid: &str, claim: &Claim, handle: &str) {
        let why = format!(
            "the volume {handle:?} may be left at the driver: another PersistentVolume of its name is gone, perhaps with it, and nobody waits for it any more"
        );
        tracing::error!(claim = %claim_key(claim), uid, error = why, "suspected leak");
        self.metrics.suspected_leak(SuspectedLeak::Superseded);
        if !self.book.existence(uid).is_over() {
            self.events.blocked(claim, &why);
        }
        self.book.suspected(uid);
    }

    fn forget(&self, uid: &str) -> Action {
        self.unsaved.send_modify(|all| drop(all.remove(uid)));
        self.book.saved(uid);
        if self.book.is_marked(uid) {
            self.claims.add(uid.to_owned());
        }
        Action::Done
    }

    async fn attempt(&self, unsaved: &Unsaved) -> Attempt {
        let looked = if unsaved.setback.unclear { self.look(unsaved).await } else { None };
        match looked {
            Some(attempt) => attempt,
            None if unsaved.setback.shadowed => Attempt::PvGone,
            None => self.post(unsaved).await,
        }
    }

    /// The PersistentVolume with the policy that its class says now (safety rule 9).
    fn with_policy<'a>(&self, unsaved: &'a Unsaved) -> Cow<'a, PersistentVolume> {
        let spec = unsaved.volume.spec.as_ref();
        let then = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
        let class = class.and_then(|class| self.classes.get(class));
        let now = class.as_deref().and_then(|class| class.reclaim_policy.as_deref());
        let uid = unsaved.claim.uid();
        let stands = !self.book.is_leaving(uid) && !self.book.is_gone(uid);
        match policy(then, now, stands) {
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
            Err(taken)
                if taken.is_already_exists() && mutations::is_on(Mutation::ConflictIsSuccess) =>
            {
                Attempt::Saved
            }
            Err(taken)
                if taken.is_already_exists() && mutations::is_on(Mutation::ConflictIsDelete) =>
            {
                Attempt::Invalid { why: taken.to_string() }
            }
            Err(taken) if taken.is_already_exists() => behind(self.look(unsaved).await, &taken),
            Err(error) if error.is_invalid() => Attempt::Invalid { why: error.to_string() },
            Err(error) => not_yet(&error),
        }
    }

    /// Looks whether a PersistentVolume of the name is there, and what it means.
    async fn look(&self, unsaved: &Unsaved) -> Option<Attempt> {
        let found = match Name::cluster(unsaved.name()) {
            Ok(name) => self.client.get::<Volume>(name).await,
            Err(error) => Err(error.into()),
        };
        match found {
            Ok(found) => judge(Some(&found), unsaved),
            Err(error) if error.is_not_found() => None,
            Err(error) => Some(not_yet(&error)),
        }
    }
}

/// The policy of a PersistentVolume (safety rule 9): what its class says now, or said at the call where
/// it says nothing. Of a volume whose claim does not stand any more, and which is about to be released,
/// Retain wins if either says so.
fn policy<'a>(then: Option<&'a str>, now: Option<&'a str>, stands: bool) -> Option<&'a str> {
    let retain = Some(RETAIN);
    if !stands && (then == retain || now == retain) { retain } else { now.or(then) }
}

/// What a look at the PersistentVolume that has `taken` the name means. One that was not seen may
/// have had this very volume.
fn behind(looked: Option<Attempt>, taken: &ApiError) -> Attempt {
    match looked {
        None => Attempt::Shadowed { why: taken.to_string(), refused: false },
        Some(Attempt::NotYet { why, .. }) => Attempt::Shadowed { why, refused: false },
        Some(Attempt::Forbidden { why }) => Attempt::Shadowed { why, refused: true },
        Some(seen) => seen,
    }
}

fn not_yet(error: &ApiError) -> Attempt {
    if error.is_forbidden() {
        return Attempt::Forbidden { why: error.to_string() };
    }
    Attempt::NotYet { why: error.to_string(), unclear: error.is_unclear() }
}

#[cfg(test)]
mod tests;
