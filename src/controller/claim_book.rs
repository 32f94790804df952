//! What is known of every claim in work: the claim as last seen, its state, its open request.
//!
//! Owns the one map from UID to [`ClaimState`], and feeds it from what the watches show.
//! Promises that a claim leaves the map only when nothing of it is open, and that a
//! PersistentVolume for a claim is noticed whatever its name. Leaves acting on it to `claims`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use super::{
    claim_state::{ClaimState, Demand, Next},
    leftover::Leftover,
    open_calls,
    ownership::{Identity, PROVISIONED_BY},
    provisioner::{Order, Outcome},
};
use crate::{
    kube_api::{
        cache::{Cache, Change},
        reflector::Sighting,
        views::{Claim, View as _, Volume},
    },
    metrics::Census,
    mutations::{self, Mutation},
};

/// Every claim in work. Clones share it.
#[derive(Clone)]
pub struct ClaimBook(Arc<Shared>);

/// How long an event counts as told: it leaves the API server after an hour, and a claim that
/// still waits must not be left without one.
const TOLD: Duration = Duration::from_secs(15 * 60);

/// Names a claim's PersistentVolume by the claim's UID.
type Naming = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

struct Shared {
    identity: Identity,
    /// The name of a claim's PersistentVolume, from its UID.
    volume_name: Naming,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Whether this process works, or only watches: what was first seen before that may have a
    /// PersistentVolume that another process made.
    working: bool,
    claims: Cache<Arc<Claim>>,
    entries: BTreeMap<String, Entry>,
    /// UIDs by the name of the PersistentVolume that the claim gets.
    by_volume: BTreeMap<String, String>,
}

/// One claim in work.
#[derive(Debug, Default)]
struct Entry {
    /// As last seen; kept when the claim is gone, for as long as something is open.
    claim: Arc<Claim>,
    /// Whether the claim is still of interest: there, unbound, ours.
    present: bool,
    state: ClaimState,
    /// The name of its PersistentVolume.
    volume_name: Option<String>,
    /// What must be read live before the next call that is not a repeat.
    doubt: Doubt,
    /// What was asked for, while a call is open: it is asked for again (safety rule 4).
    order: Option<Order>,
    /// How often in a row the open call was asked after.
    polls: u32,
    /// What it waits for beside the driver.
    obstacle: Option<Obstacle>,
    /// Whether the newest list of PersistentVolumes, or what came after it, showed the claim's.
    shown: bool,
    existence: Existence,
    /// When the claim was first seen.
    since: Option<Instant>,
    /// Whether the audit queued it when nothing else had.
    audited: bool,
}

/// What keeps a claim from its volume.
#[derive(Debug)]
struct Obstacle {
    what: String,
    since: Instant,
    /// When the claim's user was last told.
    told: Option<Instant>,
}

impl Obstacle {
    fn new(what: &str) -> Self {
        Self { what: what.to_owned(), since: Instant::now(), told: None }
    }

    /// Whether to tell it now: once it has stood for `patience`, and again before its event is
    /// forgotten.
    fn is_news(&self, patience: Duration) -> bool {
        match self.told {
            None => self.since.elapsed() >= patience,
            Some(told) => told.elapsed() >= TOLD,
        }
    }
}

/// Whether a claim still exists, bound or not; known beyond the end of its entry.
#[derive(Debug, Clone, Default)]
pub struct Existence(Arc<AtomicBool>);

impl Existence {
    /// Whether the claim's end was seen.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What must be read live before a claim's first call (safety rule 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Doubt {
    /// Nothing: the claim was born under our eyes.
    #[default]
    None,
    /// Whether it has a PersistentVolume already.
    Volume,
    /// The same, and whether the claim is still unbound.
    VolumeAndClaim,
}

