//! The model of a driver: idempotent by name, with locks in its process's memory, as ceph-csi is.
//!
//! A call goes on when its caller has gone away. Every call is checked against the truth the
//! moment it arrives.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use prost::Message as _;
use testkit::driver::{
    Answer, Backend, Call, Code, Description, Status,
    proto::{
        CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
        GetCapacityRequest, GetCapacityResponse, NodeGetInfoResponse, Topology, Volume,
    },
};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    calls::What,
    copying::{Copying, source_of},
    core::{Core, DRIVER},
    dice::Dice,
    ledger::Removal,
    looks,
    nodes::ZONE,
    plan::Plan,
    process::Life,
    storage::{handle, image_of, node_of},
};

/// How long before its deadline an answer must be given to arrive.
const LATE: Duration = Duration::from_millis(50);

/// The codes a failing call may have.
const CODES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// The codes that a driver which keeps to the CSI specification may end an unfinished call with.
const UNFINISHED: [Code; 5] =
    [Code::Cancelled, Code::DeadlineExceeded, Code::Aborted, Code::Unavailable, Code::Aborted];

/// The capacity, in volumes, of a node that has storage of its own.
const ROOM: usize = 5;

/// The place of a node.
fn place(node: &str) -> Topology {
    Topology { segments: [(ZONE.to_owned(), node.to_owned())].into_iter().collect() }
}

/// The zone that a volume is made in: the one that is asked for first.
fn zone(request: &CreateVolumeRequest) -> Vec<Topology> {
    let zones = request.accessibility_requirements.as_ref();
    let first = zones.and_then(|zones| zones.preferred.first().or_else(|| zones.requisite.first()));
    first.cloned().into_iter().collect()
}

/// The answer to a call whose source is gone.
pub(crate) const NO_SOURCE: &str = "there is nothing to copy:";

/// The text of an answer that never arrives.
const LOST: &str = "lost";

/// What the driver says of itself.
pub(crate) fn description(plan: &Plan) -> Description {
    let (mut plugin, mut controller) = (vec!["CONTROLLER_SERVICE"], vec!["CREATE_DELETE_VOLUME"]);
    if plan.topology {
        plugin.push("VOLUME_ACCESSIBILITY_CONSTRAINTS");
    }
    if plan.attaches {
        controller.push("PUBLISH_UNPUBLISH_VOLUME");
    }
    if plan.copies {
        controller.extend(["CLONE_VOLUME", "CREATE_DELETE_SNAPSHOT"]);
    }
    if plan.local {
        controller.push("GET_CAPACITY");
    }
    Description::new(DRIVER, &plugin, &controller)
}

/// One replica's driver.
pub(crate) struct Driver(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    host: String,
    dice: Dice,
    /// The operations under way: in this process's memory only.
    locks: Mutex<BTreeSet<String>>,
    /// What runs, which ends with this process.
    running: Mutex<JoinSet<()>>,
    /// The process of the program that calls it now.
    caller: Mutex<Option<Arc<Life>>>,
}

/// What becomes of one call.
struct CallFaults {
    before: Duration,
    /// It fails before it has done anything.
    refused: Option<Code>,
    /// It fails after it was done.
    failed: Option<Code>,
    after: Duration,
    /// Its answer is lost, and its caller does not notice.
    lost: bool,
}

impl CallFaults {
    /// How it ends once the work is done.
    fn end(&self) -> Answer<()> {
        match self.failed {
            _ if self.lost => Err(Status::unavailable(LOST)),
            Some(code) => Err(Status::new(code, "failed late")),
            None => Ok(()),
        }
    }
}

impl Inner {
    fn faults(&self) -> CallFaults {
        let (plan, dice) = (&self.core.plan, &self.dice);
        let quick = || dice.stretch(1..200);
        let mut faults = CallFaults {
            before: quick(),
            refused: None,
            failed: None,
            after: quick(),
            lost: false,
        };
        if self.core.is_healed() {
            return faults;
        }
        if dice.percent(plan.dragging) {
            faults.before = dice.stretch(500..30_000);
        }
        faults.before = faults.before.max(self.core.drags_for());
        if dice.percent(plan.dragging / 2) {
            faults.after = dice.stretch(500..30_000);
        }
        faults.lost = dice.percent(plan.lost);
        if dice.percent(plan.failing) {
            let full = plan.topology && dice.percent(50);
            faults.refused = Some(if full { Code::ResourceExhausted } else { *dice.pick(&CODES) });
        } else if dice.percent(plan.failing / 2) {
            // A code that says that nothing is left must not be a lie.
            faults.failed = Some(*dice.pick(&UNFINISHED));
        }
        faults
    }

