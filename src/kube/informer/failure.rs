//! Why a list or a watch failed, and what that means for the version it went on from.

use kube::core::Status;

use super::{pages::PageError, watch::EventError};

/// Why a step of [`super::list_watch`] failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A page of the list was refused, broke off or could not be read.
    List(kube::Error),
    /// A watch was refused, or failed after it had been opened.
    Watch(kube::Error),
    /// A list or a changed object came without the version at which a watch could go on.
    NoVersion,
}

impl Failure {
    /// What the server said, where it answered.
    pub(super) fn status(&self) -> Option<&Status> {
        match self {
            Self::List(kube::Error::Api(status)) | Self::Watch(kube::Error::Api(status)) => {
                Some(status)
            }
            _ => None,
        }
    }

    /// Whether the server refused a watch. A connection that failed says nothing about the version.
    pub(super) fn is_refused_watch(&self) -> bool {
        matches!(self, Self::Watch(kube::Error::Api(_)))
    }

    /// Whether no watch can go on at the version it had: the server has forgotten it (410 Gone), or
    /// there is none.
    pub(super) fn loses_version(&self) -> bool {
        match self {
            Self::Watch(kube::Error::Api(status)) => status.code == 410,
            Self::NoVersion => true,
            Self::List(_) | Self::Watch(_) => false,
        }
    }

    /// Whether what was requested in protobuf is to be requested in JSON: the server refused protobuf
    /// (406), or what it sent cannot be read.
    pub(super) fn asks_for_json(&self) -> bool {
        match self {
            Self::List(kube::Error::Service(error)) => {
                matches!(error.downcast_ref(), Some(PageError::Protobuf(_) | PageError::OtherKind))
            }
            Self::Watch(kube::Error::Service(error)) => error.is::<EventError>(),
            Self::List(kube::Error::Api(status)) | Self::Watch(kube::Error::Api(status)) => {
                status.code == 406
            }
            _ => false,
        }
    }
}
