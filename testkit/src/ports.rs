//! Free ports for programs whose command line names the port to listen on.

use std::{
    io,
    net::Ipv4Addr,
    sync::atomic::{AtomicU16, Ordering},
};

use tokio::net::TcpSocket;

/// Ports that Linux, unless configured otherwise, gives to nobody by itself, neither to a connection nor to a listener
/// that takes any port: they are still free when the program comes to listen on them.
const OURS: std::ops::Range<u16> = 15_000..32_000;

/// A port of 127.0.0.1 for a program that is yet to be started; this process has not handed it out before.
pub fn free_port() -> io::Result<u16> {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    // Each process begins elsewhere: others try as well.
    let first = u16::try_from(std::process::id() % 1000).unwrap_or_default() * 17;
    for _ in OURS {
        let tried = first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = OURS.start + tried % (OURS.end - OURS.start);
        if is_free(port)? {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no port of {OURS:?} is free")))
}

/// Whether nobody listens on the port. Not tried by listening: a process that another thread starts just then holds
/// the listener as well until it executes its program, and the port would be in use a moment longer.
fn is_free(port: u16) -> io::Result<bool> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    Ok(socket.bind((Ipv4Addr::UNSPECIFIED, port).into()).is_ok())
}
