//! Why a list or a watch failed, and what that means for the version it went on from.

use crate::kube::error::{ApiError, Refusal, fault};

/// Why a step of [`super::list_watch`] failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A page of the list was refused, broke off or could not be read.
    List(AnswerError),
    /// A watch was refused, or failed after it had been opened.
    Watch(AnswerError),
    /// A list or a changed object came without the version at which a watch could go on.
    NoVersion,
}

/// Why there is no answer to a list or a watch, or none that can be read. Holds nothing of its content.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    /// It was refused, there was none, or it broke off.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// It is no JSON.
    #[error("{}", fault(.0))]
    Json(#[from] serde_json::Error),
    /// It ended early.
    #[error("the answer ends in the middle")]
    Ends,
    /// One object, or what surrounds the objects, exceeds the bound.
    #[error("an object, or what stands around the objects, is larger than 32 MiB")]
    TooLarge,
}

impl Failure {
    /// What the server said, where it refused.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::List(AnswerError::Api(ApiError::Refused(refusal)))
            | Self::Watch(AnswerError::Api(ApiError::Refused(refusal))) => Some(refusal),
            Self::List(_) | Self::Watch(_) | Self::NoVersion => None,
        }
    }

    /// Whether the server refused a watch. A connection that failed says nothing about the version.
    pub(super) fn is_refused_watch(&self) -> bool {
        matches!(self, Self::Watch(_)) && self.refusal().is_some()
    }

    /// Whether no watch can go on at the version it had: the server has forgotten it (410 Gone), or
    /// there is none.
    pub(super) fn loses_version(&self) -> bool {
        match self {
            Self::Watch(_) => self.refusal().is_some_and(|refusal| refusal.code == 410),
            Self::NoVersion => true,
            Self::List(_) => false,
        }
    }
}
