//! Errors of calls, and where they come from.

use std::{error::Error as _, fmt};

pub use tonic::Code;

use super::proto::{CreateVolumeResponse, Volume};
use crate::runtime::GateShut;

/// Where the error of a call comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorOrigin {
    /// The driver sent this status.
    Driver,
    /// This side: the driver sent no valid status. It may have executed the request, or may still
    /// be executing it.
    Local,
    /// This side, before the request was sent: the driver does not know of it.
    Unsent,
}

/// A call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    code: Code,
    /// The status's text.
    pub(super) message: String,
    /// Where the error comes from.
    pub(super) origin: ErrorOrigin,
}

impl CallError {
    /// An error with a status from the driver.
    pub fn driver(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), origin: ErrorOrigin::Driver }
    }

    /// An error from this side: the call was cancelled, or its answer is invalid.
    pub fn local(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), origin: ErrorOrigin::Local }
    }

    /// Marks the error as one of a call that was not sent.
    #[must_use]
    pub fn unsent(self) -> Self {
        Self { origin: ErrorOrigin::Unsent, ..self }
    }

    /// The deadline has passed.
    pub(super) fn deadline() -> Self {
        Self::local(Code::DeadlineExceeded, "context deadline exceeded")
    }

    /// A string in the request is not UTF-8; the text is grpc-go's.
    pub(super) fn not_utf8() -> Self {
        let text = "grpc: error while marshaling: string field contains invalid UTF-8";
        Self::local(Code::Internal, text).unsent()
    }

    /// The connection is down, broke, or was refused.
    pub(super) fn unavailable(why: &str) -> Self {
        Self::local(Code::Unavailable, format!("connection error: desc = \"transport: {why}\""))
    }

    /// The call was refused or cancelled because the gate is closed.
    pub(super) fn gate_shut(error: GateShut) -> Self {
        let shut = Self::local(Code::Unavailable, error.to_string());
        match error {
            GateShut::NotStarted => shut.unsent(),
            GateShut::Cut => shut,
        }
    }

    /// The error of a call that ended for tonic with `status`: what `wire` returned to it. A status without
    /// that is one that tonic made itself, which the driver never sent.
    pub(super) fn from_status(status: &tonic::Status) -> Self {
        let noted = status.source().and_then(|error| error.downcast_ref::<Self>());
        noted.cloned().unwrap_or_else(|| Self::local(status.code(), status.message()))
    }

    /// The status code: the driver's, or what grpc-go reports in this case.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The status code as grpc-go spells it.
    pub fn code_name(&self) -> &'static str {
        code_name(self.code)
    }

    /// Whether nothing of the call was sent, so that no call is open (safety rule 3).
    pub fn is_unsent(&self) -> bool {
        self.origin == ErrorOrigin::Unsent
    }

    /// Whether the driver itself said that the call is over and had no effect (safety rule 2).
    /// After any other error the driver may still be working.
    pub fn is_final(&self) -> bool {
        let may_go_on = matches!(
            self.code,
            Code::Ok | Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted
        );
        self.origin == ErrorOrigin::Driver && !may_go_on
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", code_name(self.code), self.message)
    }
}

impl std::error::Error for CallError {}

/// Returns the volume of a `CreateVolume` response.
///
/// # Errors
/// An error of this side if there is no volume or it has no id: the driver may hold a volume that
/// cannot be addressed.
pub fn created_volume(response: CreateVolumeResponse) -> Result<Volume, CallError> {
    let volume = response.volume.ok_or_else(|| {
        CallError::local(Code::Internal, "the CSI driver's answer to CreateVolume has no volume")
    })?;
    if volume.volume_id.is_empty() {
        let text = "the CSI driver's answer to CreateVolume has an empty volume_id";
        return Err(CallError::local(Code::Internal, text));
    }
    Ok(volume)
}

/// A code as grpc-go spells it.
pub(super) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}
