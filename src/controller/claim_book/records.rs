//! Records of another process's calls, which are heard of after their claims.
//!
//! Owns telling them from this process's own, and taking them up: what they name is looked up before
//! any call (safety rules 4 and 6).

use super::{ClaimBook, Doubt, Inner, shown::mark_of};
use crate::kube_api::views::{Claim, View as _};

impl ClaimBook {
    /// A live read has shown the claim: whether it bears a record of another's call that no event has
    /// shown yet. That call is followed from now on.
    pub fn record_found(&self, live: &Claim) -> bool {
        let (uid, mark) = (live.uid(), mark_of(&self.0.identity, live));
        let mut inner = self.0.inner.lock();
        if !inner.entries.get(uid).is_some_and(|entry| entry.is_anothers(mark.as_ref())) {
            return false;
        }
        let recorded = mark.as_ref().and_then(|mark| mark.volume_of(uid)).map(str::to_owned);
        inner.rename(uid, recorded);
        inner.change(uid, |entry| {
            entry.mark = mark.map(Box::new);
            entry.take_up_record();
        });
        true
    }

    /// The claim's mark is about to be put on: one that is seen from now on is ours.
    pub fn marking(&self, uid: &str) {
        self.change(uid, |entry| entry.mark_is_known = true);
    }
}

impl Inner {
    /// Another's record was found on a claim that waits: what it names is looked up before any call.
    pub(super) fn rename(&mut self, uid: &str, recorded: Option<String>) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.doubts(Doubt::Volume);
        if recorded.is_none() || recorded == entry.volume_name || !entry.state.may_call() {
            return;
        }
        let before = std::mem::replace(&mut entry.volume_name, recorded.clone());
        if let Some(name) =
            before.filter(|name| self.by_volume.get(name).is_some_and(|it| it == uid))
        {
            self.by_volume.remove(&name);
        }
        if let Some(name) = recorded {
            self.by_volume.insert(name, uid.to_owned());
        }
    }
}
