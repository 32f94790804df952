//! Errors of requests to the API server.
//!
//! A refusal prints as client-go prints it, since users know these texts from events. An answer that is
//! no `Status` gets client-go's reason and message. No message holds an object's content.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::{Method, StatusCode, header};
use serde::Deserialize;
use tower::BoxError;

use super::{name::BadName, target::Target};
use crate::runtime::GateShut;

/// The most that is kept of an answer that is no `Status`, in bytes.
const MAX_TEXT: usize = 2048;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The name cannot be part of a URL; nothing was sent.
    #[error(transparent)]
    BadName(#[from] BadName),
    /// The server refused. Prints the server's message and nothing else.
    #[error("{0}")]
    Refused(Box<Refusal>),
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

/// The server's answer to a request that it refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, thiserror::Error)]
#[serde(default)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound` or `AlreadyExists`; may be empty.
    pub reason: String,
    /// The human-readable message.
    pub message: String,
}

impl ApiError {
    /// The HTTP status code of a refusal.
    pub fn code(&self) -> Option<u16> {
        self.refusal().map(|refusal| refusal.code)
    }

    /// The machine-readable reason of a refusal.
    pub fn reason(&self) -> Option<&str> {
        self.refusal().map(|refusal| refusal.reason.as_str())
    }

    fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether the object, or its kind, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.is("NotFound", StatusCode::NOT_FOUND)
    }

    /// Whether the object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.is("Conflict", StatusCode::CONFLICT)
    }

    /// Whether an object of that name exists already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some("AlreadyExists")
    }

    /// Whether this program lacks the right.
    pub fn is_forbidden(&self) -> bool {
        self.refusal().is_some_and(Refusal::is_forbidden)
    }

    /// Whether the object failed the server's validation.
    pub fn is_invalid(&self) -> bool {
        self.is("Invalid", StatusCode::UNPROCESSABLE_ENTITY)
    }

    /// Whether the request may have been carried out although it failed here.
    pub fn is_unclear(&self) -> bool {
        match self {
            Self::NoAnswer(_)
            | Self::DeadlineExceeded(_)
            | Self::Unreadable { .. }
            | Self::TooLarge { .. } => true,
            Self::Refused(refusal) => refusal.code >= 500,
            Self::GateShut(shut) => *shut == GateShut::Cut,
            Self::BadName(_) | Self::Unsendable(_) | Self::Unwritable(_) => false,
        }
    }

    fn is(&self, reason: &str, code: StatusCode) -> bool {
        self.refusal().is_some_and(|refusal| refusal.is(reason, code))
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

/// Whether `reason` is one that apimachinery's `knownReasons` lists.
fn is_known(reason: &str) -> bool {
    const KNOWN: [&str; 20] = [
        "Unauthorized",
        "Forbidden",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "Gone",
        "Invalid",
        "ServerTimeout",
        "StoreReadError",
        "Timeout",
        "TooManyRequests",
        "BadRequest",
        "MethodNotAllowed",
        "NotAcceptable",
        "RequestEntityTooLarge",
        "UnsupportedMediaType",
        "InternalError",
        "Expired",
        "ServiceUnavailable",
        "ResourceVersionTooLarge",
    ];
    KNOWN.contains(&reason)
}

impl Refusal {
    /// Whether this program lacks the right.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.is("Forbidden", StatusCode::FORBIDDEN)
    }

    /// As in apimachinery: the reason decides; the code only if the reason is unknown.
    fn is(&self, reason: &str, code: StatusCode) -> bool {
        self.reason == reason || (!is_known(&self.reason) && self.code == code.as_u16())
    }

    /// Parses a refusal's body; a body that is no `Status` gets client-go's reason and message.
    pub(crate) fn read(
        method: &Method,
        target: &Target<'_>,
        code: StatusCode,
        headers: &http::HeaderMap,
        body: &Bytes,
    ) -> Self {
        let status = serde_json::from_slice::<Self>(body).ok();
        let status = status.filter(|status| !status.message.is_empty());
        match status {
            Some(status) if status.code < 400 => Self { code: code.as_u16(), ..status },
            Some(status) => status,
            None => Self::from_code(method, target, code, &text(headers, body)),
        }
    }

    /// client-go's reason and message for an answer that is no `Status`.
    fn from_code(method: &Method, target: &Target<'_>, code: StatusCode, text: &str) -> Self {
        let (reason, message) = reason_and_message(method, code, text);
        let verb = method.as_str().to_ascii_lowercase();
        let about = target.about();
        let message =
            if about.is_empty() { message } else { format!("{message} ({verb} {about})") };
        Self { code: code.as_u16(), reason: reason.to_owned(), message }
    }
}

/// client-go's reason and message for a status code.
fn reason_and_message(method: &Method, code: StatusCode, text: &str) -> (&'static str, String) {
    let (reason, message) = match code {
        StatusCode::CONFLICT if method == Method::POST => {
            ("AlreadyExists", "the server reported a conflict")
        }
        StatusCode::CONFLICT => ("Conflict", "the server reported a conflict"),
        StatusCode::NOT_FOUND => ("NotFound", "the server could not find the requested resource"),
        StatusCode::BAD_REQUEST => {
            ("BadRequest", "the server rejected our request for an unknown reason")
        }
        StatusCode::UNAUTHORIZED => {
            ("Unauthorized", "the server has asked for the client to provide credentials")
        }
        StatusCode::FORBIDDEN => ("Forbidden", text),
        StatusCode::NOT_ACCEPTABLE if text == "unknown" || text.is_empty() => (
            "NotAcceptable",
            "the server was unable to respond with a content type that the client supports",
        ),
        StatusCode::NOT_ACCEPTABLE => ("NotAcceptable", text),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ("UnsupportedMediaType", text),
        StatusCode::METHOD_NOT_ALLOWED => {
            ("MethodNotAllowed", "the server does not allow this method on the requested resource")
        }
        StatusCode::UNPROCESSABLE_ENTITY => {
            ("Invalid", "the server rejected our request due to an error in our request")
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            ("ServiceUnavailable", "the server is currently unable to handle the request")
        }
        StatusCode::GATEWAY_TIMEOUT => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        StatusCode::TOO_MANY_REQUESTS => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        code if code.is_server_error() => {
            return (
                "InternalError",
                format!(
                    "an error on the server ({text:?}) has prevented the request from succeeding"
                ),
            );
        }
        code => {
            let code = code.as_u16();
            let message = format!(
                "the server responded with the status code {code} but did not return more information"
            );
            return ("", message);
        }
    };
    (reason, message.to_owned())
}

/// The body, truncated, if its media type is text; otherwise `unknown`.
fn text(headers: &http::HeaderMap, body: &Bytes) -> String {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    if kind.is_some_and(|kind| !kind.starts_with("text/")) {
        return "unknown".to_owned();
    }
    let cut = body.get(..MAX_TEXT).unwrap_or(body);
    String::from_utf8_lossy(cut).trim().to_owned()
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
