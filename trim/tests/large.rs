//! What is large goes back when it is freed, also after as much was freed before. A process of its own, for its memory
//! is counted.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
// A test fails by panicking.
#![allow(clippy::unwrap_used)]

use std::{fs, hint::black_box};

/// Anonymous memory of this process in KiB.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn what_is_large_goes_back_whatever_small_is_kept_after_it() {
    trim::free_large_at_once();
    let before = anonymous();
    let mut kept = Vec::new();
    for _ in 0..8 {
        let large = black_box(vec![1_u8; 8 << 20]);
        kept.push(vec![1_u8; 8_000]);
        drop(large);
    }
    let left = anonymous().saturating_sub(before);
    assert!(left < 1_000, "{left} KiB are left");
    drop(kept);
}
