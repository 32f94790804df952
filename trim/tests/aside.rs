//! What glibc sets aside for a thread is given back as well.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod memory;

use memory::anonymous;

#[test]
fn pieces_that_are_set_aside_hold_no_pages() {
    // Of each small size a few, each far from the next.
    let size = |number: usize| 24 + 16 * (number % 64);
    let before = anonymous();
    let pieces = (0..7 * 64).map(|number| (vec![1_u8; size(number)], vec![1_u8; 8_000]));
    let (pieces, between): (Vec<_>, Vec<_>) = pieces.unzip();
    let most = anonymous() - before;
    drop(pieces);
    drop(between);
    trim::trim();
    let left = anonymous().saturating_sub(before);
    assert!(most > 3_500 && left < 1_000, "{left} KiB of {most} are left");
}
