//! Gives freed memory back to the system.
//!
//! Owns the two declarations of foreign functions in this project, and is a crate of its own so that
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

/// From now on, each piece of a mebibyte or more has pages of its own, which go back to the system when it is freed. To
/// be called at the start. Does nothing where the C library is not glibc.
///
/// By default glibc raises that bound to the size of each larger piece that is freed, up to 32 MiB. Answers
/// of megabytes, which any user of the cluster can cause, then lie in the heap, which keeps the gaps that
/// they leave.
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

    /// What has pages of its own, in bytes.
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
