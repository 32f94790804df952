//! The durable record of an open call: a finalizer and an annotation on the claim itself.
//!
//! Owns when a claim is marked and when its mark goes (`due`, a pure function), writing both,
//! and the end of patience with a driver that does not answer (`--claim-protection-timeout`). The
//! claim is the record: what one process leaves open, the next finds on the claim, which cannot
//! vanish meanwhile. Promises that nothing is written for a claim whose calls all end, but with
//! `always`, and that a mark which cannot be written is told and never in the way of work, but
//! with `always`. Leaves the record's form to `record`, the edits to `mark`, and where a claim
//! stands to `claim_state`.

pub mod mark;
pub mod record;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::Value;
use tokio::time::{Duration, sleep};

pub use self::{
    mark::{FINALIZER, RECORD},
    record::Record,
};
use super::{
    claim_book::{ClaimBook, Standing},
    claim_state::Demand,
    events::{ClaimEvents, claim_key},
    ownership::Identity,
    provisioner::Order,
};
use crate::{
    kube_api::{
        ApiError, Client, Edit, Edited, Name,
        views::{Claim, View as _},
    },
    metrics::ControllerMetrics,
    mutations::{self, Mutation},
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
    /// The claim is to be marked.
    PutOn,
    /// The call is closed: the mark goes.
    TakeOff,
    /// The claim, or what its call copies, was kept for long enough: it goes although the call is open.
    GiveUp,
}

/// So often the claim of a call that is about to be cut is written, and so long after a failure.
const LAST_TRIES: usize = 5;
const LAST_WAIT: Duration = Duration::from_millis(200);

/// For so long at least a process follows the call of a deleted claim.
const LEAST_SEEN: Duration = Duration::from_secs(5 * 60);

