//! What can become of a request to the API server.
//!
//! Owns [`ApiError`] and the reading of refusals. Promises that a refusal prints as Kubernetes'
//! own client prints it (users know these texts from events), that an answer which is no `Status`
//! still gets a sensible code, reason and message, and that no message holds an object's content.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::{Method, StatusCode, header};
use serde::Deserialize;
use tower::BoxError;

use super::{client::name::BadName, stack::target::Target};
use crate::runtime::GateShut;

/// The most that is kept of an answer that is no `Status`, in bytes.
const MAX_TEXT: usize = 2048;

/// Why a request did not give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The name cannot stand in a URL; nothing was sent.
    #[error(transparent)]
    BadName(#[from] BadName),
    /// The server refused. Prints the server's message and nothing else.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// No answer, or not a whole one: what was asked for may have been done or not.
    #[error("no answer from the API server: {}", with_sources(&**.0))]
    NoAnswer(#[source] BoxError),
    /// No whole answer in time: what was asked for may have been done or not.
    #[error(transparent)]
    DeadlineExceeded(#[from] DeadlineExceeded),
    /// The server answered with success, but the answer makes no sense: what was asked for was
    /// done.
    #[error("cannot read the API server's answer about {about}: {fault}")]
    Unreadable {
        /// The resource and, where the request had one, the name.
        about: String,
        /// What is wrong with it, without any of its content.
        fault: String,
    },
    /// The server answered with success, but the answer is longer than is read: what was asked for was
    /// done.
    #[error("the API server's answer about {about} is larger than {} MiB", .most >> 20)]
    TooLarge {
        /// The resource and, where the request had one, the name.
        about: String,
        /// The most that is read, in bytes.
        most: usize,
    },
    /// Not sent, or not waited for, because this process does not hold the Lease.
    #[error(transparent)]
    GateShut(#[from] GateShut),
    /// The request could not be put together; nothing was sent.
    #[error("cannot build a request: {0}")]
    Unsendable(#[from] http::Error),
    /// The object could not be written as JSON; nothing was sent.
    #[error("cannot write an object as JSON: {0}")]
    Unwritable(#[source] serde_json::Error),
}

/// A request was not answered in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the API server did not answer within {}s", .0.as_secs_f64())]
pub struct DeadlineExceeded(pub Duration);

/// What the server said when it refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, thiserror::Error)]
#[serde(default)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// The reason in one word: `NotFound`, `AlreadyExists` and so on; may be empty.
    pub reason: String,
    /// The message for people.
    pub message: String,
}

impl ApiError {
    /// The HTTP status code the server refused with.
    pub fn code(&self) -> Option<u16> {
        self.refusal().map(|refusal| refusal.code)
    }

    /// The server's reason in one word.
    pub fn reason(&self) -> Option<&str> {
        self.refusal().map(|refusal| refusal.reason.as_str())
    }

    fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// There is no such object, or no such kind.
    pub fn is_not_found(&self) -> bool {
        self.is("NotFound", StatusCode::NOT_FOUND)
    }

    /// The object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.is("Conflict", StatusCode::CONFLICT)
    }

    /// An object of that name stands already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some("AlreadyExists")
    }

    /// This program lacks the right.
    pub fn is_forbidden(&self) -> bool {
        self.is("Forbidden", StatusCode::FORBIDDEN)
    }

    /// The object breaks a rule of its kind.
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

    /// As apimachinery judges: the reason decides, the code only where there is no reason it knows.
    fn is(&self, reason: &str, code: StatusCode) -> bool {
        self.refusal().is_some_and(|refusal| {
            refusal.reason == reason
                || (!is_known(&refusal.reason) && refusal.code == code.as_u16())
        })
    }

    /// The layers' own errors told from those of the connection.
    pub(crate) fn from_transport(error: BoxError) -> Self {
        if let Some(shut) = find::<GateShut>(&*error) {
            return Self::GateShut(*shut);
        }
        match find::<DeadlineExceeded>(&*error) {
            Some(late) => Self::DeadlineExceeded(*late),
            None => Self::NoAnswer(error),
        }
    }
}

/// The first error of type `E` in the chain of causes.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    std::iter::successors(Some(error), |&error| error.source())
        .find_map(|error| error.downcast_ref())
}

/// The reasons of apimachinery's `StatusReason` that a code alone could also stand for.
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
    /// Reads a refusal's body; what is no `Status` gets the words Kubernetes' own client finds.
    pub(crate) fn read(
        method: &Method,
        target: &Target<'_>,
        code: StatusCode,
        headers: &http::HeaderMap,
        body: &Bytes,
    ) -> Self {
        let status =
            serde_json::from_slice::<Self>(body).ok().filter(|status| !status.message.is_empty());
        match status {
            Some(status) if status.code < 400 => Self { code: code.as_u16(), ..status },
            Some(status) => status,
            None => Self::unexplained(method, target, code, &text(headers, body)),
        }
    }

    /// client-go's words for an answer without an explanation.
    fn unexplained(method: &Method, target: &Target<'_>, code: StatusCode, text: &str) -> Self {
        let (reason, message) = words(method, code, text);
        let verb = method.as_str().to_ascii_lowercase();
        let about = target.about();
        let message =
            if about.is_empty() { message } else { format!("{message} ({verb} {about})") };
        Self { code: code.as_u16(), reason: reason.to_owned(), message }
    }
}

/// Reason and message that a bare status code stands for.
fn words(method: &Method, code: StatusCode, text: &str) -> (&'static str, String) {
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

/// The body where it is text for people, cut; else `unknown`.
fn text(headers: &http::HeaderMap, body: &Bytes) -> String {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    if kind.is_some_and(|kind| !kind.starts_with("text/")) {
        return "unknown".to_owned();
    }
    let cut = body.get(..MAX_TEXT).unwrap_or(body);
    String::from_utf8_lossy(cut).trim().to_owned()
}

/// An error with what lies beneath it: connection errors say why only there.
pub(crate) fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for source in std::iter::successors(error.source(), |error| (**error).source()) {
        let source = source.to_string();
        // Some print their source themselves.
        if !text.contains(&source) {
            text = format!("{text}: {source}");
        }
    }
    text
}

/// What is wrong with JSON, without a word of its content.
pub(crate) fn fault(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Io => "unreadable",
        serde_json::error::Category::Syntax => "not JSON",
        serde_json::error::Category::Data => "not the expected fields",
        serde_json::error::Category::Eof => "cut short",
    };
    format!("{kind} (at line {} column {})", error.line(), error.column())
}
