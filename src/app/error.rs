//! Why the program ended without being asked to, and its exit code.

use crate::{csi, http, leader, runtime::TaskEnded};

/// Why the program ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// `--csi-address` is invalid.
    #[error(transparent)]
    Address(#[from] csi::NotUnix),
    /// The driver cannot be used.
    #[error(transparent)]
    Driver(#[from] csi::ConnectError),
    /// The namespace or the owner of CSIStorageCapacity objects was not found.
    #[error("{0}")]
    Capacity(String),
    /// Another driver answered after a reconnect, or none for too long. The text begins as external-provisioner's
    /// does, which ends up in the termination log.
    #[error("Lost connection to CSI driver, exiting: {0}")]
    DriverLost(#[from] csi::ConnectionEnded),
    /// The Lease was lost.
    #[error("Stopped leading: {0}")]
    LostLease(leader::Loss),
    /// The HTTP server could not start.
    #[error(transparent)]
    Http(#[from] http::ListenError),
    /// A critical background task ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

impl AppError {
    /// The process's exit code, which is external-provisioner's where it has such a case.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Driver(error) => error.exit_code(),
            Self::Capacity(_) | Self::Http(_) => 255,
            Self::Address(_) | Self::DriverLost(_) | Self::LostLease(_) | Self::Task(_) => 1,
        }
    }
}