/// Decides what is due for the mark of a claim that stands so. `overdue`: it has been deleted
/// for longer than it is kept.
fn due(mode: Mode, standing: &Standing, overdue: bool) -> Due {
    let wanted = standing.demand == Demand::Wanted;
    // An open call keeps what it copies, and so the namespace of that, as a mark does.
    let copies = standing.order.as_ref().is_some_and(|order| order.source.is_some());
    match (standing.open, standing.marked) {
        (true, false) if wanted && mode != Mode::Off => Due::PutOn,
        (true, marked) if overdue && (marked || copies && standing.unknown) => Due::GiveUp,
        // Until it is bound the claim may be asked for again.
        (false, true) if wanted && mode == Mode::Always => Due::Nothing,
        (false, true) => Due::TakeOff,
        _ => Due::Nothing,
    }
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
pub struct OpenCalls {
    /// Writes claims.
    pub client: Client,
    /// What is known of the claims.
    pub book: ClaimBook,
    /// Tells users.
    pub events: ClaimEvents,
    /// Counts.
    pub metrics: ControllerMetrics,
    /// Tells for how long a deleted claim was kept.
    pub clock: Arc<dyn Clock>,
    /// Whose calls these are.
    pub identity: Identity,
    /// How calls are recorded.
    pub settings: Settings,
    /// Whether it was told that marks cannot be written.
    pub told: AtomicBool,
}

/// A claim is not marked.
#[derive(Debug, thiserror::Error)]
pub enum Unmarked {
    /// It is gone, bound or being deleted.
    #[error("the claim is gone, bound or being deleted")]
    Unwanted,
    /// Another's open call is recorded on it.
    #[error("the claim carries the record of an open call of another driver or node")]
    Taken,
    /// The record would be too long.
    #[error("the record of the request is longer than {} bytes", record::MAX_BYTES)]
    TooLong,
    /// The API server did not take it.
    #[error("cannot put the finalizer {FINALIZER} on the claim: {0}")]
    Refused(#[from] ApiError),
}

impl OpenCalls {
    /// With `always`, marks the claim before it is asked for.
    ///
    /// # Errors
    /// It may not be asked for: who chose `always` wants no call that nobody would remember.
    pub async fn before_call(&self, uid: &str, order: &Order) -> Result<(), Unmarked> {
        if self.settings.mode != Mode::Always || !self.book.is_wanted(uid) {
            return Ok(());
        }
        if mutations::is_on(Mutation::MarkedLate) {
            return Ok(());
        }
        self.put_on(uid, order).await
    }

    /// Marks the claim because its call will outlast the process: the claim does not come again, so
    /// what the API server refuses is tried again at once.
    pub async fn protect_at_last(&self, uid: &str, order: &Order) {
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
    pub async fn protect(&self, uid: &str, order: &Order) -> bool {
        let owed = self.settings.mode != Mode::Off && self.book.is_wanted(uid);
        if !owed {
            return true;
        }
        let written = self.put_on(uid, order).await;
        let over = !matches!(written, Err(Unmarked::Refused(_)));
        match written {
            Ok(()) => {}
            Err(Unmarked::Unwanted) => tracing::debug!("too late to protect the claim"),
            Err(error) if self.told.swap(true, Ordering::Relaxed) => {
                tracing::debug!(%error, "an open call is not protected");
            }
            Err(error) => tracing::warn!(
                %error,
                "An open call is not protected: if its claim is deleted while no replica runs, its volume may be left at the driver. Told once"
            ),
        }
        over
    }

    /// Does what is due for the claim's mark; false when that must be tried again. The caller
    /// holds the claim's key.
    pub async fn settle(&self, uid: &str) -> bool {
        let Some(standing) = self.book.standing(uid) else { return true };
        match due(self.settings.mode, &standing, self.is_overdue(&standing)) {
            Due::Nothing => true,
            Due::PutOn => {
                // An open call always has its order; where its answer is unknown, polls come back.
                if let Some(order) = &standing.order {
                    self.protect(uid, order).await;
                }
                true
            }
            Due::TakeOff => self.take_off(uid, &standing.claim).await,
            Due::GiveUp => self.give_up(uid, &standing).await,
        }
    }

    fn is_overdue(&self, standing: &Standing) -> bool {
        let deleted = standing.claim.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        is_overdue(deleted, standing.seen_deleted, self.clock.wall(), self.settings.timeout)
    }

    async fn put_on(&self, uid: &str, order: &Order) -> Result<(), Unmarked> {
        let record = Record::of(order, &self.identity.driver, self.clock.wall());
        if self.book.is_recorded(uid, &record) {
            return Ok(());
        }
        let text = record.encode().ok_or(Unmarked::TooLong)?;
        let claim = &order.claim;
        let name = Name::namespaced(claim.namespace(), claim.name()).map_err(ApiError::from)?;
        let put_on = |object: &mut Value| {
            let edit = mark::put_on(object, &self.identity, &text);
            if edit == Edit::Write {
                self.book.marking(uid);
            }
            edit
        };
        let live = match self.client.edit::<Claim>(name, uid, put_on).await? {
            Edited::Written(live) | Edited::Unchanged(live) => live,
            Edited::Gone => return Err(Unmarked::Unwanted),
        };
        match mark::read(&live) {
            _ if live.is_terminating() || !live.is_unbound() => Err(Unmarked::Unwanted),
            Some(written)
                if written.driver == self.identity.driver
                    && !written.is_anothers(&self.identity) =>
            {
                self.book.marked(uid, Some(written));
                Ok(())
            }
            _ => Err(Unmarked::Taken),
        }
    }

    async fn take_off(&self, uid: &str, claim: &Claim) -> bool {
        let written = match Name::namespaced(claim.namespace(), claim.name()) {
            Ok(name) => {
                let take_off = |object: &mut Value| mark::take_off_own(object, &self.identity);
                self.client.edit::<Claim>(name, uid, take_off).await
            }
            Err(error) => Err(error.into()),
        };
        match written {
            Ok(_) => {
                self.book.marked(uid, None);
                true
            }
            Err(error) => {
                let why = format!("cannot take the finalizer {FINALIZER} off the claim: {error}");
                tracing::warn!("{why}");
                if self.book.tells(uid, &why, Duration::ZERO) {
                    self.events.blocked(claim, &why);
                }
                false
            }
        }
    }

    /// Lets a deleted claim go although its call is open.
    async fn give_up(&self, uid: &str, standing: &Standing) -> bool {
        if !self.take_off(uid, &standing.claim).await {
            return false;
        }
        let why = format!(
            "the claim was deleted, and how its CreateVolume ended could not be found out within --claim-protection-timeout: the volume {:?} may be left at the driver",
            standing.volume_name
        );
        tracing::error!(claim = %claim_key(&standing.claim), uid, error = why, "suspected leak");
        self.metrics.suspected_leak("protection_timeout");
        self.events.blocked(&standing.claim, &why);
        self.book.given_up(uid);
        true
    }
}

/// Takes the mark off whatever is put back anyway.
pub(super) fn unmark(claim: &mut Value) -> Edit {
    mark::take_off(claim)
}

#[cfg(test)]
mod tests;