    fn caller(&self) -> Arc<Life> {
        self.caller.lock().clone().unwrap_or_default()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn(task);
    }

    /// The image that is asked for by this name: one of this node's own, where it has storage.
    fn image(&self, name: &str) -> String {
        if self.core.plan.local { format!("{name}@{}", self.host) } else { name.to_owned() }
    }

    /// Bytes that are left on this node.
    fn capacity(&self) -> i64 {
        let taken = self.core.storage.count_on(&self.host);
        let left = if self.core.is_healed() { ROOM } else { ROOM.saturating_sub(taken) };
        i64::try_from(left).unwrap() << 30
    }

    /// Where each node has storage of its own: whether there is some for the request on this one.
    fn check_place(&self, request: &CreateVolumeRequest, image: &str) -> Answer<()> {
        let zones = request.accessibility_requirements.as_ref();
        if zones.is_some_and(|zones| !zones.requisite.contains(&place(&self.host))) {
            return Err(Status::resource_exhausted("the volume may not be on this node"));
        }
        if self.capacity() == 0 && self.core.storage.get(image).is_none() {
            return Err(Status::resource_exhausted("not enough space left on this node"));
        }
        Ok(())
    }

    /// Whether there is neither an image of this name nor a call that could still make it.
    fn has_nothing_of(&self, name: &str) -> bool {
        self.core.storage.get(name).is_none() && !self.locks.lock().contains(name)
    }

    /// Locks all of them, or none.
    fn lock(&self, keys: &[String]) -> Answer<()> {
        let mut locks = self.locks.lock();
        if let Some(key) = keys.iter().find(|key| locks.contains(*key)) {
            return Err(Status::aborted(format!(
                "an operation with the given volume {key} already exists"
            )));
        }
        locks.extend(keys.iter().cloned());
        Ok(())
    }

    fn unlock(&self, keys: &[String]) {
        self.locks.lock().retain(|locked| !keys.contains(locked));
    }

    /// Whether a volume that is made for this caller now may be nobody's any more: it is gone, or another
    /// process leads, under which the claim got its volume.
    fn is_late(&self, caller: &Life, name: &str) -> bool {
        let ledger = &self.core.ledger;
        let overtaken = || !ledger.may_work(caller.elected_host()) && ledger.had_volume(name);
        caller.elected_host().is_some() && (caller.is_dead() || overtaken())
    }

    async fn create(
        &self,
        request: &CreateVolumeRequest,
        caller: &Life,
    ) -> Answer<CreateVolumeResponse> {
        let (name, faults) = (&self.image(&request.name), self.faults());
        let purges = self.core.plan.purges && !self.core.is_healed() && self.dice.percent(30);
        if purges && self.core.storage.remove(name) {
            self.core.ledger.log(&format!("storage: {name} is purged by a repeated CreateVolume"));
            return Err(Status::internal("the image could not be expanded and is purged"));
        }
        sleep(faults.before).await;
        if let Some(code) = faults.refused {
            return Err(Status::new(code, "refused"));
        }
        let needs = request.parameters.get("secret").map_or("", String::as_str);
        if request.secrets.get("key").map_or("", String::as_str) != needs {
            return Err(Status::invalid_argument("the secret does not fit"));
        }
        let source = source_of(request);
        if !source.is_empty() && !self.core.storage.has_source(source) {
            return Err(Status::not_found(format!("{NO_SOURCE} {source}")));
        }
        if self.core.plan.local {
            self.check_place(request, name)?;
        }
        let size = request.capacity_range.map_or(1, |range| range.required_bytes.max(1));
        if self.core.storage.get(name).is_none() {
            let others: Vec<_> = self.core.storage.all().into_keys().collect();
            let late = self.is_late(caller, name);
            self.core.storage.make(name, size, late);
            self.core.ledger.log(&format!("storage: {name} is made"));
            // external-provisioner knows volumes by their names alone.
            if !caller.is_external_provisioner() {
                self.core.ledger.made(caller.name(), name, &others);
            }
        }
        sleep(faults.after).await;
        faults.end()?;
        Ok(self.shaped(request, size))
    }

