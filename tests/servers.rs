//! The life of a claim on API servers old and new, whose watches break and whose history is lost:
//! streaming lists ignored (1.20), refused (1.27, 1.33), failing (1.31 on an old etcd), served.

// Helpers outside of test functions fail like tests do; other tests share the world.
#[allow(clippy::unwrap_used, clippy::indexing_slicing, dead_code)]
#[path = "simulation/world.rs"]
mod world;

use std::collections::BTreeSet;

use testkit::apiserver::{
    ApiServer, Options, User,
    faults::{Effect, Rule, StreamFault},
    resources::{ServerVersion, StreamingLists},
    status::Status,
};
use world::Simulation;

/// What the program watches.
const KINDS: [&str; 3] = ["storageclasses", "persistentvolumeclaims", "persistentvolumes"];

/// More refusals in a row than it takes to give a watch up.
const MANY: usize = 8;

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
            Self::ExpiredAtOnce => faults(MANY, Effect::Answer(Status::expired("too old"))),
        }
        simulation.api.watches().cut(None);
    }

    /// What becomes of the history before the watches come back.
    fn forget(self, simulation: &Simulation) {
        if matches!(self, Self::Compacted) {
            simulation.api.compact();
        }
    }
}

fn servers() -> Vec<ServerVersion> {
    let failing =
        ServerVersion { streaming_lists: StreamingLists::Failing, ..ServerVersion::minor(31) };
    let mut servers: Vec<ServerVersion> = [20, 27, 33, 36].map(ServerVersion::minor).into();
    servers.insert(2, failing);
    servers
}

/// Each claim's life runs across a loss: it comes, and goes, while nobody watches.
#[tokio::test(start_paused = true)]
async fn lost_watches_cost_no_claim_and_no_second_call() {
    for (seed, version) in (1..).zip(servers()) {
        let api = ApiServer::new(Options { version, seed, ..Options::default() });
        let simulation = Simulation::on(api, seed, User::new("provisioner"));
        let standing = simulation.create_claim("standing");
        simulation.start();
        simulation.until("the first volume is saved", |s| s.volumes().len() == 1).await;
        for (number, loss) in Loss::ALL.into_iter().enumerate() {
            loss.strike(&simulation);
            let uid = simulation.create_claim("data");
            loss.forget(&simulation);
            simulation.until("the volume is saved", |s| s.volumes().len() == 2).await;
            assert_eq!(simulation.calls("CreateVolume"), number + 2, "{version:?} {loss:?}");

            loss.strike(&simulation);
            simulation.delete_claim("data");
            simulation.release(&uid);
            loss.forget(&simulation);
            simulation.until("the volume is gone", |s| s.volumes().len() == 1).await;
            assert_eq!(simulation.calls("DeleteVolume"), number + 1, "{version:?} {loss:?}");
        }
        assert_eq!(simulation.volumes()[0]["spec"]["claimRef"]["uid"], standing);
        assert_eq!(simulation.left_at_driver().len(), 1, "{version:?}");
        assert!(simulation.is_running(), "{version:?}");
    }
}

/// The servers differ as their names say: else the test above would try one server five times.
#[tokio::test(start_paused = true)]
async fn the_first_list_is_as_the_server_can_give_it() {
    for (seed, version) in (1..).zip(servers()) {
        let api = ApiServer::new(Options { version, seed, ..Options::default() });
        let simulation = Simulation::on(api, seed, User::new("provisioner"));
        simulation.start();
        simulation.create_claim("data");
        simulation.until("the volume is saved", |s| s.volumes().len() == 1).await;
        let requests = simulation.api.requests().all();
        let listed: BTreeSet<&str> = requests
            .iter()
            .filter(|request| request.info.verb == "list")
            .map(|request| request.info.resource.as_str())
            .collect();
        let expected = match version.streaming_lists {
            StreamingLists::Served => BTreeSet::new(),
            _ => BTreeSet::from(KINDS),
        };
        assert_eq!(listed, expected, "{version:?}");
    }
}
