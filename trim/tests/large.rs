//! What is large goes back when it is freed, also after as much was freed before.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod memory;

use std::hint::black_box;

use memory::anonymous;

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
