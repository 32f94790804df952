//! The life of a claim on API servers old and new, whose watches break and whose history is lost.

use std::{collections::BTreeSet, time::Duration};

use support::simulation::Simulation;
use testkit::apiserver::{
    ApiServer, Options, User,
    faults::{Effect, Rule, StreamFault},
    request_info::RequestInfo,
    resources::ServerVersion,
    status::Status,
};
use tokio::time::sleep;

/// What the program watches.
const KINDS: [&str; 3] = ["storageclasses", "persistentvolumeclaims", "persistentvolumes"];

/// More refusals in a row than it takes to give a watch up.
const REFUSALS: usize = 8;

/// A way to lose a watch.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// The connections are cut, and what happened meanwhile is still known.
    Cut,
    /// The connections are cut, and the history is compacted: the next watch can't go on.
    Compacted,
    /// The next watches end with an ERROR event of code 410.
    ExpiredInStream,
    /// The next watches are answered with HTTP 410.
    ExpiredAtOnce,
}

impl Loss {
    const ALL: [Self; 4] = [Self::Cut, Self::Compacted, Self::ExpiredInStream, Self::ExpiredAtOnce];

    /// Befalls all watches.
    fn strike(self, simulation: &Simulation) {
        let faults = |times, effect: Effect| {
            for kind in KINDS {
                simulation.faults().add(Rule::on("watch", kind, effect.clone()).times(times));
            }
        };
        match self {
            Self::Cut | Self::Compacted => {}
            Self::ExpiredInStream => faults(2, Effect::Stream(StreamFault::Expire { after: 0 })),
            Self::ExpiredAtOnce => faults(REFUSALS, Effect::Answer(Status::expired("too old"))),
        }
        simulation.api.watches().cut(None);
    }

    /// Whether what stands must be listed anew.
    fn needs_lists(self) -> bool {
        !matches!(self, Self::Cut)
    }

    /// What becomes of the history before the watches come back.
    fn forget(self, simulation: &Simulation) {
        if matches!(self, Self::Compacted) {
            simulation.api.compact();
        }
    }
}

fn servers() -> Vec<ServerVersion> {
    [20, 27, 31, 33, 36].map(ServerVersion::minor).into()
}

/// Whether this is the sweep for what a crash left on snapshots, which comes again and again.
fn is_sweep(info: &RequestInfo) -> bool {
    info.resource == "volumesnapshots"
}

/// How many lists were requested.
fn lists(simulation: &Simulation) -> usize {
    let requests = simulation.api.requests().all();
    let is_list = |info: &RequestInfo| info.verb == "list" && !is_sweep(info);
    requests.iter().filter(|request| is_list(&request.info)).count()
}

/// Carries out `change` while all watches are lost, and waits until it has led to `left` volumes.
async fn across(simulation: &Simulation, loss: Loss, left: usize, change: impl FnOnce()) {
    let before = lists(simulation);
    loss.strike(simulation);
    change();
    loss.forget(simulation);
    simulation.until("the change is acted upon", |s| s.volumes().len() == left).await;
    // Nothing of this loss is left over for the next.
    sleep(Duration::from_secs(300)).await;
    assert_eq!(lists(simulation) > before, loss.needs_lists(), "{loss:?}");
    simulation.faults().clear();
}

/// A claim comes while nobody watches, and goes while nobody watches.
#[tokio::test(start_paused = true)]
async fn lost_watches_cost_no_claim_and_no_second_call() {
    for (seed, version) in (1..).zip(servers()) {
        let api = ApiServer::new(Options { version, seed, ..Options::default() });
        let simulation = Simulation::with_api_server(api, seed, User::new("provisioner"));
        let standing = simulation.create_claim("standing");
        simulation.start();
        simulation.until("the first volume is saved", |s| s.volumes().len() == 1).await;
        for (number, loss) in (1..).zip(Loss::ALL) {
            across(&simulation, loss, 2, || drop(simulation.create_claim("data"))).await;
            let claim = simulation.api.get("PersistentVolumeClaim", "sc", "data").unwrap();
            let uid = claim["metadata"]["uid"].as_str().unwrap();
            across(&simulation, loss, 1, || {
                simulation.delete_claim("data");
                simulation.release(uid);
            })
            .await;
            let calls = [simulation.calls("CreateVolume"), simulation.calls("DeleteVolume")];
            assert_eq!(calls, [number + 1, number], "{version:?} {loss:?}");
        }
        assert_eq!(simulation.volumes()[0]["spec"]["claimRef"]["uid"], standing);
        assert_eq!(simulation.left_at_driver().len(), 1, "{version:?}");
        assert!(simulation.is_running(), "{version:?}");
    }
}

/// No server is asked for a streamed list, whether it has them or not.
#[tokio::test(start_paused = true)]
async fn every_kind_is_listed_once_on_every_server() {
    for (seed, version) in (1..).zip(servers()) {
        let api = ApiServer::new(Options { version, seed, ..Options::default() });
        let simulation = Simulation::with_api_server(api, seed, User::new("provisioner"));
        simulation.start();
        simulation.served().await;
        let requests = simulation.api.requests().all();
        assert!(requests.iter().all(|request| !request.info.uri.contains("sendInitialEvents")));
        let listed: Vec<&str> = requests
            .iter()
            .filter(|request| request.info.verb == "list" && !is_sweep(&request.info))
            .map(|request| request.info.resource.as_str())
            .collect();
        assert_eq!(listed.len(), KINDS.len(), "{version:?}");
        assert_eq!(BTreeSet::from_iter(listed), BTreeSet::from(KINDS), "{version:?}");
    }
}
