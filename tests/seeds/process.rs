//! One process of the program: its tasks, its clock, how it is killed.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::Duration,
};

use cli::shadow::{self, Described};
use csi_provisioner::{
    app,
    app::{Env, Host},
    csi::Connector,
    flags::Flags,
    kube::Connections,
    metrics::Metrics,
    runtime::{Clock, Generator, Spawner},
};
use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use support::connector::connector;
use testkit::driver;
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    core::Core, dice::Dice, driver::Driver, naming::Naming, plan::Plan, shadow::SHADOW, wire::Wire,
};

/// What the names of external-provisioner's processes begin with.
pub(crate) const EXTERNAL_PROVISIONER: &str = "original";

/// What keeps a process's tasks running, stands still with it and ends with it.
#[derive(Default)]
pub(crate) struct Life {
    name: String,
    /// The name it is elected under, where it is.
    host: Option<String>,
    start: Option<Instant>,
    /// How it names volumes.
    naming: OnceLock<Naming>,
    inner: Mutex<LifeInner>,
    tasks: Mutex<JoinSet<()>>,
    over: Notify,
}

#[derive(Default)]
struct LifeInner {
    dead: bool,
    /// It dies after so many polls of its tasks more.
    polls_left: Option<u64>,
    suspended: bool,
    waiting: Vec<Waker>,
    outcome: Option<Result<(), String>>,
}

impl Life {
    /// One on `host`, known as `name` in the trace.
    pub(crate) fn of(plan: &Plan, host: &str, name: &str) -> Arc<Self> {
        let elected = plan.elected.then(|| identity(host, plan.pod_uid));
        let start = Some(Instant::now());
        Arc::new(Self { name: name.to_owned(), host: elected, start, ..Self::default() })
    }

    /// One that takes no part in the election.
    pub(crate) fn apart(name: &str) -> Arc<Self> {
        let start = Some(Instant::now());
        Arc::new(Self { name: name.to_owned(), start, ..Self::default() })
    }

    /// Its name in the trace.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is external-provisioner's.
    pub(crate) fn is_external_provisioner(&self) -> bool {
        self.name.starts_with(EXTERNAL_PROVISIONER)
    }

    /// Whether it is shadow mode's.
    pub(crate) fn is_shadow(&self) -> bool {
        self.name.starts_with(SHADOW)
    }

    pub(crate) fn elected_host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Names volumes so from now on.
    pub(crate) fn names(&self, naming: Naming) {
        let _ = self.naming.set(naming);
    }

    /// How it names volumes.
    pub(crate) fn naming(&self) -> Naming {
        self.naming.get().copied().unwrap_or(Naming::USUAL)
    }

    pub(crate) fn start(&self) -> Instant {
        self.start.unwrap_or_else(Instant::now)
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.inner.lock().suspended
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.inner.lock().dead
    }

    /// Ends every task at the await it stands at.
    pub(crate) fn kill(&self) {
        self.inner.lock().dead = true;
        self.tasks.lock().abort_all();
        self.over.notify_one();
    }

    /// It dies at one of the next awaits.
    pub(crate) fn die_soon(&self, dice: &Dice) {
        self.inner.lock().polls_left.get_or_insert_with(|| dice.within(0..60));
    }

    /// Stands still until [`Life::resume`].
    pub(crate) fn suspend(&self) {
        self.inner.lock().suspended = true;
    }

    pub(crate) fn resume(&self) {
        let mut inner = self.inner.lock();
        inner.suspended = false;
        for waker in inner.waiting.drain(..) {
            waker.wake();
        }
    }

    /// Waits until it has ended, by itself or not.
    pub(crate) async fn over(&self) {
        self.over.notified().await;
        self.over.notify_one();
    }

    /// How it ended, if by itself.
    pub(crate) fn outcome(&self) -> Option<Result<(), String>> {
        self.inner.lock().outcome.clone()
    }

