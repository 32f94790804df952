//! Keeps one replica running: starts it again whenever it has ended, and ends it at times.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use testkit::driver;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{core::Core, dice::Dice, driver::Driver, external_provisioner, process::Process};

/// One replica: its host, its driver and the process that runs there now.
pub(crate) struct Replica {
    pub host: String,
    pub driver: Arc<driver::Host<Driver>>,
    pub process: Mutex<Option<Process>>,
    /// Whether its machine has left.
    away: AtomicBool,
    back: Notify,
}

impl Replica {
    pub(crate) fn new(core: &Arc<Core>, host: &str) -> Arc<Self> {
        let driver = Arc::new(driver::Host::new(Driver::new(core, host)));
        Arc::new(Self {
            host: host.to_owned(),
            driver,
            process: Mutex::default(),
            away: AtomicBool::new(false),
            back: Notify::new(),
        })
    }

    /// Its machine goes, with all that runs there.
    pub(crate) fn leaves(&self) {
        self.away.store(true, Ordering::Relaxed);
        if let Some(process) = &*self.process.lock() {
            process.life.kill();
        }
        self.driver.stop();
        self.driver.backend().forget();
    }

    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// It is there again.
    pub(crate) fn returns(&self) {
        self.driver.start();
        self.away.store(false, Ordering::Relaxed);
        self.back.notify_one();
    }
}

/// Runs until the seed's end.
pub(crate) async fn run(core: Arc<Core>, replica: Arc<Replica>) {
    let dice = Dice::new(core.seed, &format!("keeper {}", replica.host));
    for number in 1.. {
        while replica.is_away() {
            replica.back.notified().await;
        }
        if core.plan.external_provisioner && !core.is_healed() && dice.percent(40) {
            external_provisioner::take_turn(&core, &replica, number, &dice).await;
            sleep(dice.stretch(500..10_000)).await;
        }
        let process = Process::start(&core, &replica.host, number, &replica.driver);
        let life = Arc::clone(&process.life);
        *replica.process.lock() = Some(process);
        trouble(&core, &dice, &replica.process).await;
        life.over().await;
        let outcome = life.outcome();
        core.observe();
        core.ledger.log(&format!("{} has ended: {outcome:?}", life.name()));
        core.ledger.ended(life.name(), !matches!(outcome, Some(Ok(()))));
        // Late requests of the old one may meet the new one; never at the very same moment.
        sleep(dice.stretch(500..if core.is_healed() { 1_000 } else { 30_000 })).await;
    }
}

/// Troubles the process until it has ended or all is healed.
pub(crate) async fn trouble(core: &Core, dice: &Dice, process: &Mutex<Option<Process>>) {
    let Some((life, stop)) = process.lock().as_ref().map(|it| (Arc::clone(&it.life), it.stopper()))
    else {
        return;
    };
    while core.plan.restarts && !core.is_healed() {
        let wait = dice.stretch(1_000..120_000);
        if timeout(wait, life.over()).await.is_ok() || core.is_healed() {
            return;
        }
        match dice.within(0..4) {
            3 if core.plan.jumps => {
                core.ledger.log(&format!("{}: somebody sets the clock", life.name()));
                process.lock().iter().for_each(|process| process.set_clock(dice));
            }
            0 => {
                core.ledger.log(&format!("{} is killed", life.name()));
                life.die_soon(dice);
                sleep(Duration::from_secs(5)).await;
                life.kill();
                return;
            }
            1 => {
                core.ledger.log(&format!("{} gets SIGTERM", life.name()));
                stop.cancel();
                return;
            }
            _ => {
                core.ledger.log(&format!("{} is suspended", life.name()));
                life.suspend();
                core.ledger.watching.stands_still(life.name());
                sleep(dice.stretch(500..60_000)).await;
                core.ledger.log(&format!("{} is resumed", life.name()));
                core.ledger.watching.goes_on(life.name());
                life.resume();
            }
        }
    }
}
