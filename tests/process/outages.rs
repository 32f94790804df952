//! Outages of the API server and of the driver, met by the real binary over HTTPS and a unix socket: what
//! each costs, and that afterwards all claims are served, nothing is doubled, nothing is left, and the Lease
//! is kept wherever it can be. `cargo test --test process outages:: -- --nocapture` prints the times.
//!
//! Bounds on time are far above what is usual: they distinguish seconds from minutes on a busy machine.

mod cluster;

use std::{env, time::Duration};

use cluster::{Cluster, DRIVER, PROGRAM, create_class};
use serde_json::json;
use testkit::apiserver::{
    faults::{Effect, Rule},
    status::Status,
};
use tokio::time::{Instant, sleep};

/// What counts as soon, where nothing has to be waited for.
const SOON: Duration = Duration::from_secs(30);

/// The longest wait between two tries to list and watch is a minute, and a try takes a while.
const AFTER_LONG: Duration = Duration::from_secs(120);

/// A leader works on through an outage of this time.
const BRIEF: Duration = Duration::from_secs(3);

/// A leader that no brief outage costs its Lease, however slow the machine. The default's times are held in simulated
/// time.
const LEADER: [&str; 3] = [
    "--leader-election",
    "--leader-election-lease-duration=120s",
    "--leader-election-renew-deadline=90s",
];

/// How long the API server is away: `OUTAGE_SECONDS`, or 15 s, which no leader survives.
fn long() -> Duration {
    let seconds = env::var("OUTAGE_SECONDS").ok().map(|text| text.parse().unwrap());
    Duration::from_secs(seconds.unwrap_or(15))
}

fn report(what: &str, took: Duration, bound: Duration) {
    println!("{what}: {:.1} s", took.as_secs_f64());
    assert!(took < bound, "{what}: {took:?}");
}

// === API server ===

/// Takes the API server away for so long. A claim is in the making then, and another comes meanwhile.
async fn take_away(cluster: &mut Cluster, time: Duration) -> Duration {
    cluster.create("before");
    cluster.is_asked_for("before").await;
    cluster.around.served.go_away().await.unwrap();
    cluster.create("during");
    cluster.keep_running_for(time).await;
    cluster.around.served.come_back().unwrap();
    cluster.are_served("claims of the outage").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_api_server_costs_no_lease() {
    let mut cluster = Cluster::start(&LEADER).await;
    let took = take_away(&mut cluster, BRIEF).await;
    report("API server restarted, claims served after", took, SOON);
    assert!(cluster.has_led_throughout(), "{}", cluster.logs());
    cluster.ends_soundly().await;
}

/// Its history is lost meanwhile, so that nothing can go on where it was.
async fn without_api_server(flags: &[&str]) -> (Cluster, Duration) {
    let mut cluster = Cluster::start(flags).await;
    cluster.create("earlier");
    cluster.are_served("claims before").await;
    cluster.api().compact();
    let took = take_away(&mut cluster, long()).await;
    (cluster, took)
}

/// Both at the same time: most of it is waiting.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_long_absence_a_process_goes_on_or_where_the_lease_was_lost_another_takes_over() {
    let ((one, took), (elected, took_elected)) =
        tokio::join!(without_api_server(&[]), without_api_server(&["--leader-election"]));
    let what = format!("API server away for {:?}", long());
    report(&format!("{what}, claims served after"), took, AFTER_LONG);
    report(&format!("{what}, with leader election claims served after"), took_elected, AFTER_LONG);
    assert_eq!(one.starts(), 1, "{}", one.logs());
    assert!(elected.logs().contains("Stopped leading"), "{}", elected.logs());
    assert_eq!(elected.starts(), 2, "{}", elected.logs());
    tokio::join!(one.ends_soundly(), elected.ends_soundly());
}

/// Both files are exchanged while the server restarts, and the old ones are worth nothing afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_authority_and_token_are_read_from_their_files() {
    let mut cluster = Cluster::start(&[]).await;
    cluster.create("before");
    cluster.is_asked_for("before").await;
    cluster.around.served.go_away().await.unwrap();
    cluster.rotate_credentials();
    cluster.create("during");
    cluster.around.served.come_back().unwrap();
    let took = cluster.are_served("claims of the rotation").await;
    report("authority and token rotated, claims served after", took, AFTER_LONG);
    assert_eq!(cluster.starts(), 1, "{}", cluster.logs());
    cluster.ends_soundly().await;
}

/// Lets something befall all requests of the leader, and its watches end, for a brief time.
async fn strike_briefly(effect: Effect) -> (Cluster, Duration) {
    let mut cluster = Cluster::start(&LEADER).await;
    cluster.create("before");
    cluster.is_asked_for("before").await;
    cluster.strike(effect);
    cluster.api().watches().cut(None);
    cluster.create("during");
    let saves = |it: &Cluster| it.api().requests().count("create", "persistentvolumes");
    cluster.until("the claim's save is struck", |it| saves(it) > 1).await;
    sleep(BRIEF).await;
    cluster.api().faults().clear();
    let took = cluster.are_served("claims of the faults").await;
    assert!(cluster.has_led_throughout(), "{}", cluster.logs());
    (cluster, took)
}

