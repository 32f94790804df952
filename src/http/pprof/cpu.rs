//! CPU profiles.
//!
//! Owns the sampling: a timer that counts CPU time interrupts whatever runs, a hundred times a
//! second, and the interrupted stack is noted. Signals are sent only while a profile is taken, of
//! which there is one at a time, and stop when the one who asked goes away. Stacks are walked by
//! frame pointers, for which `.cargo/config.toml` has everything compiled. Leaves the unsafe part
//! to the crate `pprof`.

use std::{io, path::PathBuf, time::Duration};

use pprof::{Error as PprofError, ProfilerGuard, Report};

use super::format::Profile;
use crate::runtime::aside;

/// Samples a second of CPU time, as in Go.
const FREQUENCY: i32 = 100;
const PERIOD_NANOS: i64 = 1_000_000_000 / FREQUENCY as i64;

/// No profile was taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Somebody else takes one; Go's words.
    #[error("cpu profiling already in use")]
    Busy,
    /// There is nowhere to put samples that memory is not kept for.
    #[error(
        "no folder for temporary files can be written to: mount an emptyDir at /tmp, or set TMPDIR"
    )]
    NoFolder,
    /// The signals could not be set up, or the samples not read.
    #[error("{0}")]
    Failed(String),
}

impl From<PprofError> for Error {
    fn from(error: PprofError) -> Self {
        match error {
            PprofError::Running => Self::Busy,
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Takes a profile for this long; the file.
pub(super) async fn take(time: Duration) -> Result<Vec<u8>, Error> {
    find_folder()?;
    let guard = ProfilerGuard::new(FREQUENCY)?;
    tokio::time::sleep(time).await;
    // Finding the functions' names takes a while; the work must not stand still meanwhile.
    aside(move || guard.report().build().map(|report| encode(&report)))
        .await
        .map_err(Error::Failed)?
        .map_err(Error::from)
}

/// Sees to it that samples can be written somewhere: an image without /tmp has /dev/shm.
fn find_folder() -> Result<(), Error> {
    let folders = [tempfile::env::temp_dir(), PathBuf::from("/dev/shm")];
    let writable = |folder: &&PathBuf| -> bool {
        let file: io::Result<_> = tempfile::tempfile_in(folder);
        file.is_ok()
    };
    let folder = folders.iter().find(writable).ok_or(Error::NoFolder)?;
    // Told once is enough: an error says that it was told before.
    let _ = tempfile::env::override_temp_dir(folder);
    Ok(())
}

fn encode(report: &Report) -> Vec<u8> {
    let mut profile = Profile::new(&[("samples", "count"), ("cpu", "nanoseconds")], "");
    let began = report.timing.start_time.duration_since(std::time::UNIX_EPOCH);
    let times = [began.unwrap_or_default(), report.timing.duration];
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    profile.timed("cpu", "nanoseconds", PERIOD_NANOS, times.map(nanos));
    for (stack, count) in stacks(report) {
        profile.sample(&stack, &[count, count.saturating_mul(PERIOD_NANOS)]);
    }
    profile.encode()
}

/// The stacks by the names of their functions, the innermost first, and how often each was met.
fn stacks(report: &Report) -> std::collections::BTreeMap<Vec<String>, i64> {
    let mut stacks = std::collections::BTreeMap::new();
    for (frames, count) in &report.data {
        let stack = frames.frames.iter().flatten().map(pprof::Symbol::name).collect();
        *stacks.entry(stack).or_default() += i64::try_from(*count).unwrap_or(0);
    }
    stacks
}
