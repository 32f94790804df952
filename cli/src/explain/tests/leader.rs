//! What only the leader knows, as its status says it.

use super::{
    super::observe::{ObservedClaim, ObservedVolume},
    *,
};
use csi_provisioner::status::{
    Blocked, LastFailure, LeaderStatus, ListedClaim, ListedVolume, Overview, Place, Status,
};

async fn observed(cluster: Cluster) -> ObservedClaim {
    let server = cluster.server();
    let request = request(&CLAIM);
    let client = client(&server);
    let now = Epoch.wall();
    let reader = Reader { client: &client, request: &request, lease_namespace: "", now };
    reader.claim("shop", "data").await.unwrap()
}

fn leading(work: Overview) -> Status {
    let leader = LeaderStatus { leads: true, ..LeaderStatus::default() };
    let mut status = Status { leader, work, ..Status::default() };
    status.driver.is_connected = true;
    status
}

async fn explained_with(status: Status) -> Explanation {
    let mut observed = observed(claim()).await;
    observed.leader.status = Some(Ok(Box::new(status)));
    claim::explain(&observed)
}

#[tokio::test(start_paused = true)]
async fn the_leader_knows_attempts_and_the_next_one() {
    let failure = |code: &str| {
        let message = format!("rpc error: code = {code} desc = no");
        Some(LastFailure { code: code.to_owned(), message, seconds_ago: 5 })
    };
    let listed = || ListedClaim { uid: "u".to_owned(), attempts: 4, ..ListedClaim::default() };
    let later = Place::Delayed { seconds: 90 };
    let leak = Some(Blocked { reason: "a volume may be left".to_owned(), seconds: 60 });
    let infeasible =
        ListedClaim { last_failure: failure("InvalidArgument"), next: later, ..listed() };
    let aborted = ListedClaim { last_failure: failure("Aborted"), ..listed() };
    let blocked = ListedClaim { blocked: leak.clone(), ..listed() };
    let suspected = ListedClaim { blocked: leak, stage: Stage::SuspectedLeak, ..listed() };
    let working = Place::Processing { seconds: 7 };
    let running = ListedClaim { stage: Stage::InFlight, next: working, ..listed() };
    let ready = ListedClaim { next: Place::Ready, ..listed() };
    let change = "when something changes";
    let table = [
        (infeasible, Wrong, "The last attempt failed 5s ago: rpc error", "in 1m30s"),
        (aborted, Waiting, "code = Aborted", change),
        (blocked, Waiting, "waited for 1m00s for this: a volume may be left", change),
        (suspected, Wrong, "a volume may be left", change),
        (running, Waiting, "CreateVolume has been running for 7s", "comes now, since 7s"),
        (ready, Waiting, "All that can be checked", "as soon as a worker is free"),
    ];
    for (claim, state, says, next) in table {
        let mut work = Overview::default();
        work.claims.listed = vec![ListedClaim::default(), claim.clone()];
        let explained = explained_with(leading(work)).await;
        let text = explained.to_text();
        assert_eq!(explained.state, state, "{claim:?}: {text}");
        assert!(text.contains(says) && text.contains("Attempts of the leader so far: 4"), "{text}");
        assert!(text.contains(next), "{claim:?}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_stops_the_leader_is_said() {
    let not_ready = Some("Nodes are not listed yet".to_owned());
    let lacks = vec!["lacks rights".to_owned()];
    let follower = LeaderStatus::default();
    let leading = || leading(Overview::default());
    let mut unconnected = leading();
    unconnected.driver.is_connected = false;
    for (status, state, says) in [
        (unconnected, Wrong, "is not connected"),
        (Status { not_ready, ..leading() }, Waiting, "not ready: Nodes"),
        (
            Status { missing_permissions: lacks, ..leading() },
            Waiting,
            "The provisioner: lacks rights",
        ),
        (Status { leader: follower, ..leading() }, Waiting, "of a replica that does not lead"),
    ] {
        let explained = explained_with(status).await;
        let text = explained.to_text();
        assert_eq!(explained.state, state, "{text}");
        assert!(text.contains(says), "{text}");
    }
    let silent =
        explained(&claim().server(), &[&CLAIM[..], &["--status-endpoint=:1"]].concat()).await;
    assert!(silent.to_text().contains("The status does not answer, 127.0.0.1:1"), "{silent:?}");
}

#[tokio::test(start_paused = true)]
async fn the_leader_knows_how_far_a_deletion_is() {
    let server = Cluster::with_volume(|_| {}).server();
    let request = request(&VOLUME);
    let client = client(&server);
    let now = Epoch.wall();
    let reader = Reader { client: &client, request: &request, lease_namespace: "csi", now };
    let mut observed: ObservedVolume = reader.volume("pv-1").await.unwrap();
    let mut work = Overview::default();
    work.volumes.listed = vec![ListedVolume {
        name: "pv-1".into(),
        is_deleted_at_driver: true,
        attempt: 3,
        last_failure: None,
        next: Place::Delayed { seconds: 2 },
    }];
    observed.leader.status = Some(Ok(Box::new(leading(work))));
    let text = volume::explain(&observed).to_text();
    assert!(text.contains("The driver has deleted the volume"), "{text}");
    assert!(text.contains("Attempt 3 of the leader comes in 2s."), "{text}");
}
