//! The time-out of deleted sources (`--claim-protection-timeout`).
//!
//! Owns finding the sources that pending claims have kept from going for that long, the release of
//! such a source, and the report of it. Promises that each process waits for a while of its own
//! ([`LEAST_SEEN`]), however late it is by the wall clock, which can be wrong; and that a source is
//! kept as long as a call of this process is open for it.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::{
    Protection,
    holders::Terminating,
    source::{NamedSource, SourceKind},
};
use crate::{
    kube::{
        ApiError,
        events::{Severity, Subject},
    },
    workqueue::Action,
};

/// How long at least a process sees a source Terminating before it releases the source.
const LEAST_SEEN: Duration = Duration::from_secs(5 * 60);

/// How often the deleted sources of clones are looked at.
const LOOK: Duration = Duration::from_secs(60);

/// Since when this process, while it works, has seen sources Terminating, with their UIDs.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<NamedSource, (String, Instant)>);

impl Seen {
    /// Takes in all sources that are Terminating now; the sources whose time-out is over, with
    /// their UIDs.
    pub(super) fn look(
        &mut self,
        terminating: &BTreeMap<NamedSource, Terminating>,
        now: Timestamp,
        timeout: Option<Duration>,
    ) -> BTreeMap<NamedSource, String> {
        self.0.retain(|source, (uid, _)| terminating.get(source).is_some_and(|it| it.uid == *uid));
        let mut overdue = BTreeMap::new();
        for (source, Terminating { uid, since }) in terminating {
            let first = || (uid.clone(), Instant::now());
            let (_, first) = self.0.entry(source.clone()).or_insert_with(first);
            if is_overdue(*since, first.elapsed(), now, timeout) {
                overdue.insert(source.clone(), uid.clone());
            }
        }
        overdue
    }
}

/// Whether a source that was deleted at `deleted`, and that this process has `seen` Terminating for
/// so long, has been kept for the time-out.
fn is_overdue(
    deleted: Timestamp,
    seen: Duration,
    now: Timestamp,
    timeout: Option<Duration>,
) -> bool {
    let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) else { return false };
    // A deletion in the future was a moment ago.
    let kept = Duration::try_from(now.duration_since(deleted)).unwrap_or_default();
    kept >= timeout && seen >= timeout.min(LEAST_SEEN)
}

impl Protection {
    /// Looks at the deleted sources of clones now and then, for ever.
    pub(super) async fn find_overdue_claims(&self) {
        if !self.0.settings.clones || self.0.settings.timeout.is_none() {
            return std::future::pending().await;
        }
        let mut seen = Seen::default();
        loop {
            self.find_overdue(SourceKind::Claim, &mut seen, None);
            sleep(LOOK).await;
        }
    }

    /// Finds the sources of the kind whose time-out is over. `terminating`: those that are deleted,
    /// where the watch of claims does not show them.
    pub(super) fn find_overdue(
        &self,
        kind: SourceKind,
        seen: &mut Seen,
        terminating: Option<&BTreeMap<NamedSource, Terminating>>,
    ) {
        let mut holders = self.0.holders.lock();
        let terminating = terminating.unwrap_or_else(|| holders.terminating());
        let overdue = seen.look(terminating, self.0.clock.wall(), self.0.settings.timeout);
        let touched = holders.set_overdue(kind, overdue);
        drop(holders);
        self.look_at(touched);
    }

    /// Takes the finalizer off the object although pending claims name it, and reports that. The
    /// caller holds the source's key.
    pub(super) async fn release(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> Result<Action, ApiError> {
        if self.is_of_another_driver(source, uid).await? {
            return Ok(Action::Retry);
        }
        let claims = self.0.holders.lock().claims_of(source);
        if self.take_off_if_due(source, uid).await? {
            self.report(source, uid, claims);
        }
        Ok(Action::Done)
    }

    fn report(&self, source: &NamedSource, uid: &str, claims: usize) {
        let why = format!(
            "removed the finalizer {}: the object has been Terminating for longer than --claim-protection-timeout, and {claims} pending claim(s) still name it as their source; no volume can be created from it any more",
            source.kind.finalizer()
        );
        tracing::warn!(%source, uid, claims, "{why}");
        self.0.metrics.controller.source_released("protection_timeout");
        self.0.events.final_event(subject(source, uid), Severity::Warning, "SourceReleased", why);
    }
}

/// The source as events name it.
fn subject(source: &NamedSource, uid: &str) -> Subject {
    Subject {
        kind: source.kind.name().into(),
        api_version: source.kind.api_version().into(),
        namespace: source.namespace.clone(),
        name: source.name.clone(),
        uid: uid.to_owned(),
        resource_version: String::new(),
    }
}

#[cfg(test)]
mod tests;
