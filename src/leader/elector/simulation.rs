//! Elections with random faults, by seed: drifting clocks, frozen and killed processes, lost requests and
//! responses, silent and forbidden watches, slow servers, manual edits. At no time two gates are open, and
//! once the faults end one candidate leads.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use super::{
    fake::{Drifting, FakeClient, Network, Store, deps},
    *,
};
use crate::{
    leader::settings::settings,
    runtime::{Generator, Tasks, TokioSpawner},
};

const STEP: Duration = Duration::from_millis(50);

/// Stops a future from being polled, as SIGSTOP does, or ends it, as SIGKILL does.
#[derive(Clone, Default)]
struct Hand(Arc<Mutex<(Grip, Option<Waker>)>>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Grip {
    #[default]
    Open,
    Frozen,
    Killed,
}

impl Hand {
    fn set(&self, grip: Grip) {
        let mut state = self.0.lock();
        state.0 = grip;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    async fn holds(self, process: impl Future<Output = ()>) {
        let mut process = pin!(process);
        std::future::poll_fn(|cx| self.poll(process.as_mut(), cx)).await;
    }

    fn poll(&self, process: Pin<&mut impl Future<Output = ()>>, cx: &mut Context<'_>) -> Poll<()> {
        let grip = {
            let mut state = self.0.lock();
            state.1 = Some(cx.waker().clone());
            state.0
        };
        match grip {
            Grip::Open => process.poll(cx),
            Grip::Frozen => Poll::Pending,
            Grip::Killed => Poll::Ready(()),
        }
    }
}

/// One process of the simulation; its pod outlives it.
struct Process {
    pod: usize,
    client: FakeClient,
    gate: Gate,
    hand: Hand,
}

struct Simulation {
    random: Arc<Generator>,
    store: Arc<Mutex<Store>>,
    tasks: Tasks,
    processes: Vec<Process>,
    starts: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
        let random = Arc::new(Generator::from_seed(seed));
        let mut simulation =
            Self { random, store: Arc::default(), tasks, processes: Vec::new(), starts: 0 };
        for pod in 0..2 + simulation.below(4) {
            let process = simulation.start(pod);
            simulation.processes.push(process);
        }
        simulation
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).unwrap()
    }

    /// Starts a process that takes part in one election after the other.
    fn start(&mut self, pod: usize) -> Process {
        self.starts += 1;
        let rate = 0.9 + 0.2 * self.random.unit();
        let clock =
            Arc::new(Drifting::new(rate, self.random.below(100_000).cast_signed() - 50_000));
        let around = deps(clock, self.random.bits());
        let (client, hand, gate) =
            (FakeClient::new(&self.store), Hand::default(), around.gate.clone());
        let settings = settings("host", Some(&format!("pod{pod}")));
        let elections = {
            let client = client.clone();
            async move {
                loop {
                    let stop = CancellationToken::new();
                    let _ = lead(client.clone(), settings.clone(), around.clone(), |_, _| {}, stop)
                        .await;
                }
            }
        };
        self.tasks.spawn("process", hand.clone().holds(elections));
        Process { pod, client, gate, hand }
    }

    /// Injects or ends a random fault.
    fn inject_fault(&mut self) {
        let index = self.below(self.processes.len());
        let process = &self.processes[index];
        match self.below(14) {
            0 => *process.client.network.lock() = Network::Down,
            1 => *process.client.network.lock() = Network::Hanging,
            2 => *process.client.network.lock() = Network::ResponsesLost,
            3..5 => *process.client.network.lock() = Network::Up,
            5 => process.hand.set(Grip::Frozen),
            6..8 => process.hand.set(Grip::Open),
            8 => {
                let latency = self.random.below(8_000);
                *process.client.latency.lock() = Duration::from_millis(latency);
            }
            9 => {
                process.hand.set(Grip::Killed);
                let pod = process.pod;
                self.processes[index] = self.start(pod);
            }
            10 => self
                .store
                .lock()
                .edit(|lease| lease["metadata"]["labels"] = serde_json::json!({"x": "y"})),
            11 => self.store.lock().watch_is_silent ^= true,
            12 => self.store.lock().watch_refused ^= true,
            _ => {}
        }
    }

    fn end_faults(&self) {
        self.store.lock().watch_is_silent = false;
        for process in &self.processes {
            *process.client.network.lock() = Network::Up;
            *process.client.latency.lock() = Duration::from_millis(20);
            process.hand.set(Grip::Open);
        }
    }

    /// The pods whose gates are open.
    fn leaders(&self) -> Vec<usize> {
        self.processes
            .iter()
            .filter(|process| process.gate.check().is_ok())
            .map(|process| process.pod)
            .collect()
    }
}

/// Runs one seed. Returns how often the leader changed.
async fn run(seed: u64) -> usize {
    let mut simulation = Simulation::new(seed);
    let (mut last, mut changes) = (None, 0);
    for step in 0..12_000 {
        // A minute with faults, then a minute to recover.
        if step % 2_400 < 1_200 {
            if simulation.below(40) == 0 {
                simulation.inject_fault();
            }
        } else if step % 2_400 == 1_200 {
            simulation.end_faults();
        }
        sleep(STEP).await;
        let leaders = simulation.leaders();
        assert!(leaders.len() < 2, "seed {seed}, step {step}: {leaders:?} lead at once");
        if let Some(leader) = leaders.first() {
            changes += usize::from(last != Some(*leader));
            last = Some(*leader);
        }
        if step % 2_400 == 2_399 {
            assert_eq!(
                leaders.len(),
                1,
                "seed {seed}, step {step}: nobody leads after the faults ended"
            );
        }
    }
    changes
}

#[test]
fn at_most_one_leads_at_a_time_and_one_does_after_faults() {
    let mut changes = 0;
    for seed in 0..60 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        changes += runtime.unwrap().block_on(run(seed));
    }
    // Otherwise nothing was tested.
    assert!(changes > 200, "leadership changed only {changes} times");
}