/// One claim as a worker finds it.
#[derive(Debug, Clone)]
pub struct Glance {
    /// The claim as last seen.
    pub claim: Arc<Claim>,
    /// Whether anybody still wants its volume.
    pub demand: Demand,
    /// Whether the driver may be asked for it now.
    pub may_call: bool,
    /// What must be read live first.
    pub doubt: Doubt,
    /// The request of the open call.
    pub order: Option<Order>,
    /// The volume that it led to and that must go first.
    pub leftover: Option<Box<Leftover>>,
}

impl ClaimBook {
    /// An empty book. `volume_name` names the PersistentVolume of the claim with a given UID.
    pub fn new(
        identity: Identity,
        volume_name: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let inner = Mutex::default();
        Self(Arc::new(Shared { identity, volume_name: Box::new(volume_name), inner }))
    }

    /// From now on this process works: claims that appear now were born under our eyes.
    pub fn start_working(&self) {
        self.0.inner.lock().working = true;
    }

    /// Takes in what the claim watch shows, and names the claims to look at now.
    pub fn observe(&self, sighting: Sighting<Claim>) -> Vec<String> {
        let mut inner = self.0.inner.lock();
        match sighting {
            Sighting::Restarted => {
                inner.claims.restarted();
                Vec::new()
            }
            Sighting::Listed(claim) => self.seen(&mut inner, claim, false),
            Sighting::Applied(claim) => {
                let working = inner.working;
                self.seen(&mut inner, claim, working)
            }
            Sighting::Deleted(claim) => {
                inner.claims.deleted(claim.uid());
                inner.gone(claim.uid()).into_iter().collect()
            }
            Sighting::Unreadable { uid, .. } => {
                inner.claims.unreadable(&uid);
                Vec::new()
            }
            Sighting::Complete => {
                let vanished = inner.claims.complete();
                vanished.iter().filter_map(|claim| inner.gone(claim.uid())).collect()
            }
        }
    }

    fn seen(&self, inner: &mut Inner, claim: Claim, born_under_our_eyes: bool) -> Vec<String> {
        let claim = Arc::new(claim);
        let uid = claim.uid().to_owned();
        let kept = is_of_interest(&self.0.identity, &claim).then(|| Arc::clone(&claim));
        match inner.claims.seen(&uid, kept) {
            Change::Entered(_) | Change::Updated { .. } => {}
            Change::Left(_) | Change::Gone(_) => return inner.left(&claim).into_iter().collect(),
            Change::Nothing => return Vec::new(),
        }
        if !inner.entries.contains_key(&uid) {
            let name = (self.0.volume_name)(&uid);
            inner.enter(&uid, name, born_under_our_eyes);
        }
        if let Some(entry) = inner.entries.get_mut(&uid) {
            (entry.claim, entry.present) = (claim, true);
        }
        vec![uid]
    }

    /// Takes in a PersistentVolume that goes past, of whatever driver.
    pub fn volume_passes(&self, volume: &Volume) {
        let mut inner = self.0.inner.lock();
        let for_uid = claim_uid(volume);
        inner.change(for_uid, |entry| entry.volume_seen(volume));
        // The name is taken by a stranger: found out live, with an event, before any call.
        let named = inner.by_volume.get(volume.name()).filter(|uid| *uid != for_uid).cloned();
        if let Some(entry) = named.and_then(|uid| inner.entries.get_mut(&uid)) {
            entry.doubt = entry.doubt.max(Doubt::Volume);
        }
    }

    /// Takes in that a PersistentVolume is gone, and names the claim to look at now: one that
    /// waits for the name. A claim that had this volume may get another, but nobody hurries: as
    /// in the original, its next event or the audit brings it back.
    pub fn volume_gone(&self, volume: &Volume) -> Option<String> {
        let mut inner = self.0.inner.lock();
        if inner.change(claim_uid(volume), Entry::volume_gone).is_some() {
            return None;
        }
        let uid = inner.by_volume.get(volume.name())?.clone();
        inner.change(&uid, |entry| entry.doubt = entry.doubt.max(Doubt::Volume)).map(|()| uid)
    }

