//! What the index knows of the claims in work, for the status page.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::{Duration, Instant};

use super::{ClaimIndex, entry::Entry, snapshot::ClaimSnapshot};
use crate::{
    controller::{
        claims::state::{ClaimState, Stage},
        provisioner::Failure,
    },
    kube::objects::Claim,
    plain_text::cut,
};

/// The longest text of a failure that is kept, in bytes.
const MAX_MESSAGE: usize = 1024;

/// The attempts for one claim that have ended.
#[derive(Debug, Clone, Default)]
pub struct Attempts {
    /// Their number since the claim was added to the index.
    pub count: u32,
    /// How the last one failed. `None`: it did not.
    pub last_failure: Option<Box<LastFailure>>,
}

/// How an attempt failed.
#[derive(Debug, Clone)]
pub struct LastFailure {
    /// The gRPC code's name; empty if the driver was not called.
    pub code: &'static str,
    /// The text of the event, truncated. Claims that fail alike share it.
    pub message: Arc<str>,
    /// When the attempt ended.
    pub at: Instant,
}

impl Attempts {
    /// An attempt ended with this failure, if it failed.
    pub(super) fn ended(&mut self, failure: Option<&Failure>) {
        self.count = self.count.saturating_add(1);
        self.last_failure = failure.map(|failure| {
            let message = cut(&failure.to_string(), MAX_MESSAGE).into();
            Box::new(LastFailure { code: failure.kind(), message, at: Instant::now() })
        });
    }

    /// The message of the last failure.
    pub(super) fn message(&mut self) -> Option<&mut Arc<str>> {
        self.last_failure.as_mut().map(|failure| &mut failure.message)
    }
}

/// What is known of a claim in work.
#[derive(Debug, Clone)]
pub struct ClaimInWork {
    /// What workers get.
    pub known: ClaimSnapshot,
    /// The attempts that have ended.
    pub attempts: Attempts,
    /// What the claim waits for apart from the driver, and for how long.
    pub blocked: Option<(String, Duration)>,
}

/// The claims in work.
#[derive(Debug, Clone, Default)]
pub struct ClaimsInWork {
    /// Their number by stage.
    pub by_stage: BTreeMap<Stage, usize>,
    /// Some of them: first those that fail, then the others, the oldest first.
    pub some: Vec<ClaimInWork>,
    /// The number of the others.
    pub more: usize,
}

impl ClaimIndex {
    /// Counts the claims in work, and returns up to `max` of those for which `is_asked_for` holds.
    pub fn in_work(&self, max: usize, is_asked_for: impl Fn(&Claim) -> bool) -> ClaimsInWork {
        let inner = self.0.inner.lock();
        let mut by_stage = BTreeMap::new();
        let mut found = Vec::new();
        for entry in inner.entries.values().filter(|it| it.known.state != ClaimState::Done) {
            *by_stage.entry(entry.known.state.stage()).or_default() += 1;
            if is_asked_for(&entry.known.claim) {
                found.push(entry);
            }
        }
        found.sort_by_key(|entry| entry.urgency());
        let more = found.len().saturating_sub(max);
        let some = found.into_iter().take(max).map(Entry::in_work).collect();
        ClaimsInWork { by_stage, some, more }
    }
}

impl Entry {
    /// The order on the status page.
    fn urgency(&self) -> (bool, Option<Instant>) {
        let is_stuck = self.attempts.last_failure.is_some() || self.reports.blocked().is_some();
        (!is_stuck, self.known.known_since)
    }

    fn in_work(&self) -> ClaimInWork {
        let blocked = self.reports.blocked();
        ClaimInWork {
            known: self.known.clone(),
            attempts: self.attempts.clone(),
            blocked: blocked.map(|(what, since)| (cut(what, MAX_MESSAGE), since.elapsed())),
        }
    }
}
