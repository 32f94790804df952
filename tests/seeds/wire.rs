//! The connection from a process to the API server, which loses, refuses and delays requests.
//!
//! A request that is on its way is carried out whether or not its process still lives.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use csi_provisioner::controller::claims::record_status::RECORD;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::Value;
use testkit::apiserver::{Body, User, refuse, request_info::RequestInfo, status::Status};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tower::BoxError;

use super::{
    adversary,
    cluster::SELECTED_NODE,
    copying::Source,
    core::Core,
    dice::Dice,
    ledger::{Recorded, text},
    looks,
    process::Life,
    shadow,
    storage::image_of,
    watching::{self, WATCHED},
};

/// Carries one process's requests.
#[derive(Clone)]
pub(crate) struct Wire {
    core: Arc<Core>,
    life: Arc<Life>,
    dice: Arc<Dice>,
}

/// What becomes of a request.
enum Treatment {
    Served,
    /// The connection is cut before.
    Lost,
    Refused(Status),
    /// It is carried out, and the connection cut.
    Unanswered,
    /// It is carried out or not, and nothing is heard of it for a long time.
    Hung(bool),
    /// It is carried out, and an error answered.
    Misreported(Status),
}

impl Wire {
    pub(crate) fn new(core: &Arc<Core>, life: &Arc<Life>) -> Self {
        let dice = Dice::new(core.seed, &format!("wire {}", life.name()));
        Self { core: Arc::clone(core), life: Arc::clone(life), dice: Arc::new(dice) }
    }

    fn latency(&self) -> Duration {
        if !self.core.is_healed() && self.dice.percent(self.core.plan.slow) {
            return self.dice.stretch(100..2_000);
        }
        self.dice.stretch(1..20)
    }

    fn treat(&self, info: &RequestInfo) -> Treatment {
        let (core, dice) = (&self.core, &self.dice);
        if core.is_healed() {
            return Treatment::Served;
        }
        if core.is_forbidden(&info.verb, &info.resource) {
            return self.forbidden(info, "the role lacks it for now");
        }
        if core.exceeds_quota(&info.verb, &info.resource) {
            let why = "exceeded quota: storage, requested: requests.storage=1Gi, used: requests.storage=4Gi, limited: requests.storage=4Gi";
            return self.forbidden(info, why);
        }
        if dice.percent(core.plan.hung) {
            return Treatment::Hung(dice.percent(50));
        }
        if dice.percent(core.plan.refused) {
            return self.refusal(info);
        }
        let writes = matches!(info.verb.as_str(), "create" | "update" | "patch" | "delete");
        if writes && dice.percent(core.plan.unanswered) {
            return match dice.within(0..3) {
                0 => Treatment::Misreported(Status::internal("etcdserver: request timed out")),
                1 => Treatment::Misreported(Status::unavailable("the server is going down")),
                _ => Treatment::Unanswered,
            };
        }
        Treatment::Served
    }

    fn forbidden(&self, info: &RequestInfo, why: &str) -> Treatment {
        if info.resource == "volumesnapshots" && !self.life.is_shadow() {
            self.core.copying.forbidden();
        }
        Treatment::Refused(Status::forbidden_resource(&info.group, &info.resource, &info.name, why))
    }

    fn refusal(&self, info: &RequestInfo) -> Treatment {
        let saves = info.verb == "create" && info.resource == "persistentvolumes";
        match self.dice.within(0..8) {
            2 => Treatment::Refused(Status::too_many_requests(1)),
            3 => Treatment::Refused(Status::unavailable("the server is overloaded")),
            4 => Treatment::Refused(Status::internal("etcdserver: leader changed")),
            5 => self.forbidden(info, "no"),
            6 if info.verb == "update" || info.verb == "patch" => {
                Treatment::Refused(Status::new(409, "Conflict", "the object has been modified"))
            }
            7 if saves => Treatment::Refused(Status::new(422, "Invalid", "a webhook refuses it")),
            _ => Treatment::Lost,
        }
    }

