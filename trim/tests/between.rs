//! Whole pages go back that were freed between others that are kept.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod memory;

use memory::anonymous;

#[test]
fn what_was_freed_between_what_is_kept_goes_back() {
    let mut pieces: Vec<Box<[u8]>> = (0..40_000).map(|_| vec![1; 1_000].into()).collect();
    let kept = pieces.split_off(39_000);
    drop(pieces);
    let before = anonymous();
    trim::trim();
    let freed = before.saturating_sub(anonymous());
    assert!(freed > 30_000, "{freed} KiB of some 39,000");
    assert!(kept.iter().all(|piece| piece.iter().all(|byte| *byte == 1)));
}
