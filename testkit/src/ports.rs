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
