use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::kube::{
    objects::{Claim, Secret},
    testing::{Answer, RecordedRequest as Request, Server, client},
};

#[test]
fn reads_come_often_at_first_and_gently_later() {
    let early: Vec<u64> = (0..6).map(|reads| read_delay(reads, Duration::ZERO).as_secs()).collect();
    assert_eq!(early, [1, 2, 4, 5, 5, 5]);
    let late: Vec<u64> = (0..6).map(|reads| read_delay(reads, EAGER_PERIOD).as_secs()).collect();
    assert_eq!(late, [1, 2, 4, 8, 15, 15]);
    assert_eq!(read_delay(u32::MAX, Duration::MAX), Duration::from_secs(15));
}

/// A watcher at work, and what it wakes.
struct RunningWatcher {
    dependencies: DependencyIndex,
    woken: mpsc::UnboundedReceiver<Item>,
    _work: tokio::task::JoinHandle<()>,
}

#[allow(clippy::disallowed_methods)] // a test's own task
fn start(server: &Server) -> RunningWatcher {
    let dependencies = DependencyIndex::default();
    let (wake, woken) = mpsc::unbounded_channel();
    let wake = Box::new(move |item| wake.send(item).unwrap());
    let watcher = DependencyWatcher::new(
        client(server),
        dependencies.clone(),
        wake,
        vec![Kind::of::<Claim>()],
    );
    RunningWatcher { dependencies, woken, _work: tokio::spawn(watcher.run()) }
}

fn secret(name: &str) -> Dependency {
    Dependency::object::<Secret>(Some("ns"), name)
}

fn object(version: &str) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
           "metadata": {"name": "s", "resourceVersion": version}})
}

fn is_watch(request: &Request) -> bool {
    request.url.contains("watch=true")
}

#[tokio::test(start_paused = true)]
async fn an_object_that_comes_brings_back_who_waits_for_it() {
    let server = Server::new(|_, _| Answer::watch().event(10, "ADDED", &object("1")));
    let mut watcher = start(&server);
    let began = Instant::now();
    watcher.dependencies.wait(&Item::claim("1"), &[secret("s").missing()]);
    assert_eq!(watcher.woken.recv().await, Some(Item::claim("1")));
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    let watch = server.requests().remove(0);
    assert!(
        watch.url.starts_with("/api/v1/namespaces/ns/secrets?")
            && watch.url.contains("fieldSelector=metadata.name%3Ds")
            && !watch.url.contains("resourceVersion=0"),
        "{}",
        watch.url
    );
    assert!(watch.header("accept").contains("as=PartialObjectMetadata"), "no content");
}

/// The version that the item observed does not wake it; another version does.
#[tokio::test(start_paused = true)]
async fn only_another_version_counts() {
    let server = Server::new(|_, _| {
        let modified = |seconds, version| (seconds, "MODIFIED", object(version));
        [(0, "ADDED", object("1")), modified(5, "1"), modified(5, "2")]
            .iter()
            .fold(Answer::watch(), |answer, (after, kind, it)| answer.event(*after, kind, it))
    });
    let mut watcher = start(&server);
    let began = Instant::now();
    let metadata = serde_json::from_value(json!({"resourceVersion": "1"})).unwrap();
    watcher.dependencies.wait(&Item::volume("pv"), &[secret("s").observed_as(&metadata)]);
    assert_eq!(watcher.woken.recv().await, Some(Item::volume("pv")));
    assert_eq!(began.elapsed(), Duration::from_secs(10));
}

