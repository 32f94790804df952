//! Listening at addresses in Go's form, and its errors in Go's words.

use std::io;

use tokio::net::TcpListener;

/// Listens at `host:port`, or at `:port` of all interfaces.
pub(super) async fn listen(address: &str) -> io::Result<TcpListener> {
    if !address.starts_with(':') {
        return TcpListener::bind(address).await;
    }
    // The IPv6 wildcard takes IPv4 as well, where the machine has IPv6 at all.
    match TcpListener::bind(format!("[::]{address}")).await {
        Err(error) if lacks_ipv6(&error) => TcpListener::bind(format!("0.0.0.0{address}")).await,
        bound => bound,
    }
}

fn lacks_ipv6(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

/// Why listening failed, with Go's messages for common errors.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "bind: address already in use".to_owned(),
        io::ErrorKind::PermissionDenied => "bind: permission denied".to_owned(),
        io::ErrorKind::AddrNotAvailable => "bind: cannot assign requested address".to_owned(),
        _ => error.to_string(),
    }
}
