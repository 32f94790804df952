use serde_json::json;
use tokio::time::Instant;

use super::{
    fake::{Drifting, FakeClient, Network, Store},
    *,
};
use crate::{
    leader::settings::settings,
    runtime::{Tasks, TokioSpawner},
};

/// A running candidate.
struct Candidate {
    client: FakeClient,
    deps: ElectionDeps,
    stop: CancellationToken,
    changes: Arc<parking_lot::Mutex<Vec<String>>>,
    ended: tokio::sync::oneshot::Receiver<Result<(), Loss>>,
}

fn store() -> Arc<parking_lot::Mutex<Store>> {
    Arc::default()
}

fn start(store: &Arc<parking_lot::Mutex<Store>>, settings: ElectionSettings) -> Candidate {
    let client = FakeClient::new(store);
    let deps = fake::deps(Arc::new(Drifting::new(1.0, 0)), 1);
    let stop = CancellationToken::new();
    let changes = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (send_end, ended) = tokio::sync::oneshot::channel();
    let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
    let (reported, identity) = (changes.clone(), settings.identity.name().to_owned());
    let on_change = move |leads, _: Option<&Lease>| {
        let what = if leads { "became leader" } else { "stopped leading" };
        reported.lock().push(format!("{identity} {what}"));
    };
    let election = lead(client.clone(), settings, deps.clone(), on_change, stop.clone());
    tasks.spawn("candidate", async move {
        let _ = send_end.send(election.await);
    });
    Candidate { client, deps, stop, changes, ended }
}

impl Candidate {
    fn leads(&self) -> bool {
        self.deps.gate.check().is_ok()
    }

    async fn until_it_stops(&self) {
        let cut = self.deps.gate.through(std::future::pending::<()>());
        timeout(Duration::from_secs(300), cut).await.expect("leads for ever").unwrap_err();
    }

    async fn until_it_leads(&self) -> Duration {
        let start = Instant::now();
        while !self.leads() {
            sleep(Duration::from_millis(10)).await;
            assert!(start.elapsed() < Duration::from_secs(300), "never leads");
        }
        start.elapsed()
    }
}

