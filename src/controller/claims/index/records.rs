//! Records of open calls that other processes have left on claims.
//!
//! Owns when such a record is followed, and when not any longer. Leaves what a record means to
//! `open_calls::mark`.

use tokio::time::{Duration, Instant};

use super::{ClaimIndex, Shared, Verification, entry::Entry};
use crate::{
    controller::claims::{
        call_record::{Record, RecordStatus, status, status::Standpoint},
        state::ClaimState,
    },
    kube::objects::{Claim, View as _},
};

impl ClaimIndex {
    /// A live read has shown the claim: whether it bears a record of another's call that no event has
    /// shown yet. That call is followed from now on; a record that does not count is to be reported.
    pub fn record_found(&self, live: &Claim) -> bool {
        let found = |entry: &mut Entry| {
            let mark = self.0.mark(live, entry.adopted.as_deref());
            let is_news = matches!(mark, Some(RecordStatus::Open(_) | RecordStatus::Void(_)));
            if !is_news || entry.mark_is_known {
                return false;
            }
            entry.mark = mark.map(Box::new);
            let is_open = matches!(entry.mark.as_deref(), Some(RecordStatus::Open(_)));
            if is_open {
                entry.take_up_record();
            }
            is_open
        };
        self.change(live.uid(), found).unwrap_or(false)
    }

    /// The claim's mark is about to be put on: one that is seen from now on is ours.
    pub fn marking(&self, uid: &str) {
        self.change(uid, |entry| entry.mark_is_known = true);
    }

    /// The record on the claim that is not followed, where that is still to be reported.
    pub fn take_unfollowed(&self, uid: &str) -> Option<Record> {
        self.change(uid, Entry::take_unfollowed).flatten()
    }

    /// The claim's class does not fit its record, which is not followed.
    pub fn record_is_void(&self, uid: &str) {
        self.change(uid, |entry| {
            entry.mark = entry.mark.take().map(|mark| match *mark {
                RecordStatus::Open(record) => Box::new(RecordStatus::Void(record)),
                _ => mark,
            });
            entry.mark_is_known = false;
            entry.advance(ClaimState::unrecorded);
        });
    }

    /// Whether all that is known of an open call for the claim is its record.
    pub fn is_recorded_alone(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| entry.state == ClaimState::Recorded)
    }

    /// What the claim's record says cannot be asked for now: for how long it could not.
    pub fn unrepeatable(&self, uid: &str) -> Duration {
        let since =
            |entry: &mut Entry| entry.unrepeatable.get_or_insert_with(Instant::now).elapsed();
        self.change(uid, since).unwrap_or_default()
    }

    /// The record is not followed any longer: the claim is asked for as a new one is.
    pub fn record_given_up(&self, uid: &str) {
        self.change(uid, |entry| entry.advance(ClaimState::unrecorded));
    }

    /// The node whose process has left a call for the claim is gone: the call is followed here.
    pub fn adopt(&self, uid: &str, node: &str) {
        self.change(uid, |entry| {
            entry.adopted = Some(node.into());
            entry.mark = self.0.mark(&entry.claim, Some(node)).map(Box::new);
            entry.mark_is_known = false;
            entry.take_up_record();
        });
    }

    /// The process of another node has a call open for the claim, or had one a moment ago: that may have
    /// left a PersistentVolume which no watch has shown yet.
    pub fn called_elsewhere(&self, uid: &str) {
        self.change(uid, |entry| entry.requires(Verification::VolumeAndClaim));
    }

    /// The claim is let go, or may have been: whether that is still to be reported.
    pub fn tells_letting_go(&self, uid: &str) -> bool {
        let tell = |entry: &mut Entry| !std::mem::replace(&mut entry.letting_go_is_reported, true);
        self.change(uid, tell).unwrap_or(true)
    }

    /// The node that is gone, whose call for the claim is followed here.
    pub fn adopted(&self, uid: &str) -> Option<String> {
        let inner = self.0.inner.lock();
        inner.entries.get(uid)?.adopted.as_deref().map(str::to_owned)
    }
}

impl Shared {
    /// What the mark on the claim means; `adopted`: for whoever follows that node's call.
    pub(super) fn mark(&self, claim: &Claim, adopted: Option<&str>) -> Option<RecordStatus> {
        let standpoint = Standpoint { identity: &self.identity, adopted };
        status::judge(claim, standpoint, (self.volume_name)(claim.uid()).as_deref())
    }
}
