//! The time-out of deleted sources (`--claim-protection-timeout`).
//!
//! Finds the sources that pending claims have held for that long, releases them, and reports that.
//! Each process first observes the source for a while itself ([`MIN_OBSERVED`]), because the wall
//! clock can be wrong. A source is kept as long as a call of this process is open for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::{
    Protection, ProtectionDeps,
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

/// How long a process must observe a source as Terminating before it releases it.
const MIN_OBSERVED: Duration = Duration::from_secs(5 * 60);

/// The interval of checks of deleted sources of clones.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// When this process, while it works, first observed each source as Terminating, with their UIDs.
#[derive(Debug, Default)]
pub(super) struct Observed(BTreeMap<NamedSource, (String, Instant)>);

impl Observed {
    /// Updates the observations with all sources that are Terminating now; returns those whose
    /// time-out is over, with their UIDs.
    pub(super) fn update(
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

/// Whether a source that was deleted at `deleted`, and that this process has observed as
/// Terminating for `observed`, has been held for the time-out.
fn is_overdue(
    deleted: Timestamp,
    observed: Duration,
    now: Timestamp,
    timeout: Option<Duration>,
) -> bool {
    let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) else { return false };
    // A deletion in the future counts as now.
    let held = Duration::try_from(now.duration_since(deleted)).unwrap_or_default();
    held >= timeout && observed >= timeout.min(MIN_OBSERVED)
}

impl Protection {
    /// Checks the deleted sources of clones periodically, for ever.
    pub(super) async fn find_overdue_claims(&self) {
        let settings = self.0.deps.settings;
        if !settings.clones || settings.timeout.is_none() {
            return std::future::pending().await;
        }
        let mut observed = Observed::default();
        loop {
            self.find_overdue(SourceKind::Claim, &mut observed, None);
            sleep(CHECK_INTERVAL).await;
        }
    }

    /// Finds the sources of the kind whose time-out is over. `terminating`: the deleted ones, if
    /// the watch of claims does not deliver them.
    pub(super) fn find_overdue(
        &self,
        kind: SourceKind,
        observed: &mut Observed,
        terminating: Option<&BTreeMap<NamedSource, Terminating>>,
    ) {
        let ProtectionDeps { clock, settings, .. } = &self.0.deps;
        let mut holders = self.0.holders.lock();
        let terminating = terminating.unwrap_or_else(|| holders.terminating());
        let overdue = observed.update(terminating, clock.wall(), settings.timeout);
        let affected = holders.set_overdue(kind, overdue);
        drop(holders);
        self.enqueue(affected);
    }

    /// Removes the finalizer from the object although pending claims name it, and reports that. The
    /// caller holds the source's lock.
    pub(super) async fn release(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> Result<Action, Arc<ApiError>> {
        if self.is_of_another_driver(source, uid).await? {
            return Ok(Action::Retry);
        }
        let claims = self.0.holders.lock().count_claims(source);
        if self.remove_finalizer_if_due(source, uid).await? {
            self.report(source, uid, claims);
        }
        Ok(Action::Done)
    }

    fn report(&self, source: &NamedSource, uid: &str, claims: usize) {
        let why = format!(
            "removed the finalizer {}: the object has been Terminating for longer than --claim-protection-timeout, and {claims} pending claim(s) still name it as their source; no volume can be created from it any more",
            source.kind.finalizer()
        );
        let ProtectionDeps { metrics, events, .. } = &self.0.deps;
        metrics.controller.source_released("protection_timeout");
        events.final_event(subject(source, uid), Severity::Warning, "SourceReleased", why);
    }
}

/// The source as the subject of an event.
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
