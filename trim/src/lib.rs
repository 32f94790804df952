//! Gives freed memory back to the system.
//!
//! Owns the declarations of foreign functions in this project, which are two, and is a crate of its own so that
//! all others can forbid unsafe code. glibc keeps what a burst has freed: it only gives back what
//! lies at the end of its heap, and one long-lived object there keeps all before it. `malloc_trim`
//! also gives back whole free pages in between, but for those that glibc's own store of small pieces
//! holds, which is why those are exchanged. Promises that nothing that is in use moves or
//! changes. Leaves when to call them to others.

/// Gives all whole pages that are free back to the system. Takes a millisecond or so, in which no
/// thread can allocate. Does nothing where the C library is not glibc.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::trim();
}

/// From now on, memory of a mebibyte and more goes back to the system as soon as it is freed, and is in nobody's way
/// until then. To be called at the start. Does nothing where the C library is not glibc.
///
/// By itself, glibc takes no such memory for special any more once as much of it was freed: answers of megabytes, which
/// any user of the cluster can cause, then lie among what is small, and what they leave is kept.
pub fn free_large_at_once() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::free_large_at_once();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::{ffi::c_int, hint::black_box};

    /// Keeps nothing of what is free at the end of the heap.
    const NO_PADDING: usize = 0;

    /// Of each small size, glibc sets so many freed pieces aside for the thread that freed them ...
    const ASIDE: usize = 7;

    /// ... of so many sizes, sixteen bytes apart.
    const SIZES: usize = 64;

    /// What a piece of the smallest size holds.
    const SMALLEST: usize = 24;

    #[expect(unsafe_code, reason = "declares a foreign function; docs/architecture.md, Decisions")]
    // SAFETY: the declaration is that of malloc_trim(3). The function has no preconditions, takes
    // the allocator's locks itself (it is MT-safe), and touches only memory that nobody holds.
    unsafe extern "C" {
        safe fn malloc_trim(pad: usize) -> c_int;
    }

    /// `M_MMAP_THRESHOLD` of malloc.h: the least number of bytes that get pages of their own.
    const MMAP_THRESHOLD: c_int = -3;

    /// What is large, in bytes.
    const LARGE: c_int = 1 << 20;

    #[expect(unsafe_code, reason = "declares a foreign function; docs/architecture.md, Decisions")]
    // SAFETY: the declaration is that of mallopt(3). The function takes the allocator's locks itself (it is MT-safe),
    // and sets a number that only later allocations look at. It refuses numbers that it does not take.
    unsafe extern "C" {
        safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }

    pub(crate) fn free_large_at_once() {
        // Says whether the number was taken, as it is by every version.
        let _ = mallopt(MMAP_THRESHOLD, LARGE);
    }

    pub(crate) fn trim() {
        // What was freed last becomes whole first, so that others than it are set aside.
        release();
        exchange();
        release();
    }

    /// Sets other pieces aside than those which lie where the burst was: they count as in use, and
    /// each holds a page. What is allocated now fills gaps.
    fn exchange() {
        for size in (0..SIZES).map(|number| SMALLEST + 16 * number) {
            let pieces = || [(); ASIDE].map(|()| black_box(Vec::<u8>::with_capacity(size)));
            let (aside, others) = (pieces(), pieces());
            drop(others);
            drop(aside);
        }
    }

    fn release() {
        // Says whether anything was given back, which is of no consequence.
        let _ = malloc_trim(NO_PADDING);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    /// Anonymous memory of this process in KiB.
    fn anonymous() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn what_was_freed_between_what_is_kept_goes_back() {
        let mut pieces: Vec<Box<[u8]>> = (0..40_000).map(|_| vec![1; 1_000].into()).collect();
        let kept = pieces.split_off(39_000);
        drop(pieces);
        let before = anonymous();
        super::trim();
        let freed = before.saturating_sub(anonymous());
        assert!(freed > 30_000, "{freed} KiB of some 39,000");
        assert!(kept.iter().all(|piece| piece.iter().all(|byte| *byte == 1)));
    }
}
