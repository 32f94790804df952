//! How long something that could have run waited for a processor: how busy the machine was with other work.

use std::{fs, path::Path, time::Duration};

/// How long this thread has waited.
pub(super) fn waited() -> Duration {
    of(Path::new("/proc/thread-self/schedstat"))
}

/// How long the present threads of a process have waited.
pub(super) fn waited_of(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.map(|thread| of(&thread.path().join("schedstat"))).sum()
}

/// The second number of Linux's `schedstat`, in nanoseconds; zero where there is none.
fn of(schedstat: &Path) -> Duration {
    let text = fs::read_to_string(schedstat).unwrap_or_default();
    let waited = text.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    Duration::from_nanos(waited.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::{process, thread};

    use super::*;

    #[test]
    fn what_more_threads_than_processors_wait_is_seen() {
        let threads = 4 * thread::available_parallelism().unwrap().get();
        let before = waited_of(process::id());
        thread::scope(|scope| {
            let works = || {
                let until = tokio::time::Instant::now() + Duration::from_millis(200);
                let start = waited();
                while tokio::time::Instant::now() < until {}
                waited().saturating_sub(start)
            };
            let waits: Vec<_> = (0..threads).map(|_| scope.spawn(works)).collect();
            let waits: Duration = waits.into_iter().map(|wait| wait.join().unwrap()).sum();
            assert!(waits > Duration::from_millis(200), "{waits:?}");
        });
        assert!(waited_of(process::id()) >= before);
    }
}