async fn secs(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

/// Twenty writes fail within the longer times that some distributions set.
#[tokio::test(start_paused = true)]
async fn a_leader_with_a_bare_host_name_knows_its_lease_after_many_failed_writes() {
    let store = store();
    let mut settings = settings("one", None);
    settings.flags.lease_duration = Duration::from_secs(137);
    settings.flags.renew_deadline = Duration::from_secs(107);
    settings.flags.retry_period = Duration::from_secs(26);
    let one = start(&store, settings);
    one.until_it_leads().await;
    store.lock().writes_fail = true;
    secs(95).await;
    assert!(one.leads());
    store.lock().writes_fail = false;
    secs(60).await;
    assert!(one.leads(), "it has renewed");
}

#[tokio::test(start_paused = true)]
async fn without_further_renewals_the_gate_shuts_a_renew_deadline_after_the_write_was_sent() {
    let client = FakeClient::new(&store());
    *client.latency.lock() = Duration::from_secs(2);
    let deps = fake::deps(Arc::new(Drifting::new(1.0, 0)), 1);
    let stop = CancellationToken::new();
    let election = lead(client, settings("one", None), deps.clone(), |_, _| {}, stop);
    let start = Instant::now();
    // Read at 0, wrote at 2, was answered at 4; then its task sleeps for ever.
    assert!(timeout(Duration::from_millis(4100), election).await.is_err());
    assert!(deps.gate.check().is_ok());
    let cut = deps.gate.through(std::future::pending::<()>());
    timeout(Duration::from_secs(300), cut).await.unwrap().unwrap_err();
    assert_eq!(start.elapsed().as_millis() / 100, 120);
}

#[tokio::test(start_paused = true)]
async fn a_slow_api_server_costs_no_leadership() {
    let store = store();
    let one = start(&store, settings("one", None));
    *one.client.latency.lock() = Duration::from_secs(4);
    one.until_it_leads().await;
    secs(300).await;
    assert!(one.leads());
    assert_eq!(*one.changes.lock(), ["one became leader"]);
}

#[tokio::test(start_paused = true)]
async fn observing_another_holder_shuts_the_gate_at_once() {
    let store = store();
    let one = start(&store, settings("one", None));
    one.until_it_leads().await;
    store.lock().edit(|lease| lease["spec"]["holderIdentity"] = json!("other"));
    // The next renewal shows it, well before the deadline.
    let start = Instant::now();
    one.until_it_stops().await;
    assert!(start.elapsed() < Duration::from_millis(5100), "{:?}", start.elapsed());
    assert_eq!(one.ended.await, Ok(Err(Loss::OtherHolder("other".into()))));
    assert_eq!(store.lock().holder(), Some("other"));
}

#[tokio::test(start_paused = true)]
async fn a_standby_creates_a_deleted_lease_only_after_its_holders_duration() {
    for watch_refused in [false, true] {
        let store = store();
        store.lock().watch_refused = watch_refused;
        let one = start(&store, settings("one", None));
        one.until_it_leads().await;
        let two = start(&store, settings("two", None));
        secs(6).await;
        // Renewed a second ago: it leads for another nine.
        *one.client.network.lock() = Network::Hanging;
        store.lock().delete();
        let waited = two.until_it_leads().await;
        assert!(!one.leads());
        // A standby that may not watch counts from its next read, 11 s later at most.
        let range = if watch_refused { 15..27 } else { 13..16 };
        assert!(range.contains(&waited.as_secs()), "{watch_refused}: {waited:?}");
        let made = store.lock().requests.iter().filter(|verb| **verb == "create").count();
        assert_eq!((made, store.lock().transitions()), (2, Some(1)), "no try before");
        assert_eq!(one.ended.await, Ok(Err(Loss::Deadline)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_recreates_its_deleted_lease_and_standbys_wait_as_before() {
    let store = store();
    let one = start(&store, settings("one", None));
    one.until_it_leads().await;
    let two = start(&store, settings("two", None));
    secs(6).await;
    for _ in 0..5 {
        store.lock().delete();
        for _ in 0..120 {
            sleep(Duration::from_millis(100)).await;
            assert!(!two.leads());
        }
        assert!(one.leads());
        assert_eq!(store.lock().holder(), Some("one"));
    }
    assert_eq!(*one.changes.lock(), ["one became leader"]);
    one.stop.cancel();
    assert_eq!(one.ended.await, Ok(Ok(())));
    assert!(two.until_it_leads().await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_notices_the_deletion_late_waits_from_then_on() {
    let slow = |host| {
        let mut settings = settings(host, None);
        settings.flags.lease_duration = Duration::from_secs(137);
        settings.flags.renew_deadline = Duration::from_secs(107);
        settings.flags.retry_period = Duration::from_secs(26);
        settings
    };
    let store = store();
    store.lock().watch_refused = true;
    let one = start(&store, slow("one"));
    one.until_it_leads().await;
    let two = start(&store, slow("two"));
    secs(1).await;
    *two.client.network.lock() = Network::Down;
    // Four renewals that the standby does not observe.
    secs(109).await;
    *one.client.network.lock() = Network::Hanging;
    *two.client.network.lock() = Network::Up;
    store.lock().delete();
    two.until_it_leads().await;
    assert!(!one.leads());
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_may_not_watch_reads_periodically() {
    let store = store();
    store.lock().watch_refused = true;
    let one = start(&store, settings("one", None));
    one.until_it_leads().await;
    let two = start(&store, settings("two", None));
    secs(580).await;
    {
        let store = store.lock();
        let count = |verb| store.requests.iter().filter(|sent| **sent == verb).count();
        // Every 5 to 11 s.
        assert!((52..=121).contains(&count("get")), "{}", count("get"));
        assert!(
            count("watch") < count("get"),
            "a forbidden watch is tried again with the next read"
        );
    }
    one.stop.cancel();
    assert_eq!(one.ended.await, Ok(Ok(())));
    assert!(two.until_it_leads().await < Duration::from_secs(11));
}

/// An API server that has just started may know no roles yet.
#[tokio::test(start_paused = true)]
async fn a_standby_watches_again_after_a_watch_was_forbidden() {
    let store = store();
    store.lock().watch_refused = true;
    let one = start(&store, settings("one", None));
    one.until_it_leads().await;
    let two = start(&store, settings("two", None));
    secs(20).await;
    store.lock().watch_refused = false;
    secs(11).await;
    one.stop.cancel();
    assert_eq!(one.ended.await, Ok(Ok(())));
    assert!(two.until_it_leads().await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_standby_whose_watch_is_silent_reads_as_early_as_without_one() {
    let store = store();
    let one = start(&store, settings("one", None));
    one.until_it_leads().await;
    let two = start(&store, settings("two", None));
    secs(60).await;
    *two.client.network.lock() = Network::ResponsesLost;
    one.stop.cancel();
    assert_eq!(one.ended.await, Ok(Ok(())));
    secs(1).await;
    // Events are lost, new requests are answered.
    store.lock().watch_is_silent = true;
    *two.client.network.lock() = Network::Up;
    assert!(two.until_it_leads().await < Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_cancelled_by_the_stop_does_not_keep_the_lease() {
    // The stop comes while a renewal is on its way there, or its answer on its way back.
    for millis in [4900, 5100, 5300, 5500, 5900] {
        let store = store();
        let one = start(&store, settings("one", None));
        one.until_it_leads().await;
        *one.client.latency.lock() = Duration::from_secs(1);
        sleep(Duration::from_millis(millis)).await;
        one.stop.cancel();
        assert_eq!(one.ended.await, Ok(Ok(())), "{millis}");
        assert_eq!(store.lock().holder(), Some(""), "{millis}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_candidate_leaves_the_lease_to_a_process_of_the_same_name() {
    let store = store();
    let two = start(&store, settings("host", None));
    *two.client.latency.lock() = Duration::from_secs(1);
    // Its create has been carried out, and it never learns of that.
    sleep(Duration::from_millis(1700)).await;
    *two.client.network.lock() = Network::ResponsesLost;
    assert_eq!(store.lock().holder(), Some("host"));
    let one = start(&store, settings("host", None));
    one.until_it_leads().await;
    *two.client.network.lock() = Network::Up;
    secs(20).await;
    two.stop.cancel();
    assert_eq!(two.ended.await, Ok(Ok(())));
    assert!(two.changes.lock().is_empty());
    assert_eq!(store.lock().holder(), Some("host"));
    secs(20).await;
    assert!(one.leads());
    assert_eq!(*one.changes.lock(), ["host became leader"]);
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_cancelled_by_the_stop_is_released() {
    let store = store();
    let one = start(&store, settings("one", None));
    *one.client.latency.lock() = Duration::from_secs(1);
    // The create has been carried out, its answer is on its way.
    sleep(Duration::from_millis(1700)).await;
    assert_eq!(store.lock().holder(), Some("one"));
    one.stop.cancel();
    assert_eq!(one.ended.await, Ok(Ok(())));
    assert!(one.changes.lock().is_empty());
    assert_eq!(store.lock().holder(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_counted_as_slow_path() {
    let store = store();
    let client = FakeClient::new(&store);
    let metrics = crate::metrics::Metrics::new();
    let mut deps = fake::deps(Arc::new(Drifting::new(1.0, 0)), 1);
    deps.metrics = metrics.leader.clone();
    let election = lead(client, settings("one", None), deps, |_, _| {}, CancellationToken::new());
    let touch = async {
        secs(7).await;
        store.lock().edit(|lease| lease["metadata"]["annotations"] = json!({"touched": "by hand"}));
        secs(7).await;
    };
    tokio::select! { _ = election => panic!("the election ended"), () = touch => {} }
    let text = metrics.text();
    assert!(text.contains("leader_election_slowpath_total{name=\"\"} 1"), "{text}");
    assert!(text.contains("leader_election_master_status{name=\"\"} 1"), "{text}");
}

/// Somebody wrote numbers that no candidate can wait for or count on from, and then deletes the Lease.
#[tokio::test(start_paused = true)]
async fn a_lease_with_huge_numbers_is_taken_at_once_when_it_is_deleted_and_once_it_is_silent() {
    for is_deleted in [true, false] {
        let store = store();
        let one = start(&store, settings("one", None));
        one.until_it_leads().await;
        store.lock().edit(|lease| {
            lease["spec"]["holderIdentity"] = json!("nobody");
            lease["spec"]["leaseDurationSeconds"] = json!(i32::MAX);
            lease["spec"]["leaseTransitions"] = json!(i32::MAX);
        });
        one.until_it_stops().await;
        let two = start(&store, settings("two", None));
        secs(60).await;
        assert!(!two.leads());
        if is_deleted {
            store.lock().delete();
        }
        let waited = two.until_it_leads().await;
        let most = if is_deleted { 2 } else { 125 };
        assert!(waited < Duration::from_secs(most), "{is_deleted}: {waited:?}");
        assert_eq!(store.lock().transitions(), Some(0));
    }
}
