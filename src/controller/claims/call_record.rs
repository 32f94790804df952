//! The durable record of an open call: a finalizer and an annotation on the claim itself.
//!
//! Owns when a claim is marked and when its mark goes (`due`, a pure function), writing both, the end
//! of patience with a driver that does not answer (`--claim-protection-timeout`), and reporting calls
//! that are not followed any longer. What one process leaves open, the next finds on the claim, which
//! cannot vanish meanwhile. Promises that nothing is written for a claim whose calls all end, but with
//! `always`, and that a mark which cannot be written is reported and never in the way of work, but
//! with `always`. Leaves the record's form to `record`, what a mark means and the edits to `mark`, and
//! where a claim stands to `claim_state`.

pub mod status;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::Value;
use tokio::time::{Duration, sleep};

use self::status::Standpoint;
pub use self::status::{FINALIZER, RECORD, RecordStatus};
use super::{
    index::{ClaimIndex, RecordView},
    state::Demand,
};
pub use crate::controller::model::record::Record;
use crate::{
    controller::{
        events::{ClaimEvents, claim_key},
        model::record::Recorder,
        ownership::ProvisionerIdentity,
        provisioner::ProvisionRequest,
    },
    kube::{
        ApiError, Client, Edit, Edited, Name,
        objects::{Claim, View as _},
    },
    metrics::{ControllerMetrics, SuspectedLeak},
    mutations,
    mutations::Mutation,
    runtime::Clock,
};

/// `--claim-protection`: when claims are marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Once a call's end is unknown, or what it made is not saved or removed at once.
    Auto,
    /// Before the first call, until the claim is bound.
    Always,
    /// Never; marks that stand are honoured.
    Off,
}

/// How open calls are recorded.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// `--claim-protection`.
    pub mode: Mode,
    /// `--claim-protection-timeout`: how long a deleted claim is kept; `None`: for ever.
    pub timeout: Option<Duration>,
}

/// What is due for a claim's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Nothing.
    Nothing,
    /// The claim is to be marked with its open request.
    PutOn,
    /// The claim is to say that nothing is open, and stays marked.
    Close,
    /// The mark goes.
    TakeOff,
    /// The claim, or what its call copies, was kept for long enough: it goes although the call is open.
    GiveUp,
}

/// So often the claim of a call that is about to be cut is written, and so long after a failure.
const LAST_TRIES: usize = 5;
const LAST_WAIT: Duration = Duration::from_millis(200);

/// For so long at least a process follows the call of a deleted claim.
const LEAST_SEEN: Duration = Duration::from_secs(5 * 60);

/// Decides what is due for the mark of a claim that stands so. `overdue`: it has been deleted for
/// longer than it is kept. `current`: its mark records the request that is open.
fn due(mode: Mode, standing: &RecordView, overdue: bool, current: bool) -> Due {
    let wanted = standing.demand == Demand::Wanted;
    let marked = standing.mark.is_some();
    // An open call keeps what it copies, and so the namespace of that, as a mark does.
    let copies = standing.order.as_ref().is_some_and(|order| order.source.is_some());
    if standing.open {
        let lacks = standing.order.is_some() && !current;
        return match overdue && (marked || copies && standing.unknown) {
            true => Due::GiveUp,
            false if wanted && mode != Mode::Off && lacks => Due::PutOn,
            false => Due::Nothing,
        };
    }
    match &standing.mark {
        None | Some(RecordStatus::Elsewhere(_)) => Due::Nothing,
        // What somebody else wrote is cleared away with the claim.
        Some(RecordStatus::Void(_)) if !standing.is_known && !is_over(&standing.claim) => {
            Due::Nothing
        }
        // Until it is bound the claim may be asked for again.
        Some(RecordStatus::Closed) if wanted && mode == Mode::Always => Due::Nothing,
        Some(_) if wanted && mode == Mode::Always => {
            if standing.is_served {
                Due::Nothing
            } else {
                Due::Close
            }
        }
        Some(_) => Due::TakeOff,
    }
}

