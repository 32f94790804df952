//! The load bench: provisions and deletes claims, and says what that cost.
//!
//! An API server, a driver and the measured program are started; a first claim shows that all of it works; then all
//! claims are made, and all deleted. `pairs` does so for two programs in turn.

pub mod objects;
pub mod options;
pub mod pairs;
mod program;
mod progress;
mod report;
mod residents;
mod server;

use std::{collections::BTreeMap, future::Future, time::Duration};

use futures::{TryStreamExt as _, future, stream};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use self::{
    objects::{DRIVER, Family, NAMESPACE},
    options::Options,
    program::{Cpu, Program},
    progress::{Milestone, Shared},
    report::{Cost, rounded},
    server::Server,
};
use crate::{
    binder,
    driver::{Host, Script, Scripted},
};

/// Why a run came to nothing.
pub type LoadError = crate::Error;

/// How often progress is looked at, and how often it is printed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const PRINT_INTERVAL: Duration = Duration::from_secs(5);

/// Does a whole run. Progress is printed to stderr.
pub async fn run(options: Options) -> Result<Value, LoadError> {
    let server = Server::open(&options).await?;
    residents::create(&server, Family::of_run("").storage_class(0)).await?;
    residents::settle(&server, options.bound).await?;
    let socket = server.file("csi.sock");
    let driver = driver();
    driver.listen(&socket)?;
    let progress = Shared::default();
    let mut helpers = JoinSet::new();
    let (listed, mut lists) = mpsc::channel(2);
    for watch in progress::follow(&server.client, &progress, &listed) {
        helpers.spawn(watch);
    }
    // Both are listed before the program starts: the server does nothing else then. Where they are refused, the
    // run gets nowhere and says so.
    let _ = timeout(options.timeout(), async { (lists.recv().await, lists.recv().await) }).await;
    let selector = Some(residents::OTHERS.to_owned());
    let binding = binder::Settings { selector, ..binder::Settings::default() };
    helpers.spawn(binder::run(server.client.clone(), binding));

    let first = Traffic::of("first", 1);
    let claims = Api::namespaced(server.client.clone(), NAMESPACE);
    first.create(&claims, &progress).await?;
    let (started, log) = (Instant::now(), server.file("provisioner.log"));
    let program = options.program.as_deref();
    let program = Program::start(program, &server.measured(), &socket, &options.arguments, log)?;
    let bench = Bench { options, server, driver, program, claims, progress, _helpers: helpers };
    let report = bench.measure(started, &first).await;
    bench.program.stop().await;
    report
}

/// A driver that answers at once.
fn driver() -> Host<Scripted> {
    Host::new(Scripted::new(Script {
        name: Some(DRIVER.to_owned()),
        controller_capabilities: Some(vec!["CREATE_DELETE_VOLUME".to_owned()]),
        ..Script::default()
    }))
}

/// Everything that takes part in a run.
struct Bench {
    options: Options,
    server: Server,
    driver: Host<Scripted>,
    program: Program,
    claims: Api<PersistentVolumeClaim>,
    progress: Shared,
    _helpers: JoinSet<()>,
}

/// What had been used at one time.
struct Reading {
    cpu: Cpu,
    requests: BTreeMap<String, usize>,
    driver_calls: BTreeMap<&'static str, usize>,
}

/// How often each was counted since `before`.
fn since<K: Ord>(mut now: BTreeMap<K, usize>, before: &BTreeMap<K, usize>) -> BTreeMap<K, usize> {
    for (what, count) in &mut now {
        *count -= before.get(what).copied().unwrap_or_default();
    }
    now.retain(|_, count| *count > 0);
    now
}

impl Bench {
    async fn measure(&self, started: Instant, first: &Traffic) -> Result<Value, LoadError> {
        self.reached(Milestone::Bound, 1).await?;
        let saved = self.progress.lock().when(&first.family.claim_name(0), Milestone::Saved);
        let first_volume_seconds =
            saved.map(|saved| rounded(saved.duration_since(started).as_secs_f64()));
        first.delete(&self.claims, &self.progress).await?;
        self.reached(Milestone::Gone, 1).await?;
        sleep(self.options.settle()).await;
        *self.progress.lock() = progress::Progress::default();

        let idle = self.program.memory()?;
        let traffic = Traffic::of("claim", self.options.claims());
        let cost =
            self.half(traffic.create(&self.claims, &self.progress), Milestone::Bound).await?;
        let provision = report::provision(&self.progress.lock(), &cost);
        let provisioned = self.program.memory()?;
        let cost = self.half(traffic.delete(&self.claims, &self.progress), Milestone::Gone).await?;
        let delete = report::delete(&self.progress.lock(), &cost);
        let end = self.program.memory()?;
        let (server, program) = (self.server.version().await?, self.program.path.display());
        Ok(json!({
            "setting": report::setting(&self.options, &server, &program.to_string()),
            "first_volume_seconds": first_volume_seconds,
            "provision": provision,
            "delete": delete,
            "memory": report::memory(idle, provisioned, end),
            "volumes_left_at_driver": self.driver.backend().volumes().len(),
        }))
    }