    /// The answer, which need not be one that can be used.
    fn shaped(&self, request: &CreateVolumeRequest, size: i64) -> CreateVolumeResponse {
        let cluster = request.parameters.get("cluster").map_or("a", String::as_str);
        let mut volume = Volume {
            volume_id: handle(cluster, &self.image(&request.name)),
            capacity_bytes: size,
            accessible_topology: if self.core.plan.local {
                vec![place(&self.host)]
            } else {
                zone(request)
            },
            content_source: request.volume_content_source.clone(),
            ..Volume::default()
        };
        if self.core.is_healed() || !self.dice.percent(self.core.plan.unusable) {
            return CreateVolumeResponse { volume: Some(volume) };
        }
        match self.dice.within(0..4) {
            0 => volume.capacity_bytes = 1,
            // Longer than clients take an answer to be.
            3 => drop(volume.volume_context.insert("much".to_owned(), "x".repeat(5 << 20))),
            1 => volume.volume_id.clear(),
            _ => return CreateVolumeResponse { volume: None },
        }
        CreateVolumeResponse { volume: Some(volume) }
    }

    async fn delete(&self, request: &DeleteVolumeRequest) -> Answer<DeleteVolumeResponse> {
        let (image, faults) = (image_of(&request.volume_id), self.faults());
        if node_of(image).is_some_and(|node| node != self.host) {
            let (host, core) = (&self.host, &self.core);
            core.ledger.wrong(&format!("{image} is to be deleted by the driver on {host}"));
        }
        sleep(faults.before).await;
        if self.core.copying.is_locked(&self.host, &request.volume_id) {
            return Err(Status::aborted(format!("{image} is being copied")));
        }
        if let Some(code) = faults.refused {
            return Err(Status::new(code, "refused"));
        }
        if self.core.storage.remove(image) {
            self.core.ledger.log(&format!("storage: {image} is removed"));
            self.core.ledger.emptied(&request.volume_id);
        }
        sleep(faults.after).await;
        faults.end().map(|()| DeleteVolumeResponse {})
    }
}

/// Whether clients take in an answer of this size, and find the volume's handle in it.
fn shows_handle(answer: &CreateVolumeResponse) -> bool {
    const LONGEST: usize = 4 << 20;
    let has_handle = answer.volume.as_ref().is_some_and(|volume| !volume.volume_id.is_empty());
    has_handle && answer.encoded_len() <= LONGEST
}

impl Driver {
    pub(crate) fn new(core: &Arc<Core>, host: &str) -> Self {
        Self(Arc::new(Inner {
            core: Arc::clone(core),
            host: host.to_owned(),
            dice: Dice::new(core.seed, &format!("driver {host}")),
            locks: Mutex::default(),
            running: Mutex::default(),
            caller: Mutex::default(),
        }))
    }

    /// The process that calls from now on.
    pub(crate) fn called_by(&self, life: &Arc<Life>) {
        *self.0.caller.lock() = Some(Arc::clone(life));
    }

    /// The driver's process is another one: nothing runs, nothing is locked.
    pub(crate) fn forget(&self) {
        self.0.running.lock().abort_all();
        self.0.locks.lock().clear();
    }

    /// Runs a call to its end, whether or not its caller waits for it.
    async fn to_its_end<T, F>(
        &self,
        keys: Vec<String>,
        time_left: Option<Duration>,
        call: impl FnOnce(Arc<Inner>) -> F,
    ) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        self.0.lock(&keys)?;
        let caller = self.0.caller();
        let patience = time_left.unwrap_or(Duration::from_secs(3_600));
        let job = Job(
            Arc::clone(&self.0.core),
            self.0.core.ledger.job_begins(caller.name(), caller.elected_host(), &keys[0], patience),
        );
        let (inner, (done, result)) = (Arc::clone(&self.0), oneshot::channel());
        let running = call(Arc::clone(&inner));
        self.0.spawn(async move {
            let answer = running.await;
            drop(job);
            inner.unlock(&keys);
            let _ = done.send(answer);
        });
        let answer =
            result.await.unwrap_or_else(|_| Err(Status::unavailable("the driver is gone")));
        if answer.as_ref().is_err_and(|status| status.message() == LOST) {
            std::future::pending::<()>().await;
        }
        answer
    }
}

/// What a driver works on now; dropped, it does not any more.
struct Job(Arc<Core>, u64);

