//! From an HTTP request to its answer: authorization, faults, the verb, the record.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{HeaderValue, Request, Response, header};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Collected, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::Value;
use tower::BoxError;

use super::{
    ApiServer, User,
    access::{reviews, token_request},
    audit::Recorded,
    body::from_json,
    documents,
    faults::{Effect, StreamFault},
    hooks::Hooks,
    object::{Key, Object},
    parameters::{ListOptions, Query},
    patch::Patch,
    representation::Writer,
    request_info::RequestInfo,
    resources::Kind,
    status::Status,
    verbs::{Target, delete::DeleteOptions, update::Written},
    watch::{Setting, Watcher},
};

/// The body of an answer: whole, or the stream of a watch.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// How many bytes the real server takes in JSON. The one that listens takes more, in place of protobuf.
const MOST_BYTES: usize = 3 << 20;

/// The connection was cut on purpose; nothing was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection was cut")]
pub struct Disconnected;

/// A JSON answer.
pub fn respond(code: u16, body: impl Into<Bytes>) -> Response<Body> {
    respond_in("application/json", code, body.into())
}

/// An answer in `media`.
pub(super) fn respond_in(media: &'static str, code: u16, body: Bytes) -> Response<Body> {
    let mut response =
        Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// A Status as an answer.
pub fn refuse(status: &Status) -> Response<Body> {
    let mut response = respond(status.code, status.body.to_string());
    if let Some(seconds) = status.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// What the real server answers where no kind is served: no Status, but Go's plain text.
fn nothing_there() -> Response<Body> {
    respond_in("text/plain; charset=utf-8", 404, Bytes::from_static(b"404 page not found\n"))
}

/// The answer with half of its body, and then none.
async fn truncated(response: Response<Body>) -> Response<Body> {
    in_pieces(response, |bytes| {
        let half = bytes.slice(..bytes.len() / 2);
        stream::iter([Ok(Frame::data(half)), Err(Disconnected.into())])
    })
    .await
}

/// The answer byte by byte.
async fn trickled(response: Response<Body>, apart: Duration) -> Response<Body> {
    in_pieces(response, |bytes| {
        stream::iter(0..bytes.len()).then(move |at| {
            let byte = bytes.slice(at..=at);
            async move {
                tokio::time::sleep(apart).await;
                Ok(Frame::data(byte))
            }
        })
    })
    .await
}

/// The answer with its body in other pieces and the length that it had; a watch's stays as it is.
async fn in_pieces<S>(response: Response<Body>, pieces: impl FnOnce(Bytes) -> S) -> Response<Body>
where
    S: Stream<Item = Result<Frame<Bytes>, BoxError>> + Send + 'static,
{
    let Some(length) = response.body().size_hint().exact() else { return response };
    let (mut parts, body) = response.into_parts();
    // A body of known length is there already.
    let bytes = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Response::from_parts(parts, StreamBody::new(pieces(bytes)).boxed_unsync())
}

impl ApiServer {
    /// Answers a request; a connection cut on purpose shows as a body that breaks at once.
    pub async fn handle(&self, user: &User, request: Request<Bytes>) -> Response<Body> {
        self.answer(user, request).await.unwrap_or_else(|Disconnected| {
            let broken = stream::iter([Err::<Frame<Bytes>, BoxError>(Disconnected.into())]);
            Response::new(StreamBody::new(broken).boxed_unsync())
        })
    }

    /// Answers a request.
    pub async fn answer(
        &self,
        user: &User,
        request: Request<Bytes>,
    ) -> Result<Response<Body>, Disconnected> {
        let info = RequestInfo::parse(request.method(), request.uri());
        let received = self.now();
        let answer = self.with_faults(user, &info, request).await;
        let recorded = Recorded {
            user: user.clone(),
            info,
            code: answer.as_ref().map_or(0, |response| response.status().as_u16()),
            received,
            answered: self.now(),
        };
        self.hooks().audit.iter().for_each(|file| file.record(&recorded));
        self.requests().record(recorded);
        answer
    }

    async fn with_faults(
        &self,
        user: &User,
        info: &RequestInfo,
        request: Request<Bytes>,
    ) -> Result<Response<Body>, Disconnected> {
        let (delay, effect) = self.faults().strike(user, info);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match effect {
            None | Some(Effect::Delay(_)) => Ok(self.serve(user, info, &request, None).await),
            Some(Effect::DelayAfter(time)) => {
                let answer = self.serve(user, info, &request, None).await;
                tokio::time::sleep(time).await;
                Ok(answer)
            }
            Some(Effect::Answer(status)) => Ok(refuse(&status)),
            Some(Effect::AnswerAfter(status)) => {
                self.serve(user, info, &request, None).await;
                Ok(refuse(&status))
            }
            Some(Effect::CutBefore) => Err(Disconnected),
            Some(Effect::CutAfter) => {
                self.serve(user, info, &request, None).await;
                Err(Disconnected)
            }
            Some(Effect::Truncate) => {
                Ok(truncated(self.serve(user, info, &request, None).await).await)
            }
            Some(Effect::Trickle(apart)) => {
                Ok(trickled(self.serve(user, info, &request, None).await, apart).await)
            }
            Some(Effect::Hang) => std::future::pending().await,
            Some(Effect::Stream(fault)) => Ok(self.serve(user, info, &request, Some(fault)).await),
        }
    }

    async fn serve(
        &self,
        user: &User,
        info: &RequestInfo,
        request: &Request<Bytes>,
        fault: Option<StreamFault>,
    ) -> Response<Body> {
        let answer = match self.authorized(user, info) {
            Ok(()) => self.dispatch(user, info, request, fault).await,
            Err(denied) => Err(denied),
        };
        answer.unwrap_or_else(|status| refuse(&status))
    }

    fn authorized(&self, user: &User, info: &RequestInfo) -> Result<(), Status> {
        let Some(rbac) = &self.hooks().authorizer else { return Ok(()) };
        rbac.authorize(self, user, info).map_err(|why| {
            Status::forbidden_resource(&info.group, &info.resource, &info.name, &why)
        })
    }

    async fn dispatch(
        &self,
        user: &User,
        info: &RequestInfo,
        request: &Request<Bytes>,
        fault: Option<StreamFault>,
    ) -> Result<Response<Body>, Status> {
        let kind =
            self.state().lock().kinds.served(&info.group, &info.version, &info.resource).cloned();
        let stored = kind.filter(|kind| info.is_resource && serves(kind, info));
        let Some(kind) = stored else {
            return Ok(self.beside(user, info, request).unwrap_or_else(nothing_there));
        };
        let call = Call::new(self, kind, info, request)?;
        match info.verb.as_str() {
            "get" => call.get(),
            "list" => call.list().await,
            "watch" => call.watch(fault),
            "create" => call.create(),
            "update" => call.update(),
            "patch" => call.patch(),
            "delete" => call.delete(),
            "deletecollection" => call.delete_collection().await,
            _ => Err(Status::method_not_allowed()),
        }
    }

    /// The answer outside the table of kinds: to what is asked for documents, about rights, or for a token.
    fn beside(
        &self,
        user: &User,
        info: &RequestInfo,
        request: &Request<Bytes>,
    ) -> Option<Response<Body>> {
        let Hooks { authorizer, tokens, .. } = self.hooks();
        let about_rights = || reviews::answer(authorizer.as_deref()?, self, user, info, request);
        let with_token = || token_request::answer(tokens.as_deref()?, self, info);
        documents::answer(self, info, request).or_else(about_rights).or_else(with_token)
    }
}

/// Whether the table of kinds answers at the path: the resource, or the status it has.
fn serves(kind: &Kind, info: &RequestInfo) -> bool {
    let subresource = match info.subresource.as_str() {
        "" => true,
        "status" => kind.status && !info.name.is_empty(),
        _ => false,
    };
    // Objects of kinds without namespace are not found in one, but for the namespace itself.
    let scope = kind.namespaced || info.namespace.is_empty() || kind.is("", "Namespace");
    subresource && scope
}

/// One request to a resource, with what all verbs need.
struct Call<'a> {
    server: &'a ApiServer,
    target: Target,
    status: bool,
    query: Query,
    request: &'a Request<Bytes>,
    writer: Writer,
}

impl<'a> Call<'a> {
    fn new(
        server: &'a ApiServer,
        kind: Arc<Kind>,
        info: &RequestInfo,
        request: &'a Request<Bytes>,
    ) -> Result<Self, Status> {
        let query = Query::parse(request.uri().query());
        let namespace = if kind.namespaced { info.namespace.as_str() } else { "" };
        // A list by name is authorized like a get, but stays a list.
        let name = if matches!(info.verb.as_str(), "list" | "watch" | "deletecollection") {
            ""
        } else {
            info.name.as_str()
        };
        let target = Target {
            key: Key::new(namespace, name),
            kind: Arc::clone(&kind),
            now: server.timestamp(),
        };
        if query.get("dryRun").is_some() {
            return Err(Status::bad_request("this server knows no dry run"));
        }
        let writer = Writer(kind);
        Ok(Self { server, target, status: info.subresource == "status", query, request, writer })
    }

    fn options(&self) -> Result<ListOptions, Status> {
        ListOptions::parse(&self.query, &self.target.kind)
    }

    /// The body of a request.
    fn body(&self) -> Result<Value, Status> {
        let bytes = self.request.body();
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        match self.media_type().as_str() {
            "" | "application/json" | "*/*" => {}
            _ => return Err(Status::unsupported_media_type(&["application/json"])),
        }
        from_json(bytes)
            .map_err(|why| Status::bad_request(format!("the body can't be decoded: {why}")))
    }

    fn media_type(&self) -> String {
        let header =
            self.request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        header.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_owned()
    }

    fn object(&self, code: u16, object: &Arc<Object>) -> Response<Body> {
        respond(code, self.writer.object(object))
    }

    fn written(&self, written: &Written) -> Response<Body> {
        self.object(if written.created { 201 } else { 200 }, &written.object)
    }

    fn get(&self) -> Result<Response<Body>, Status> {
        let state = self.server.state().lock();
        Ok(self.object(200, state.get(&self.target)?))
    }

    async fn list(&self) -> Result<Response<Body>, Status> {
        let options = self.options()?;
        let page = self.server.state().lock().list(&self.target, &options)?;
        Ok(respond(200, self.writer.list(&page.objects, &page.metadata()).await))
    }

    fn watch(self, fault: Option<StreamFault>) -> Result<Response<Body>, Status> {
        let options = self.options()?;
        let setting = Setting {
            state: self.server.state(),
            watches: self.server.watches(),
            target: self.target,
            writer: self.writer,
            fault,
        };
        let watcher = Watcher::start(setting, &options);
        let lines = stream::unfold(watcher, |mut watcher| async move {
            let line = watcher.next().await?;
            Some((line.map(Frame::data), watcher))
        });
        let mut response = respond(200, Bytes::new());
        *response.body_mut() = StreamBody::new(lines).boxed_unsync();
        Ok(response)
    }

    fn create(&self) -> Result<Response<Body>, Status> {
        if !self.target.key.name.is_empty()
            || self.target.kind.namespaced && self.target.key.namespace.is_empty()
        {
            return Err(Status::method_not_allowed());
        }
        let body = self.body()?;
        let object = self.server.state().lock().create(&self.target, body)?;
        Ok(self.object(201, &object))
    }

    fn update(&self) -> Result<Response<Body>, Status> {
        self.named()?;
        let body = self.body()?;
        let written = self.server.state().lock().update(&self.target, self.status, body)?;
        Ok(self.written(&written))
    }

    fn patch(&self) -> Result<Response<Body>, Status> {
        self.named()?;
        let patch = Patch::parse(&self.target.kind, &self.media_type(), self.request.body())?;
        let written = self.server.state().lock().patch(&self.target, self.status, &patch)?;
        Ok(self.written(&written))
    }

    fn delete(&self) -> Result<Response<Body>, Status> {
        if self.status {
            return Err(Status::method_not_allowed());
        }
        let options = DeleteOptions::parse(&self.body()?)?;
        let deleted = self.server.state().lock().delete(&self.target, &options)?;
        Ok(respond(200, deleted.answer(&self.target.kind).to_string()))
    }

    async fn delete_collection(&self) -> Result<Response<Body>, Status> {
        let options = self.options()?;
        let delete = DeleteOptions::parse(&self.body()?)?;
        let (deleted, revision) = {
            let mut state = self.server.state().lock();
            let deleted = state.delete_collection(&self.target, &options.selection, &delete);
            (deleted, state.store.revision())
        };
        let metadata = serde_json::json!({"resourceVersion": revision.to_string()});
        Ok(respond(200, self.writer.list(&deleted, &metadata).await))
    }

    fn named(&self) -> Result<(), Status> {
        if self.target.key.name.is_empty() { Err(Status::method_not_allowed()) } else { Ok(()) }
    }
}

/// The server as a kube client's transport, for one user.
#[derive(Clone)]
pub struct ApiService {
    pub(super) server: ApiServer,
    pub(super) user: User,
}

impl tower::Service<Request<kube::client::Body>> for ApiService {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Ok(()))
    }

    #[allow(clippy::disallowed_methods)] // it outlives its caller
    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let Self { server, user } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            if body.len() > MOST_BYTES {
                return Ok(refuse(&Status::too_large(MOST_BYTES)));
            }
            // What has arrived is carried out, although its caller may be killed or give it up meanwhile.
            let request = Request::from_parts(parts, body);
            Ok(tokio::spawn(async move { server.answer(&user, request).await }).await??)
        })
    }
}
