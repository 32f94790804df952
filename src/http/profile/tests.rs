use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http_body_util::BodyExt as _;
use pprof::protos::{Profile, Sample, ValueType};

use super::*;

fn text(profile: &Profile, index: i64) -> &str {
    &profile.string_table[usize::try_from(index).unwrap()]
}

fn kind<'a>(profile: &'a Profile, of: &ValueType) -> (&'a str, &'a str) {
    (text(profile, of.ty), text(profile, of.unit))
}

/// The names of the functions of a sample, the innermost first.
fn stack<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    let name = |location: &u64| {
        let location = profile.location.iter().find(|it| it.id == *location).unwrap();
        let id = location.line[0].function_id;
        text(profile, profile.function.iter().find(|it| it.id == id).unwrap().name)
    };
    sample.location_id.iter().map(name).collect()
}

async fn profile() -> (u16, Vec<u8>) {
    let answer = answer("a=1&seconds=1").await;
    let status = answer.status().as_u16();
    (status, answer.into_body().collect().await.unwrap().to_bytes().to_vec())
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
    // The cpu keeps an empty file until the process ends: in a directory of the test.
    let _ = tempfile::env::override_temp_dir(std::path::Path::new(env!("OUT_DIR")));
    let end = End::default();
    let busy = Arc::clone(&end.0);
    let answers = async {
        let (one, other) = tokio::join!(profile(), profile());
        drop(end);
        // Either may have been the first.
        if one.0 == 200 { (one, other) } else { (other, one) }
    };
    let spinning = spawn_blocking(move || spin_for_the_profile(&busy));
    let (_, (first, (status, second))) = tokio::join!(spinning, answers);
    assert_eq!(
        (status, &*String::from_utf8_lossy(&second)),
        (500, "Could not enable CPU profiling: cpu profiling already in use\n")
    );
    let first = Profile::parse_from_bytes(&first.1).unwrap();
    let kinds: Vec<_> = first.sample_type.iter().map(|it| kind(&first, it)).collect();
    assert_eq!(kinds, [("samples", "count"), ("cpu", "nanoseconds")]);
    assert_eq!(kind(&first, &first.period_type), ("cpu", "nanoseconds"));
    assert_eq!(first.period, 10_000_000);
    assert!(first.duration_nanos >= 1_000_000_000 && first.time_nanos > 1_700_000_000_000_000_000);
    let ours = first.sample.iter().filter(|sample| {
        stack(&first, sample).iter().any(|name| name.contains("spin_for_the_profile"))
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
        first.sample.iter().map(|it| (stack(&first, it), &it.value)).collect::<Vec<_>>()
    );
    // Another profile can be taken: the first one was cleaned up.
    assert_eq!(profile().await.0, 200);
}