impl Drop for Job {
    fn drop(&mut self) {
        self.0.ledger.job_ends(self.1);
    }
}

impl Backend for Driver {
    fn description(&self) -> Description {
        description(&self.0.core.plan)
    }

    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let (request, time_left, caller) = (call.request, call.time_left, self.0.caller());
        let (core, name) = (&self.0.core, self.0.image(&request.name));
        core.observe();
        core.ledger.log(&format!("{} CreateVolume {name}", caller.name()));
        let repeats =
            core.ledger.create_begins(caller.name(), caller.elected_host(), caller.start(), &name);
        let _waited =
            core.calls.begins(&core.ledger, What::Create, caller.name(), &name, time_left);
        core.asking.check_request(core, &caller, &request, &name);
        let source = source_of(&request);
        let object = Copying::asked(core, caller.name(), &name, source);
        let source = (!source.is_empty()).then(|| (source.to_owned(), object));
        if !core.is_healed() && self.0.dice.percent(core.plan.killed) {
            caller.die_soon(&self.0.dice);
        }
        let asked_by = Arc::clone(&caller);
        let answer = self
            .to_its_end(vec![name.clone()], time_left, |inner| async move {
                let _copied = source.map(|(handle, object)| {
                    inner.core.copying.begins(&inner.host, &object, &handle, &request.name)
                });
                inner.create(&request, &asked_by).await
            })
            .await;
        let (result, nothing_left) = match &answer {
            Ok(response) => {
                if shows_handle(response) {
                    core.calls.outcome_known(caller.name(), &name);
                }
                (Code::Ok, false)
            }
            Err(status) => (status.code(), self.0.has_nothing_of(&name)),
        };
        core.ledger.log(&format!("{} CreateVolume {name} -> {result:?}", caller.name()));
        let is_final = result != Code::Ok && !UNFINISHED.contains(&result);
        core.ledger.create_ended(&name, is_final, nothing_left);
        if is_final && !repeats {
            core.ledger.create_refused(caller.name(), &name);
        }
        answer
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        let (request, time_left, caller) = (call.request, call.time_left, self.0.caller());
        let (core, id) = (&self.0.core, request.volume_id.clone());
        core.observe();
        core.ledger.log(&format!("{} DeleteVolume {id}", caller.name()));
        let began = Instant::now();
        let made = core.storage.get(image_of(&id)).map(|image| image.made);
        let volume = core.ledger.delete_begins(caller.name(), caller.elected_host(), &id, made);
        if !caller.is_external_provisioner() {
            let works = core.ledger.works_since(caller.elected_host(), caller.start());
            let names = core.ledger.names_of(&id);
            looks::check_delete(core, caller.name(), works, &id, &names, volume.is_some());
        }
        let _waited = core.calls.begins(&core.ledger, What::Delete, caller.name(), &id, time_left);
        if !core.is_healed() && self.0.dice.percent(core.plan.killed) {
            caller.die_soon(&self.0.dice);
        }
        // An image that is being made is not removed, under whatever id.
        let keys = vec![id.clone(), image_of(&id).to_owned()];
        let delete = |inner: Arc<Inner>| async move { inner.delete(&request).await };
        let answer = self.to_its_end(keys, time_left, delete).await;
        let result = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
        core.ledger.log(&format!("{} DeleteVolume {id} -> {result:?}", caller.name()));
        if answer.is_ok() {
            let process = caller.name().to_owned();
            // An answer at the deadline may come too late.
            let is_in_time = time_left.is_none_or(|left| began.elapsed() + LATE < left);
            let answered = is_in_time && !caller.is_suspended();
            core.ledger.removed(&id, Removal { process, began, volume, answered });
        }
        answer
    }

    async fn get_capacity(&self, _: Call<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        if !self.0.core.plan.local {
            return Err(Status::unimplemented("not modelled"));
        }
        let available_capacity = self.0.capacity();
        Ok(GetCapacityResponse { available_capacity, ..GetCapacityResponse::default() })
    }

    async fn node_get_info(&self) -> Answer<NodeGetInfoResponse> {
        if !self.0.core.plan.local {
            return Err(Status::unimplemented("not modelled"));
        }
        let node_id = self.0.host.clone();
        let accessible_topology = Some(place(&node_id));
        Ok(NodeGetInfoResponse { node_id, accessible_topology, max_volumes_per_node: 0 })
    }
}