/// Whether nobody will provision for the claim any more: it is bound, or being deleted.
fn is_over(claim: &Claim) -> bool {
    claim.is_terminating() || !claim.is_unbound()
}

/// Whether a claim that was deleted at `deleted` has been kept for `timeout`. However late it may
/// be by the wall clock, which can be wrong, and however long nobody worked: this process must
/// have `seen` it deleted for a while. Of one whose end alone was seen nothing else tells.
fn is_overdue(
    deleted: Option<jiff::Timestamp>,
    seen: Duration,
    now: jiff::Timestamp,
    timeout: Option<Duration>,
) -> bool {
    let Some(timeout) = timeout else { return false };
    let since = |deleted| Duration::try_from(now.duration_since(deleted)).unwrap_or_default();
    let kept = deleted.map_or(seen, since);
    !seen.is_zero() && kept >= timeout && seen >= timeout.min(LEAST_SEEN)
}

/// Keeps the marks. Every write is made by whoever holds the claim's key.
pub struct CallRecords {
    /// Writes claims.
    pub client: Client,
    /// What is known of the claims.
    pub book: ClaimIndex,
    /// Tells users.
    pub events: ClaimEvents,
    /// Counts.
    pub metrics: ControllerMetrics,
    /// Tells for how long a deleted claim was kept.
    pub clock: Arc<dyn Clock>,
    /// Whose calls these are.
    pub identity: ProvisionerIdentity,
    /// Tells requests apart.
    pub digest: Digest,
    /// How calls are recorded.
    pub settings: Settings,
    /// Whether it was told that marks cannot be written.
    pub told: AtomicBool,
}

/// Gives the digest of an order's request ([`digest`](crate::controller::model::record::digest)).
pub type Digest = Box<dyn Fn(&ProvisionRequest) -> String + Send + Sync>;

/// A claim is not marked.
#[derive(Debug, thiserror::Error)]
pub enum Unmarked {
    /// It is gone, bound or being deleted.
    #[error("the claim is gone, bound or being deleted")]
    Unwanted,
    /// Another driver's open call is recorded on it.
    #[error("the claim carries the record of an open call of another driver")]
    Taken,
    /// The process of another node has a call open for it.
    #[error("a CreateVolume that was made for the claim on node {0:?} may still run")]
    Elsewhere(String),
    /// The record would be too long.
    #[error(
        "the record of the request is longer than {} bytes",
        super::super::model::record::MAX_BYTES
    )]
    TooLong,
    /// The API server did not take it.
    #[error("cannot put the finalizer {FINALIZER} on the claim: {0}")]
    Refused(#[from] ApiError),
}

impl CallRecords {
    /// With `always`, marks the claim before it is asked for.
    ///
    /// # Errors
    /// It may not be asked for: who chose `always` wants no call that nobody would remember.
    pub async fn before_call(&self, uid: &str, order: &ProvisionRequest) -> Result<(), Unmarked> {
        if self.settings.mode != Mode::Always || !self.book.is_wanted(uid) {
            return Ok(());
        }
        if mutations::is_on(Mutation::MarkedLate) {
            return Ok(());
        }
        match self.put_on(uid, order).await {
            // Another driver's record is no obstacle, and there is room for one alone.
            Err(Unmarked::Taken) => {
                self.warn_unprotected(&Unmarked::Taken);
                Ok(())
            }
            marked => marked,
        }
    }

    /// Marks the claim because its call will outlast the process: the claim does not come again, so
    /// what the API server refuses is tried again at once.
    pub async fn protect_at_last(&self, uid: &str, order: &ProvisionRequest) {
        for _ in 1..LAST_TRIES {
            if self.protect(uid, order).await {
                return;
            }
            sleep(LAST_WAIT).await;
        }
        self.protect(uid, order).await;
    }

