//! How many calls a driver is given at once, with drivers that can do only so many.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use csi_provisioner::csi::{BoxedIo, Connector};
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::json;
use testkit::driver::{
    Answer, Backend, Call, Host, Script, Scripted, Status,
    proto::{
        ControllerGetCapabilitiesResponse, CreateVolumeRequest, CreateVolumeResponse,
        DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse,
        GetPluginCapabilitiesResponse, GetPluginInfoResponse, NodeGetInfoResponse, ProbeResponse,
    },
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use crate::world::{DRIVER, Simulation, claim};

/// What a driver does with calls beyond what it can do at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    /// They wait their turn; one whose caller goes away is forgotten, and what was done is lost.
    Wait,
    /// They are refused at once: Aborted.
    Refuse,
}

/// A driver that does so much at once.
struct Busy {
    scripted: Scripted,
    slots: Arc<Semaphore>,
    takes: Duration,
    beyond: Beyond,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until then, calls hang.
    hangs_until: Option<Instant>,
    /// Volumes made, by name, and when.
    made: BTreeMap<String, Instant>,
    /// When each CreateVolume came.
    asked: Vec<Instant>,
}

impl Busy {
    fn new(slots: usize, takes: Duration, beyond: Beyond) -> Self {
        let scripted = Scripted::new(Script { name: Some(DRIVER.into()), ..Script::default() });
        let slots = Arc::new(Semaphore::new(slots));
        Self { scripted, slots, takes, beyond, state: Mutex::default() }
    }

    fn made(&self) -> usize {
        self.state.lock().made.len()
    }

    /// How many calls came in this time.
    fn asked(&self, from: Instant, to: Instant) -> usize {
        self.state.lock().asked.iter().filter(|at| (from..to).contains(at)).count()
    }

    /// When the volume was made that so many came before.
    fn made_at(&self, count: usize) -> Instant {
        let mut times: Vec<_> = self.state.lock().made.values().copied().collect();
        times.sort();
        times[count - 1]
    }

    async fn work(&self) -> Result<(), Status> {
        let hangs = self.state.lock().hangs_until;
        if hangs.is_some_and(|until| Instant::now() < until) {
            std::future::pending::<()>().await;
        }
        let _slot = match self.beyond {
            Beyond::Wait => self.slots.acquire().await.unwrap(),
            Beyond::Refuse => self.slots.try_acquire().map_err(|_| Status::aborted("too busy"))?,
        };
        sleep(self.takes).await;
        Ok(())
    }
}

impl Backend for Busy {
    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let name = call.request.name.clone();
        self.state.lock().asked.push(Instant::now());
        if call.request.parameters.contains_key("broken") {
            std::future::pending::<()>().await;
        }
        if !self.state.lock().made.contains_key(&name) {
            self.work().await?;
            self.state.lock().made.insert(name, Instant::now());
        }
        self.scripted.create_volume(call).await
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        self.work().await?;
        self.scripted.delete_volume(call).await
    }

    async fn get_plugin_info(&self) -> Answer<GetPluginInfoResponse> {
        self.scripted.get_plugin_info().await
    }

    async fn get_plugin_capabilities(&self) -> Answer<GetPluginCapabilitiesResponse> {
        self.scripted.get_plugin_capabilities().await
    }

    async fn probe(&self) -> Answer<ProbeResponse> {
        self.scripted.probe().await
    }

    async fn controller_get_capabilities(&self) -> Answer<ControllerGetCapabilitiesResponse> {
        self.scripted.controller_get_capabilities().await
    }

    async fn get_capacity(&self, call: Call<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        self.scripted.get_capacity(call).await
    }

    async fn node_get_info(&self) -> Answer<NodeGetInfoResponse> {
        self.scripted.node_get_info().await
    }
}

/// A cluster with this driver, where the program runs.
fn cluster(driver: Busy) -> (Simulation, Arc<Host<Busy>>) {
    let driver = Arc::new(Host::new(driver));
    let dialed = Arc::clone(&driver);
    let connector: Connector = Arc::new(move |_| {
        let stream: io::Result<BoxedIo> = dialed.connect().map(|it| Box::new(it) as BoxedIo);
        async move { stream }.boxed()
    });
    let simulation = Simulation::new(1).dialing(connector);
    simulation.start();
    (simulation, driver)
}

fn claims(simulation: &Simulation, class: &str, names: impl Iterator<Item = usize>) {
    for number in names {
        let mut made = claim(&format!("{class}-{number}"));
        made["spec"]["storageClassName"] = json!(class);
        simulation.api.create(&made).unwrap();
    }
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// How long the driver takes until it has made so many volumes.
async fn time_to_make(driver: Busy, count: usize) -> (Duration, Arc<Host<Busy>>) {
    let (simulation, driver) = cluster(driver);
    sleep(ms(1000)).await;
    claims(&simulation, "fast", 0..count);
    let start = Instant::now();
    while driver.backend().made() < count && start.elapsed() < ms(3_600_000) {
        sleep(ms(100)).await;
    }
    eprintln!("{count}: {:?} calls {}", start.elapsed(), driver.backend().state.lock().asked.len());
    let took = driver.backend().made_at(driver.backend().made()) - start;
    (took, driver)
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_kept_busy_however_many_claims_wait() {
    for count in [200, 2000] {
        let (took, _) = time_to_make(Busy::new(4, ms(500), Beyond::Wait), count).await;
        eprintln!("{count} took {took:?} share {}", count as f64 / 8.0 / took.as_secs_f64());
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_refuses_under_overload_does_not_collapse() {
    for count in [200, 2000] {
        let (took, _) = time_to_make(Busy::new(4, ms(500), Beyond::Refuse), count).await;
        eprintln!("refuse {count} took {took:?} share {}", count as f64 / 8.0 / took.as_secs_f64());
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_slower_than_the_deadline_allows_for_all_does_not_collapse() {
    let (took, _) = time_to_make(Busy::new(4, ms(5000), Beyond::Wait), 200).await;
    eprintln!("slow took {took:?} share {}", 200.0 / 0.8 / took.as_secs_f64());
}