/// With the right to read alone, the object is read often for a minute, then less often.
#[tokio::test(start_paused = true)]
async fn where_watching_is_forbidden_it_is_read() {
    let there = Arc::new(Mutex::new(false));
    let is_there = Arc::clone(&there);
    let server = Server::new(move |_, request| match is_watch(request) {
        true => Answer::refusal(403, "Forbidden", "no"),
        false if *is_there.lock() => Answer::json(200, &object("1")),
        false => Answer::refusal(404, "NotFound", "none"),
    });
    let mut watcher = start(&server);
    watcher.dependencies.wait(&Item::claim("1"), &[secret("s").missing()]);
    sleep(Duration::from_secs(120)).await;
    let reads = server.times();
    let (first, rest) = (reads[0], &reads[1..]);
    assert_eq!(first, 0, "the only attempt to watch");
    let gaps: Vec<u64> = rest.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let early = rest.iter().zip(&gaps).filter(|(at, _)| **at < 55);
    assert!(early.into_iter().all(|(_, gap)| *gap <= 5), "{reads:?}");
    assert!(gaps.iter().all(|gap| *gap <= 15) && reads.len() < 25, "{reads:?}");
    // Another item begins to wait: the object is read often again.
    watcher.dependencies.wait(&Item::claim("2"), &[secret("s").missing()]);
    *there.lock() = true;
    let began = Instant::now();
    let woken = [watcher.woken.recv().await, watcher.woken.recv().await].map(Option::unwrap);
    assert_eq!(woken, [Item::claim("1"), Item::claim("2")]);
    assert!(began.elapsed() <= Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_for_once_nobody_waits() {
    for watching in [true, false] {
        let server = Server::new(move |_, request| match is_watch(request) {
            // Ends at once, as behind some proxies.
            true if watching => Answer::status(200),
            true => Answer::refusal(403, "Forbidden", "no"),
            false => Answer::refusal(500, "InternalError", "no"),
        });
        let watcher = start(&server);
        watcher.dependencies.wait(&Item::claim("1"), &[secret("s")]);
        sleep(Duration::from_secs(30)).await;
        watcher.dependencies.forget(&Item::claim("1"));
        sleep(Duration::from_secs(2)).await; // requests under way end
        let asked = server.requests().len();
        assert!((4..=20).contains(&asked), "{asked}");
        sleep(Duration::from_secs(600)).await;
        assert_eq!(server.requests().len(), asked);
    }
}

/// At most 64 watches; further objects are read, at most 20 a second.
#[tokio::test(start_paused = true)]
async fn there_are_never_too_many_watches_or_reads() {
    let server = Server::new(|_, request| {
        if is_watch(request) { Answer::watch() } else { Answer::refusal(404, "NotFound", "none") }
    });
    let watcher = start(&server);
    for number in 0..1000 {
        let name = format!("s{number}");
        watcher.dependencies.wait(&Item::claim(&name), &[secret(&name).missing()]);
    }
    sleep(Duration::from_secs(60)).await;
    let (open, reads): (Vec<_>, Vec<_>) = server.requests().into_iter().partition(is_watch);
    assert_eq!(open.len(), MAX_WATCHES);
    assert!((1000..=1201).contains(&reads.len()), "{}", reads.len());
}

/// A forbidden watch does not count towards the maximum.
#[tokio::test(start_paused = true)]
async fn a_refused_watch_takes_no_place() {
    let server = Server::new(|_, request| match is_watch(request) {
        true if request.url.contains("barred") => Answer::refusal(403, "Forbidden", "no"),
        true => Answer::watch(),
        false => Answer::refusal(404, "NotFound", "none"),
    });
    let watcher = start(&server);
    for number in 0..MAX_WATCHES {
        let name = format!("barred{number}");
        watcher.dependencies.wait(&Item::claim(&name), &[secret(&name).missing()]);
    }
    sleep(Duration::from_secs(60)).await;
    watcher.dependencies.wait(&Item::claim("free"), &[secret("free").missing()]);
    sleep(Duration::from_secs(60)).await;
    let is_free = |request: &_| is_watch(request) && request.url.contains("free");
    assert_eq!(server.requests().iter().filter(|request| is_free(request)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_others_watch_and_what_has_no_name_is_left_to_them() {
    let server = Server::new(|_, _| Answer::watch());
    let watcher = start(&server);
    let claim = Dependency::object::<Claim>(Some("ns"), "data");
    watcher.dependencies.wait(&Item::claim("1"), &[claim, Dependency::any::<Secret>()]);
    sleep(Duration::from_secs(60)).await;
    assert!(server.requests().is_empty());
}

/// For "any object of the namespace" the collection is read, and a change in it wakes the item.
#[tokio::test(start_paused = true)]
async fn any_object_of_a_namespace_is_looked_for_gently() {
    let items = Arc::new(Mutex::new(vec![]));
    let listed = Arc::clone(&items);
    let server = Server::new(move |_, _| Answer::json(200, &json!({"items": &*listed.lock()})));
    let mut watcher = start(&server);
    watcher.dependencies.wait(&Item::claim("1"), &[Dependency::any_in::<Secret>("ns")]);
    sleep(Duration::from_secs(50)).await;
    assert!(watcher.woken.try_recv().is_err(), "there are none");
    for object in [object("1"), object("2")] {
        let began = Instant::now();
        items.lock().push(object);
        assert_eq!(watcher.woken.recv().await, Some(Item::claim("1")));
        assert!(began.elapsed() <= Duration::from_secs(5), "{:?}", began.elapsed());
    }
    let asked = server.requests();
    assert!(asked.iter().all(|request| request.url == "/api/v1/namespaces/ns/secrets?limit=500"));
    assert!(asked.len() < 30, "{}", asked.len());
}

/// The object changed after the attempt read it, and its event came before the item was registered.
#[tokio::test(start_paused = true)]
async fn what_others_watch_is_read_once_by_who_may_have_missed_it() {
    let claim = || Dependency::object::<Claim>(Some("ns"), "data");
    let metadata =
        |version: &str| serde_json::from_value(json!({"resourceVersion": version})).unwrap();
    for (observed, comes_back) in [
        (claim().missing(), true),
        (claim().observed_as(&metadata("6")), true),
        (claim().observed_as(&metadata("7")), false),
    ] {
        let server = Server::new(|_, _| Answer::json(200, &object("7")));
        let mut watcher = start(&server);
        for _ in 0..3 {
            watcher.dependencies.wait(&Item::claim("1"), std::slice::from_ref(&observed));
            sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(server.requests().len(), 1, "{observed:?}");
        assert_eq!(watcher.woken.try_recv().is_ok(), comes_back, "{observed:?}");
        assert!(watcher.woken.try_recv().is_err(), "once: {observed:?}");
    }
}

/// The last waiting item leaves, and with it what is known; another one that just read that the object
/// is missing begins to wait.
#[tokio::test(start_paused = true)]
async fn who_comes_right_after_the_last_one_left_misses_nothing() {
    let server = Server::new(|_, _| Answer::watch().event(0, "ADDED", &object("1")));
    let mut watcher = start(&server);
    watcher.dependencies.wait(&Item::claim("1"), &[secret("s").missing()]);
    assert_eq!(watcher.woken.recv().await, Some(Item::claim("1")));
    watcher.dependencies.forget(&Item::claim("1"));
    watcher.dependencies.wait(&Item::claim("2"), &[secret("s").missing()]);
    assert_eq!(watcher.woken.recv().await, Some(Item::claim("2")));
}
