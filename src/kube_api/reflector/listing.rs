//! Where a reflector stands, and what an error means there.
//!
//! Owns the decisions around kube's watcher as a pure state machine: when to give up on a streamed
//! list, when a watcher cannot recover by itself. Leaves waiting and logging to the reflector.

use std::time::Duration;

use kube::runtime::watcher;
use tokio::time::Instant;

/// How objects that stand already are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// As the beginning of a watch, one by one. Not every server can.
    Streamed,
    /// In pages of a list.
    Paged,
}

/// What to do about an error or a silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Go on with the same watcher after a wait: it recovers by itself.
    Recover,
    /// Begin anew after a wait: the watcher would ask for the same lost version for ever.
    Relist,
    /// Begin anew at once, in pages.
    Page,
}

/// The progress of one watcher.
#[derive(Debug)]
pub(super) struct Progress {
    strategy: Strategy,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The list is not whole yet.
    Listing { began: Instant, told: bool },
    /// The list is whole; changes follow.
    Watching,
}

impl Progress {
    /// A watcher that begins at `now`.
    pub(super) fn new(strategy: Strategy, now: Instant) -> Self {
        Self { strategy, phase: Phase::Listing { began: now, told: false } }
    }

    /// When a streamed list counts as one that will never end: some time after it was last heard
    /// of, and in any case some time after it began. A server that does not know streamed lists
    /// sends all objects and then just goes on watching.
    pub(super) fn patience(
        &self,
        now: Instant,
        quiet: Duration,
        whole: Duration,
    ) -> Option<Instant> {
        match (self.strategy, self.phase) {
            (Strategy::Streamed, Phase::Listing { began, .. }) => {
                Some((now + quiet).min(began + whole))
            }
            _ => None,
        }
    }

    /// The watcher begins a list. The second beginning of a streamed one means that the first
    /// broke off.
    pub(super) fn restarted(&mut self, now: Instant) -> Option<Step> {
        let broke_off = matches!(self.phase, Phase::Listing { told: true, .. });
        self.phase = Phase::Listing { began: now, told: true };
        (broke_off && self.strategy == Strategy::Streamed).then_some(Step::Page)
    }

    /// The list is whole.
    pub(super) fn complete(&mut self) {
        self.phase = Phase::Watching;
    }

    /// The watcher tells an error at `now`.
    pub(super) fn failed(&mut self, error: &watcher::Error, now: Instant) -> Step {
        match (self.strategy, self.phase) {
            (Strategy::Streamed, Phase::Listing { .. }) => Step::Page,
            (Strategy::Paged, Phase::Listing { .. }) => Step::Recover,
            (_, Phase::Watching) if is_refused_as_gone(error) => Step::Relist,
            (_, Phase::Watching) => {
                if restarts(error) {
                    self.phase = Phase::Listing { began: now, told: false };
                }
                Step::Recover
            }
        }
    }
}

/// The version is too old for the server, told as the answer to the request: the watcher would
/// ask for that version for ever.
fn is_refused_as_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 410,
        _ => false,
    }
}

/// The watcher begins a new list by itself after this error.
fn restarts(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) => status.code == 410,
        watcher::Error::NoResourceVersion => true,
        _ => false,
    }
}
