//! The load bench: provisions and deletes claims, and says what that cost.
//!
//! Owns the order of a run ([`run`]): a cluster, a driver and the measured program are started or
//! found; a first claim shows that all of it works; then all claims are made, and all deleted.
//! Promises that nothing it has made in somebody else's cluster is left behind, also when the run
//! fails or is interrupted. What the parts do:
//!
//! | module | content |
//! |---|---|
//! | [`options`] | the command line |
//! | `server` | the API server: embedded, started from binaries, or somebody's |
//! | `cluster` | what a run makes of it: names, class, binder, cleaning up |
//! | [`residents`] | what stands in the cluster from the start |
//! | [`objects`] | claims and volumes as large as real ones |
//! | `program`, `driver` | the measured process; what it calls |
//! | [`backlog`], `bare` | a backlog, compared with a client that only writes |
//! | [`pairs`], [`markdown`] | two programs in turn; their comparison as a table |
//! | `traffic`, `watches` | making and deleting claims; seeing how far they come |
//! | [`progress`], [`latency`] | when what happened, and how long it took |
//! | [`usage`], [`requests`] | processor and memory from `/proc`; requests from audit or metrics |
//! | [`report`] | the line that is printed |

pub mod backlog;
mod bare;
mod cluster;
mod driver;
mod error;
pub mod latency;
pub mod markdown;
pub mod objects;
pub mod options;
pub mod pairs;
mod program;
pub mod progress;
pub mod report;
pub mod requests;
pub mod residents;
mod server;
mod traffic;
pub mod usage;
mod watches;

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{FutureExt as _, future};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

pub use self::error::LoadError;
use self::{
    cluster::Cluster,
    driver::Driver,
    latency::rounded,
    options::Options,
    program::{Launch, Program},
    progress::{Milestone, Progress},
    report::{Cost, Delete, MemoryUse, Provision, Report, Setting},
    requests::Requests,
    server::Server,
    traffic::Traffic,
    usage::{Cpu, Memory},
    watches::{Listed, Shared},
};

/// How often progress is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long after its first call of the driver the program is sure to list.
const HEAD_START: Duration = Duration::from_secs(1);

/// How often progress is printed.
const PRINT_INTERVAL: Duration = Duration::from_secs(5);

/// Does a whole run. Progress is printed to stderr.
///
/// # Errors
/// Why it came to nothing; or, of a run that succeeded, what could not be cleaned up.
pub async fn run(options: Options) -> Result<Report, LoadError> {
    let mut interrupts = Interrupts::new()?;
    let server = interrupts.or(Server::open(&options)).await?;
    // A server of our own ends with the run, and all that stands in it.
    let clean = !server.is_ours();
    run_on(options, &Arc::new(server), clean, &mut interrupts).await
}

/// Does a run on a server that is there.
async fn run_on(
    options: Options,
    server: &Arc<Server>,
    clean: bool,
    interrupts: &mut Interrupts,
) -> Result<Report, LoadError> {
    let bench = interrupts.or(Bench::open(options, Arc::clone(server))).await?;
    let outcome = interrupts.or(bench.measure()).await;
    if let Some(driver) = &bench.driver {
        driver.stop_hanging();
    }
    let cleaned = if clean {
        // Whoever asks twice means it.
        interrupts.or(bench.cluster.clean_up(&bench.options.residents)).await
    } else {
        Ok(())
    };
    if let Some(program) = bench.program.get() {
        program.stop().await;
    }
    match (outcome, cleaned) {
        (Ok(report), Ok(())) => Ok(report),
        (Ok(_), Err(error)) => Err(error),
        (Err(error), cleaned) => {
            if let Err(left) = cleaned {
                eprintln!("load: cleaning up: {left}");
            }
            Err(error)
        }
    }
}

/// The signals that end a run early.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    fn new() -> Result<Self, LoadError> {
        let listen = |kind| signal(kind).map_err(LoadError::Signals);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Does `work`, unless a signal comes first.
    async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, LoadError>>,
    ) -> Result<T, LoadError> {
        tokio::select! {
            outcome = work => outcome,
            () = self.next() => Err(LoadError::Interrupted),
        }
    }

    async fn next(&mut self) {
        future::select(self.interrupt.recv().boxed(), self.terminate.recv().boxed()).await;
    }
}

// === Bench ===

/// Everything that takes part in a run.
struct Bench {
    options: Options,
    cluster: Cluster,
    /// Where the provisioner is not the cluster's own.
    driver: Option<Driver>,
    /// The same, from when it was started.
    program: OnceLock<Program>,
    progress: Shared,
}

