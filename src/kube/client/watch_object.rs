//! The watch of one object, and the errors of kube-rs's client.
//!
//! What the server refuses is an [`ApiError`] within kube-rs's error, with the text that users know from
//! client-go; [`ApiError::of_kube`] takes it out again. It logs answers that it cannot read, which
//! [`crate::logging`] never prints.

use std::io;

use futures::{StreamExt as _, stream::BoxStream};
use kube::api::{WatchEvent, WatchParams};

use super::{Client, Name};
use crate::kube::{
    error::{ApiError, fault},
    objects::{View, kind::Kind},
    scope::Scope,
};

impl Client {
    /// Watches one object, by its name alone, from `version` on; an empty one means as it is now. The
    /// server ends the watch after so many seconds. Returns once the answer has begun.
    pub(crate) async fn watch_object<V: View>(
        &self,
        name: Name<'_>,
        version: &str,
        seconds: u32,
    ) -> Result<BoxStream<'static, Result<WatchEvent<V>, ApiError>>, ApiError> {
        let kind = Kind::of::<V>();
        let about = kind.resource();
        let parameters = WatchParams {
            field_selector: Scope::all().named(name.name()).fields,
            ..WatchParams::default().timeout(seconds).disable_bookmarks()
        };
        let request = kube::core::Request::new(kind.collection(name.namespace()));
        let request = request.watch(&parameters, version);
        let request = request.map_err(|error| ApiError::from_transport(error.into()))?;
        let events = self.kube.request_events::<V>(request).await;
        let events = events.map_err(|error| ApiError::of_kube(error, &about))?;
        let events = events.map(move |event| match event {
            Ok(WatchEvent::Error(status)) => Err((*status).into()),
            event => event.map_err(|error| ApiError::of_kube(error, &about)),
        });
        Ok(events.boxed())
    }
}

impl ApiError {
    /// The error of a request about `about` that kube-rs's client made on a lane. Holds nothing of the
    /// answer's content.
    pub(crate) fn of_kube(error: kube::Error, about: &str) -> Self {
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
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;
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
