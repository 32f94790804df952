//! The attempts for one claim or volume that have ended.

use std::sync::Arc;

use tokio::time::Instant;

use super::{model::overview::LastFailure, provisioner::Failure};
use crate::plain_text::cut;

/// The longest text of a failure that is kept, in bytes.
pub(super) const MAX_TEXT: usize = 1024;

/// The attempts for one claim that have ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Attempts {
    /// Their number since the claim was added to the index.
    pub(super) count: u32,
    /// How the last one failed. `None`: it did not.
    pub(super) last_failure: Option<Box<FailedAttempt>>,
}

/// How an attempt failed.
#[derive(Debug, Clone)]
pub(super) struct FailedAttempt {
    /// The gRPC code's name; empty if the driver was not called.
    code: &'static str,
    /// The text of the event, truncated. Claims that fail alike share it.
    message: Arc<str>,
    /// When the attempt ended.
    at: Instant,
}

impl Attempts {
    /// Counts an attempt that has ended, and keeps how it failed, if it did.
    pub(super) fn ended(&mut self, failure: Option<&Failure>) {
        self.count = self.count.saturating_add(1);
        self.last_failure = failure.map(|failure| Box::new(FailedAttempt::now(failure)));
    }

    /// The text of the last failure.
    pub(super) fn message(&mut self) -> Option<&mut Arc<str>> {
        self.last_failure.as_mut().map(|failure| &mut failure.message)
    }
}

impl FailedAttempt {
    /// The failure of an attempt that has just ended.
    pub(super) fn now(failure: &Failure) -> Self {
        let message = cut(&failure.to_string(), MAX_TEXT).into();
        Self { code: failure.kind, message, at: Instant::now() }
    }

    /// As it is listed.
    pub(super) fn listed(&self) -> LastFailure {
        LastFailure {
            code: self.code.to_owned(),
            message: self.message.to_string(),
            seconds_ago: self.at.elapsed().as_secs(),
        }
    }
}
