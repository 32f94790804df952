//! Reads profiles as other programs do: the messages below are those of pprof's profile.proto.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use prost::Message;

use super::*;
use crate::runtime::TokioSpawner;

#[derive(Clone, PartialEq, Message)]
struct Read {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<Pair>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<ReadSample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<ReadLocation>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<ReadFunction>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<Pair>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ReadSample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct ReadLocation {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<ReadLine>,
}

#[derive(Clone, PartialEq, Message)]
struct ReadLine {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ReadFunction {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

impl Read {
    fn text(&self, index: i64) -> &str {
        &self.string_table[usize::try_from(index).unwrap()]
    }

    fn kinds(&self) -> Vec<(&str, &str)> {
        self.sample_type.iter().map(|it| (self.text(it.kind), self.text(it.unit))).collect()
    }

    /// The names of the functions of a sample, the innermost first.
    fn stack(&self, sample: &ReadSample) -> Vec<&str> {
        let name = |location: &u64| {
            let location = self.location.iter().find(|it| it.id == *location).unwrap();
            let id = location.line[0].function_id;
            self.text(self.function.iter().find(|it| it.id == id).unwrap().name)
        };
        sample.location_id.iter().map(name).collect()
    }
}

async fn answer(profiles: &Profiles, name: &str, query: &str) -> (u16, Vec<u8>) {
    use http_body_util::BodyExt as _;
    let answer = profiles.answer(name, query).await;
    let status = answer.status().as_u16();
    (status, answer.into_body().collect().await.unwrap().to_bytes().to_vec())
}

async fn text(profiles: &Profiles, name: &str, query: &str) -> (u16, String) {
    let (status, body) = answer(profiles, name, query).await;
    (status, String::from_utf8(body).unwrap())
}

async fn read(profiles: &Profiles, name: &str, query: &str) -> Read {
    let (status, body) = answer(profiles, name, query).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    let read = Read::decode(body.as_slice()).unwrap();
    assert_eq!(read.string_table[0], "", "the format wants it first");
    read
}

fn profiles() -> (Profiles, Tasks) {
    let (tasks, _ended) = Tasks::new(Arc::new(TokioSpawner));
    (Profiles::new(tasks.clone()), tasks)
}

#[tokio::test]
async fn goroutines_are_tasks_by_name() {
    let (profiles, tasks) = profiles();
    for name in ["watch", "watch", "leases"] {
        tasks.spawn(name, std::future::pending());
    }
    let read = read(&profiles, "goroutine", "").await;
    assert_eq!(read.kinds(), [("goroutine", "count")]);
    let samples: Vec<_> = read.sample.iter().map(|it| (read.stack(it), it.value.clone())).collect();
    assert_eq!(samples, [(vec!["leases"], vec![1]), (vec!["watch"], vec![2])]);
    assert_eq!(
        text(&profiles, "goroutine", "debug=1").await,
        (200, "goroutine profile: total 3\n1 @ leases\n2 @ watch\n".to_owned())
    );
}

#[tokio::test]
async fn memory_and_threads_are_reported_as_a_whole() {
    let (profiles, _tasks) = profiles();
    for name in ["heap", "allocs"] {
        let read = read(&profiles, name, "").await;
        assert_eq!(read.kinds(), [("inuse_space", "bytes")]);
        assert!(read.sample[0].value[0] > 100_000);
    }
    let threads = read(&profiles, "threadcreate", "").await;
    assert!(threads.sample.iter().map(|it| it.value[0]).sum::<i64>() >= 1);
    for name in ["block", "mutex"] {
        assert!(read(&profiles, name, "").await.sample.is_empty());
    }
}

#[tokio::test]
async fn other_paths_answer_as_in_go_or_are_refused() {
    let (profiles, _tasks) = profiles();
    let (status, index) = text(&profiles, "", "").await;
    assert_eq!(status, 200);
    for (name, _) in MOMENTS {
        assert!(index.contains(&format!("href=\"{name}\"")), "{index}");
        assert_eq!(answer(&profiles, name, "").await.0, 200, "{name}");
    }
    let (status, line) = text(&profiles, "cmdline", "").await;
    assert_eq!(status, 200);
    assert_eq!(line.split('\0').next(), std::env::args().next().as_deref());
    assert_eq!(text(&profiles, "symbol", "").await, (200, "num_symbols: 1\n".to_owned()));
    assert_eq!(text(&profiles, "nosuch", "").await, (404, "Unknown profile\n".to_owned()));
    let (status, why) = text(&profiles, "trace", "seconds=1").await;
    assert!(status == 501 && why.contains("no execution trace"), "{status} {why}");
}

#[test]
fn parameters_are_found_by_their_whole_names() {
    assert_eq!(parameter("seconds=5", "seconds"), Some(5));
    assert_eq!(parameter("a=1&seconds=7", "seconds"), Some(7));
    for query in ["", "seconds", "seconds=", "seconds=x", "seconds=-1", "xseconds=5", "seconds2=5"]
    {
        assert_eq!(parameter(query, "seconds"), None, "{query}");
    }
}

/// Uses CPU time under a name that a profile can show.
#[inline(never)]
fn spin_for_the_profile(end: &AtomicBool) -> u64 {
    let mut state = 1_u64;
    while !end.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005) + 1);
        }
    }
    state
}

/// Ends the busy task, also when the test fails: its runtime waits for it.
#[derive(Default)]
struct End(Arc<AtomicBool>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cpu_profile_contains_functions_and_their_cpu_time() {
    // The sampler keeps an empty file until the process ends: in a directory of the test.
    let _ = tempfile::env::override_temp_dir(std::path::Path::new(env!("OUT_DIR")));
    let (profiles, tasks) = profiles();
    let end = End::default();
    let busy = Arc::clone(&end.0);
    tasks.spawn("busy", async move {
        spin_for_the_profile(&busy);
    });
    let (first, second) = tokio::join!(
        read(&profiles, "profile", "seconds=1"),
        text(&profiles, "profile", "seconds=1"),
    );
    assert_eq!(
        second,
        (500, "Could not enable CPU profiling: cpu profiling already in use\n".to_owned())
    );
    drop(end);
    assert_eq!(first.kinds(), [("samples", "count"), ("cpu", "nanoseconds")]);
    let period = first.period_type.as_ref().unwrap();
    assert_eq!((first.text(period.kind), first.text(period.unit)), ("cpu", "nanoseconds"));
    assert_eq!(first.period, 10_000_000);
    assert!(first.duration_nanos >= 1_000_000_000 && first.time_nanos > 1_700_000_000_000_000_000);
    let ours = first.sample.iter().filter(|sample| {
        first.stack(sample).iter().any(|name| name.contains("spin_for_the_profile"))
    });
    let (mut samples, mut nanos) = (0, 0);
    for sample in ours {
        samples += sample.value[0];
        nanos += sample.value[1];
    }
    // A busy machine grants less than the whole second, an overloaded one very little.
    assert!(
        (1..=150).contains(&samples) && nanos == samples * first.period,
        "{samples} {nanos} in {:?}",
        first.sample.iter().map(|it| (first.stack(it), it.value.clone())).collect::<Vec<_>>()
    );
    // Another profile can be taken: the first one was cleaned up.
    assert_eq!(answer(&profiles, "profile", "seconds=1").await.0, 200);
}
