//! Elections on the in-memory API server, under paused time. Random ones, with all that goes wrong, are the seeds'.

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::apiserver::{
    ApiServer, Options, User,
    faults::{Effect, Match, Rule, StreamFault},
    status::Status,
};
use tokio::time::Instant;

use super::*;
use crate::{
    kube::{Connections, LaneSettings, Lanes, testing::random},
    leader::settings::settings,
    metrics::Metrics,
    runtime::{Tasks, TokioSpawner},
};

/// A clock whose boot time runs at a rate of its own.
struct Drifting {
    origin: Instant,
    rate: f64,
}

impl Clock for Drifting {
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::try_from(self.origin.elapsed()).unwrap()
    }

    fn boot(&self) -> Duration {
        Duration::from_secs(1000) + self.origin.elapsed().mul_f64(self.rate)
    }
}

/// The API server of candidates.
struct Cluster(ApiServer);

fn cluster() -> Cluster {
    let server = ApiServer::new(Options::default());
    server.namespace("ns");
    Cluster(server)
}

impl Cluster {
    /// These faults strike from now on, and no others.
    fn suffers(&self, rules: impl IntoIterator<Item = Rule>) {
        self.0.faults().clear();
        rules.into_iter().for_each(|rule| self.0.faults().add(rule));
    }

    /// Each request takes so long, one half on its way there.
    fn is_slow(&self, latency: Duration) {
        let half = latency / 2;
        self.suffers([Effect::Delay(half), Effect::DelayAfter(half)].map(on_all));
    }

    fn edit(&self, patch: &Value) {
        self.0.merge("Lease", "ns", "lease", patch).unwrap();
    }

    fn delete(&self) {
        self.0.delete("Lease", "ns", "lease").unwrap();
    }

    fn spec(&self, field: &str) -> Value {
        self.0.get("Lease", "ns", "lease").map_or(Value::Null, |lease| lease["spec"][field].clone())
    }

    fn count(&self, verb: &str) -> usize {
        self.0.requests().count(verb, "leases")
    }

    fn client(&self, user: &str, gate: Gate) -> Client {
        let connections = Connections::to(self.0.service(User::new(user)));
        Lanes::new(connections, LaneSettings::default(), gate, random(), &Metrics::new()).leases
    }
}

fn on_all(effect: Effect) -> Rule {
    Rule { when: Match::default(), skip: 0, times: None, effect }
}

/// Nothing that the candidate sends arrives, or is answered.
fn unheard(user: &str) -> Rule {
    on_all(Effect::Hang).of_user(user)
}

fn unwatched() -> Rule {
    Rule::on("watch", "leases", Effect::Answer(Status::new(403, "Forbidden", "no")))
}

/// A running candidate.
struct Candidate {
    deps: ElectionDeps,
    metrics: Metrics,
    stop: CancellationToken,
    changes: Arc<Mutex<Vec<String>>>,
    ended: tokio::sync::oneshot::Receiver<Result<(), Loss>>,
}

fn deps(metrics: &Metrics, rate: f64) -> ElectionDeps {
    let clock = Arc::new(Drifting { origin: Instant::now(), rate });
    let gate = Gate::shut(clock.clone());
    ElectionDeps { gate, clock, random: random(), metrics: metrics.leader.clone() }
}

fn start(cluster: &Cluster, host: &str) -> Candidate {
    start_with(cluster, host, settings(host, None), 1.0)
}

/// Starts a candidate as this user, on a clock of this rate.
fn start_with(cluster: &Cluster, user: &str, settings: ElectionSettings, rate: f64) -> Candidate {
    let metrics = Metrics::new();
    let deps = deps(&metrics, rate);
    let stop = CancellationToken::new();
    let changes = Arc::new(Mutex::new(Vec::new()));
    let (send_end, ended) = tokio::sync::oneshot::channel();
    let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
    let (reported, identity) = (changes.clone(), settings.identity.name().to_owned());
    let on_change = move |leads, _: Option<&Lease>| {
        let what = if leads { "became leader" } else { "stopped leading" };
        reported.lock().push(format!("{identity} {what}"));
    };
    let client = cluster.client(user, deps.gate.clone());
    let election = lead(client, settings, deps.clone(), on_change, stop.clone());
    tasks.spawn("candidate", async move {
        let _ = send_end.send(election.await);
    });
    Candidate { deps, metrics, stop, changes, ended }
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
    let cluster = cluster();
    let mut settings = settings("one", None);
    settings.flags.lease_duration = Duration::from_secs(137);
    settings.flags.renew_deadline = Duration::from_secs(107);
    settings.flags.retry_period = Duration::from_secs(26);
    let one = start_with(&cluster, "one", settings, 1.0);
    one.until_it_leads().await;
    let refusal = Effect::Answer(Status::internal("no"));
    cluster.suffers([Rule::on("update", "leases", refusal)]);
    secs(95).await;
    assert!(one.leads());
    cluster.suffers([]);
    secs(60).await;
    assert!(one.leads(), "it has renewed");
}

