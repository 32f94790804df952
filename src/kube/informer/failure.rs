//! Why a list or a watch failed, and what that means for the version it went on from.

use kube::{core::Status, runtime::watcher::Error};

use crate::kube::error::ApiError;

/// Why [`kube::runtime::watcher`] failed. Holds nothing of an answer's content.
#[derive(Debug)]
pub(super) enum Failure {
    /// A page of the list was refused, broke off or could not be read.
    List(ApiError),
    /// A watch was refused, or failed after it had been opened.
    Watch(ApiError),
    /// A list or a changed object came without the version at which a watch could go on.
    NoVersion,
}

impl Failure {
    /// The failure of a list or watch of `resource`.
    pub(super) fn of(error: Error, resource: &str) -> Self {
        match error {
            Error::InitialListFailed(error) => Self::List(ApiError::of_kube(error, resource)),
            Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
                Self::Watch(ApiError::of_kube(error, resource))
            }
            Error::WatchError(status) => Self::Watch((*status).into()),
            Error::NoResourceVersion => Self::NoVersion,
        }
    }

    /// What the server said, where it refused.
    pub(super) fn refusal(&self) -> Option<&Status> {
        match self {
            Self::List(error) | Self::Watch(error) => error.refusal(),
            Self::NoVersion => None,
        }
    }

    /// Whether the server refused a watch. A connection that failed says nothing about the version.
    pub(super) fn is_refused_watch(&self) -> bool {
        matches!(self, Self::Watch(_)) && self.refusal().is_some()
    }

    /// Whether no watch can go on at the version it had: the server has forgotten it (410 Gone), its next
    /// event is too large, or one that cannot be read is lost, as kube-rs goes on with the next one.
    pub(super) fn loses_version(&self) -> bool {
        match self {
            Self::Watch(ApiError::Refused(refusal)) => refusal.code == 410,
            Self::Watch(ApiError::Unreadable { .. } | ApiError::TooLarge { .. }) => true,
            Self::Watch(_) | Self::List(_) | Self::NoVersion => false,
        }
    }
}
