//! Whose calls a driver is given when, with drivers that can do only so many.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Range, RangeFrom},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::json;
use testkit::{
    apiserver::faults::{Effect, Rule},
    driver::{
        Answer, Around, Backend as _, Call, Host, Script, Scripted, Status,
        proto::{
            CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
        },
    },
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use support::{
    connector::connector,
    simulation::{DRIVER, Simulation, claim, foreign_volume},
};

/// What comes of calls for bad volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Hangs,
    Aborted,
    Unavailable,
}

impl Trouble {
    const ALL: [Self; 3] = [Self::Hangs, Self::Aborted, Self::Unavailable];

    async fn strikes(self) -> Status {
        match self {
            Self::Hangs => std::future::pending().await,
            Self::Aborted => Status::aborted("an operation is pending"),
            Self::Unavailable => Status::unavailable("the backend is gone"),
        }
    }
}

/// A driver that does so much at once; other calls wait their turn, and one whose caller goes away is forgotten.
struct Busy {
    scripted: Scripted,
    slots: Arc<Semaphore>,
    takes: Duration,
    trouble: Trouble,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until then, calls hang.
    hangs_until: Option<Instant>,
    /// Volumes made, by name, and when.
    made: BTreeMap<String, Instant>,
    /// Volumes that are locked by work on them until then, by name.
    locked: BTreeMap<String, Instant>,
    /// Volumes for which calls fail, by name or handle.
    bad: BTreeSet<String>,
    /// How many volumes were deleted.
    deleted: usize,
}

impl Busy {
    fn new(slots: usize, takes: Duration) -> Self {
        let scripted = Scripted::new(Script { name: Some(DRIVER.into()), ..Script::default() });
        let slots = Arc::new(Semaphore::new(slots));
        let trouble = Trouble::Hangs;
        Self { scripted, slots, takes, trouble, state: Mutex::default() }
    }

    /// One that is quick, but not for bad volumes.
    fn quick(trouble: Trouble) -> Self {
        Self { trouble, ..Self::new(1000, QUICK) }
    }

    fn made(&self) -> usize {
        self.state.lock().made.len()
    }

    /// When the claim's volume was made.
    fn made_at(&self, uid: &str) -> Option<Instant> {
        self.state.lock().made.get(&format!("pvc-{uid}")).copied()
    }

    /// How many volumes were deleted.
    fn deleted(&self) -> usize {
        self.state.lock().deleted
    }

    /// When the last volume was made.
    fn last_made(&self) -> Instant {
        self.state.lock().made.values().copied().max().unwrap()
    }

    async fn work(&self, volume: &str) -> Result<(), Status> {
        if self.state.lock().bad.contains(volume) {
            return Err(self.trouble.strikes().await);
        }
        let hangs = self.state.lock().hangs_until;
        if hangs.is_some_and(|until| Instant::now() < until) {
            std::future::pending::<()>().await;
        }
        let _slot = self.slots.acquire().await.unwrap();
        sleep(self.takes).await;
        Ok(())
    }
}

impl Around for Busy {
    type Inside = Scripted;

    fn inside(&self) -> &Scripted {
        &self.scripted
    }

    async fn create_volume(&self, call: Call<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let name = call.request.name.clone();
        let locked = self.state.lock().locked.get(&name).copied();
        if locked.is_some_and(|until| Instant::now() < until) {
            return Err(Status::aborted("an operation with the given Volume ID already exists"));
        }
        if !self.state.lock().made.contains_key(&name) {
            self.work(&name).await?;
            self.state.lock().made.insert(name, Instant::now());
        }
        self.scripted.create_volume(call).await
    }

    async fn delete_volume(&self, call: Call<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        self.work(&call.request.volume_id).await?;
        self.state.lock().deleted += 1;
        self.scripted.delete_volume(call).await
    }
}

/// A cluster with this driver, where the program runs once it is started.
fn cluster(driver: Busy) -> (Simulation, Arc<Host<Busy>>) {
    let driver = Arc::new(Host::new(driver));
    let simulation = Simulation::new(1).with_driver(connector(&driver));
    (simulation, driver)
}

/// Makes claims; gives their UIDs.
fn claims(simulation: &Simulation, numbers: Range<usize>) -> Vec<String> {
    numbers.map(|number| simulation.create_claim(&format!("fast-{number}"))).collect()
}

/// Waits until the driver has made so many volumes.
async fn made(driver: &Host<Busy>, count: usize) {
    let start = Instant::now();
    while driver.backend().made() < count {
        assert!(start.elapsed() < secs(3600), "only {}", driver.backend().made());
        sleep(ms(100)).await;
    }
}