    /// Marks the claim because something of it will outlast this moment. A failure is told, and
    /// made up for when the claim comes next; false where another try may succeed.
    pub async fn protect(&self, uid: &str, order: &ProvisionRequest) -> bool {
        let owed = self.settings.mode != Mode::Off && self.book.is_wanted(uid);
        if !owed {
            return true;
        }
        let written = self.put_on(uid, order).await;
        let over = !matches!(written, Err(Unmarked::Refused(_)));
        match written {
            Ok(()) => {}
            Err(Unmarked::Unwanted) => tracing::debug!("too late to protect the claim"),
            Err(error) => self.warn_unprotected(&error),
        }
        over
    }

    fn warn_unprotected(&self, error: &Unmarked) {
        if self.told.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "an open call is not protected");
        } else {
            tracing::warn!(
                %error,
                "An open call is not protected: if its claim is deleted while no replica runs, its volume may be left at the driver. Told once"
            );
        }
    }

    /// Does what is due for the claim's mark; false when that must be tried again. The caller
    /// holds the claim's key.
    pub async fn settle(&self, uid: &str) -> bool {
        let Some(standing) = self.book.standing(uid) else { return true };
        let current = self.is_current(&standing);
        match due(self.settings.mode, &standing, self.is_overdue(&standing), current) {
            Due::Nothing => true,
            Due::PutOn => match &standing.order {
                Some(order) => self.protect(uid, order).await,
                None => true,
            },
            Due::Close => self.close(uid, &standing.claim).await,
            Due::TakeOff => self.take_off(uid, &standing.claim).await.is_some(),
            Due::GiveUp => self.give_up(uid, &standing).await,
        }
    }

    fn is_current(&self, standing: &RecordView) -> bool {
        match (&standing.mark, &standing.order) {
            (Some(RecordStatus::Open(mark)), Some(order)) => *mark == self.record(order),
            _ => false,
        }
    }

    /// Whether the claim has been deleted for longer than it is kept.
    pub fn is_overdue(&self, standing: &RecordView) -> bool {
        let deleted = standing.claim.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        is_overdue(deleted, standing.seen_deleted, self.clock.wall(), self.settings.timeout)
    }

    /// Whether something that keeps a recorded call from being repeated has done so for longer than
    /// a deleted claim is kept.
    pub fn is_too_long(&self, waited: Duration) -> bool {
        self.settings.timeout.is_some_and(|timeout| waited >= timeout)
    }

    /// The digest of the order's request.
    pub fn digest(&self, order: &ProvisionRequest) -> String {
        (self.digest)(order)
    }

    fn record(&self, order: &ProvisionRequest) -> Record {
        let recorder =
            Recorder { driver: &self.identity.driver, node: self.identity.node.as_deref() };
        Record::of(order, recorder, self.digest(order))
    }

    async fn put_on(&self, uid: &str, order: &ProvisionRequest) -> Result<(), Unmarked> {
        let record = self.record(order);
        if self.book.is_recorded(uid, &record) {
            return Ok(());
        }
        let text = record.encode().ok_or(Unmarked::TooLong)?;
        let adopted = self.book.adopted(uid);
        let standpoint = self.standpoint(adopted.as_deref());
        let put_on = |object: &mut Value| {
            let edit = status::put_on(object, standpoint, &text);
            if edit == Edit::Write {
                self.book.marking(uid);
            }
            edit
        };
        let live = match self.edit(uid, &order.claim, put_on).await? {
            Edited::Written(live) | Edited::Unchanged(live) => live,
            Edited::Gone => return Err(Unmarked::Unwanted),
        };
        match status::read(&live) {
            _ if is_over(&live) => Err(Unmarked::Unwanted),
            Some(written) if written == record => {
                self.book.marked(uid, Some(RecordStatus::Open(record)));
                Ok(())
            }
            Some(other) if standpoint.is_of_other_node(&other) => {
                Err(Unmarked::Elsewhere(other.node_shown().to_owned()))
            }
            _ => Err(Unmarked::Taken),
        }
    }

    /// Whose process this is, as the edits of marks need it.
    pub fn standpoint<'a>(&'a self, adopted: Option<&'a str>) -> Standpoint<'a> {
        Standpoint { identity: &self.identity, adopted }
    }

    async fn edit(
        &self,
        uid: &str,
        claim: &Claim,
        edit: impl FnMut(&mut Value) -> Edit,
    ) -> Result<Edited<Claim>, ApiError> {
        let name = Name::namespaced(claim.namespace(), claim.name())?;
        self.client.edit::<Claim>(name, uid, edit).await
    }

    /// Says on the claim that nothing is open; false when that must be tried again.
    async fn close(&self, uid: &str, claim: &Claim) -> bool {
        let adopted = self.book.adopted(uid);
        let standpoint = self.standpoint(adopted.as_deref());
        let closed = self.edit(uid, claim, |object| status::close(object, standpoint)).await;
        match closed {
            Ok(_) => {
                self.book.marked(uid, Some(RecordStatus::Closed));
                true
            }
            Err(error) => {
                self.report_unwritten(uid, claim, "take the record of a closed call off", &error);
                false
            }
        }
    }

    /// Takes the mark off: whether this write did; `None` when that must be tried again.
    async fn take_off(&self, uid: &str, claim: &Claim) -> Option<bool> {
        let adopted = self.book.adopted(uid);
        let standpoint = self.standpoint(adopted.as_deref());
        let written =
            self.edit(uid, claim, |object| status::take_off_own(object, standpoint)).await;
        self.taken_off(uid, claim, written)
    }

    fn taken_off(
        &self,
        uid: &str,
        claim: &Claim,
        written: Result<Edited<Claim>, ApiError>,
    ) -> Option<bool> {
        match written {
            Ok(edited) => {
                self.book.marked(uid, None);
                Some(matches!(edited, Edited::Written(_)))
            }
            Err(error) => {
                let what = format!("take the finalizer {FINALIZER} off");
                self.report_unwritten(uid, claim, &what, &error);
                None
            }
        }
    }

    fn report_unwritten(&self, uid: &str, claim: &Claim, what: &str, error: &ApiError) {
        self.book.mark_is_doubtful(uid);
        let why = format!("cannot {what} the claim: {error}");
        tracing::warn!("{why}");
        if self.book.tells(uid, &why, Duration::ZERO) {
            self.events.blocked(claim, &why);
        }
    }

    /// Lets a deleted claim go although its call is open.
    async fn give_up(&self, uid: &str, standing: &RecordView) -> bool {
        let adopted = self.book.adopted(uid);
        let standpoint = self.standpoint(adopted.as_deref());
        let take_off = |object: &mut Value| status::take_off_own(object, standpoint);
        let (reports, done) = self.let_go(uid, &standing.claim, take_off).await;
        if (reports || done && standing.mark.is_none()) && self.book.tells_letting_go(uid) {
            self.suspect_timeout(uid, &standing.claim, &standing.volume_name);
        }
        if done {
            self.book.given_up(uid);
        }
        done
    }

    /// Takes the mark of an open call off: whether this process reports it, as only whose write does so
    /// or may have done so, and whether it is off. Where nobody is told how a write ended, nobody else
    /// reports it.
    async fn let_go(
        &self,
        uid: &str,
        claim: &Claim,
        take_off: impl Fn(&mut Value) -> Edit,
    ) -> (bool, bool) {
        let mut is_sent = false;
        let noted = |object: &mut Value| {
            let edit = take_off(object);
            is_sent |= edit == Edit::Write;
            edit
        };
        let written = self.edit(uid, claim, noted).await;
        let is_unclear = written.as_ref().is_err_and(|error| is_sent && error.is_unclear());
        let removed = self.taken_off(uid, claim, written);
        (is_unclear || removed == Some(true), removed.is_some())
    }

    /// Lets a deleted claim go which another node's process has marked; false when that must be tried
    /// again. Only whose write does it, or may have done it, reports the call.
    pub async fn give_up_for_node(
        &self,
        uid: &str,
        claim: &Claim,
        volume: &str,
        record: &Record,
        node_is_gone: bool,
    ) -> bool {
        let take_off = |object: &mut Value| status::take_off_of(object, record);
        let (reports, done) = self.let_go(uid, claim, take_off).await;
        match (reports && self.book.tells_letting_go(uid), node_is_gone) {
            (false, _) => {}
            (true, true) => self.suspect_node(uid, claim, volume),
            (true, false) => self.suspect_timeout(uid, claim, volume),
        }
        done
    }

    fn suspect_timeout(&self, uid: &str, claim: &Claim, volume: &str) {
        let why = format!(
            "the claim was deleted, and how its CreateVolume ended could not be found out within --claim-protection-timeout: the volume {volume:?} may be left at the driver"
        );
        self.suspect(uid, claim, SuspectedLeak::ProtectionTimeout, &why);
    }

    /// The node whose process has a call open for the claim is gone.
    pub fn suspect_node(&self, uid: &str, claim: &Claim, volume: &str) {
        let why = format!(
            "the node whose CreateVolume for this claim may still have run is gone: its volume {volume:?} may be left at the driver"
        );
        self.suspect(uid, claim, SuspectedLeak::NodeGone, &why);
    }

    /// The call of a deleted claim is closed by errors alone.
    pub fn suspect_closed_by_errors(&self, uid: &str, order: &ProvisionRequest) {
        let volume = order.volume_name.as_deref().unwrap_or_default();
        let why = format!(
            "nobody waits for the claim's volume any more, and the driver refused to make it again after a CreateVolume whose end is unknown: should that have made the volume {volume:?}, it is left at the driver"
        );
        self.suspect(uid, &order.claim, SuspectedLeak::ClosedByErrors, &why);
    }

    /// The selected node is given back while a call for it may still make a volume there.
    pub fn suspect_node_given_back(&self, uid: &str, order: &ProvisionRequest) {
        let volume = order.volume_name.as_deref().unwrap_or_default();
        let why = format!(
            "the selected node is given back after a CreateVolume whose end is unknown: should that have made the volume {volume:?}, it is left at the driver of that node"
        );
        self.suspect(uid, &order.claim, SuspectedLeak::NodeGivenBack, &why);
    }

    /// The claim has a volume that this process has not saved, and how its own call ended is not known.
    pub fn suspect_superseded(&self, uid: &str, order: &ProvisionRequest) {
        let volume = order.volume_name.as_deref().unwrap_or_default();
        let why = format!(
            "the claim has a volume from elsewhere, and how a CreateVolume for it ended is not known: should that have made the volume {volume:?}, it is left at the driver"
        );
        self.suspect(uid, &order.claim, SuspectedLeak::Superseded, &why);
    }

    /// What was recorded cannot be asked for any more, and was waited for for long enough: the claim is
    /// asked for as a new one is.
    pub fn give_up_record(&self, uid: &str, order: &ProvisionRequest) {
        let volume = order.volume_name.as_deref().unwrap_or_default();
        let why = format!(
            "where an earlier CreateVolume asked for the volume {volume:?} cannot be asked for within --claim-protection-timeout: it is asked for elsewhere, and one there may be left at the driver"
        );
        self.suspect(uid, &order.claim, SuspectedLeak::Topology, &why);
        self.book.record_given_up(uid);
    }

    fn suspect(&self, uid: &str, claim: &Claim, reason: SuspectedLeak, why: &str) {
        tracing::error!(claim = %claim_key(claim), uid, error = why, "suspected leak");
        self.metrics.suspected_leak(reason);
        self.events.blocked(claim, why);
    }

    /// Reports a record that is not followed: what it names may be left at the driver.
    pub fn report_unfollowed(&self, uid: &str, claim: &Claim, record: &Record) {
        let volume = record.volume_shown();
        tracing::warn!(
            claim = %claim_key(claim),
            uid,
            volume,
            "a record of an open call is not followed: it does not follow from the claim, its class and the flags of this process"
        );
        self.metrics.unfollowed_record();
        let named = if volume.is_empty() { String::new() } else { format!(" {volume:?}") };
        let why = format!(
            "the annotation {RECORD} is not followed, as it does not fit the claim, its class and the provisioner's flags: if a CreateVolume was made with it, the volume{named} may be left at the driver"
        );
        self.events.blocked(claim, &why);
    }
}

#[cfg(test)]
mod tests;
