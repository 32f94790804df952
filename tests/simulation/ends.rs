//! Whatever work a process has when it gets SIGTERM, and however the API server behaves then: it
//! ends by itself, well within a pod's grace. In simulated time.

use std::time::Duration;

use serde_json::json;
use support::simulation::{Process, Simulation};
use testkit::apiserver::faults::{Effect, Match, Rule};
use tokio::time::{Instant, sleep};

/// Of a pod's usual grace of 30 s, with the defaults of all flags; and what the test's own look at it
/// takes.
const BOUND: Duration = Duration::from_millis(25_100);

/// Without an election, with the times of the flags' defaults, and with ceph-csi's, with which the
/// Lease stays ours however long the end takes.
const ELECTIONS: [&[&str]; 3] = [
    &[],
    &["--leader-election"],
    &[
        "--leader-election",
        "--leader-election-lease-duration=137s",
        "--leader-election-renew-deadline=107s",
        "--leader-election-retry-period=26s",
    ],
];

/// The work of the process when it gets SIGTERM.
#[derive(Debug, Clone, Copy)]
enum InHand {
    Nothing,
    OpenCall,
    UnsavedVolume,
}

impl InHand {
    async fn begin(self, simulation: &Simulation) {
        match self {
            Self::Nothing => return,
            Self::OpenCall => simulation.script(json!({"create_volume": [{"delay_ms": 600_000}]})),
            Self::UnsavedVolume => {
                let cut = Rule::on("create", "persistentvolumes", Effect::CutBefore);
                simulation.faults().add(cut);
            }
        }
        simulation.asked().await;
    }
}

/// When the API server ceases to serve, counted from the signal.
#[derive(Debug, Clone, Copy)]
enum Outage {
    Before(Duration),
    After(Duration),
}

/// How long the process takes to end, where from the outage on each request meets `effect`.
async fn end_of(
    simulation: &Simulation,
    process: &Process,
    outage: Outage,
    effect: Effect,
) -> Duration {
    let down = || {
        simulation.faults().add(Rule { when: Match::default(), skip: 0, times: None, effect });
    };
    let start = match outage {
        Outage::Before(time) => {
            down();
            sleep(time).await;
            process.stop();
            Instant::now()
        }
        Outage::After(time) => {
            let start = Instant::now();
            process.stop();
            sleep(time).await;
            down();
            start
        }
    };
    simulation.until("it ended", |_| process.outcome().is_some()).await;
    start.elapsed()
}

/// Whatever the API server does, and since when.
async fn ends_in_time_with(protection: &str, election: &[&str], in_hand: InHand) {
    let seconds = Duration::from_secs;
    for effect in [Effect::Hang, Effect::CutBefore, Effect::DelayAfter(seconds(3))] {
        for outage in [
            Outage::Before(seconds(8)),
            Outage::Before(seconds(2)),
            Outage::After(seconds(12)),
            Outage::After(seconds(19)),
            Outage::After(seconds(21)),
        ] {
            let simulation = Simulation::new(1);
            let process =
                simulation.start_with(&[election, &[protection, "--timeout=10m"]].concat());
            sleep(seconds(1)).await;
            in_hand.begin(&simulation).await;
            let took = end_of(&simulation, &process, outage, effect.clone()).await;
            assert!(
                took <= BOUND,
                "{protection} {election:?} {in_hand:?} {effect:?} {outage:?}: {took:?}"
            );
        }
    }
}

/// Whatever is in hand and however long the Lease is ours.
async fn ends_in_time(protection: &str) {
    for election in ELECTIONS {
        for in_hand in [InHand::Nothing, InHand::OpenCall, InHand::UnsavedVolume] {
            ends_in_time_with(protection, election, in_hand).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_claim_protection_an_end_stays_well_within_a_pods_grace() {
    ends_in_time("--claim-protection=off").await;
}

#[tokio::test(start_paused = true)]
async fn by_default_an_end_stays_well_within_a_pods_grace() {
    ends_in_time("--claim-protection=auto").await;
}

#[tokio::test(start_paused = true)]
async fn with_each_claim_protected_an_end_stays_well_within_a_pods_grace() {
    ends_in_time("--claim-protection=always").await;
}
