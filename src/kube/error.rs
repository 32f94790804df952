//! Errors of requests to the API server.
//!
//! A refusal prints as client-go prints it, since users know these texts from events. No message holds an
//! object's content. kube-rs logs answers that it cannot read, which [`crate::logging`] never prints.

use std::{error::Error, io, time::Duration};

use http::StatusCode;
use kube::core::{Status, response::reason};
use tower::BoxError;

use super::name::BadName;
use crate::{plain_text::with_sources, runtime::GateShut};

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
    Unsendable(#[from] kube::core::request::Error),
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
            Self::BadName(_) | Self::Unsendable(_) => false,
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

    /// The error of a request about `about` that kube-rs's client made on a lane. Holds nothing of the
    /// answer's content.
    pub fn of_kube(error: kube::Error, about: &str) -> Self {
        let unreadable = |fault| Self::Unreadable { about: about.to_owned(), fault };
        match error {
            // Any object in a watch that is no event reads as a status.
            kube::Error::Api(status) if status.code == 0 => unreadable("no event".to_owned()),
            kube::Error::Api(status) => (*status).into(),
            kube::Error::SerdeError(error) => unreadable(fault(&error)),
            kube::Error::FromUtf8(_) => unreadable("not JSON".to_owned()),
            kube::Error::Service(error) => {
                error.downcast().map_or_else(Self::from_transport, |error| *error)
            }
            kube::Error::ReadEvents(error) if error.kind() == io::ErrorKind::InvalidData => {
                unreadable("not JSON".to_owned())
            }
            kube::Error::ReadEvents(error) => match error.downcast() {
                Ok(error) => Self::of_kube(error, about),
                Err(error) => Self::from_transport(error.into()),
            },
            error => Self::from_transport(error.into()),
        }
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

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, TryStreamExt as _};
    use http::Request;
    use serde_json::Value;
    use tracing::Level;

    use super::*;
    use crate::{
        kube::{
            layers::whole_answers::MAX_ANSWER,
            objects::Volume,
            testing::{Answer, Server, client},
        },
        logging::testing::logged_down_to,
    };

    const VOLUMES: &str = "/api/v1/persistentvolumes";

    fn get(url: &str) -> Request<Vec<u8>> {
        Request::get(url).body(Vec::new()).unwrap()
    }

    async fn read(answer: Answer) -> Result<Value, ApiError> {
        let server = Server::new(move |_, _| answer.clone());
        let read = client(&server).for_watcher(2).request(get(VOLUMES)).await;
        read.map_err(|error| ApiError::of_kube(error, "persistentvolumes"))
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_those_of_our_own_requests() {
        let texts = [
            (Answer::refusal(403, "Forbidden", "no"), "no"),
            (
                Answer::status(404),
                "the server could not find the requested resource (get persistentvolumes)",
            ),
            (Answer::none(), "no answer from the API server: connection reset by peer"),
            (
                Answer::status(200).chunk(0, vec![b' '; MAX_ANSWER + 1]),
                "the API server's answer about persistentvolumes is larger than 32 MiB",
            ),
            (
                Answer::status(200).chunk(0, "?"),
                "cannot read the API server's answer about persistentvolumes: not JSON (at line 1 column 1)",
            ),
            (
                Answer::status(200).chunk(0, vec![0xff]),
                "cannot read the API server's answer about persistentvolumes: not JSON",
            ),
        ];
        for (answer, text) in texts {
            assert_eq!(read(answer).await.unwrap_err().to_string(), text);
        }
        assert_eq!(read(Answer::status(200).chunk(0, "{}")).await.unwrap(), serde_json::json!({}));
    }

    #[tokio::test(start_paused = true)]
    async fn watches_begin_once_a_second() {
        let server = Server::new(|_, _| Answer::status(200));
        let kube = client(&server).for_watcher(2);
        for _ in 0..3 {
            let watch = kube.request_events::<Volume>(get("/api/v1/persistentvolumes?watch=true"));
            assert_eq!(watch.await.unwrap().into_stream().count().await, 0);
        }
        assert_eq!(server.times(), [0, 1, 2]);
    }

    /// kube-rs logs what it cannot read.
    #[tokio::test]
    async fn no_answer_that_cannot_be_read_reaches_the_log() {
        let (log, _guard) = logged_down_to(Level::TRACE);
        let answer = Answer::status(200).chunk(0, r#"{"kind": "Secret", "data": "hunter2"#);
        assert!(read(answer.clone()).await.unwrap_err().is_unclear());
        let server = Server::new(move |_, _| answer.clone());
        let kube = client(&server).for_watcher(2);
        let watch = kube.request_events::<Volume>(get("/api/v1/persistentvolumes?watch=true"));
        let _ = watch.await.unwrap().into_stream().collect::<Vec<_>>().await;
        tracing::info!("listening");
        let log = log.text();
        assert!(log.contains("listening") && !log.contains("hunter2"), "{log}");
    }
}
