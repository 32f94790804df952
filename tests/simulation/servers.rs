//! The life of a claim on API servers old and new. What broken watches and lost history cost is tested beside the
//! informer, and by `tests/seeds`.

use std::collections::BTreeSet;

use support::simulation::Simulation;
use testkit::apiserver::{
    ApiServer, Options, User, request_info::RequestInfo, resources::ServerVersion,
};

/// What the program watches.
const KINDS: [&str; 3] = ["storageclasses", "persistentvolumeclaims", "persistentvolumes"];

fn servers() -> Vec<ServerVersion> {
    [20, 27, 31, 33, 36].map(ServerVersion::minor).into()
}

/// Whether this is the sweep for what a crash left on snapshots, which comes again and again.
fn is_sweep(info: &RequestInfo) -> bool {
    info.resource == "volumesnapshots"
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