    /// A list of all PersistentVolumes begins.
    pub fn volumes_restarted(&self) {
        self.0.inner.lock().entries.values_mut().for_each(|entry| entry.shown = false);
    }

    /// The list of all PersistentVolumes is whole: a claim is not done with a volume that it does
    /// not show, whose end was missed.
    pub fn volumes_listed(&self) {
        let mut inner = self.0.inner.lock();
        let missing = inner.entries.values_mut().filter(|entry| !entry.shown);
        missing.filter(|entry| entry.state == ClaimState::Done).for_each(Entry::volume_gone);
    }

    /// The key under which one actor at a time works for the claim: the name of its
    /// PersistentVolume, its UID where that makes no name; none when nothing is known of it.
    pub fn key(&self, uid: &str) -> Option<String> {
        let inner = self.0.inner.lock();
        let entry = inner.entries.get(uid)?;
        Some(entry.volume_name.clone().unwrap_or_else(|| uid.to_owned()))
    }

    /// One claim, as a worker needs it; none when nothing is known of it.
    pub fn glance(&self, uid: &str) -> Option<Glance> {
        let inner = self.0.inner.lock();
        let entry = inner.entries.get(uid)?;
        Some(Glance {
            claim: Arc::clone(&entry.claim),
            demand: entry.demand(),
            may_call: entry.state.may_call(),
            doubt: entry.doubt,
            order: entry.order.clone(),
            leftover: match &entry.state {
                ClaimState::Unusable(leftover) => Some(leftover.clone()),
                _ => None,
            },
        })
    }

    /// The claims that name this class.
    pub fn of_class(&self, class: &str) -> Vec<String> {
        let inner = self.0.inner.lock();
        let named = inner
            .entries
            .iter()
            .filter(|(_, entry)| super::ownership::class_of_claim(&entry.claim) == class);
        named.map(|(uid, _)| uid.clone()).collect()
    }

    /// Every claim in work.
    pub fn all(&self) -> Vec<String> {
        self.0.inner.lock().entries.keys().cloned().collect()
    }

    /// A live read has settled what was in `doubt`; what is in doubt since is not settled.
    pub fn looked_up(&self, uid: &str, doubt: Doubt) {
        self.change(uid, |entry| {
            if entry.doubt <= doubt {
                entry.doubt = Doubt::None;
            }
        });
    }

    /// A live read has found a PersistentVolume of the claim.
    pub fn volume_found(&self, uid: &str, volume: &Volume) {
        self.change(uid, |entry| {
            entry.doubt = Doubt::None;
            entry.volume_seen(volume);
        });
    }

    /// A call for `order` starts; false when it may not, or no longer.
    pub fn called(&self, uid: &str, order: &Order) -> bool {
        let called = |entry: &mut Entry| {
            let may_call = entry.may_call();
            if may_call {
                entry.advance(ClaimState::called);
                entry.order = Some(order.clone());
            }
            may_call
        };
        self.change(uid, called).unwrap_or(false)
    }