    /// Carries a request out. A dead process's may be lost, or late by up to a minute.
    async fn carry(&self, request: Request<Bytes>) -> Result<Response<Body>, BoxError> {
        let info = RequestInfo::parse(request.method(), request.uri());
        shadow::check_request(&self.core, &self.life, &info);
        let (treatment, asked) = (self.treat(&info), Instant::now());
        sleep(self.latency()).await;
        if self.life.is_dead() {
            if info.verb == "get"
                || info.verb == "list"
                || info.verb == "watch"
                || self.dice.percent(50)
            {
                return Err("its process is gone".into());
            }
            sleep(self.dice.stretch(10..60_000)).await;
        }
        let answer = match treatment {
            Treatment::Served => {
                let response = self.watched(&info, self.serve(&info, request).await?);
                looks::note(&self.core, self.life.name(), &info, asked, response.status());
                Ok(response)
            }
            Treatment::Lost => Err("the connection was cut".into()),
            Treatment::Hung(served) => {
                if served {
                    self.serve(&info, request).await?;
                }
                sleep(self.dice.stretch(30_000..600_000)).await;
                Err("the connection was cut".into())
            }
            Treatment::Refused(status) => Ok(refuse(&status)),
            Treatment::Unanswered => {
                self.serve(&info, request).await?;
                Err("the connection was cut".into())
            }
            Treatment::Misreported(status) => {
                self.serve(&info, request).await?;
                Ok(refuse(&status))
            }
        };
        self.trace(&info, &answer);
        sleep(self.latency()).await;
        answer
    }

    async fn serve(
        &self,
        info: &RequestInfo,
        request: Request<Bytes>,
    ) -> Result<Response<Body>, BoxError> {
        self.core.observe();
        let body = request.body().clone();
        if info.resource == "events" && adversary::is_printed_in(&String::from_utf8_lossy(&body)) {
            self.core.ledger.wrong(&format!("{} repeats a record's text", self.life.name()));
        }
        let (removed, node) = (self.removed(info), self.selected(info));
        let source = Source::before(&self.core, info);
        let response = self.core.api.answer(&User::new("provisioner"), request).await?;
        self.core.observe();
        if info.verb == "create" && info.resource == "persistentvolumes" && response.status() == 201
        {
            self.check_saved(&body);
        }
        if let Some(uid) = removed.filter(|_| response.status() == 200) {
            self.core.ledger.volume_removed(self.life.name(), &uid);
        }
        if let Some(claim) = node.filter(|_| response.status() == 200 && !has_node(&body)) {
            let (uid, recorded) = (text(&claim, "/metadata/uid"), Recorded::on(&claim));
            let (ledger, storage) = (&self.core.ledger, &self.core.storage);
            ledger.node_given_back(self.life.name(), uid, recorded.as_ref(), storage);
        }
        if let Some(uid) = recorded_by(info, &body).filter(|_| response.status() == 200) {
            self.core.asking.recorded(self.life.name(), &uid);
        }
        if let Some(source) = source.filter(|_| response.status() == 200) {
            source.after(&self.core, self.life.name());
        }
        if info.verb != "watch" || response.status() != 200 {
            return Ok(response);
        }
        Ok(self.watch(info.resource.clone(), response))
    }

    /// The UID of the PersistentVolume that is about to be deleted.
    fn removed(&self, info: &RequestInfo) -> Option<String> {
        let removes = info.verb == "delete" && info.resource == "persistentvolumes";
        let volume = removes.then(|| self.core.api.get("PersistentVolume", "", &info.name))??;
        Some(text(&volume, "/metadata/uid").to_owned())
    }

    /// The claim with a selected node that is about to be written, as it stands.
    fn selected(&self, info: &RequestInfo) -> Option<Value> {
        let writes = info.verb == "update" && info.resource == "persistentvolumeclaims";
        let claim = writes
            .then(|| self.core.api.get("PersistentVolumeClaim", &info.namespace, &info.name))??;
        claim["metadata"]["annotations"][SELECTED_NODE].is_string().then_some(claim)
    }