/// One request that is refused so is not repeated sooner than the server says; the program sends a few
/// at once (a PersistentVolume, events, a Lease, lists), and each counts for itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_overloaded_api_server_is_asked_again_when_it_says() {
    let (cluster, took) = strike_briefly(Effect::Answer(Status::too_many_requests(2))).await;
    let requests = cluster.api().requests().all();
    let refused = requests.iter().filter(|request| request.code == 429).count();
    report(&format!("429 for {BRIEF:?} ({refused} requests), claims served after"), took, SOON);
    assert!(refused < 50, "{refused} requests");
    let saves = requests.iter().filter(|request| request.what() == "create persistentvolumes");
    let refused = saves.filter(|request| request.code == 429).map(|request| request.received);
    let refused: Vec<_> = refused.collect();
    assert!(!refused.is_empty());
    for pair in refused.windows(2) {
        assert!(pair[1].duration_since(pair[0]).as_millis() >= 1900, "{refused:?}");
    }
    cluster.ends_soundly().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_fails_for_a_while_costs_no_lease() {
    let (cluster, took) = strike_briefly(Effect::Answer(Status::internal("etcd"))).await;
    report(&format!("500 for {BRIEF:?}, claims served after"), took, SOON);
    cluster.ends_soundly().await;
}

/// Writes are carried out all the same.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_break_off_half_way_cost_no_lease() {
    let (cluster, took) = strike_briefly(Effect::Truncate).await;
    report(&format!("answers cut half way for {BRIEF:?}, claims served after"), took, SOON);
    cluster.ends_soundly().await;
}

/// The read that comes before a claim's call is answered at one byte a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_trickling_answer_holds_up_its_own_claim_until_the_deadline_and_no_other() {
    let mut cluster = Cluster::start(&[&LEADER[..], &["--claim-protection=always"]].concat()).await;
    let trickle = Effect::Trickle(Duration::from_secs(1));
    let rule =
        Rule::on("get", "persistentvolumeclaims", trickle).of_user(PROGRAM).named("slow").times(1);
    cluster.api().faults().add(rule);
    cluster.create("slow");
    cluster.until("the read trickles", |it| it.api().faults().are_spent()).await;
    cluster.create("other");
    let other = cluster.is_served("other").await;
    report("one byte a second, another claim served after", other, AFTER_LONG);
    assert!(!cluster.is_bound("slow"), "it waited for the deadline: {other:?}");
    let slow = cluster.is_served("slow").await;
    report("one byte a second, its own claim served after", slow, AFTER_LONG);
    assert!(cluster.has_led_throughout(), "{}", cluster.logs());
    cluster.ends_soundly().await;
}

// === Driver ===

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_driver_never_answers_hold_up_no_others() {
    let mut cluster = Cluster::start(&[&LEADER[..], &["--timeout=2s"]].concat()).await;
    create_class(cluster.api(), "hung", &json!({"pool": "hung"}));
    cluster.create("before");
    cluster.script(json!({"create_volume": [
        {"match": {"parameters": {"pool": "hung"}}, "delay_ms": 3_600_000}, {"delay_ms": 500},
    ]}));
    for number in 0..5 {
        cluster.create_of(&format!("hung-{number}"), "hung");
    }
    cluster.is_asked_for("hung-0").await;
    cluster.create("during");
    let other = cluster.is_served("during").await;
    report("driver hangs for a class, a claim of another served after", other, SOON);
    sleep(BRIEF).await;
    assert!(!cluster.is_bound("hung-0"));
    cluster.script(json!({"create_volume": [{}]}));
    let took = cluster.are_served("claims of the class that hung").await;
    report("driver answers again, its claims served after", took, AFTER_LONG);
    assert!(cluster.has_led_throughout(), "{}", cluster.logs());
    cluster.ends_soundly().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_driver_costs_no_restart_of_the_program() {
    let mut cluster = Cluster::start(&LEADER).await;
    cluster.create("before");
    cluster.is_asked_for("before").await;
    cluster.around.driver.stop();
    cluster.create("during");
    sleep(BRIEF).await;
    cluster.listen();
    let took = cluster.are_served("claims of the driver's restart").await;
    report("driver restarted, claims served after", took, SOON);
    assert!(cluster.has_led_throughout(), "{}", cluster.logs());
    cluster.ends_soundly().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_comes_back_as_another_gets_no_call_and_ends_the_program() {
    let mut cluster = Cluster::start(&[]).await;
    let calls = cluster.around.driver.journal().count("CreateVolume");
    cluster.around.driver.stop();
    cluster.create("during");
    sleep(Duration::from_secs(1)).await;
    cluster.script(json!({"name": "other.example.com"}));
    let back = Instant::now();
    cluster.listen();
    let (ended, log) = cluster.has_ended().await;
    report("driver back under another name, the program ends after", back.elapsed(), SOON);
    assert_eq!(ended.code(), Some(1), "{log}");
    let message = format!("has another name: other.example.com instead of {DRIVER}");
    assert!(log.lines().last().is_some_and(|line| line.contains(&message)), "{log}");
    assert_eq!(cluster.around.driver.journal().count("CreateVolume"), calls);
    // The driver as it was: a new process serves the claim.
    cluster.around.driver.stop();
    cluster.script(json!({"name": DRIVER}));
    cluster.listen();
    let took = cluster.are_served("the claim of the other driver's time").await;
    report("driver back under its own name, the claim served after", took, SOON);
    cluster.ends_soundly().await;
}
