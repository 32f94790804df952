//! Profiles of the running process, where `go tool pprof` looks for them.
//!
//! The paths are those of Go's `net/http/pprof`. Its profiles are: CPU time (`cpu`); tasks instead of
//! goroutines; memory as a whole, because allocations are not traced; threads by name. Profiles that are
//! empty in Go by default are always empty here. An execution trace is refused, and without the feature
//! `cpu-profiles` a CPU profile, too.
//!
//! Profiling costs nothing while no profile is taken: signals are sent only during one.

#[cfg(feature = "cpu-profiles")]
mod cpu;
mod format;

#[cfg(feature = "cpu-profiles")]
use std::time::Duration;
use std::{collections::BTreeMap, fs};

use http::{HeaderValue, StatusCode, header};

use self::format::Profile;
use super::answer::{Answer, TEXT, failure, ok};
use crate::runtime::Tasks;

/// The path above all profiles.
pub(super) const PATH: &str = "/debug/pprof/";

/// Go's default length of a CPU profile, in seconds.
#[cfg(feature = "cpu-profiles")]
const DEFAULT_SECONDS: u64 = 30;
/// The longest CPU profile, in seconds: shorter than a connection may last.
#[cfg(feature = "cpu-profiles")]
const MAX_SECONDS: u64 = 300;

const HTML: &str = "text/html; charset=utf-8";
const BINARY: &str = "application/octet-stream";

/// The profiles of one moment, with their descriptions.
const MOMENTS: [(&str, &str); 6] = [
    ("allocs", "resident memory as a whole: allocations are not traced"),
    ("block", "always empty: waiting is not traced"),
    ("goroutine", "tasks by name; ?debug=1 as text"),
    ("heap", "resident memory as a whole: allocations are not traced"),
    ("mutex", "always empty: locks are not traced"),
    ("threadcreate", "threads by name"),
];

/// Serves profiles.
pub(super) struct Profiles {
    tasks: Tasks,
    #[cfg(feature = "cpu-profiles")]
    cpu: cpu::Sampler,
}

impl Profiles {
    /// The profiles of the process with these tasks.
    pub(super) fn new(tasks: Tasks) -> Self {
        Self {
            tasks,
            #[cfg(feature = "cpu-profiles")]
            cpu: cpu::Sampler::default(),
        }
    }

    /// The answer for `name` below [`PATH`].
    pub(super) async fn answer(&self, name: &str, query: &str) -> Answer {
        match name {
            "" => ok(HTML, index()),
            "cmdline" => ok(TEXT, command_line()),
            "profile" => self.cpu_profile(query).await,
            // The profiles contain the names. With this answer pprof does not look them up.
            "symbol" => ok(TEXT, "num_symbols: 1\n"),
            "trace" => failure(
                StatusCode::NOT_IMPLEMENTED,
                "this program is not written in Go and has no execution trace; try profile or goroutine",
            ),
            _ => self.moment(name, query),
        }
    }

    #[cfg(not(feature = "cpu-profiles"))]
    async fn cpu_profile(&self, _query: &str) -> Answer {
        std::future::ready(failure(StatusCode::NOT_IMPLEMENTED, "built without CPU profiles")).await
    }

    #[cfg(feature = "cpu-profiles")]
    async fn cpu_profile(&self, query: &str) -> Answer {
        let seconds = match parameter(query, "seconds").unwrap_or(0) {
            0 => DEFAULT_SECONDS,
            seconds => seconds.min(MAX_SECONDS),
        };
        match self.cpu.take(Duration::from_secs(seconds)).await {
            Ok(profile) => download("profile", profile),
            Err(error) => failure(
                StatusCode::INTERNAL_SERVER_ERROR,
                &format!("Could not enable CPU profiling: {error}"),
            ),
        }
    }

    fn moment(&self, name: &str, query: &str) -> Answer {
        let Some(profile) = self.profile(name) else {
            return failure(StatusCode::NOT_FOUND, "Unknown profile");
        };
        if parameter(query, "debug").unwrap_or(0) > 0 {
            ok(TEXT, profile.text(name))
        } else {
            download(name, profile.encode())
        }
    }

    fn profile(&self, name: &str) -> Option<Profile> {
        let memory = [("inuse_space", "bytes")];
        let delays = [("contentions", "count"), ("delay", "nanoseconds")];
        Some(match name {
            "goroutine" => {
                counted(&[("goroutine", "count")], &self.tasks.alive(), "A goroutine is a task.")
            }
            "threadcreate" => counted(&[("threadcreate", "count")], &threads(), "Running threads."),
            "heap" | "allocs" => {
                let resident = BTreeMap::from([("resident memory", resident_bytes())]);
                counted(&memory, &resident, "Allocations are not traced: one sample is all memory.")
            }
            "block" | "mutex" => {
                counted::<&str>(&delays, &BTreeMap::new(), "Waiting is not traced.")
            }
            _ => return None,
        })
    }
}

/// A profile with one sample for each name.
fn counted<N: ToString>(
    kinds: &[(&str, &str)],
    counts: &BTreeMap<N, u64>,
    comment: &str,
) -> Profile {
    let mut profile = Profile::new(kinds, comment);
    for (name, count) in counts {
        profile.sample(&[name.to_string()], &[i64::try_from(*count).unwrap_or(i64::MAX)]);
    }
    profile
}

/// The query's parameter `name`, a number.
fn parameter(query: &str, name: &str) -> Option<u64> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value?.parse().ok()
}

fn download(name: &str, profile: Vec<u8>) -> Answer {
    let mut answer = ok(BINARY, profile);
    let name = format!("attachment; filename=\"{name}\"");
    if let Ok(name) = HeaderValue::from_str(&name) {
        answer.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    answer
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn index() -> String {
    let moments = MOMENTS.map(|(name, what)| format!("<li><a href=\"{name}\">{name}</a>: {what}"));
    format!(
        "<!doctype html><title>{PATH}</title>\n<h1>Profiles</h1>\n<ul>\n{}\n\
         <li><a href=\"profile\">profile</a>: CPU time over 30 seconds, or ?seconds=N\n\
         <li><a href=\"cmdline\">cmdline</a>: the command line\n</ul>\n",
        moments.join("\n")
    )
}

/// The arguments, with NUL between them.
fn command_line() -> Vec<u8> {
    let mut line = fs::read("/proc/self/cmdline").unwrap_or_default();
    line.pop_if(|last| *last == 0);
    line
}

/// The number of threads by name.
fn threads() -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for name in tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()) {
        *counts.entry(name.trim().to_owned()).or_default() += 1;
    }
    counts
}

fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    resident.unwrap_or(0).saturating_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests;