#[tokio::test(start_paused = true)]
async fn without_further_renewals_the_gate_shuts_a_renew_deadline_after_the_write_was_sent() {
    let cluster = cluster();
    cluster.is_slow(Duration::from_secs(2));
    let deps = deps(&Metrics::new(), 1.0);
    let client = cluster.client("one", deps.gate.clone());
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
    let cluster = cluster();
    let one = start(&cluster, "one");
    cluster.is_slow(Duration::from_secs(4));
    one.until_it_leads().await;
    secs(300).await;
    assert!(one.leads());
    assert_eq!(*one.changes.lock(), ["one became leader"]);
}

#[tokio::test(start_paused = true)]
async fn observing_another_holder_shuts_the_gate_at_once() {
    let cluster = cluster();
    let one = start(&cluster, "one");
    one.until_it_leads().await;
    cluster.edit(&json!({"spec": {"holderIdentity": "other"}}));
    // The next renewal shows it, well before the deadline.
    let start = Instant::now();
    one.until_it_stops().await;
    assert!(start.elapsed() < Duration::from_millis(5100), "{:?}", start.elapsed());
    assert_eq!(one.ended.await, Ok(Err(Loss::OtherHolder("other".into()))));
    assert_eq!(cluster.spec("holderIdentity"), "other");
}