    /// What will tell whether the claim still exists, whatever becomes of its entry.
    pub fn existence(&self, uid: &str) -> Existence {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).map(|entry| entry.existence.clone()).unwrap_or_default()
    }

    /// Whether the claim stands, unbound, and waits for its volume.
    pub fn is_wanted(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| entry.demand() == Demand::Wanted)
    }

    /// How long ago the claim was first seen; none when nothing is known of it.
    pub fn waited(&self, uid: &str) -> Option<Duration> {
        let inner = self.0.inner.lock();
        inner.entries.get(uid)?.since.map(|since| since.elapsed())
    }

    /// Counts the claims in work by where they stand.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for entry in self.0.inner.lock().entries.values() {
            let count = match entry.state {
                ClaimState::Waiting => &mut census.waiting,
                ClaimState::InFlight { .. } => &mut census.in_flight,
                ClaimState::Background(_) => &mut census.background,
                ClaimState::Saving(_) => &mut census.saving,
                ClaimState::Unusable(_) => &mut census.unusable,
                ClaimState::Suspect => &mut census.suspect,
                ClaimState::Done => continue,
            };
            *count += 1;
            let age = entry.since.map(|since| since.elapsed()).unwrap_or_default();
            census.oldest = census.oldest.max(age);
        }
        census
    }

    /// The audit queues this claim, and nothing else has.
    pub fn audited(&self, uid: &str) {
        self.change(uid, |entry| entry.audited = true);
    }

    /// Whether the claim comes from the audit alone; asked once, when it is taken from its queue.
    pub fn take_audited(&self, uid: &str) -> bool {
        self.change(uid, |entry| std::mem::take(&mut entry.audited)).unwrap_or(false)
    }

    /// Whether the claim's volume still waits to be saved.
    pub fn is_saving(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| matches!(entry.state, ClaimState::Saving(_)))
    }

    /// The call ended: what to do next, and how often it was asked after in a row.
    pub fn answered(&self, uid: &str, outcome: &Outcome) -> (Next, u32) {
        let answered = |entry: &mut Entry| {
            let demand = entry.demand();
            let (state, next) =
                std::mem::take(&mut entry.state).answered(outcome, demand, Instant::now());
            entry.state = state;
            entry.polls = if next == Next::Poll { entry.polls.saturating_add(1) } else { 0 };
            entry.obstacle = None;
            (next, entry.polls)
        };
        self.change(uid, answered).unwrap_or((Next::Drop, 0))
    }

    /// Saving the claim's volume has come to its end.
    pub fn saved(&self, uid: &str) {
        self.change(uid, |entry| {
            entry.shown = true;
            entry.advance(ClaimState::saved);
        });
    }

    /// The API server refuses the claim's PersistentVolume, and nobody wants it any more.
    pub fn refused(&self, uid: &str, leftover: Leftover) {
        self.change(uid, |entry| entry.advance(|state| state.refused(leftover)));
    }

    /// The claim's volume that could not be used is gone: whether the claim still wants one.
    pub fn discarded(&self, uid: &str) -> bool {
        self.change(uid, |entry| {
            entry.advance(ClaimState::discarded);
            entry.demand() == Demand::Wanted
        })
        .unwrap_or(false)
    }

    /// The claim's volume that cannot be used stays where it is.
    pub fn suspected(&self, uid: &str) {
        self.change(uid, |entry| entry.advance(ClaimState::suspected));
    }

    /// The task that worked on the claim died.
    pub fn interrupted(&self, uid: &str) {
        self.change(uid, |entry| entry.advance(ClaimState::interrupted));
    }

    /// Notes what the claim waits for, and says whether its user is to be told now: not before it
    /// has stood in the way for `patience`, and not when that was told lately.
    pub fn tells(&self, uid: &str, what: &str, patience: Duration) -> bool {
        let tells = |entry: &mut Entry| {
            let same = entry.obstacle.take().filter(|obstacle| obstacle.what == what);
            let mut obstacle = same.unwrap_or_else(|| Obstacle::new(what));
            let news = obstacle.is_news(patience);
            if news {
                obstacle.told = Some(Instant::now());
            }
            entry.obstacle = Some(obstacle);
            news
        };
        self.change(uid, tells).unwrap_or(false)
    }

    fn change<T>(&self, uid: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.0.inner.lock().change(uid, change)
    }

    /// How many claims are in work.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.inner.lock().entries.len()
    }

    /// Whether no claim is in work.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Entry {
    fn demand(&self) -> Demand {
        if self.present && self.claim.is_unbound() && !self.claim.is_terminating() {
            Demand::Wanted
        } else {
            Demand::Withdrawn
        }
    }

    /// Whether a call may start now: nothing is in doubt, and it is wanted or asks how an open
    /// one ended.
    fn may_call(&self) -> bool {
        let asked_for = self.demand() == Demand::Wanted || self.state.is_open();
        self.state.may_call() && self.doubt == Doubt::None && asked_for
    }

    fn advance(&mut self, transition: impl FnOnce(ClaimState) -> ClaimState) {
        self.state = transition(std::mem::take(&mut self.state));
    }

    fn volume_seen(&mut self, volume: &Volume) {
        self.shown = true;
        // One made by hand that the claim was bound to says nothing of the volume that an open
        // call may have made.
        let made = volume.annotation(PROVISIONED_BY).is_some()
            || self.volume_name.as_deref() == Some(volume.name());
        if made || !self.state.awaits_answer() {
            self.advance(|state| state.volume_seen(volume.handle()));
        }
    }

    fn volume_gone(&mut self) {
        if !mutations::is_on(Mutation::DoneForgotten) {
            self.doubt = Doubt::VolumeAndClaim;
        }
        self.advance(ClaimState::volume_gone);
    }
}

