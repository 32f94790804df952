//! The memory of the process. Each test is a process of its own, as it is counted.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

use std::fs;

/// Anonymous memory of this process in KiB.
pub(crate) fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
