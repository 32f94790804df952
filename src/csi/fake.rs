//! A fake driver over in-memory pipes, scripted frame by frame: it can produce every failure of a
//! driver or a connection.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::FutureExt as _;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Request, Response};
use parking_lot::Mutex;
use prost::Message;
use tokio::{io::DuplexStream, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    BoxedIo, Connector,
    proto::{
        ControllerGetCapabilitiesResponse, ControllerServiceCapability,
        GetPluginCapabilitiesResponse, GetPluginInfoResponse, NodeGetInfoResponse,
        PluginCapability, ProbeResponse, Topology, controller_service_capability as rpc,
        plugin_capability as service,
    },
};
use crate::runtime::{Tasks, TokioSpawner};

/// How a call is answered.
#[derive(Debug, Clone)]
pub(super) enum Play {
    /// With this message and status 0.
    Answer(Vec<u8>),
    /// With this message and status 0, after a delay.
    Late(Duration, Vec<u8>),
    /// With a response without a body, whose headers are the trailers.
    HeadersOnly(HeaderMap),
    /// With headers, this data unchanged, and these trailers.
    Raw(Vec<u8>, HeaderMap),
    /// With another HTTP status and without gRPC.
    Http(u16),
    /// With headers and this data; the stream ends without trailers.
    NoTrailers(Vec<u8>),
    /// With `RST_STREAM`, before or after headers and some data.
    Reset(Reason),
    ResetMidway(Reason),
    /// With a closed connection, before or after headers and some data.
    Hangup,
    HangupMidway,
    /// Not at all.
    Never,
}

/// A call as received.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) path: String,
    pub(super) authority: String,
    pub(super) headers: HeaderMap,
    pub(super) message: Vec<u8>,
}

/// The fake driver; clones are the same one.
#[derive(Clone)]
pub(super) struct Fake {
    pub(super) tasks: Tasks,
    state: Arc<Mutex<State>>,
}

struct State {
    plays: BTreeMap<String, Play>,
    received: Vec<Received>,
    refuses: bool,
    dials: usize,
    /// Cancelled to break all connections.
    hangup: CancellationToken,
    /// Cancelled to send GOAWAY on all connections.
    goaway: CancellationToken,
}

pub(super) const PROBE: &str = "/csi.v1.Identity/Probe";
pub(super) const INFO: &str = "/csi.v1.Identity/GetPluginInfo";
pub(super) const PLUGIN: &str = "/csi.v1.Identity/GetPluginCapabilities";
pub(super) const CONTROLLER: &str = "/csi.v1.Controller/ControllerGetCapabilities";
pub(super) const CREATE: &str = "/csi.v1.Controller/CreateVolume";
pub(super) const DELETE: &str = "/csi.v1.Controller/DeleteVolume";
pub(super) const NODE: &str = "/csi.v1.Node/NodeGetInfo";

impl Play {
    pub(super) fn answer(message: &impl Message) -> Self {
        Self::Answer(message.encode_to_vec())
    }

    /// A status in a response without a body.
    pub(super) fn status(code: i32, message: &'static str) -> Self {
        Self::HeadersOnly(status(&code.to_string(), message))
    }

    /// A status in the trailers, without a message.
    pub(super) fn trailing(code: i32, message: &'static str) -> Self {
        Self::Raw(Vec::new(), status(&code.to_string(), message))
    }
}

pub(super) fn status(code: &str, message: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", HeaderValue::from_str(code).unwrap());
    headers.insert("grpc-message", HeaderValue::from_static(message));
    headers
}

/// A message in gRPC framing.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(message);
    frame
}

pub(super) fn plugin(services: &[service::service::Type]) -> Play {
    let capability = |kind: &service::service::Type| PluginCapability {
        r#type: Some(service::Type::Service(service::Service { r#type: *kind as i32 })),
    };
    Play::answer(&GetPluginCapabilitiesResponse {
        capabilities: services.iter().map(capability).collect(),
    })
}

pub(super) fn controller(rpcs: &[rpc::rpc::Type]) -> Play {
    let capability = |kind: &rpc::rpc::Type| ControllerServiceCapability {
        r#type: Some(rpc::Type::Rpc(rpc::Rpc { r#type: *kind as i32 })),
    };
    Play::answer(&ControllerGetCapabilitiesResponse {
        capabilities: rpcs.iter().map(capability).collect(),
    })
}

pub(super) fn info(name: &str) -> Play {
    Play::answer(&GetPluginInfoResponse { name: name.into(), ..GetPluginInfoResponse::default() })
}

/// An answer to `NodeGetInfo` with this topology; `None`: without one.
pub(super) fn node(segments: Option<&[(&str, &str)]>) -> Play {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    Play::answer(&NodeGetInfoResponse {
        node_id: "id-1".into(),
        accessible_topology: segments
            .map(|segments| Topology { segments: segments.iter().map(owned).collect() }),
        ..NodeGetInfoResponse::default()
    })
}

