//! Records of open calls that other processes have left on claims.
//!
//! Decides when such a record is followed and when no longer. [`status`] decides what a record
//! means.

use tokio::time::{Duration, Instant};

use super::{ClaimIndex, Shared, Verification, entry::Entry};
use crate::{
    controller::claims::{
        call_record::{Record, RecordStatus, status, status::ThisProcess},
        state::ClaimState,
    },
    kube::objects::{Claim, View as _},
};

impl ClaimIndex {
    /// Compares the record of a claim that was read live. Returns true if it is of another
    /// process's call and no event has brought it yet; the call is followed from now on. A void
    /// record is reported later.
    pub fn record_found(&self, live: &Claim) -> bool {
        let found = |entry: &mut Entry| {
            let record_status = self.0.record_status_of(live, entry.adopted.as_deref());
            let is_due =
                matches!(record_status, Some(RecordStatus::Open(_) | RecordStatus::Void(_)));
            if !is_due || entry.record_is_known {
                return false;
            }
            entry.record_status = record_status.map(Box::new);
            let is_open = matches!(entry.record_status.as_deref(), Some(RecordStatus::Open(_)));
            if is_open {
                entry.follow_record();
            }
            is_open
        };
        self.change(live.uid(), found).unwrap_or(false)
    }

    /// This process is about to write the record: a record that is seen from now on is known.
    pub fn before_record_write(&self, uid: &str) {
        self.change(uid, |entry| entry.record_is_known = true);
    }

    /// Returns the record on the claim if it is void and not reported yet.
    pub fn take_unfollowed(&self, uid: &str) -> Option<Record> {
        self.change(uid, Entry::take_unfollowed).flatten()
    }

    /// The class of the claim is another provisioner's: the record is void.
    pub fn set_record_void(&self, uid: &str) {
        self.change(uid, |entry| {
            entry.record_status =
                entry.record_status.take().map(|record_status| match *record_status {
                    RecordStatus::Open(record) => Box::new(RecordStatus::Void(record)),
                    _ => record_status,
                });
            entry.record_is_known = false;
            entry.advance(ClaimState::record_dropped);
        });
    }

    /// Whether the record is all that is known of an open call for the claim.
    pub fn is_only_recorded(&self, uid: &str) -> bool {
        let inner = self.0.inner.lock();
        inner.entries.get(uid).is_some_and(|entry| entry.state == ClaimState::Recorded)
    }

    /// The recorded request cannot be repeated now. Returns for how long this has been so.
    pub fn unrepeatable_for(&self, uid: &str) -> Duration {
        let since =
            |entry: &mut Entry| entry.unrepeatable_since.get_or_insert_with(Instant::now).elapsed();
        self.change(uid, since).unwrap_or_default()
    }

    /// The record is no longer followed: the claim is provisioned as a new one.
    pub fn give_up_record(&self, uid: &str) {
        self.change(uid, |entry| entry.advance(ClaimState::record_dropped));
    }

    /// The node whose process left a call for the claim is gone: this process follows the call.
    pub fn adopt(&self, uid: &str, node: &str) {
        self.change(uid, |entry| {
            entry.adopted = Some(node.into());
            entry.record_status = self.0.record_status_of(&entry.claim, Some(node)).map(Box::new);
            entry.record_is_known = false;
            entry.follow_record();
        });
    }

    /// The process of another node has, or just had, a call open for the claim: that may have made
    /// a PersistentVolume whose event is still to come.
    pub fn on_call_elsewhere(&self, uid: &str) {
        self.change(uid, |entry| entry.requires(Verification::VolumeAndClaim));
    }

    /// The claim was released, or may have been. Returns whether that must be reported, which is
    /// once.
    pub fn should_report_release(&self, uid: &str) -> bool {
        let report = |entry: &mut Entry| !std::mem::replace(&mut entry.release_is_reported, true);
        self.change(uid, report).unwrap_or(true)
    }

    /// The node that is gone and whose call for the claim this process follows.
    pub fn adopted_node(&self, uid: &str) -> Option<String> {
        let inner = self.0.inner.lock();
        inner.entries.get(uid)?.adopted.as_deref().map(str::to_owned)
    }
}

impl Shared {
    /// What the record on the claim means. `adopted`: the node whose call this process follows.
    pub(super) fn record_status_of(
        &self,
        claim: &Claim,
        adopted: Option<&str>,
    ) -> Option<RecordStatus> {
        let this_process = ThisProcess { identity: &self.identity, adopted };
        status::judge(claim, this_process, (self.volume_name)(claim.uid()).as_deref())
    }
}