/// The UID of the claim that the PersistentVolume is for; empty when it is for none.
fn claim_uid(volume: &Volume) -> &str {
    volume.spec.claim_ref.as_ref().map(|claim| claim.uid.as_str()).unwrap_or_default()
}

impl Inner {
    /// Changes an entry, and lets it go when nothing holds it any more.
    fn change<T>(&mut self, uid: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let result = change(self.entries.get_mut(uid)?);
        self.tidy(uid);
        Some(result)
    }

    fn enter(&mut self, uid: &str, volume_name: Option<String>, born_under_our_eyes: bool) {
        // A name that does not hold the whole UID may be another claim's as well.
        let unique = volume_name.as_deref().is_some_and(|name| name.contains(uid));
        let doubt = if born_under_our_eyes && unique { Doubt::None } else { Doubt::Volume };
        if let Some(name) = &volume_name {
            self.by_volume.insert(name.clone(), uid.to_owned());
        }
        let since = Some(Instant::now());
        self.entries
            .insert(uid.to_owned(), Entry { volume_name, doubt, since, ..Entry::default() });
    }

    /// The claim is there, but no longer of interest (bound, handed to another driver).
    fn left(&mut self, claim: &Arc<Claim>) -> Option<String> {
        if let Some(entry) = self.entries.get_mut(claim.uid()) {
            entry.claim = Arc::clone(claim);
        }
        self.lost(claim.uid())
    }

    /// The claim does not exist any more: named when it must be followed all the same.
    fn gone(&mut self, uid: &str) -> Option<String> {
        self.entries.get(uid)?.existence.end();
        self.lost(uid)
    }

    /// The claim is no longer of interest: named when it must be followed all the same.
    fn lost(&mut self, uid: &str) -> Option<String> {
        self.entries.get_mut(uid)?.present = false;
        self.tidy(uid);
        self.entries.contains_key(uid).then(|| uid.to_owned())
    }

    /// Clears what a closed call leaves; lets a claim go that is of no interest with nothing open.
    fn tidy(&mut self, uid: &str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if !entry.state.is_open() {
            entry.order = None;
        }
        if entry.present || entry.state.is_open() {
            return;
        }
        let name = self.entries.remove(uid).and_then(|entry| entry.volume_name);
        // Two claims share a name where UIDs are cut short: the other one keeps it.
        if let Some(name) =
            name.filter(|name| self.by_volume.get(name).is_some_and(|owner| owner == uid))
        {
            self.by_volume.remove(&name);
        }
    }
}

/// Whether a claim is kept: ours and unbound, or carrying our mark of an open call (safety rule
/// 12: a pure function, asked at every event).
fn is_of_interest(identity: &Identity, claim: &Claim) -> bool {
    (claim.is_unbound() && identity.owns_claim(claim)) || claim.has_finalizer(open_calls::FINALIZER)
}

#[cfg(test)]
mod tests;
