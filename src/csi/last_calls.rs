//! How the driver answered its last calls: its health, as seen from them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::status::{CallError, code_name};
use crate::plain_text::cut;

/// The longest text of a failure that is kept, in bytes.
const MAX_TEXT: usize = 1024;

/// The last calls to a driver. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct LastCalls(Arc<Mutex<Last>>);

#[derive(Debug, Default)]
struct Last {
    success: Option<Instant>,
    failure: Option<FailedCall>,
}

/// A call that failed.
#[derive(Debug, Clone)]
pub struct FailedCall {
    /// The name of the gRPC code.
    pub code: &'static str,
    /// The driver's text, truncated.
    pub message: String,
    /// When it ended.
    pub at: Instant,
}

impl LastCalls {
    /// A call has ended so now.
    pub(super) fn ended(&self, error: Option<&CallError>) {
        let at = Instant::now();
        let mut last = self.0.lock();
        match error {
            None => last.success = Some(at),
            Some(error) => {
                let message = cut(&error.to_string(), MAX_TEXT);
                last.failure = Some(FailedCall { code: code_name(error.code()), message, at });
            }
        }
    }

    /// When the last successful call ended, and the last call that failed, if there were any.
    pub fn read(&self) -> (Option<Instant>, Option<FailedCall>) {
        let last = self.0.lock();
        (last.success, last.failure.clone())
    }
}