    fn check_saved(&self, body: &[u8]) {
        let volume: Value = serde_json::from_slice(body).unwrap();
        let handle = text(&volume, "/spec/csi/volumeHandle");
        // What a dead process sent may come when the next has done with the volume.
        let alive = self.life.is_dead() || self.core.storage.get(image_of(handle)).is_some();
        self.core.ledger.saved(self.life.name(), text(&volume, "/metadata/name"), handle, alive);
        self.core.asking.check_volume(&self.core, &self.life, &volume);
    }

    /// Records when the process read that volumes and nodes are gone, and how recent its views are.
    fn watched(&self, info: &RequestInfo, response: Response<Body>) -> Response<Body> {
        if info.verb == "list" && info.resource == "persistentvolumes" && response.status() == 200 {
            self.core.ledger.lists.answered(self.life.name());
        }
        if info.verb == "get" && info.resource == "nodes" && response.status() == 404 {
            self.core.asking.lacks_node(self.life.name(), &info.name);
        }
        let (watching, kind) = (&self.core.ledger.watching, info.resource.as_str());
        let is_whole = info.name.is_empty() && WATCHED.contains(&kind);
        match info.verb.as_str() {
            _ if !is_whole || response.status() != 200 => response,
            "watch" => watching.opened(self.life.name(), kind, response),
            "list" => {
                watching.listed(self.life.name(), kind);
                response
            }
            _ => response,
        }
    }

    /// A watch whose news can be held up.
    fn watch(&self, resource: String, response: Response<Body>) -> Response<Body> {
        let core = Arc::clone(&self.core);
        let (parts, body) = response.into_parts();
        let frames = futures::stream::unfold(
            (body, core, resource),
            |(mut body, core, resource)| async move {
                let frame: Result<Frame<Bytes>, BoxError> = body.frame().await?;
                loop {
                    let wait = core.held_up_for(&resource);
                    if wait.is_zero() {
                        break;
                    }
                    sleep(wait.min(Duration::from_secs(1))).await;
                }
                Some((frame, (body, core, resource)))
            },
        );
        Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
    }

    fn trace(&self, info: &RequestInfo, answer: &Result<Response<Body>, BoxError>) {
        // Leases, events and what only reads for ever would drown the rest.
        if matches!(info.resource.as_str(), "leases")
            && self.core.plan.elected
            && answer.as_ref().is_ok_and(|a| a.status() == 200)
        {
            return;
        }
        let code = answer.as_ref().map_or(0, |response| response.status().as_u16());
        let who = self.life.name();
        let late = if self.life.is_dead() { " after its end" } else { "" };
        self.core
            .ledger
            .log(&format!("{who}{late} {} {} {} -> {code}", info.verb, info.resource, info.name));
    }
}

/// The UID of the claim that a request puts back with a record.
fn recorded_by(info: &RequestInfo, body: &[u8]) -> Option<String> {
    if info.verb != "update" || info.resource != watching::CLAIMS {
        return None;
    }
    let claim: Value = serde_json::from_slice(body).unwrap();
    let recorded = claim["metadata"]["annotations"][RECORD].is_string();
    recorded.then(|| text(&claim, "/metadata/uid").to_owned())
}

/// Whether this claim has a selected node.
fn has_node(claim: &[u8]) -> bool {
    let claim: Value = serde_json::from_slice(claim).unwrap();
    claim["metadata"]["annotations"][SELECTED_NODE].is_string()
}

impl tower::Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (done, result) = oneshot::channel();
            let core = Arc::clone(&wire.core);
            core.spawn(async move {
                let answer = wire.carry(Request::from_parts(parts, body)).await;
                let _ = done.send(answer);
            });
            result.await?
        })
    }
}
