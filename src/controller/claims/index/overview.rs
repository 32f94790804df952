//! What the index knows of the claims in work, for the status.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{ClaimIndex, entry::Entry, known::KnownClaim};
use crate::{
    controller::{
        attempts::{FailedAttempt, MAX_TEXT},
        claims::state::ClaimState,
        model::overview::{Blocked, Claims, ListedClaim},
        ownership::class_of_claim,
    },
    kube::objects::{Claim, View as _},
    plain_text::cut,
    workqueue::Place,
};

impl ClaimIndex {
    /// Counts the claims in work, and lists up to `max` of those for which `is_asked_for` holds: first
    /// those that fail or are blocked, then the others, the oldest first. When a claim is worked on next
    /// is not known here.
    pub fn in_work(&self, max: usize, is_asked_for: impl Fn(&Claim) -> bool) -> Claims {
        let inner = self.0.inner.lock();
        let mut by_stage = BTreeMap::new();
        let mut found = Vec::new();
        for entry in inner.entries.values().filter(|it| it.known.state != ClaimState::Done) {
            *by_stage.entry(entry.known.state.stage()).or_default() += 1;
            if is_asked_for(&entry.known.claim) {
                found.push(entry);
            }
        }
        found.sort_by_cached_key(|entry| entry.urgency());
        let more = found.len().saturating_sub(max);
        let listed = found.into_iter().take(max).map(Entry::listed).collect();
        Claims { by_stage, listed, more }
    }
}

impl Entry {
    /// The order on the status.
    fn urgency(&self) -> (bool, Option<Instant>) {
        let is_stuck = self.attempts.last_failure.is_some() || self.reports.blocked().is_some();
        (!is_stuck, self.known.known_since)
    }

    fn listed(&self) -> ListedClaim {
        let KnownClaim { claim, state, .. } = &self.known;
        let blocked = self.reports.blocked();
        ListedClaim {
            namespace: claim.namespace().to_owned(),
            name: claim.name().to_owned(),
            uid: claim.uid().to_owned(),
            class: class_of_claim(claim).to_owned(),
            stage: state.stage(),
            is_deleted: self.known.is_gone_or_terminating(),
            age_seconds: self.known.age().as_secs(),
            attempts: self.attempts.count,
            last_failure: self.attempts.last_failure.as_deref().map(FailedAttempt::listed),
            blocked: blocked.map(|(what, since)| Blocked {
                reason: cut(what, MAX_TEXT),
                seconds: since.elapsed().as_secs(),
            }),
            next: Place::default(),
        }
    }
}
