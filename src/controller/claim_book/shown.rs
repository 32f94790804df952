//! What the claim watch shows.
//!
//! Owns which claims are taken in, and which of them are to be looked at now. Promises that a claim is
//! known to be born under our eyes only where it is (safety rule 6), and that what we write
//! ourselves wakes nobody.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::{
    super::{
        open_calls::{Record, mark},
        ownership::Identity,
    },
    ClaimBook, Coming, Doubt, Inner, Shared,
    entry::{Entry, Interest},
    older::Past,
    term::Term,
};
use crate::kube_api::{
    cache::Change,
    reflector::Sighting,
    views::{Claim, View as _},
};

impl ClaimBook {
    /// A list of all claims is asked for at this moment or later, on the clock that counts a suspended
    /// machine; told before its beginning is shown.
    pub fn claims_asked(&self, at: Duration) {
        self.0.inner.lock().claims_asked = Some(at);
    }

    /// Takes in what the claim watch shows, and names the claims to look at now.
    pub fn observe(&self, sighting: Sighting<Claim>) -> Vec<String> {
        let mut inner = self.0.inner.lock();
        match sighting {
            Sighting::Restarted => {
                inner.term.claims_restarted();
                inner.first_lists.claims_restarted();
                inner.claims.restarted();
                inner.older.restarted();
                Vec::new()
            }
            _ if inner.term == Term::TakenOver => Vec::new(),
            Sighting::Listed(claim) => self.seen(&mut inner, claim, Coming::Listed),
            Sighting::Applied(claim) => {
                let ours = inner.term == Term::Ours;
                self.seen(&mut inner, claim, if ours { Coming::Born } else { Coming::Otherwise })
            }
            Sighting::Deleted(claim) => {
                inner.claims.deleted(claim.uid());
                inner.older.remove(claim.uid());
                inner.gone(claim.uid()).into_iter().collect()
            }
            Sighting::Unreadable { uid, .. } => {
                inner.claims.unreadable(&uid);
                inner.older.insert(&uid);
                Vec::new()
            }
            Sighting::Complete => {
                let vanished = inner.claims.complete();
                inner.older.complete();
                inner.first_lists.claims_whole();
                vanished.iter().filter_map(|claim| inner.gone(claim.uid())).collect()
            }
        }
    }

    fn seen(&self, inner: &mut Inner, claim: Claim, coming: Coming) -> Vec<String> {
        let claim = Arc::new(claim);
        let uid = claim.uid().to_owned();
        let mark = mark_of(&self.0.identity, &claim);
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
                inner.not_ours(&claim, coming == Coming::Born && !elsewhere);
                return Vec::new();
            }
        }
        let past = inner.older.remove(&uid);
        let known = inner.entries.get(&uid).filter(|entry| entry.interest != Interest::None);
        // Shown again by a new list: those who wait and back off are not woken for that.
        let again = |entry: &Entry| coming == Coming::Listed && claim.is_as_before(&entry.claim);
        let mut news =
            known.is_none_or(|entry| !again(entry) && self.0.is_news(&entry.claim, &claim));
        let recorded = mark.as_ref().and_then(|mark| mark.volume_of(&uid)).map(str::to_owned);
        let entered = !inner.entries.contains_key(&uid);
        // An event that has waited may have shown the claim before another's mark was on it. While it
        // is wanted a live read finds that mark ([`ClaimBook::record_found`]).
        let is_anothers =
            |entry: &Entry| entry.is_anothers(mark.as_ref()) && claim.is_terminating();
        let anothers = entered || inner.entries.get(&uid).is_some_and(is_anothers);
        if entered {
            let name = recorded.or_else(|| (self.0.volume_name)(&uid));
            let coming = coming.of(past, mark.as_ref());
            inner.enter(&uid, name, coming);
        } else if anothers {
            news = true;
            inner.rename(&uid, recorded);
        }
        let working = inner.term == Term::Ours;
        let changed = inner.change(&uid, |entry| {
            if claim.is_terminating() {
                entry.deleted.get_or_insert_with(Instant::now);
            }
            if mark::is_all_that_holds(&claim) {
                entry.existence.end();
            }
            (entry.claim, entry.interest, entry.mark) = (claim, interest, mark.map(Box::new));
            if anothers && working {
                entry.take_up_record();
            }
            entry.doubt
        });
        // What we write ourselves is no reason to ask a driver sooner than we would.
        let waits = changed == Some(Doubt::Unlisted);
        if news && !waits { vec![uid] } else { Vec::new() }
    }
}

impl Coming {
    /// How a claim with this past and this mark comes to be known that is shown so.
    fn of(self, past: Option<Past>, mark: Option<&Record>) -> Self {
        match (self, past) {
            (_, Some(Past::Served)) => Self::Served,
            (Self::Born, Some(Past::Stood)) => Self::Otherwise,
            (Self::Born, None) if mark.is_some() => Self::Otherwise,
            (shown, _) => shown,
        }
    }
}

impl Shared {
    /// Whether the claim has changed in more than our own mark. Another's may be what it waits for.
    fn is_news(&self, old: &Claim, new: &Claim) -> bool {
        let anothers = mark::read(old).is_some_and(|record| record.is_anothers(&self.identity));
        anothers || !mark::is_all_that_differs(old, new)
    }
}

impl Inner {
    /// A claim of somebody else's, or of nobody's yet, goes past.
    fn not_ours(&mut self, claim: &Claim, born_under_our_eyes: bool) {
        if !claim.is_unbound() {
            self.older.remove(claim.uid());
        } else if !born_under_our_eyes {
            self.older.insert(claim.uid());
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
        self.tidy(uid);
        self.entries.contains_key(uid).then(|| uid.to_owned())
    }
}

/// Whether a claim is kept, and why (safety rule 12: a pure function, asked at every event).
fn interest(identity: &Identity, claim: &Claim, mark: Option<&Record>) -> Interest {
    match mark {
        _ if claim.is_unbound() && identity.owns_claim(claim) => Interest::Unbound,
        Some(_) => Interest::Marked,
        None => Interest::None,
    }
}

/// The mark on the claim, where it is ours: each driver's provisioner follows its own calls, and
/// that of a node those of its node. A record that does not say whose it is belongs to the claim's
/// provisioner.
pub(super) fn mark_of(identity: &Identity, claim: &Claim) -> Option<Record> {
    let is_ours = |record: &Record| {
        let told = !record.driver.is_empty() && (identity.node.is_none() || record.node.is_some());
        !record.is_anothers(identity) && (told || identity.is_provisioner_of(claim))
    };
    mark::read(claim).filter(is_ours)
}
