//! Watches in JSON: each event is a line, read while it is received.
//!
//! A line that is longer than any answer is an error. A connection that breaks in the middle of an
//! event ends the watch without one: the next watch goes on where this one ended. What becomes of the
//! events of a kind is in [`crate::kube::informer`].

use std::{error::Error, io};

use futures::{StreamExt as _, TryStreamExt as _, future::ready, stream::BoxStream};
use http::{HeaderValue, Method, header};
use http_body_util::BodyExt as _;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::io::AsyncRead;
use tokio_util::{
    codec::{FramedRead, LinesCodec, LinesCodecError},
    io::StreamReader,
};
use tower::BoxError;

use super::{Client, MAX_ANSWER, Name, request};
use crate::kube::{
    connection::{transport::ResponseBody, url::query},
    error::{ApiError, Refusal, fault},
    objects::kind::Kind,
    scope::Scope,
    stack::target::Target,
};

/// The events of one watch, until it ends.
pub(crate) type Events<T> = BoxStream<'static, Result<WatchEvent<T>, ApiError>>;

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum WatchEvent<T> {
    /// The object was created or changed, or exists when the watch begins.
    Applied(T),
    /// The object was deleted; this is its last state.
    Deleted(T),
    /// No object has changed up to this version.
    Bookmark(Bookmark),
}

/// The object of a bookmark.
#[derive(Debug, Deserialize)]
pub(crate) struct Bookmark {
    pub(crate) metadata: BookmarkMetadata,
}

/// The metadata of a bookmark.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BookmarkMetadata {
    pub(crate) resource_version: String,
}

/// A line of a watch.
#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
enum Line<T> {
    Added(T),
    Modified(T),
    Deleted(T),
    Bookmark(Bookmark),
    Error(Refusal),
}

/// The media type of an object's metadata in JSON.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// How one object is watched.
pub(crate) struct ObjectWatch<'a> {
    /// The version to go on from; empty to begin with the object as it is.
    pub(crate) version: &'a str,
    /// The server ends the watch after so many seconds.
    pub(crate) seconds: u32,
    /// Whether nothing but the object's metadata is requested.
    pub(crate) only_metadata: bool,
}

impl Client {
    /// Watches one object, by its name alone. Returns once the answer has begun.
    pub(crate) async fn watch_object<T: DeserializeOwned + Send + 'static>(
        &self,
        kind: &Kind,
        name: Name<'_>,
        watch: ObjectWatch<'_>,
    ) -> Result<Events<T>, ApiError> {
        let ObjectWatch { version, seconds, only_metadata } = watch;
        let url = format!(
            "{}?watch=true&timeoutSeconds={seconds}&resourceVersion={}{}",
            kind.collection(name.namespace()),
            query(version),
            Scope::all().named(name.name()).query(),
        );
        let mut request = request(Method::GET, url)?;
        if only_metadata {
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(METADATA));
        }
        let (_, body) = self.open(&mut request).await?;
        Ok(json_events(Target::of(&request).about(), body))
    }
}

/// The events in the body of a watch of `about`, in JSON.
pub(crate) fn json_events<T: DeserializeOwned + Send + 'static>(
    about: String,
    body: ResponseBody,
) -> Events<T> {
    FramedRead::new(reader(body), LinesCodec::new_with_max_length(MAX_ANSWER))
        .filter_map(move |line| {
            ready(match line {
                Ok(line) => event_of_line(&about, &line),
                Err(LinesCodecError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    Some(Err(unreadable(&about, "not JSON".to_owned())))
                }
                Err(LinesCodecError::Io(error)) => broken_event(error).map(Err),
                Err(LinesCodecError::MaxLineLengthExceeded) => {
                    Some(Err(ApiError::TooLarge { about: about.clone(), max: MAX_ANSWER }))
                }
            })
        })
        .boxed()
}

/// The bytes of the body of a watch.
pub(crate) fn reader(body: ResponseBody) -> impl AsyncRead + Send {
    StreamReader::new(body.into_data_stream().map_err(broken))
}

/// The error of a broken connection. One that breaks in the middle of an answer is `UnexpectedEof`,
/// however a library reports it.
fn broken(error: BoxError) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(error) = cause {
        let is_eof = error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
        if is_eof || error.to_string().contains("unexpected EOF during chunk") {
            return io::ErrorKind::UnexpectedEof.into();
        }
        cause = error.source();
    }
    io::Error::other(error)
}

/// What a broken connection means: nothing if it broke in the middle of an event, since that ends a
/// watch.
pub(crate) fn broken_event(error: io::Error) -> Option<ApiError> {
    let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
    (!is_end).then(|| ApiError::from_transport(error.into()))
}

/// Reads an event; returns none if it is the beginning of one, at which the answer ended.
pub(crate) fn event_of_line<T: DeserializeOwned>(
    about: &str,
    line: &str,
) -> Option<Result<WatchEvent<T>, ApiError>> {
    let refused = |refusal| Err(ApiError::Refused(Box::new(refusal)));
    Some(match serde_json::from_str(line) {
        Ok(Line::Added(object) | Line::Modified(object)) => Ok(WatchEvent::Applied(object)),
        Ok(Line::Deleted(object)) => Ok(WatchEvent::Deleted(object)),
        Ok(Line::Bookmark(bookmark)) => Ok(WatchEvent::Bookmark(bookmark)),
        Ok(Line::Error(refusal)) => refused(refusal),
        Err(error) if error.is_eof() => return None,
        // Some proxies send an error without an event around it.
        Err(error) => match serde_json::from_str(line) {
            Ok(refusal) => refused(refusal),
            Err(_) => Err(unreadable(about, fault(&error))),
        },
    })
}

fn unreadable(about: &str, fault: String) -> ApiError {
    ApiError::Unreadable { about: about.to_owned(), fault }
}
