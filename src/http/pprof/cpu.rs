//! CPU profiles.
//!
//! A timer of CPU time interrupts the process a hundred times a second, and the interrupted stack is
//! recorded. Only one profile is taken at a time. Signals are sent only while it is taken, and stop if the
//! client disconnects. Stacks are walked by frame pointers, with which `.cargo/config.toml` compiles all
//! code. The unsafe part is in the crate `pprof`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use pprof::{Error as PprofError, ProfilerGuard, Report};
use tokio::sync::Semaphore;

use super::format::Profile;
use crate::runtime::spawn_blocking;

/// Samples a second of CPU time, as in Go.
const FREQUENCY: i32 = 100;
const PERIOD_NANOS: i64 = 1_000_000_000 / FREQUENCY as i64;

/// Why no profile was taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProfileError {
    /// Another profile is being taken; Go's text.
    #[error("cpu profiling already in use")]
    Busy,
    /// There is no directory for samples that exceed the memory buffer.
    #[error(
        "no folder for temporary files can be written to: mount an emptyDir at /tmp, or set TMPDIR"
    )]
    NoFolder,
    /// The signals could not be set up, or the samples could not be read.
    #[error("{0}")]
    Failed(String),
}

impl From<PprofError> for ProfileError {
    fn from(error: PprofError) -> Self {
        match error {
            // The previous profile was cancelled and has not been cleaned up yet.
            PprofError::Running => Self::Busy,
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Takes profiles, one at a time.
#[derive(Debug)]
pub(super) struct Sampler(Semaphore);

impl Default for Sampler {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl Sampler {
    /// Takes a profile for this time; returns the file.
    pub(super) async fn take(&self, time: Duration) -> Result<Vec<u8>, ProfileError> {
        let _turn = self.0.try_acquire().map_err(|_| ProfileError::Busy)?;
        sample(time).await
    }
}

async fn sample(time: Duration) -> Result<Vec<u8>, ProfileError> {
    // Starting, and looking up the names of functions, takes long: not on the runtime's thread.
    let guard = spawn_blocking(start).await.map_err(ProfileError::Failed)??;
    tokio::time::sleep(time).await;
    let report = spawn_blocking(move || guard.report().build().map(|report| encode(&report)));
    Ok(report.await.map_err(ProfileError::Failed)??)
}

fn start() -> Result<ProfilerGuard<'static>, ProfileError> {
    set_directory()?;
    Ok(ProfilerGuard::new(FREQUENCY)?)
}

/// Finds a directory for samples: an image without /tmp has /dev/shm.
fn set_directory() -> Result<(), ProfileError> {
    let folders = [tempfile::env::temp_dir(), PathBuf::from("/dev/shm")];
    let mut folders = folders.iter();
    let folder = folders.find(|folder| tempfile::tempfile_in(folder).is_ok());
    let folder = folder.ok_or(ProfileError::NoFolder)?;
    // The only error is that the directory is set already.
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

/// How often each stack was sampled, as names of functions, the innermost first.
fn stacks(report: &Report) -> BTreeMap<Vec<String>, i64> {
    let mut stacks = BTreeMap::new();
    for (frames, count) in &report.data {
        let stack = frames.frames.iter().flatten().map(pprof::Symbol::name).collect();
        *stacks.entry(stack).or_default() += i64::try_from(*count).unwrap_or(0);
    }
    stacks
}