    /// Sends one half's requests, waits until all claims have come so far and the rest has settled, and says what
    /// that cost.
    async fn half(
        &self,
        requests: impl Future<Output = Result<(), LoadError>>,
        end: Milestone,
    ) -> Result<Cost, LoadError> {
        let before = self.reading()?;
        future::try_join(requests, self.reached(end, self.options.claims())).await?;
        let Reading { cpu, requests, driver_calls } = self.settled().await?;
        Ok(Cost {
            cpu: cpu - before.cpu,
            requests: since(requests, &before.requests),
            driver_calls: since(driver_calls, &before.driver_calls),
        })
    }

    /// The reading once no request was counted for `--settle`, but for the Lease, or after `--timeout`.
    async fn settled(&self) -> Result<Reading, LoadError> {
        let count = |requests: &BTreeMap<String, usize>| -> usize {
            let of_work = requests.iter().filter(|(what, _)| !what.ends_with(" leases"));
            of_work.map(|(_, count)| count).sum()
        };
        let (start, mut last) = (Instant::now(), count(&self.server.requests()?));
        loop {
            sleep(self.options.settle()).await;
            let now = self.reading()?;
            let counted = count(&now.requests);
            if counted == last || start.elapsed() > self.options.timeout() {
                return Ok(now);
            }
            last = counted;
        }
    }

    fn reading(&self) -> Result<Reading, LoadError> {
        Ok(Reading {
            cpu: self.program.cpu()?,
            requests: self.server.requests()?,
            driver_calls: self.driver.journal().counts(),
        })
    }

    /// Waits until so many claims have come so far.
    async fn reached(&self, milestone: Milestone, all: usize) -> Result<(), LoadError> {
        let what = format!("{all} claims {milestone:?}");
        self.until(&what, || self.progress.lock().count(milestone) >= all).await
    }

    /// Waits for as long as the program lives, but not for ever.
    async fn until(&self, what: &str, reached: impl Fn() -> bool) -> Result<(), LoadError> {
        let (start, mut printed) = (Instant::now(), Instant::now());
        while !reached() {
            if printed.elapsed() > PRINT_INTERVAL {
                eprintln!("load: not yet {what}");
                printed = Instant::now();
            }
            if start.elapsed() > self.options.timeout() {
                let (seconds, log) = (self.options.timeout, self.program.last_words());
                return Err(format!(
                    "not {what} after {seconds} s (--timeout); the end of its log:\n{log}"
                )
                .into());
            }
            self.program.check()?;
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

// === Traffic ===

/// Claims that come and go.
struct Traffic {
    family: Family,
    count: usize,
}

impl Traffic {
    fn of(what: &str, count: usize) -> Self {
        Self { family: Family::of_run(what), count }
    }

    async fn create(
        &self,
        claims: &Api<PersistentVolumeClaim>,
        progress: &Shared,
    ) -> Result<(), LoadError> {
        self.each(|number| async move {
            let claim = serde_json::from_value(self.family.new_claim(number))?;
            progress.lock().asked(&self.family.claim_name(number));
            claims.create(&PostParams::default(), &claim).await?;
            Ok(())
        })
        .await
    }

    async fn delete(
        &self,
        claims: &Api<PersistentVolumeClaim>,
        progress: &Shared,
    ) -> Result<(), LoadError> {
        self.each(|number| async move {
            let name = self.family.claim_name(number);
            progress.lock().reached(&name, Milestone::Dropped);
            claims.delete(&name, &DeleteParams::default()).await?;
            Ok(())
        })
        .await
    }

    /// Does something for each claim.
    async fn each<F>(&self, request: impl Fn(usize) -> F) -> Result<(), LoadError>
    where
        F: Future<Output = Result<(), LoadError>>,
    {
        let numbers = stream::iter((0..self.count).map(Ok));
        numbers.try_for_each_concurrent(residents::AT_ONCE, request).await
    }
}
