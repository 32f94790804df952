//! The CPU profile, where `go tool pprof` looks for it.
//!
//! A timer of CPU time interrupts the process a hundred times a second, and the interrupted stack is
//! recorded. Signals are sent only while a profile is taken, and stop if the client disconnects. Stacks are
//! walked by frame pointers, with which `.cargo/config.toml` compiles all code. That only one profile is
//! taken at a time, the unsafe part, and the file's format are the crate `pprof`'s.

use std::{path::PathBuf, time::Duration};

use http::StatusCode;
use pprof::{Error as PprofError, ProfilerGuard, protos::Message as _};

use super::routes::{Answer, failure, ok};
use crate::runtime::spawn_blocking;

/// The path of the profile.
pub(super) const PATH: &str = "/debug/pprof/profile";

/// Go's default length, and the longest, in seconds: shorter than a connection may last.
const DEFAULT_SECONDS: u64 = 30;
const MAX_SECONDS: u64 = 300;

/// Samples a second of CPU time, as in Go.
const FREQUENCY: i32 = 100;

/// Go's text where another profile is being taken.
const BUSY: &str = "cpu profiling already in use";

/// There is no directory for samples that exceed the memory buffer.
const NO_FOLDER: &str =
    "no folder for temporary files can be written to: mount an emptyDir at /tmp, or set TMPDIR";

/// Why no profile was taken, in words.
fn failed(error: PprofError) -> String {
    match error {
        PprofError::Running => BUSY.to_owned(),
        other => other.to_string(),
    }
}

/// Answers with a profile over the query's `seconds`.
pub(super) async fn answer(query: &str) -> Answer {
    let seconds = query.split('&').find_map(|pair| pair.strip_prefix("seconds=")?.parse().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_SECONDS);
    match take(Duration::from_secs(seconds.min(MAX_SECONDS))).await {
        Ok(profile) => ok("application/octet-stream", profile),
        Err(error) => failure(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("Could not enable CPU profiling: {error}"),
        ),
    }
}

async fn take(time: Duration) -> Result<Vec<u8>, String> {
    // Starting, and looking up the names of functions, takes long: not on the runtime's thread.
    let guard = spawn_blocking(start).await??;
    tokio::time::sleep(time).await;
    spawn_blocking(move || encode(&guard)).await?
}

fn start() -> Result<ProfilerGuard<'static>, String> {
    set_directory()?;
    ProfilerGuard::new(FREQUENCY).map_err(failed)
}

/// Finds a directory for samples: an image without /tmp has /dev/shm.
fn set_directory() -> Result<(), &'static str> {
    let folders = [tempfile::env::temp_dir(), PathBuf::from("/dev/shm")];
    let mut folders = folders.iter();
    let folder = folders.find(|folder| tempfile::tempfile_in(folder).is_ok());
    let folder = folder.ok_or(NO_FOLDER)?;
    // The only error is that the directory is set already.
    let _ = tempfile::env::override_temp_dir(folder);
    Ok(())
}

fn encode(guard: &ProfilerGuard<'_>) -> Result<Vec<u8>, String> {
    let profile = guard.report().build().and_then(|report| report.pprof()).map_err(failed)?;
    profile.write_to_bytes().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
