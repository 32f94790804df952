//! The scriptable driver: answers by the rules of a [`Script`], which mean what the reference player
//! (`tests/conformance/play.py`) says.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    Answer, Backend, Call, Description, Status,
    proto::{
        CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
        GetCapacityRequest, GetCapacityResponse, NodeGetInfoResponse, Topology, Volume,
    },
    rules::{Chooser, Ready, Rule, Script, Subject, VolumeSpec},
};

/// What the driver is called unless its script says otherwise.
const NAME: &str = "rbd.csi.ceph.com";

impl Script {
    fn driver_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| NAME.to_owned())
    }

    fn plugin(&self) -> Vec<String> {
        self.plugin_capabilities.clone().unwrap_or_else(|| owned(&["CONTROLLER_SERVICE"]))
    }

    fn controller(&self) -> Vec<String> {
        self.controller_capabilities.clone().unwrap_or_else(|| {
            owned(&[
                "CREATE_DELETE_VOLUME",
                "CREATE_DELETE_SNAPSHOT",
                "CLONE_VOLUME",
                "EXPAND_VOLUME",
            ])
        })
    }
}

/// A driver that follows a script.
#[derive(Debug, Default)]
pub struct Scripted {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    script: Script,
    chooser: Chooser,
    flights: BTreeMap<&'static str, Flight>,
    volumes: BTreeSet<String>,
}

/// What is known of a method's calls in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flight {
    /// How many run now.
    pub now: usize,
    /// The most that ever ran at once.
    pub peak: usize,
    /// What the first call's deadline left when it came; `None` when it had none.
    pub first_time_left: Option<Duration>,
}

impl Scripted {
    /// A driver that follows `script`.
    pub fn new(script: Script) -> Self {
        Self { state: Mutex::new(State { script, ..State::default() }) }
    }

    /// New rules: what `script` names replaces the old, and all rules count from the start again.
    pub fn amend(&self, script: Script) {
        let mut state = self.state.lock();
        state.script.amend(script);
        state.chooser = Chooser::default();
    }

    /// Ids of the volumes the driver holds.
    pub fn volumes(&self) -> BTreeSet<String> {
        self.state.lock().volumes.clone()
    }

    /// How a method's calls overlapped; `None` when there was none. Kept of `CreateVolume` and
    /// `DeleteVolume`.
    pub fn flight(&self, method: &str) -> Option<Flight> {
        self.state.lock().flights.get(method).copied()
    }

    fn rule(&self, method: &'static str, subject: Subject<'_>) -> Rule {
        let State { script, chooser, .. } = &mut *self.state.lock();
        chooser.choose(script.rules(method), method, subject)
    }

    /// Finds the rule of a call that is about no volume, and does what it says.
    async fn follow(&self, method: &'static str) -> Result<Rule, Status> {
        let rule = self.rule(method, Subject::default());
        act(&rule).await?;
        Ok(rule)
    }

    /// Counts a call as running until the guard is dropped, be it by an answer or because the
    /// caller went away.
    fn take_off(&self, method: &'static str, time_left: Option<Duration>) -> Airborne<'_> {
        let mut state = self.state.lock();
        let flight = state.flights.entry(method).or_insert(Flight {
            now: 0,
            peak: 0,
            first_time_left: time_left,
        });
        flight.now += 1;
        flight.peak = flight.peak.max(flight.now);
        Airborne { driver: self, method }
    }
}

/// A running call.
struct Airborne<'a> {
    driver: &'a Scripted,
    method: &'static str,
}

impl Drop for Airborne<'_> {
    fn drop(&mut self) {
        if let Some(flight) = self.driver.state.lock().flights.get_mut(self.method) {
            flight.now = flight.now.saturating_sub(1);
        }
    }
}

/// Waits and fails as the rule says.
async fn act(rule: &Rule) -> Result<(), Status> {
    if let Some(delay) = rule.delay_ms {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    match &rule.error {
        Some(failure) => Err(Status::new(failure.code, failure.message.clone())),
        None => Ok(()),
    }
}

impl Backend for Scripted {
    fn description(&self) -> Description {
        let State { script, .. } = &*self.state.lock();
        let name = script.driver_name();
        Description { name, plugin: script.plugin(), controller: script.controller() }
    }

    async fn identify(&self, method: &'static str) -> Answer<Ready> {
        self.follow(method).await.map(|rule| rule.ready)
    }

    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let Call { request, time_left } = call;
        let subject =
            Subject { key: &request.name, parameters: Some(&request.parameters), topology: None };
        let rule = self.rule("CreateVolume", subject);
        let id = rule.volume.volume_id.clone().unwrap_or_else(|| format!("vol-{}", request.name));
        if rule.creates.unwrap_or_else(|| rule.error.is_none()) {
            self.state.lock().volumes.insert(id.clone());
        }
        {
            let _airborne = self.take_off("CreateVolume", time_left);
            act(&rule).await?;
        }
        Ok(CreateVolumeResponse { volume: Some(volume(rule.volume, id, request)) })
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        let id = call.request.volume_id;
        let rule = self.rule("DeleteVolume", Subject { key: &id, ..Subject::default() });
        {
            let _airborne = self.take_off("DeleteVolume", call.time_left);
            act(&rule).await?;
        }
        self.state.lock().volumes.remove(&id);
        Ok(DeleteVolumeResponse {})
    }

    async fn get_capacity(&self, call: Call<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        let request = &call.request;
        let topology = request.accessible_topology.as_ref().map(|topology| &topology.segments);
        let subject = Subject { key: "", parameters: Some(&request.parameters), topology };
        let rule = self.rule("GetCapacity", subject);
        act(&rule).await?;
        Ok(GetCapacityResponse {
            available_capacity: rule.available_capacity,
            maximum_volume_size: rule.maximum_volume_size,
            minimum_volume_size: None,
        })
    }

    async fn node_get_info(&self) -> Answer<NodeGetInfoResponse> {
        self.follow("NodeGetInfo").await?;
        let node = self.state.lock().script.node.clone();
        let (node_id, segments) =
            node.map_or_else(|| ("n".to_owned(), None), |node| (node.node_id, node.topology));
        Ok(NodeGetInfoResponse {
            node_id,
            max_volumes_per_node: 0,
            accessible_topology: segments.map(|segments| Topology { segments }),
        })
    }
}

/// The volume that answers `request`.
fn volume(spec: VolumeSpec, volume_id: String, request: CreateVolumeRequest) -> Volume {
    let required = request.capacity_range.map_or(0, |range| range.required_bytes);
    let topology = spec.accessible_topology.into_iter();
    Volume {
        capacity_bytes: spec.capacity_bytes.unwrap_or(required),
        volume_id,
        volume_context: spec.volume_context,
        content_source: request
            .volume_content_source
            .filter(|_| spec.content_source.as_deref() != Some("none")),
        accessible_topology: topology.map(|segments| Topology { segments }).collect(),
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}