/// Makes a claim each second; gives the longest that one waited for its volume.
async fn longest_wait(
    simulation: &Simulation,
    driver: &Host<Busy>,
    numbers: Range<usize>,
) -> Duration {
    let mut waited = Vec::new();
    for number in numbers {
        let start = Instant::now();
        let uid = claims(simulation, number..number + 1).remove(0);
        sleep(secs(1)).await;
        waited.push(driver.backend().made_at(&uid).map_or(secs(1), |at| at - start));
    }
    waited.into_iter().max().unwrap()
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn worker_threads_bound_the_calls_under_way() {
    let (simulation, driver) = cluster(Busy::new(1000, secs(1)));
    simulation.start_with(&["--worker-threads=3"]);
    sleep(secs(1)).await;
    claims(&simulation, 0..9);
    let start = Instant::now();
    made(&driver, 9).await;
    let took = driver.backend().last_made() - start;
    assert!((secs(3)..ms(3500)).contains(&took), "{took:?}");
}

/// Ten minutes without an answer: the backlog goes at full rate after.
#[tokio::test(start_paused = true)]
async fn after_an_outage_the_backlog_drains() {
    let driver = Busy::new(10, ms(500));
    let back = Instant::now() + secs(600);
    driver.state.lock().hangs_until = Some(back);
    let (simulation, driver) = cluster(driver);
    simulation.start();
    sleep(secs(1)).await;
    claims(&simulation, 0..200);
    sleep(back - Instant::now()).await;
    made(&driver, 200).await;
    let took = driver.backend().last_made() - back;
    // The calls that hang, the longest pause between two, and 20 a second.
    assert!(took < secs(10 + 60 + 10 + 5), "{took:?}");
}

/// A thousand claims of one namespace whose calls hang: another namespace's claim of the same class is
/// served within one time-out, whenever it comes.
#[tokio::test(start_paused = true)]
async fn hanging_claims_of_one_namespace_do_not_hold_up_another() {
    let (simulation, driver) = cluster(Busy::quick(Trouble::Hangs));
    simulation.start();
    sleep(secs(1)).await;
    // The class is that of the annotation, whatever each claim says beside it.
    let bad = (0..1000).map(|number| {
        let mut claim = claim(&format!("bad-{number}"));
        let class = "volume.beta.kubernetes.io/storage-class";
        claim["metadata"]["annotations"][class] = json!("fast");
        claim["spec"]["storageClassName"] = json!(format!("fast-{number}"));
        simulation.create(&claim)
    });
    let bad: Vec<String> = bad.collect();
    driver.backend().state.lock().bad.extend(bad.iter().map(|uid| format!("pvc-{uid}")));
    simulation.api.namespace("other");
    let mut waits = Vec::new();
    for number in 0..60 {
        let mut other = claim(&format!("other-{number}"));
        other["metadata"]["namespace"] = json!("other");
        other["spec"]["storageClassName"] = json!("fast");
        let (uid, start) = (simulation.create(&other), Instant::now());
        sleep(ms(11_300)).await;
        let made = driver.backend().made_at(&uid).unwrap_or_else(|| panic!("{number} waits"));
        waits.push(made - start);
    }
    println!("{waits:?}");
    // The default of --timeout, and the call.
    assert!(waits.iter().all(|wait| *wait <= secs(10) + ms(200)), "{waits:?}");
    assert!(
        waits[20..].iter().all(|wait| *wait <= ms(200)),
        "half of the workers are free: {waits:?}"
    );
}

/// A PersistentVolume of ours that is to be deleted.
fn released(simulation: &Simulation, number: usize) {
    let uid = format!("gone-{number}");
    let mut volume = foreign_volume(&uid, &uid, &uid);
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": DRIVER});
    volume["spec"]["storageClassName"] = json!("fast");
    simulation.api.create(&volume).unwrap();
    simulation.phase(&format!("pvc-{uid}"), "Released");
}

/// The time that a quick driver takes for a call.
const QUICK: Duration = ms(100);

/// A minute after bad claims and volumes came, new ones are served and deleted at once.
#[tokio::test(start_paused = true)]
async fn repeats_of_bad_ones_do_not_hold_up_new_ones() {
    for trouble in Trouble::ALL {
        let (simulation, driver) = cluster(Busy::quick(trouble));
        simulation.start_with(&["--timeout=3s"]);
        sleep(secs(1)).await;
        let bad = 1000..1300;
        let names = claims(&simulation, bad.clone());
        driver.backend().state.lock().bad.extend(names.iter().map(|uid| format!("pvc-{uid}")));
        driver
            .backend()
            .state
            .lock()
            .bad
            .extend(bad.clone().map(|number| format!("gone-{number}")));
        bad.for_each(|number| released(&simulation, number));
        sleep(secs(60)).await;
        let waited = longest_wait(&simulation, &driver, 0..20).await;
        assert!(waited <= QUICK + ms(20), "{trouble:?}: {waited:?}");
        let waited = p99_of_deletions(&simulation, 0..).await;
        assert!(waited <= QUICK + ms(20), "{trouble:?}: a deletion: {waited:?}");
    }
}

/// How long it takes, for each of 200 that begin 50 a second, from its begin until it `ended`; the
/// longest but two.
async fn p99(
    numbers: RangeFrom<usize>,
    begin: impl Fn(usize) -> String,
    ended: impl Fn(&str) -> bool,
) -> Duration {
    let (begin, ended) = (&begin, &ended);
    let one = |(place, number)| async move {
        sleep(ms(20 * place)).await;
        let start = Instant::now();
        let name = begin(number);
        while !ended(&name) {
            assert!(start.elapsed() < secs(60), "{name} never ended");
            sleep(ms(2)).await;
        }
        start.elapsed()
    };
    let mut took = join_all((0..200_u64).zip(numbers).map(one)).await;
    took.sort();
    took[197]
}

/// From a claim to its saved volume.
async fn p99_of_claims(simulation: &Simulation, numbers: RangeFrom<usize>) -> Duration {
    let begin = |number| claims(simulation, number..number + 1).remove(0);
    let volume = |uid: &str| simulation.api.get("PersistentVolume", "", &format!("pvc-{uid}"));
    p99(numbers, begin, |uid| volume(uid).is_some()).await
}

/// From a volume's release to its end.
async fn p99_of_deletions(simulation: &Simulation, numbers: RangeFrom<usize>) -> Duration {
    let begin = |number| {
        released(simulation, number);
        format!("pvc-gone-{number}")
    };
    p99(numbers, begin, |name| simulation.api.get("PersistentVolume", "", name).is_none()).await
}

/// A cluster whose API server takes so long for each write of a volume, with the program running.
async fn cluster_with_slow_writes(takes: Duration) -> (Simulation, Arc<Host<Busy>>) {
    let (simulation, driver) = cluster(Busy::new(1000, ms(100)));
    for verb in ["create", "patch", "delete"] {
        simulation.faults().add(Rule::on(verb, "persistentvolumes", Effect::Delay(takes)));
    }
    simulation.start();
    sleep(secs(1)).await;
    (simulation, driver)
}

/// The time that the API server takes for a write. The last makes writes the narrow place: 32 at
/// once are as many as claims and deletions ask for.
const WRITES_TAKE: [Duration; 2] = [ms(0), ms(50)];

#[tokio::test(start_paused = true)]
async fn deletes_do_not_starve_creates() {
    for takes in WRITES_TAKE {
        let (simulation, driver) = cluster_with_slow_writes(takes).await;
        let quiet = p99_of_claims(&simulation, 0..).await;
        (0..5000).for_each(|number| released(&simulation, number));
        let busy = p99_of_claims(&simulation, 1000..).await;
        let deleted = driver.backend().deleted();
        assert!((1000..5000).contains(&deleted), "{deleted} deleted meanwhile");
        assert!(busy <= quiet * 2, "{takes:?}: {busy:?} for {quiet:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn creates_do_not_starve_deletes() {
    for takes in WRITES_TAKE {
        let (simulation, driver) = cluster_with_slow_writes(takes).await;
        let quiet = p99_of_deletions(&simulation, 0..).await;
        claims(&simulation, 0..5000);
        let busy = p99_of_deletions(&simulation, 1000..).await;
        let made = driver.backend().made();
        assert!((1000..5000).contains(&made), "{made} made meanwhile");
        assert!(busy <= quiet * 2, "{takes:?}: {busy:?} for {quiet:?}");
    }
}

/// "Operation already exists" for so long: found soon after it is over, reported once, and others of
/// the class are not held up.
#[tokio::test(start_paused = true)]
async fn a_volume_that_is_long_in_the_making_is_found_soon_after_it_is_ready() {
    for lasts in [10, 60, 200, 900].map(secs) {
        let (simulation, driver) = cluster(Busy::new(1000, ms(100)));
        simulation.start();
        sleep(secs(1)).await;
        let uid = claims(&simulation, 1000..1001).remove(0);
        let ready = Instant::now() + lasts;
        driver.backend().state.lock().locked.insert(format!("pvc-{uid}"), ready);
        let others = longest_wait(&simulation, &driver, 0..10).await;
        assert!(others <= ms(200), "{others:?}");
        sleep(lasts + secs(16)).await;
        let over = driver.backend().made_at(&uid).expect("made") - ready;
        assert!(over <= secs(15) + ms(200), "{lasts:?}: {over:?} after it was ready");
        let events = simulation.api.list("Event", "sc");
        let messages = events.iter().filter(|event| event["involvedObject"]["name"] == "fast-1000");
        let messages: Vec<_> =
            messages.map(|event| (event["type"].clone(), event["count"].clone())).collect();
        let normal = |count| (json!("Normal"), json!(count));
        let mut expected = vec![normal(1), (json!("Warning"), json!(1)), normal(1)];
        // What is over soon needs no more words.
        expected.extend((lasts >= secs(60)).then(|| normal(1)));
        for one in &expected {
            assert!(messages.contains(one), "{lasts:?}: {messages:?}");
        }
        assert_eq!(messages.len(), expected.len(), "{lasts:?}: {messages:?}");
    }
}
