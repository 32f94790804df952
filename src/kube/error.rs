//! Errors of requests to the API server.
//!
//! A refusal prints as client-go prints it, since users know these texts from events. No message holds an
//! object's content.

use std::{error::Error, time::Duration};

use http::StatusCode;
use kube::core::{Status, response::reason};
use tower::BoxError;

use super::name::BadName;
use crate::runtime::GateShut;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The name cannot be part of a URL; nothing was sent.
    #[error(transparent)]
    BadName(#[from] BadName),
    /// The server refused. Prints the server's message and nothing else.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
    /// No answer, or only a part of it: the request may have been carried out.
    #[error("no answer from the API server: {}", with_sources(&**.0))]
    NoAnswer(#[source] BoxError),
    /// No complete answer in time: the request may have been carried out.
    #[error(transparent)]
    DeadlineExceeded(#[from] DeadlineExceeded),
    /// The request succeeded, but its answer cannot be parsed.
    #[error("cannot read the API server's answer about {about}: {fault}")]
    Unreadable {
        /// The resource and, if the request had one, the name.
        about: String,
        /// What is wrong with the answer, without any of its content.
        fault: String,
    },
    /// The request succeeded, but its answer is longer than the limit.
    #[error("the API server's answer about {about} is larger than {} MiB", .max >> 20)]
    TooLarge {
        /// The resource and, if the request had one, the name.
        about: String,
        /// The limit, in bytes.
        max: usize,
    },
    /// Not sent, or not waited for, because this process does not hold the Lease.
    #[error(transparent)]
    GateShut(#[from] GateShut),
    /// The request could not be built; nothing was sent.
    #[error("cannot build a request: {0}")]
    Unsendable(#[from] http::Error),
    /// The object could not be serialized; nothing was sent.
    #[error("cannot write an object as JSON: {0}")]
    Unwritable(#[source] serde_json::Error),
}

/// A request was not answered in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the API server did not answer within {}s", .0.as_secs_f64())]
pub struct DeadlineExceeded(pub Duration);

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

impl ApiError {
    /// What the server said when it refused.
    pub fn refusal(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) => Some(status),
            _ => None,
        }
    }

    /// The HTTP status code of a refusal.
    pub fn code(&self) -> Option<u16> {
        self.refusal().map(|status| status.code)
    }

    /// Whether the object, or its kind, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.is(reason::NOT_FOUND, StatusCode::NOT_FOUND)
    }

    /// Whether the object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.is(reason::CONFLICT, StatusCode::CONFLICT)
    }

    /// Whether an object of that name exists already.
    pub fn is_already_exists(&self) -> bool {
        self.refusal().is_some_and(Status::is_already_exists)
    }

    /// Whether this program lacks the right.
    pub fn is_forbidden(&self) -> bool {
        self.is(reason::FORBIDDEN, StatusCode::FORBIDDEN)
    }

    /// Whether the object failed the server's validation.
    pub fn is_invalid(&self) -> bool {
        self.is(reason::INVALID, StatusCode::UNPROCESSABLE_ENTITY)
    }

    /// Whether the request may have been carried out although it failed here.
    pub fn is_unclear(&self) -> bool {
        match self {
            Self::NoAnswer(_)
            | Self::DeadlineExceeded(_)
            | Self::Unreadable { .. }
            | Self::TooLarge { .. } => true,
            Self::Refused(status) => status.code >= 500,
            Self::GateShut(shut) => *shut == GateShut::Cut,
            Self::BadName(_) | Self::Unsendable(_) | Self::Unwritable(_) => false,
        }
    }

    /// As in apimachinery: the reason decides; the code only if the reason is unknown, as a webhook's may be.
    /// kube-rs's own methods never look at the code.
    fn is(&self, reason: &str, code: StatusCode) -> bool {
        self.refusal().is_some_and(|status| {
            let is_known = reason::is_known(&status.reason);
            status.reason == reason || (!is_known && status.code == code.as_u16())
        })
    }

    /// Converts an error of the stack: the layers' own errors keep their types, all others are
    /// [`NoAnswer`](Self::NoAnswer).
    pub(crate) fn from_transport(error: BoxError) -> Self {
        if let Some(shut) = find::<GateShut>(&*error) {
            return Self::GateShut(*shut);
        }
        match find::<DeadlineExceeded>(&*error) {
            Some(exceeded) => Self::DeadlineExceeded(*exceeded),
            None => Self::NoAnswer(error),
        }
    }
}

/// The first error of type `E` in the chain of causes.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    std::iter::successors(Some(error), |&error| error.source())
        .find_map(|error| error.downcast_ref())
}

/// Formats an error with its sources: connection errors give their cause only there.
pub(crate) fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for source in std::iter::successors(error.source(), |error| (**error).source()) {
        let source = source.to_string();
        // Some errors print their source themselves.
        if !text.contains(&source) {
            text = format!("{text}: {source}");
        }
    }
    text
}

/// Describes what is wrong with JSON, without any of its content.
pub(crate) fn fault(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Io => "unreadable",
        serde_json::error::Category::Syntax => "not JSON",
        serde_json::error::Category::Data => "not the expected fields",
        serde_json::error::Category::Eof => "cut short",
    };
    format!("{kind} (at line {} column {})", error.line(), error.column())
}
