//! Why the program ended before anybody asked it to, and the exit code that says so.

use crate::{capacity, csi, http, leader, runtime::TaskEnded};

/// Why the program ended before anybody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `--csi-address` can't be used.
    #[error(transparent)]
    Address(#[from] csi::AddressError),
    /// The driver could not be used at start.
    #[error(transparent)]
    Driver(#[from] csi::ConnectError),
    /// CSIStorageCapacity objects have no place or no owner.
    #[error(transparent)]
    Capacity(#[from] capacity::DestinationError),
    /// The driver came back as another one; begins with the original's words, which stand in
    /// the termination log.
    #[error("Lost connection to CSI driver, exiting: {0}")]
    DriverChanged(#[from] csi::ConnectionEnded),
    /// The election's times do not fit together.
    #[error(transparent)]
    Election(#[from] leader::SettingsError),
    /// The Lease is somebody else's now.
    #[error("Stopped leading: {0}")]
    LostLease(leader::Loss),
    /// The HTTP server did not start.
    #[error(transparent)]
    Http(#[from] http::ListenError),
    /// A background task ended, which none may.
    #[error(transparent)]
    Task(#[from] TaskEnded),
    /// A metric could not be registered, which is a bug.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl Error {
    /// The process's exit code: the original's where it knows the case (reference 1.3).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Driver(error) => error.exit_code(),
            Self::Capacity(_) | Self::Http(_) | Self::Metrics(_) => 255,
            Self::Election(_) => 2,
            Self::Address(_) | Self::DriverChanged(_) | Self::LostLease(_) | Self::Task(_) => 1,
        }
    }
}
