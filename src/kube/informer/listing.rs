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
    /// As a list that is read while it comes.
    Listed,
}

/// What to do about an error or a silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Go on with the same watcher after a wait: it recovers by itself.
    Recover,
    /// Begin anew after a wait: the watcher would ask for the same lost version for ever, or has not
    /// begun at all.
    Relist,
    /// Begin anew at once, in pages.
    Page,
}

/// So many refusals in a row, and a watch is given up for a new list: also a version the server
/// does not know any more, or not yet, may be refused with other codes than the one for it.
const MAX_REFUSALS: u32 = 5;

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
    Watching { refusals: u32 },
}

impl Progress {
    /// A watcher that begins at `now`.
    pub(super) fn new(strategy: Strategy, now: Instant) -> Self {
        Self { strategy, phase: Phase::Listing { began: now, told: false } }
    }

    /// When a streamed list counts as one that will never end: in any case some time after it was
    /// asked for, and once it has begun, also some time after it was last heard of. A server that
    /// does not know streamed lists sends all objects and then just goes on watching.
    pub(super) fn patience(
        &self,
        now: Instant,
        quiet: Duration,
        whole: Duration,
    ) -> Option<Instant> {
        match (self.strategy, self.phase) {
            (Strategy::Streamed, Phase::Listing { began, told: true }) => {
                Some((now + quiet).min(began + whole))
            }
            (Strategy::Streamed, Phase::Listing { began, told: false }) => Some(began + whole),
            _ => None,
        }
    }

    /// Whether the server has begun a list, so that its silence says something.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::Listing { told: false, .. })
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
        self.phase = Phase::Watching { refusals: 0 };
    }

    /// An object was shown: the server answers.
    pub(super) fn shown(&mut self) {
        if let Phase::Watching { refusals } = &mut self.phase {
            *refusals = 0;
        }
    }

    /// The watcher tells an error at `now`.
    pub(super) fn failed(&mut self, error: &watcher::Error, now: Instant) -> Step {
        match (self.strategy, &mut self.phase) {
            (Strategy::Streamed, Phase::Listing { told: false, .. }) if !is_answer(error) => {
                Step::Relist
            }
            (Strategy::Streamed, Phase::Listing { .. }) => Step::Page,
            (Strategy::Paged | Strategy::Listed, Phase::Listing { .. }) => Step::Recover,
            (_, Phase::Watching { .. }) if restarts(error) => {
                self.phase = Phase::Listing { began: now, told: false };
                Step::Recover
            }
            (_, Phase::Watching { refusals }) => {
                *refusals += u32::from(is_refusal(error));
                let hopeless = is_refused_as_gone(error) || *refusals >= MAX_REFUSALS;
                if hopeless { Step::Relist } else { Step::Recover }
            }
        }
    }
}

/// The server's own word on what it was asked for, and not only on how it is just now: nothing can be
/// learned of what it knows from one that is away, overloaded or does not accept us yet.
fn is_answer(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            !matches!(status.code, 401 | 429 | 500..)
        }
        watcher::Error::WatchStartFailed(_) => false,
        _ => true,
    }
}

/// The server answered, and said no.
fn is_refusal(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::WatchStartFailed(kube::Error::Api(_)) | watcher::Error::WatchError(_)
    )
}

/// The version is too old for the server, told as the answer to the request: the watcher would
/// ask for that version for ever.
pub(super) fn is_refused_as_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 410,
        _ => false,
    }
}