/// How long the first volumes took, in seconds, where a program was started for them.
struct FirstVolumes {
    /// From the start, of a claim made before.
    stood: Option<f64>,
    /// From its creation, of a claim made after.
    new: Option<f64>,
}

/// What had been used at one time.
struct Reading {
    cpu: Option<Cpu>,
    requests: Option<Requests>,
    driver_calls: BTreeMap<&'static str, usize>,
}

impl Bench {
    /// Starts or finds everybody but the program; makes nothing in somebody else's cluster yet.
    async fn open(options: Options, server: Arc<Server>) -> Result<Self, LoadError> {
        let cluster = Cluster::open(&options, server).await?;
        let directory = cluster.directory.path();
        let serve = || Driver::serve(&options, &cluster.names.driver(), directory);
        let driver = options.class.is_none().then(serve).transpose().map_err(LoadError::Driver)?;
        let (program, progress) = (OnceLock::new(), Shared::default());
        Ok(Self { options, cluster, driver, program, progress })
    }

    /// The run, from an empty cluster to an empty cluster.
    async fn measure(&self) -> Result<Report, LoadError> {
        self.cluster.furnish(&self.options.residents).await?;
        let _watches = self.watch().await;
        if self.options.backlog { self.measure_backlog().await } else { self.measure_burst().await }
    }

    /// Follows claims and volumes until what it gives is dropped. Both are listed when it returns: the
    /// server does nothing else when the program starts.
    async fn watch(&self) -> JoinSet<()> {
        let mut watches = JoinSet::new();
        let (listed, mut lists) = mpsc::channel(2);
        for watch in watches::follow(&self.cluster, &self.progress, &Listed(listed)) {
            watches.spawn(watch);
        }
        let all = watches.len();
        let listed = async {
            for _ in 0..all {
                lists.recv().await;
            }
        };
        // Where they are refused, the run gets nowhere and says so.
        let _ = timeout(self.options.timeout(), listed).await;
        watches
    }

    /// Claims come and go while the program runs.
    async fn measure_burst(&self) -> Result<Report, LoadError> {
        self.cluster.bind();
        let first = self.warm_up().await?;
        let idle = self.memory()?;
        self.create_hanging().await?;
        let traffic = self.traffic("claim", self.options.claims);
        let cost = self.half(&traffic, traffic.create(), Milestone::Bound).await?;
        let provision = Provision::of(&self.progress.lock(), cost);
        let provisioned = self.memory()?;
        let delete = self.delete(&traffic).await?;
        Ok(Report {
            setting: self.setting().await?,
            first_volume_seconds: first.stood,
            first_new_volume_seconds: first.new,
            drain: None,
            provision,
            delete,
            memory: MemoryUse::of(idle, provisioned, self.memory()?),
            volumes_left_at_driver: self.left_at_driver()?,
        })
    }

    /// Creates the claims that are never served (`--hanging`). Nothing counts them.
    async fn create_hanging(&self) -> Result<(), LoadError> {
        let hanging = self.traffic("hanging", self.options.hanging);
        Traffic { storage: driver::HANGING, rate: None, ..hanging }.create().await?;
        *self.progress.lock() = Progress::default();
        Ok(())
    }

    /// The second half: all claims are deleted.
    async fn delete(&self, traffic: &Traffic) -> Result<Delete, LoadError> {
        let cost = self.half(traffic, traffic.delete(), Milestone::Gone).await?;
        Ok(Delete::of(&self.progress.lock(), cost))
    }

    async fn setting(&self) -> Result<Setting, LoadError> {
        let program = self.program.get().map(|program| program.path().display().to_string());
        Ok(Setting::new(&self.options, self.cluster.server.version().await?, program))
    }

    /// Starts the program while a first claim waits, makes another as soon as it runs, and lets both
    /// come and go: then every cache is filled and every connection made.
    async fn warm_up(&self) -> Result<FirstVolumes, LoadError> {
        let (stood, new) = (self.traffic("first", 1), self.traffic("new", 1));
        stood.create().await?;
        let started = Instant::now();
        self.launch()?;
        self.runs().await?;
        let born = Instant::now();
        new.create().await?;
        self.reached(Milestone::Bound, 2).await?;
        let since = |traffic: &Traffic, begun| {
            let name = traffic.family.claim_name(0);
            let saved = self.progress.lock().when(&name, Milestone::Saved)?;
            self.program.get()?;
            Some(rounded(saved.duration_since(begun).as_secs_f64()))
        };
        let first = FirstVolumes { stood: since(&stood, started), new: since(&new, born) };
        stood.delete().await?;
        new.delete().await?;
        self.reached(Milestone::Gone, 2).await?;
        sleep(self.options.settle()).await;
        *self.progress.lock() = Progress::default();
        Ok(first)
    }

