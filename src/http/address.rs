//! Addresses in Go's format.

use std::io;

use tokio::net::TcpListener;

const MISSING_PORT: &str = "missing port in address";
const TOO_MANY_COLONS: &str = "too many colons in address";

/// The address to listen at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListenAddress {
    /// A name or an IP address; empty for all interfaces.
    host: String,
    /// 0 for any free port.
    port: u16,
}

/// Parses `host:port`, `:port` or `[host]:port`; the error is the message of Go's `net`.
pub(super) fn parse(text: &str) -> Result<ListenAddress, String> {
    let invalid = |why: &str| format!("listen tcp: address {text}: {why}");
    let (host, port) = text.rsplit_once(':').ok_or_else(|| invalid(MISSING_PORT))?;
    let host = if let Some(inner) = host.strip_prefix('[') {
        inner.strip_suffix(']').ok_or_else(|| invalid(bracket_fault(text)))?
    } else if host.contains(':') {
        return Err(invalid(TOO_MANY_COLONS));
    } else {
        host
    };
    Ok(ListenAddress { host: host.to_owned(), port: parse_port(port)? })
}

fn bracket_fault(text: &str) -> &'static str {
    match text.split_once(']') {
        None => "missing ']' in address",
        // `[::1]` and `[::1]x:80`
        Some((_, after)) if !after.contains(':') => MISSING_PORT,
        Some(_) => TOO_MANY_COLONS,
    }
}

/// Names of ports are not looked up.
fn parse_port(port: &str) -> Result<u16, String> {
    match port {
        "" => Ok(0),
        _ if port.bytes().all(|c| c.is_ascii_digit()) => {
            port.parse().map_err(|_| format!("listen tcp: address {port}: invalid port"))
        }
        _ => Err(format!("listen tcp: lookup tcp/{port}: unknown port")),
    }
}

impl ListenAddress {
    pub(super) async fn listen(&self) -> io::Result<TcpListener> {
        if !self.host.is_empty() {
            return TcpListener::bind((self.host.as_str(), self.port)).await;
        }
        // The IPv6 wildcard takes IPv4 as well, where the machine has IPv6 at all.
        match TcpListener::bind(("::", self.port)).await {
            Err(error) if lacks_ipv6(&error) => TcpListener::bind(("0.0.0.0", self.port)).await,
            bound => bound,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gos_forms_of_addresses() {
        for (text, host, port) in [
            (":8080", "", 8080),
            (":", "", 0),
            ("127.0.0.1:80", "127.0.0.1", 80),
            ("localhost:80", "localhost", 80),
            ("[::1]:80", "::1", 80),
            ("[::]:80", "::", 80),
        ] {
            assert_eq!(parse(text), Ok(ListenAddress { host: host.to_owned(), port }), "{text}");
        }
    }

    #[test]
    fn gos_words_for_what_is_no_address() {
        for (text, error) in [
            ("8080", "listen tcp: address 8080: missing port in address"),
            ("no:such:address", "listen tcp: address no:such:address: too many colons in address"),
            ("::1", "listen tcp: address ::1: too many colons in address"),
            ("[::1", "listen tcp: address [::1: missing ']' in address"),
            ("[::1]", "listen tcp: address [::1]: missing port in address"),
            (":70000", "listen tcp: address 70000: invalid port"),
            (":web", "listen tcp: lookup tcp/web: unknown port"),
        ] {
            assert_eq!(parse(text).unwrap_err(), error, "{text}");
        }
    }
}