    /// Whether a task may be polled now.
    fn may_go_on(&self, context: &Context<'_>) -> Option<bool> {
        let mut inner = self.inner.lock();
        if inner.suspended {
            inner.waiting.push(context.waker().clone());
            return None;
        }
        match &mut inner.polls_left {
            Some(0) => inner.dead = true,
            Some(left) => *left -= 1,
            None => {}
        }
        Some(!inner.dead)
    }
}

/// A task that lives as long as its process.
struct Mortal {
    task: BoxFuture<'static, ()>,
    life: Arc<Life>,
}

impl Future for Mortal {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.life.may_go_on(context) {
            Some(true) => self.task.as_mut().poll(context),
            Some(false) => {
                self.life.kill();
                Poll::Ready(())
            }
            None => Poll::Pending,
        }
    }
}

struct Mortals(Arc<Life>);

impl Spawner for Mortals {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut tasks = self.0.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(Mortal { task, life: Arc::clone(&self.0) });
    }
}

/// A clock that is somewhat wrong until all is healed: the wall clock by an offset, the boot clock by a drift.
struct CrookedClock {
    start: Instant,
    /// Wall time at the start.
    wall: jiff::Timestamp,
    /// Parts in a thousand.
    drift: u32,
    /// How far the wall clock was set, in milliseconds.
    set: Mutex<i64>,
    core: Arc<Core>,
}

impl CrookedClock {
    fn new(core: &Arc<Core>, dice: &Dice) -> Self {
        Self {
            core: Arc::clone(core),
            start: Instant::now(),
            wall: core.api.now() + jiff::SignedDuration::from_millis(skew(dice)),
            drift: u32::try_from(dice.within(0..5)).unwrap(),
            set: Mutex::default(),
        }
    }
}

impl Clock for CrookedClock {
    fn wall(&self) -> jiff::Timestamp {
        if self.core.is_healed() {
            return self.core.api.now();
        }
        let set = jiff::SignedDuration::from_millis(*self.set.lock());
        self.wall + jiff::SignedDuration::try_from(self.start.elapsed()).unwrap() + set
    }

    fn boot(&self) -> Duration {
        Duration::from_secs(1000) + self.start.elapsed() * (998 + self.drift) / 1000
    }
}

/// How many milliseconds a host's wall clock goes wrong by: most are kept right.
fn skew(dice: &Dice) -> i64 {
    let most = if dice.percent(70) { 500 } else { 3_600_000 };
    i64::try_from(dice.within(0..2 * most)).unwrap() - i64::try_from(most).unwrap()
}

/// A process that runs.
pub(crate) struct Process {
    pub life: Arc<Life>,
    /// What it counts.
    pub metrics: Metrics,
    stop: CancellationToken,
    clock: Arc<CrookedClock>,
}

/// What a process runs.
enum Program {
    Sidecar(Flags),
    /// Shadow mode, which compares for this driver.
    Shadow(Flags, Described),
}

/// What a process is started with.
struct Launch {
    life: Arc<Life>,
    host: String,
    dice: Dice,
    connector: Connector,
}

impl Process {
    /// Starts the program on `host` for the `number`th time.
    pub(crate) fn start(
        core: &Arc<Core>,
        host: &str,
        number: u64,
        driver: &Arc<driver::Host<Driver>>,
    ) -> Self {
        let life = Life::of(&core.plan, host, &format!("{host}#{number}"));
        driver.backend().called_by(&life);
        let dice = Dice::new(core.seed, &format!("process {host} {number}"));
        let connector = connector(driver);
        let launch = Launch { life, host: host.to_owned(), dice, connector };
        Self::launch(core, launch, |core, dice| {
            let naming = Naming::of(core.plan.names, dice);
            core.ledger.log(&format!("{host}#{number} starts, {naming:?}"));
            (naming, sidecar(core, host, naming))
        })
    }

    /// Starts shadow mode, with these flags beside those of the others.
    pub(crate) fn start_shadow(
        core: &Arc<Core>,
        life: &Arc<Life>,
        connector: Connector,
        naming: Naming,
        more: &[String],
    ) -> Self {
        let dice = Dice::new(core.seed, &format!("process {}", life.name()));
        let (life, host) = (Arc::clone(life), SHADOW.to_owned());
        let launch = Launch { life, host, dice, connector };
        Self::launch(core, launch, |core, _| (naming, shadow(core, naming, more)))
    }

