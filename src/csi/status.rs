//! What the end of a call means, and whose word it is.

use std::fmt;

pub use tonic::Code;

use super::{
    proto::{CreateVolumeResponse, Volume},
    wire::{End, MAX_ANSWER},
};
use crate::mutations::{self, Mutation};

/// Who said that a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The driver: it sent this status.
    Driver,
    /// This side: no status came, or none that can be relied upon. The driver may have done, or
    /// may still be doing, what it was asked.
    Local,
    /// This side, before the request reached the connection: the driver knows nothing of it.
    Unsent,
}

/// A call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    code: Code,
    message: String,
    word: Word,
}

impl CallError {
    /// The driver answered with this status.
    pub fn driver(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), word: Word::Driver }
    }

    /// This side ended the call, or could not make sense of its answer.
    pub fn local(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), word: Word::Local }
    }

    /// The same of a call of which nothing was sent.
    #[must_use]
    pub fn unsent(self) -> Self {
        Self { word: Word::Unsent, ..self }
    }

    /// The deadline passed.
    pub(super) fn deadline() -> Self {
        Self::local(Code::DeadlineExceeded, "context deadline exceeded")
    }

    /// The request holds text that is no UTF-8, in grpc-go's words.
    pub(super) fn not_text() -> Self {
        let text = "grpc: error while marshaling: string field contains invalid UTF-8";
        Self::local(Code::Internal, text).unsent()
    }

    /// The connection is down, broke, or was refused.
    pub(super) fn unavailable(why: &str) -> Self {
        Self::local(Code::Unavailable, format!("connection error: desc = \"transport: {why}\""))
    }

    /// What tonic reports as `status`, given what was heard below it.
    pub(super) fn judged(status: &tonic::Status, heard: Option<End>) -> Self {
        match heard {
            Some(End::Status { code, message }) if code != Code::Ok => Self::driver(code, message),
            Some(End::Malformed(status)) => {
                Self::local(Code::Unknown, format!("transport: malformed grpc-status: {status:?}"))
            }
            Some(End::Broken(why)) => {
                Self::unavailable(&format!("error reading from server: {why}"))
            }
            Some(End::Silent) => {
                // hyper shows a stream that was reset with NO_ERROR as one that ended.
                Self::local(Code::Unavailable, "server closed the stream without sending trailers")
            }
            Some(End::Oversize(length)) => Self::local(
                Code::ResourceExhausted,
                format!("grpc: received message larger than max ({length} vs. {MAX_ANSWER})"),
            ),
            Some(End::Status { .. }) | None => Self::local(status.code(), status.message()),
        }
    }

    /// The status code: the driver's, or what grpc-go would report in this place.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The status code as grpc-go spells it.
    pub fn code_name(&self) -> &'static str {
        code_name(self.code)
    }

    /// The status's text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whose word this is.
    pub fn word(&self) -> Word {
        self.word
    }

    /// Whether nothing of the call was sent, so that it opens nothing (safety rule 3).
    pub fn is_unsent(&self) -> bool {
        self.word == Word::Unsent && !mutations::is_on(Mutation::UnsentIsOpen)
    }

    /// Whether the driver itself says that the call is over and did nothing (safety rule 2).
    /// Anything else may still be going on in the driver.
    pub fn is_final(&self) -> bool {
        let may_go_on = matches!(
            self.code,
            Code::Ok | Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted
        );
        let whose = self.word == Word::Driver || mutations::is_on(Mutation::LocalStatusIsFinal);
        whose && !may_go_on
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", code_name(self.code), self.message)
    }
}

impl std::error::Error for CallError {}

/// The volume in an answer to `CreateVolume`.
///
/// # Errors
/// A [`Word::Local`] error when there is none, or when it has no id: the driver may hold a volume
/// nobody can name.
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