    /// Waits until the program has asked its driver for something, and begun to list.
    async fn runs(&self) -> Result<(), LoadError> {
        let Some(driver) = &self.driver else { return Ok(()) };
        let asked = async {
            while driver.calls().is_empty() {
                self.program.get().map_or(Ok(()), Program::check)?;
                sleep(POLL_INTERVAL).await;
            }
            sleep(HEAD_START).await;
            Ok(())
        };
        let in_time = timeout(self.options.timeout(), asked).await;
        in_time.unwrap_or_else(|_| Err(self.stalled(Milestone::Asked, 2)))
    }

    /// Starts the program, unless the cluster's own is measured.
    fn launch(&self) -> Result<(), LoadError> {
        let Some(driver) = &self.driver else { return Ok(()) };
        let program = Program::start(Launch {
            program: self.options.program.as_deref(),
            kubeconfig: &self.cluster.server.measured,
            socket: driver.socket(),
            counts_requests: !self.cluster.server.is_ours(),
            arguments: &self.options.arguments,
            log: self.cluster.directory.path().join("provisioner.log"),
        })?;
        // Nothing else starts one.
        let _ = self.program.set(program);
        Ok(())
    }

    fn traffic(&self, what: &str, count: usize) -> Traffic {
        Traffic {
            claims: self.cluster.claims(),
            family: self.cluster.family(what),
            progress: Shared::clone(&self.progress),
            count,
            storage: "1Gi",
            rate: self.options.rate,
            concurrency: self.options.concurrency,
        }
    }

    /// Sends one half's requests, waits until all claims have come so far and the rest has
    /// settled, and says what that cost.
    async fn half(
        &self,
        traffic: &Traffic,
        requests: impl Future<Output = Result<(), LoadError>>,
        end: Milestone,
    ) -> Result<Cost, LoadError> {
        let before = self.reading().await?;
        future::try_join(requests, self.reached(end, traffic.count)).await?;
        sleep(self.options.settle()).await;
        let after = self.reading().await?;
        Ok(after.since(before, self.driver.is_some()))
    }

    /// Waits until so many claims have come so far, for as long as the program lives.
    async fn reached(&self, milestone: Milestone, all: usize) -> Result<(), LoadError> {
        let arriving = async {
            let mut printed = Instant::now();
            loop {
                let done = self.progress.lock().count(milestone);
                if done >= all {
                    return Ok(());
                }
                if printed.elapsed() > PRINT_INTERVAL {
                    eprintln!("load: {done} of {all} are {milestone:?}");
                    printed = Instant::now();
                }
                self.program.get().map_or(Ok(()), Program::check)?;
                sleep(POLL_INTERVAL).await;
            }
        };
        let in_time = timeout(self.options.timeout(), arriving).await;
        in_time.unwrap_or_else(|_| Err(self.stalled(milestone, all)))
    }

    fn stalled(&self, milestone: Milestone, all: usize) -> LoadError {
        let done = self.progress.lock().count(milestone);
        let log = self.program.get().map(Program::last_words);
        let log = log.map(|log| format!("; the end of the provisioner's log:\n{log}"));
        let (seconds, log) = (self.options.timeout, log.unwrap_or_default());
        LoadError::Stalled { milestone, done, all, seconds, log }
    }

    // === Readings ===

    async fn reading(&self) -> Result<Reading, LoadError> {
        let program = self.program.get();
        let requests = match self.cluster.server.requests()? {
            None => match program {
                Some(program) => program.requests().await,
                None => None,
            },
            counted => counted,
        };
        Ok(Reading {
            cpu: program.map(Program::cpu).transpose()?,
            requests,
            driver_calls: self.driver.as_ref().map(Driver::calls).unwrap_or_default(),
        })
    }

    fn memory(&self) -> Result<Option<Memory>, LoadError> {
        self.program.get().map(Program::memory).transpose()
    }

    fn left_at_driver(&self) -> Result<Option<usize>, LoadError> {
        let left = self.driver.as_ref().map(Driver::volumes);
        left.transpose().map_err(LoadError::Driver)
    }
}

impl Reading {
    /// What was used since `earlier`.
    fn since(self, earlier: Self, has_driver: bool) -> Cost {
        let before = |method: &str| earlier.driver_calls.get(method).copied().unwrap_or_default();
        let calls =
            self.driver_calls.iter().map(|(method, calls)| (*method, calls - before(method)));
        let calls = calls.filter(|(_, calls)| *calls > 0).collect();
        Cost {
            cpu: self.cpu.zip(earlier.cpu).map(|(now, before)| now - before),
            api: self.requests.zip(earlier.requests).map(|(now, before)| now.since(&before)),
            driver_calls: has_driver.then_some(calls),
        }
    }
}