    fn launch(
        core: &Arc<Core>,
        launch: Launch,
        settings: impl FnOnce(&Core, &Dice) -> (Naming, Program),
    ) -> Self {
        let Launch { life, host, dice, connector } = launch;
        let stop = CancellationToken::new();
        let clock = Arc::new(CrookedClock::new(core, &dice));
        let metrics = Metrics::new();
        let process = Self {
            life: Arc::clone(&life),
            metrics: metrics.clone(),
            stop: stop.clone(),
            clock: Arc::clone(&clock),
        };
        let env = Env {
            connections: Connections::to(Wire::new(core, &life)),
            connector,
            clock,
            random: Arc::new(Generator::from_seed(dice.within(0..u64::MAX))),
            spawner: Arc::new(Mortals(Arc::clone(&life))),
            metrics,
            host: Host {
                pod_uid: core.plan.pod_uid.then(|| format!("{host}-uid")),
                name: host,
                ..Host::default()
            },
        };
        let (naming, program) = settings(core, &dice);
        life.names(naming);
        let main = Arc::clone(&life);
        Mortals(life).spawn(
            async move {
                let ended = match program {
                    Program::Sidecar(flags) => app::run(flags, env, stop).boxed(),
                    Program::Shadow(flags, driver) => shadow::run(flags, driver, env, stop).boxed(),
                };
                let ended = ended.await.map_err(|error| error.to_string());
                main.inner.lock().outcome = Some(ended);
                main.kill();
            }
            .boxed(),
        );
        process
    }

    /// Sets its wall clock, by up to two hours.
    pub(crate) fn set_clock(&self, dice: &Dice) {
        let by = i64::try_from(dice.within(0..14_400_000)).unwrap() - 7_200_000;
        *self.clock.set.lock() += by;
    }

    /// Cancelled, it is SIGTERM.
    pub(crate) fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }
}

/// The identity in the Lease.
fn identity(host: &str, pod_uid: bool) -> String {
    if pod_uid { format!("{host}_{host}-uid") } else { host.to_owned() }
}

fn sidecar(core: &Core, host: &str, naming: Naming) -> Program {
    let args = ["csi-provisioner".to_owned()].into_iter().chain(arguments(core, naming));
    let variable = |name: &str| (name == "NODE_NAME").then(|| host.into());
    Program::Sidecar(Flags::parse(args.map(Into::into), variable).unwrap().flags)
}

fn shadow(core: &Core, naming: Naming, more: &[String]) -> Program {
    let args = arguments(core, naming).into_iter().chain(more.iter().cloned());
    let (parsed, driver) = shadow::parse(args.map(Into::into), |_| None).unwrap();
    Program::Shadow(parsed.flags, driver)
}

/// The flags of every process.
fn arguments(core: &Core, naming: Naming) -> Vec<String> {
    let plan = &core.plan;
    let mut args = vec![
        "--csi-address=/run/csi.sock".to_owned(),
        "--retry-interval-max=60s".to_owned(),
        format!("--timeout={}s", plan.timeout.as_secs()),
        format!("--shutdown-timeout={}", plan.shutdown),
        format!("--claim-protection={}", plan.protection),
    ];
    args.extend(plan.patience.map(|time| format!("--claim-protection-timeout={time}")));
    if plan.grants {
        args.push("--feature-gates=CrossNamespaceVolumeDataSource=true".to_owned());
    }
    args.extend(naming.flags());
    if plan.elected {
        let election = ["--leader-election", "--leader-election-namespace=default"];
        args.extend(election.map(ToOwned::to_owned));
    }
    if plan.local {
        let shared = ["--node-deployment", "--node-deployment-base-delay=2s"];
        args.extend(shared.map(ToOwned::to_owned));
        args.push("--node-deployment-max-delay=5s".to_owned());
    }
    args
}
