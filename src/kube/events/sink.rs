//! Writes single events to the API server; tests replace [`Sink`].

use super::Event;
use crate::kube::{ApiError, Name, Patch, client::EventLane, objects};

/// Writes events.
pub(super) trait Sink: Send + Sync + 'static {
    /// Creates an event.
    fn create(&self, event: &Event) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Updates an earlier event to this one.
    fn patch(&self, event: &Event) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Whether objects are being written, to which events give way.
    fn gives_way(&self) -> bool;
}

/// Why an event was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The event to patch is gone.
    Gone(String),
    /// The server refuses it permanently.
    Refused(String),
    /// It is not needed any more: it exists already, or its namespace is being deleted.
    Obsolete(String),
    /// A retry may succeed.
    Transient(String),
}

impl Sink for EventLane {
    async fn create(&self, event: &Event) -> Result<(), Failure> {
        outcome(self.client.create_unread::<objects::Event>(Some(event.namespace()), event).await)
    }

    async fn patch(&self, event: &Event) -> Result<(), Failure> {
        let name = event.name();
        let name = Name::namespaced(event.namespace(), &name)
            .map_err(|error| Failure::Refused(error.to_string()))?;
        let patch = Patch::Strategic(event.to_patch());
        outcome(self.client.patch::<objects::Event>(name, &patch).await)
    }

    fn gives_way(&self) -> bool {
        !self.object_writes.is_empty()
    }
}

/// Converts the result of a write. client-go does not retry after any answer of the server; here 429
/// and 5xx are retried, so that no event is lost.
fn outcome<T>(answer: Result<T, ApiError>) -> Result<(), Failure> {
    let Err(error) = answer else { return Ok(()) };
    let text = error.to_string();
    let terminating = error.is_forbidden() && text.contains("being terminated");
    Err(match &error {
        // The event was written.
        ApiError::Unreadable { .. } | ApiError::TooLarge { .. } => return Ok(()),
        _ if error.is_already_exists() || terminating => Failure::Obsolete(text),
        _ if error.is_not_found() => Failure::Gone(text),
        _ if error.code().is_some_and(|code| code == 429 || code >= 500) => {
            Failure::Transient(text)
        }
        ApiError::Refused(_) | ApiError::BadName(_) | ApiError::Unsendable(_) => {
            Failure::Refused(text)
        }
        ApiError::NoAnswer(_) | ApiError::DeadlineExceeded(_) | ApiError::GateShut(_) => {
            Failure::Transient(text)
        }
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use kube::core::Status;

    use super::*;
    use crate::kube::{
        BadName,
        error::DeadlineExceeded,
        layers::{
            in_flight::limited,
            whole_answers::{Budget, whole_answers},
        },
        testing::{Answer, End, Server, event_lane, request, send},
    };

    fn refused(code: u16, reason: &str, message: &str) -> ApiError {
        Status::failure(message, reason).with_code(code).into()
    }

    #[tokio::test]
    async fn events_give_way_while_an_object_is_written() {
        let server = Server::new(|_, _| Answer::status(200).end(End::Open));
        let lane = event_lane(&server);
        let whole = whole_answers(Budget::default(), server.service.clone());
        let objects = limited(lane.object_writes.clone(), whole);
        assert!(!lane.gives_way());
        let write = request(http::Method::PUT, "/api/v1/persistentvolumes/pv");
        let mut unread = send(&objects, write).boxed();
        assert!((&mut unread).now_or_never().is_none());
        assert!(lane.gives_way());
        drop(unread);
        assert!(!lane.gives_way());
    }

    #[test]
    fn errors_are_mapped_to_failures() {
        let text = || "because".to_owned();
        for (error, failure) in [
            (refused(403, "Forbidden", "because"), Failure::Refused(text())),
            (refused(422, "Invalid", "because"), Failure::Refused(text())),
            (refused(404, "NotFound", "because"), Failure::Gone(text())),
            (refused(409, "AlreadyExists", "because"), Failure::Obsolete(text())),
            (refused(429, "TooManyRequests", "because"), Failure::Transient(text())),
            (refused(500, "InternalError", "because"), Failure::Transient(text())),
            (refused(503, "", "because"), Failure::Transient(text())),
            (
                ApiError::NoAnswer("x".into()),
                Failure::Transient("no answer from the API server: x".to_owned()),
            ),
        ] {
            assert_eq!(outcome::<()>(Err(error)), Err(failure));
        }
        let terminating =
            "unable to create new content in namespace ns because it is being terminated";
        let error = refused(403, "Forbidden", terminating);
        assert_eq!(outcome::<()>(Err(error)), Err(Failure::Obsolete(terminating.to_owned())));
        let late = ApiError::DeadlineExceeded(DeadlineExceeded(std::time::Duration::from_secs(1)));
        assert!(matches!(outcome::<()>(Err(late)), Err(Failure::Transient(_))));
        let unreadable = ApiError::Unreadable { about: String::new(), fault: String::new() };
        assert_eq!(outcome::<()>(Err(unreadable)), Ok(()));
        let bad: Result<_, BadName> = Name::namespaced("ns", "a/b");
        assert!(matches!(outcome::<()>(Err(bad.unwrap_err().into())), Err(Failure::Refused(_))));
    }
}