#[tokio::test(start_paused = true)]
async fn a_standby_creates_a_deleted_lease_only_after_its_holders_duration() {
    for watch_refused in [false, true] {
        let cluster = cluster();
        cluster.suffers(watch_refused.then(unwatched));
        let one = start(&cluster, "one");
        one.until_it_leads().await;
        let two = start(&cluster, "two");
        secs(6).await;
        // Renewed a second ago: it leads for another nine.
        cluster.suffers([unheard("one")].into_iter().chain(watch_refused.then(unwatched)));
        cluster.delete();
        let waited = two.until_it_leads().await;
        assert!(!one.leads());
        // A standby that may not watch counts from its next read, 11 s later at most.
        let range = if watch_refused { 15..27 } else { 13..16 };
        assert!(range.contains(&waited.as_secs()), "{watch_refused}: {waited:?}");
        let made = cluster.count("create");
        assert_eq!((made, cluster.spec("leaseTransitions")), (2, json!(1)), "no try before");
        assert_eq!(one.ended.await, Ok(Err(Loss::Deadline)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_recreates_its_deleted_lease_and_standbys_wait_as_before() {
    let cluster = cluster();
    let one = start(&cluster, "one");
    one.until_it_leads().await;
    let two = start(&cluster, "two");
    secs(6).await;
    for _ in 0..5 {
        cluster.delete();
        for _ in 0..120 {
            sleep(Duration::from_millis(100)).await;
            assert!(!two.leads());
        }
        assert!(one.leads());
        assert_eq!(cluster.spec("holderIdentity"), "one");
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
    let cluster = cluster();
    cluster.suffers([unwatched()]);
    let one = start_with(&cluster, "one", slow("one"), 1.0);
    one.until_it_leads().await;
    let two = start_with(&cluster, "two", slow("two"), 1.0);
    secs(1).await;
    cluster.suffers([on_all(Effect::CutBefore).of_user("two"), unwatched()]);
    // Four renewals that the standby does not observe.
    secs(109).await;
    cluster.suffers([unheard("one"), unwatched()]);
    cluster.delete();
    two.until_it_leads().await;
    assert!(!one.leads());
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_may_not_watch_reads_periodically() {
    let cluster = cluster();
    cluster.suffers([unwatched()]);
    let one = start(&cluster, "one");
    one.until_it_leads().await;
    let two = start(&cluster, "two");
    secs(580).await;
    let (gets, watches) = (cluster.count("get"), cluster.count("watch"));
    // Every 5 to 11 s.
    assert!((52..=121).contains(&gets), "{gets}");
    assert!(watches < gets, "a forbidden watch is tried again with the next read");
    one.stop.cancel();
    assert_eq!(one.ended.await, Ok(Ok(())));
    assert!(two.until_it_leads().await < Duration::from_secs(11));
}

/// An API server that has just started may know no roles yet.
#[tokio::test(start_paused = true)]
async fn a_standby_watches_again_after_a_watch_was_forbidden() {
    let cluster = cluster();
    cluster.suffers([unwatched()]);
    let one = start(&cluster, "one");
    one.until_it_leads().await;
    let two = start(&cluster, "two");
    secs(20).await;
    cluster.suffers([]);
    secs(11).await;
    one.stop.cancel();
    assert_eq!(one.ended.await, Ok(Ok(())));
    assert!(two.until_it_leads().await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_standby_whose_watch_is_silent_reads_as_early_as_without_one() {
    let cluster = cluster();
    cluster.suffers([Rule::on("watch", "leases", Effect::Stream(StreamFault::Stall { after: 0 }))]);
    let one = start(&cluster, "one");
    one.until_it_leads().await;
    let two = start(&cluster, "two");
    secs(60).await;
    one.stop.cancel();
    assert_eq!(one.ended.await, Ok(Ok(())));
    assert!(two.until_it_leads().await < Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_cancelled_by_the_stop_does_not_keep_the_lease() {
    // The stop comes while a renewal is on its way there, or its answer on its way back.
    for millis in [4900, 5100, 5300, 5500, 5900] {
        let cluster = cluster();
        let one = start(&cluster, "one");
        one.until_it_leads().await;
        cluster.is_slow(Duration::from_secs(1));
        sleep(Duration::from_millis(millis)).await;
        one.stop.cancel();
        assert_eq!(one.ended.await, Ok(Ok(())), "{millis}");
        assert_eq!(cluster.spec("holderIdentity"), "", "{millis}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_candidate_leaves_the_lease_to_a_process_of_the_same_name() {
    let cluster = cluster();
    let unanswered = || Effect::DelayAfter(Duration::from_secs(1_000_000));
    cluster.suffers([Rule::on("create", "leases", unanswered()).of_user("two")]);
    let two = start_with(&cluster, "two", settings("host", None), 1.0);
    // Its create has been carried out, and it never learns of that.
    secs(1).await;
    cluster.suffers([on_all(unanswered()).of_user("two")]);
    assert_eq!(cluster.spec("holderIdentity"), "host");
    let one = start(&cluster, "host");
    one.until_it_leads().await;
    cluster.suffers([]);
    secs(20).await;
    two.stop.cancel();
    assert_eq!(two.ended.await, Ok(Ok(())));
    assert!(two.changes.lock().is_empty());
    assert_eq!(cluster.spec("holderIdentity"), "host");
    secs(20).await;
    assert!(one.leads());
    assert_eq!(*one.changes.lock(), ["host became leader"]);
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_cancelled_by_the_stop_is_released() {
    let cluster = cluster();
    let one = start(&cluster, "one");
    cluster.is_slow(Duration::from_secs(1));
    // The create has been carried out, its answer is on its way.
    sleep(Duration::from_millis(1700)).await;
    assert_eq!(cluster.spec("holderIdentity"), "one");
    one.stop.cancel();
    assert_eq!(one.ended.await, Ok(Ok(())));
    assert!(one.changes.lock().is_empty());
    assert_eq!(cluster.spec("holderIdentity"), "");
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_counted_as_slow_path() {
    let cluster = cluster();
    let one = start(&cluster, "one");
    secs(7).await;
    cluster.edit(&json!({"metadata": {"annotations": {"touched": "by hand"}}}));
    secs(7).await;
    let text = one.metrics.text();
    assert!(text.contains("leader_election_slowpath_total{name=\"\"} 1"), "{text}");
    assert!(text.contains("leader_election_master_status{name=\"\"} 1"), "{text}");
}

/// The leader's clock is slow and the standby's fast, each by a tenth.
#[tokio::test(start_paused = true)]
async fn nobody_takes_over_before_the_leader_has_stopped_though_their_clocks_drift() {
    for watch_refused in [false, true] {
        let cluster = cluster();
        cluster.suffers(watch_refused.then(unwatched));
        let one = start_with(&cluster, "one", settings("one", None), 0.9);
        one.until_it_leads().await;
        let two = start_with(&cluster, "two", settings("two", None), 1.1);
        secs(60).await;
        cluster.suffers([unheard("one")].into_iter().chain(watch_refused.then(unwatched)));
        while !two.leads() {
            sleep(Duration::from_millis(10)).await;
            assert!(!(one.leads() && two.leads()));
        }
        assert_eq!(one.ended.await, Ok(Err(Loss::Deadline)));
    }
}

/// Somebody wrote numbers that no candidate can wait for or count on from, and then deletes the Lease.
#[tokio::test(start_paused = true)]
async fn a_lease_with_huge_numbers_is_taken_at_once_when_it_is_deleted_and_once_it_is_silent() {
    for is_deleted in [true, false] {
        let cluster = cluster();
        let one = start(&cluster, "one");
        one.until_it_leads().await;
        cluster.edit(&json!({"spec": {
            "holderIdentity": "nobody",
            "leaseDurationSeconds": i32::MAX,
            "leaseTransitions": i32::MAX,
        }}));
        one.until_it_stops().await;
        let two = start(&cluster, "two");
        secs(60).await;
        assert!(!two.leads());
        if is_deleted {
            cluster.delete();
        }
        let waited = two.until_it_leads().await;
        let most = if is_deleted { 2 } else { 125 };
        assert!(waited < Duration::from_secs(most), "{is_deleted}: {waited:?}");
        assert_eq!(cluster.spec("leaseTransitions"), 0);
    }
}
