//! What the claim watch shows.
//!
//! Owns which claims are taken in, and which of them are to be looked at now. Promises that a claim is
//! known to be born under our eyes only where it is (safety rule 6), and that what we write
//! ourselves wakes nobody.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    ClaimIndex, Inner, Verification,
    entry::{Entry, Interest},
};
use crate::{
    controller::{
        claims::call_record::{RecordStatus, status},
        ownership::Identity,
    },
    kube::{
        informer::{InformerEvent, cache::Change},
        objects::{Claim, View as _},
    },
};

impl ClaimIndex {
    /// Takes in what the claim watch shows, and names the claims to look at now.
    pub fn observe(&self, event: InformerEvent<Claim>) -> Vec<String> {
        let mut inner = self.0.inner.lock();
        match event {
            InformerEvent::Init => {
                inner.claims.restarted();
                inner.stood.restarted();
                Vec::new()
            }
            InformerEvent::InitApply(claim) => self.seen(&mut inner, claim, true),
            InformerEvent::Apply(claim) => {
                inner.is_shown(claim.uid());
                self.seen(&mut inner, claim, false)
            }
            InformerEvent::Delete(claim) => {
                inner.is_shown(claim.uid());
                inner.claims.deleted(claim.uid());
                inner.stood.remove(claim.uid());
                inner.gone(claim.uid()).into_iter().collect()
            }
            InformerEvent::Unreadable { uid, .. } => {
                inner.claims.unreadable(&uid);
                inner.stood.insert(&uid);
                Vec::new()
            }
            InformerEvent::InitDone => {
                let vanished = inner.claims.complete();
                inner.stood.complete();
                vanished.iter().filter_map(|claim| inner.gone(claim.uid())).collect()
            }
        }
    }

    pub(super) fn seen(&self, inner: &mut Inner, claim: Claim, is_listed: bool) -> Vec<String> {
        let claim = Arc::new(claim);
        let uid = claim.uid().to_owned();
        let is_wanted_here = self.0.identity.owns_claim(&claim) && !claim.is_terminating();
        if claim.is_unbound()
            && !is_wanted_here
            && let Some(entry) = inner.entries.get_mut(&uid)
        {
            entry.unadopt();
        }
        let adopted = inner.entries.get(&uid).and_then(|entry| entry.adopted.as_deref());
        let mark = self.0.mark(&claim, adopted);
        let interest = interest(&self.0.identity, &claim, mark.as_ref());
        let kept = (interest != Interest::None).then(|| Arc::clone(&claim));
        match inner.claims.seen(&uid, kept) {
            Change::Entered(_) | Change::Updated { .. } => {}
            Change::Left(_) | Change::Gone(_) => {
                inner.not_ours(&claim, false);
                return inner.left(&claim).into_iter().collect();
            }
            Change::Nothing => {
                // What becomes of it elsewhere is not under our eyes.
                let identity = &self.0.identity;
                let elsewhere = identity.is_elsewhere(&claim) || identity.is_for_another(&claim);
                let is_born = !is_listed && !elsewhere && inner.listed.is_born_since(&claim);
                inner.not_ours(&claim, is_born);
                return Vec::new();
            }
        }
        let stood = inner.stood.remove(&uid);
        let known = inner.entries.get(&uid).filter(|entry| entry.interest != Interest::None);
        // Shown again by a new list: those who wait and back off are not woken for that.
        let again = |entry: &Entry| is_listed && claim.is_same_version_as(&entry.claim);
        let is_news = known.is_none_or(|entry| !again(entry) && entry.is_news(&claim));
        if !inner.entries.contains_key(&uid) {
            let since = inner.listed.is_born_since(&claim);
            let is_born = !is_listed && !stood && mark.is_none() && since;
            inner.enter(&uid, (self.0.volume_name)(&uid), is_born);
        }
        let working = inner.working;
        let shown = |entry: &mut Entry| {
            let is_followed = entry.is_shown(claim, interest, mark, working);
            (is_news || is_followed) && entry.verification != Verification::Unlisted
        };
        // What we write ourselves is no reason to ask a driver sooner than we would.
        let wakes = inner.change(&uid, shown).unwrap_or(false);
        if wakes { vec![uid] } else { Vec::new() }
    }
}

impl Entry {
    /// Whether the claim has changed in more than our own mark. Another node's may be what it waits
    /// for, and what does not count is reported.
    fn is_news(&self, new: &Claim) -> bool {
        let anothers = matches!(
            self.mark.as_deref(),
            Some(RecordStatus::Elsewhere(_) | RecordStatus::Void(_))
        );
        anothers && status::is_changed(&self.claim, new)
            || !status::is_all_that_differs(&self.claim, new)
    }

    /// Takes in the claim as it is shown. Whether a record on it is followed from now on, or not any
    /// longer.
    fn is_shown(
        &mut self,
        claim: Arc<Claim>,
        interest: Interest,
        mark: Option<RecordStatus>,
        working: bool,
    ) -> bool {
        if claim.is_terminating() {
            self.deleted.get_or_insert_with(Instant::now);
        }
        if status::is_all_that_holds(&claim) {
            self.existence.end();
        }
        if let Some(RecordStatus::Elsewhere(_)) = self.mark.as_deref()
            && !matches!(mark, Some(RecordStatus::Elsewhere(_)))
        {
            // That node's call has ended, perhaps with a PersistentVolume that is not shown yet.
            self.requires(Verification::VolumeAndClaim);
        }
        let becomes_void = matches!(mark, Some(RecordStatus::Void(_)))
            && !self.void_is_reported
            && !self.mark_is_known;
        (self.claim, self.interest, self.mark) = (claim, interest, mark.map(Box::new));
        working && (self.take_up_record() || becomes_void)
    }
}

impl Inner {
    /// The watch shows this claim.
    fn is_shown(&mut self, uid: &str) {
        if let Some(shown) = &mut self.shown_meanwhile {
            shown.insert(uid);
        }
    }

    /// A claim of somebody else's, or of nobody's yet, goes past.
    fn not_ours(&mut self, claim: &Claim, is_born: bool) {
        if !claim.is_unbound() {
            self.stood.remove(claim.uid());
        } else if !is_born {
            self.stood.insert(claim.uid());
        }
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
        let entry = self.entries.get_mut(uid)?;
        entry.existence.end();
        entry.deleted.get_or_insert_with(Instant::now);
        self.lost(uid)
    }

    /// The claim is no longer of interest: named when it must be followed all the same.
    fn lost(&mut self, uid: &str) -> Option<String> {
        let entry = self.entries.get_mut(uid)?;
        (entry.interest, entry.mark) = (Interest::None, None);
        entry.take_up_record();
        self.tidy(uid);
        self.entries.contains_key(uid).then(|| uid.to_owned())
    }
}

/// Whether a claim is kept, and why (safety rule 12: a pure function, asked at every event).
fn interest(identity: &Identity, claim: &Claim, mark: Option<&RecordStatus>) -> Interest {
    match mark {
        _ if claim.is_unbound() && identity.owns_claim(claim) => Interest::Unbound,
        // Its node's process follows it, as long as somebody wants its volume.
        Some(RecordStatus::Elsewhere(_)) if !claim.is_terminating() => Interest::None,
        Some(_) => Interest::Marked,
        None => Interest::None,
    }
}
