//! The time-out of deleted sources (`--claim-protection-timeout`).
//!
//! Finds the sources that pending claims have held for that long, releases them, and reports that.
//! Each process first observes the source for a while itself ([`MIN_OBSERVED`]), because the wall
//! clock can be wrong. A source is kept as long as a call of this process is open for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::{Protection, ProtectionDeps, holders::Terminating, source::NamedSource};
use crate::kube::{
    ApiError,
    events::{Severity, Subject},
};

/// How long a process must have seen an object being deleted before it gives it up.
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
            if is_overdue(Some(*since), first.elapsed(), now, timeout) {
                overdue.insert(source.clone(), uid.clone());
            }
        }
        overdue
    }
}

/// Whether an object that was deleted at `deleted` has been kept for `timeout`. The wall clock may be wrong, and no
/// process may have been running for a long time, so this process must also have seen the object being deleted for
/// `seen`, a while. Without a deletion time, `seen` alone counts.
pub(crate) fn is_overdue(
    deleted: Option<Timestamp>,
    seen: Duration,
    now: Timestamp,
    timeout: Option<Duration>,
) -> bool {
    let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) else { return false };
    // A deletion in the future counts as now.
    let since = |deleted| Duration::try_from(now.duration_since(deleted)).unwrap_or_default();
    let kept = deleted.map_or(seen, since);
    !seen.is_zero() && kept >= timeout && seen >= timeout.min(MIN_OBSERVED)
}

impl Protection {
    /// Checks the deleted sources of clones periodically, for ever.
    pub(super) async fn release_overdue_claims(&self) {
        let settings = self.0.deps.settings;
        if !settings.clones || settings.timeout.is_none() {
            return std::future::pending().await;
        }
        let mut observed = Observed::default();
        loop {
            let terminating = self.0.holders.lock().terminating().clone();
            self.release_overdue(&terminating, &mut observed).await;
            sleep(CHECK_INTERVAL).await;
        }
    }

    /// Releases those of the deleted sources whose time-out is over.
    pub(super) async fn release_overdue(
        &self,
        terminating: &BTreeMap<NamedSource, Terminating>,
        observed: &mut Observed,
    ) {
        let ProtectionDeps { clock, settings, .. } = &self.0.deps;
        for (source, uid) in observed.update(terminating, clock.wall(), settings.timeout) {
            if let Err(error) = self.release(&source, &uid).await {
                tracing::warn!(%source, %error, "cannot take our finalizer off; tried again");
            }
        }
    }

    /// Removes the finalizer from the object although pending claims name it, and reports that. One of another
    /// driver that claims name is left to that driver's provisioner.
    async fn release(&self, source: &NamedSource, uid: &str) -> Result<(), Arc<ApiError>> {
        let is_due = || self.0.holders.lock().may_be_released(source, uid);
        let _lock = self.0.locks.lock(&source.to_string()).await;
        let claims = self.0.holders.lock().count_claims(source);
        if !is_due() || claims > 0 && self.is_of_another_driver(source, uid).await? {
            return Ok(());
        }
        if self.remove_finalizer(source, uid, is_due).await? && claims > 0 {
            self.report(source, uid, claims);
        }
        Ok(())
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
