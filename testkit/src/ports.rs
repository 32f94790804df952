//! Free ports for programs whose command line names the port to listen on.
//!
//! Promises a port that nobody listens on, that this process has not handed out before, and that the
//! kernel gives to nobody by itself: neither to a connection nor to a listener that takes any port. So
//! it is still free when the program comes to listen on it, however long it takes to start.

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::BuildHasher as _,
    io,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    sync::{
        LazyLock,
        atomic::{AtomicU16, Ordering},
    },
};

/// Below it well-known services listen.
const LOWEST: u16 = 15_000;

/// The first of the ports that Linux assigns by itself, unless configured otherwise.
const USUAL_END: u16 = 32_768;

/// How many have been tried, from a start that differs for each process: others try as well.
static LOOKED_AT: LazyLock<AtomicU16> = LazyLock::new(|| {
    let [low, high, ..] = RandomState::new().hash_one(()).to_le_bytes();
    AtomicU16::new(u16::from_le_bytes([low, high]))
});

/// A port of 127.0.0.1 for a program that is yet to be started.
///
/// # Errors
/// Every one is taken.
pub fn free_port() -> io::Result<u16> {
    let range = ours();
    let taken =
        || io::Error::new(io::ErrorKind::AddrInUse, format!("no port of {range:?} is free"));
    range.clone().find_map(|_| untaken(next(&range))).ok_or_else(taken)
}

/// Those that the kernel leaves alone.
fn ours() -> Range<u16> {
    below(&fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default())
}

/// Those below the first of the `configured` range; if that leaves none, the usual ones.
fn below(configured: &str) -> Range<u16> {
    let first = configured.split_whitespace().next().and_then(|first| first.parse().ok());
    LOWEST..first.filter(|first| *first > LOWEST).unwrap_or(USUAL_END)
}

/// The next to be looked at; after the last one comes the first again.
fn next(range: &Range<u16>) -> u16 {
    range.start + LOOKED_AT.fetch_add(1, Ordering::Relaxed) % (range.end - range.start)
}

/// The port, if it can be listened on, also on all addresses.
fn untaken(port: u16) -> Option<u16> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok().map(|_| port)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_is_handed_out_once() {
        let ports: Vec<u16> = (0..200).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
        assert!(ports.iter().all(|port| ours().contains(port)), "{ports:?}");
    }

    #[test]
    fn none_is_one_that_the_kernel_gives_out() {
        assert_eq!(below("32768\t60999\n"), LOWEST..32_768);
        assert_eq!(below("20000 60999"), LOWEST..20_000);
        for without_any in ["1024 65535", "15000 65535", "", "odd"] {
            assert_eq!(below(without_any), LOWEST..USUAL_END, "{without_any}");
        }
    }

    #[test]
    fn one_that_somebody_listens_on_is_passed_over() {
        let port = free_port().unwrap();
        assert_eq!(untaken(port), Some(port));
        let _held = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(untaken(port), None);
    }

    #[test]
    fn after_the_last_comes_the_first() {
        let range = 15_000..15_003;
        let four: Vec<u16> = (0..4).map(|_| next(&range)).collect();
        assert!(four.iter().all(|port| range.contains(port)), "{four:?}");
    }
}