/// The watcher begins a new list by itself after this error.
pub(super) fn restarts(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) => status.code == 410,
        watcher::Error::NoResourceVersion => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kube::{core::Status, runtime::watcher::Error};

    use super::*;

    fn status(code: u16) -> Box<Status> {
        Status::failure("m", "r").with_code(code).boxed()
    }

    fn at_start(code: u16) -> Error {
        Error::WatchStartFailed(kube::Error::Api(status(code)))
    }

    fn in_band(code: u16) -> Error {
        Error::WatchError(status(code))
    }

    fn no_answer() -> Error {
        Error::WatchStartFailed(kube::Error::Service("connection refused".into()))
    }

    /// A watcher that has told the events, one letter each: Restarted, Complete.
    fn progress(strategy: Strategy, events: &str) -> Progress {
        let mut progress = Progress::new(strategy, Instant::now());
        for event in events.chars() {
            match event {
                'R' => assert_eq!(progress.restarted(Instant::now()), None),
                _ => progress.complete(),
            }
        }
        progress
    }

    #[test]
    fn an_error_means_something_else_in_each_phase() {
        use Step::{Page, Recover, Relist};
        use Strategy::{Paged, Streamed};
        for (strategy, events, error, step) in [
            (Streamed, "", at_start(400), Page),
            (Streamed, "", at_start(403), Page),
            (Streamed, "", at_start(422), Page),
            (Streamed, "", at_start(401), Relist),
            (Streamed, "", at_start(429), Relist),
            (Streamed, "", at_start(503), Relist),
            (Streamed, "", no_answer(), Relist),
            (Streamed, "R", no_answer(), Page),
            (Streamed, "R", in_band(500), Page),
            (Streamed, "R", in_band(410), Page),
            (Paged, "", at_start(500), Recover),
            (Paged, "R", Error::InitialListFailed(kube::Error::Api(status(410))), Recover),
            (Streamed, "RC", at_start(410), Relist),
            (Paged, "RC", at_start(410), Relist),
            (Streamed, "RC", at_start(500), Recover),
            (Streamed, "RC", no_answer(), Recover),
            (Streamed, "RC", in_band(410), Recover),
            (Streamed, "RC", in_band(500), Recover),
            (Streamed, "RC", Error::NoResourceVersion, Recover),
        ] {
            let got = progress(strategy, events).failed(&error, Instant::now());
            assert_eq!(got, step, "{strategy:?} {events} {error}");
        }
    }

    #[test]
    fn a_streamed_relist_that_fails_goes_on_in_pages() {
        let mut progress = progress(Strategy::Streamed, "RC");
        assert_eq!(progress.failed(&in_band(410), Instant::now()), Step::Recover);
        assert_eq!(progress.restarted(Instant::now()), None);
        assert_eq!(progress.restarted(Instant::now()), Some(Step::Page), "it began twice");
    }

    #[test]
    fn refusals_without_end_cost_a_list_but_missing_answers_do_not() {
        let mut progress = progress(Strategy::Paged, "RC");
        let mut refuse = |times, error: &Error| {
            let steps: Vec<Step> =
                (0..times).map(|_| progress.failed(error, Instant::now())).collect();
            let relists = steps.iter().filter(|step| **step == Step::Relist).count();
            progress.shown();
            relists
        };
        assert_eq!(refuse(4, &at_start(504)), 0);
        assert_eq!(refuse(4, &at_start(504)), 0);
        assert_eq!(refuse(5, &at_start(504)), 1);
        assert_eq!(refuse(100, &no_answer()), 0);
    }

    #[test]
    fn only_a_streamed_list_is_waited_for_with_patience() {
        let (quiet, whole) = (Duration::from_secs(5), Duration::from_secs(60));
        let now = Instant::now();
        let later = now + Duration::from_secs(58);
        let mut listing = Progress::new(Strategy::Streamed, now);
        assert_eq!(listing.patience(now, quiet, whole), Some(now + whole), "nothing has come yet");
        assert!(!listing.has_begun());
        assert_eq!(listing.restarted(now), None);
        assert!(listing.has_begun());
        assert_eq!(listing.patience(now, quiet, whole), Some(now + quiet));
        assert_eq!(listing.patience(later, quiet, whole), Some(now + whole));
        assert_eq!(Progress::new(Strategy::Paged, now).patience(now, quiet, whole), None);
        assert_eq!(progress(Strategy::Streamed, "RC").patience(now, quiet, whole), None);
    }
}