impl Fake {
    /// A driver that is ready, named `disk.example.com`, and creates and deletes volumes.
    pub(super) fn new() -> Self {
        let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
        let state = State {
            plays: BTreeMap::new(),
            received: Vec::new(),
            refuses: false,
            dials: 0,
            hangup: CancellationToken::new(),
            goaway: CancellationToken::new(),
        };
        let fake = Self { tasks, state: Arc::new(Mutex::new(state)) };
        fake.play(PROBE, Play::answer(&ProbeResponse::default()));
        fake.play(INFO, info("disk.example.com"));
        fake.play(PLUGIN, plugin(&[service::service::Type::ControllerService]));
        fake.play(CONTROLLER, controller(&[rpc::rpc::Type::CreateDeleteVolume]));
        fake
    }

    pub(super) fn play(&self, path: &str, play: Play) {
        self.state.lock().plays.insert(path.into(), play);
    }

    /// Sets whether new connections are refused.
    pub(super) fn refuse(&self, refuses: bool) {
        self.state.lock().refuses = refuses;
    }

    /// Breaks all connections.
    pub(super) fn hang_up(&self) {
        std::mem::take(&mut self.state.lock().hangup).cancel();
    }

    /// Sends GOAWAY on all connections.
    pub(super) fn go_away(&self) {
        std::mem::take(&mut self.state.lock().goaway).cancel();
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.state.lock().received.clone()
    }

    /// The paths of the calls so far.
    pub(super) fn paths(&self) -> Vec<String> {
        self.received().into_iter().map(|received| received.path).collect()
    }

    pub(super) fn dials(&self) -> usize {
        self.state.lock().dials
    }

    pub(super) fn connector(&self) -> Connector {
        let fake = self.clone();
        Arc::new(move |_| {
            let fake = fake.clone();
            async move { fake.accept() }.boxed()
        })
    }

    fn accept(&self) -> io::Result<BoxedIo> {
        let mut state = self.state.lock();
        state.dials += 1;
        if state.refuses {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (hangup, goaway) = (state.hangup.clone(), state.goaway.clone());
        self.tasks.spawn("driver", self.clone().serve(theirs, hangup, goaway));
        Ok(Box::new(ours))
    }

    async fn serve(self, io: DuplexStream, hangup: CancellationToken, goaway: CancellationToken) {
        let Ok(mut connection) = h2::server::handshake(io).await else { return };
        let mut going = false;
        loop {
            tokio::select! {
                () = hangup.cancelled() => return,
                () = goaway.cancelled(), if !going => {
                    connection.graceful_shutdown();
                    going = true;
                }
                call = connection.accept() => match call {
                    Some(Ok((request, respond))) => self.tasks.spawn("call", self.clone().answer(request, respond)),
                    _ => return,
                }
            }
        }
    }

    async fn answer(self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let (head, mut body) = request.into_parts();
        let mut message = Vec::new();
        while let Some(Ok(data)) = body.data().await {
            let _ = body.flow_control().release_capacity(data.len());
            message.extend_from_slice(&data);
        }
        let path = head.uri.path().to_owned();
        let authority = head.uri.authority().map(ToString::to_string).unwrap_or_default();
        let play = {
            let mut state = self.state.lock();
            state.received.push(Received {
                path: path.clone(),
                authority,
                headers: head.headers,
                message,
            });
            state.plays.get(&path).cloned().unwrap_or_else(|| Play::status(12, "not scripted"))
        };
        self.act(play, &mut respond).await;
    }

    async fn act(&self, play: Play, respond: &mut SendResponse<Bytes>) {
        match play {
            Play::Answer(message) => finish(respond, framed(&message), status("0", "")),
            Play::Late(after, message) => {
                sleep(after).await;
                finish(respond, framed(&message), status("0", ""));
            }
            Play::HeadersOnly(headers) => {
                let mut response = head(200);
                response.headers_mut().extend(headers);
                let _ = respond.send_response(response, true);
            }
            Play::Raw(data, trailers) => finish(respond, data, trailers),
            Play::Http(code) => drop(respond.send_response(head(code), true)),
            Play::NoTrailers(data) => {
                let _ = respond
                    .send_response(head(200), false)
                    .map(|mut body| body.send_data(data.into(), true));
            }
            Play::Reset(reason) => respond.send_reset(reason),
            Play::ResetMidway(reason) => {
                let body = midway(respond).await;
                let _ = body.map(|mut body| body.send_reset(reason));
            }
            Play::Hangup => self.hang_up(),
            Play::HangupMidway => {
                let body = midway(respond).await;
                self.hang_up();
                drop(body);
            }
            Play::Never => std::future::pending().await,
        }
    }
}

fn head(code: u16) -> Response<()> {
    Response::builder().status(code).header("content-type", "application/grpc").body(()).unwrap()
}

fn finish(respond: &mut SendResponse<Bytes>, data: Vec<u8>, trailers: HeaderMap) {
    if let Ok(mut body) = respond.send_response(head(200), false) {
        let _ = body.send_data(data.into(), false);
        let _ = body.send_trailers(trailers);
    }
}

/// Sends headers and the beginning of a message, and waits until they have arrived.
async fn midway(respond: &mut SendResponse<Bytes>) -> Option<SendStream<Bytes>> {
    let mut body = respond.send_response(head(200), false).ok()?;
    body.send_data(Bytes::from_static(&[0, 0, 0, 0, 9, 1]), false).ok()?;
    sleep(Duration::from_millis(10)).await;
    Some(body)
}
