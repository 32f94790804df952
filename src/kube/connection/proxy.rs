//! Chooses the proxy for the API server from the environment.
//!
//! The rules are Go's (`golang.org/x/net/http/httpproxy`): `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`
//! in upper or lower case. Nothing that is printed holds a proxy's password.
//!
//! hyper-util's `client::proxy::matcher` follows curl instead of Go: it ignores ports in `NO_PROXY`, does
//! not exempt loopback addresses, lets `.example.com` match `example.com` itself, does not know
//! `*.example.com`, and treats a proxy with an invalid URL as none. Only networks and subdomains would be
//! left for it to match.

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../fuzz/bodies/no_proxy.rs"]
pub mod fuzz;

use std::{ffi::OsString, fmt, net::IpAddr};

use http::Uri;

/// The proxies that the environment names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    http: String,
    https: String,
    no: String,
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxies").field("no", &self.no).finish_non_exhaustive()
    }
}

/// An invalid URL of a proxy. Its text is not shown, because it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{from} is not the URL of a proxy: use http://, https:// or socks5:// with a host")]
pub struct BadProxy {
    /// The variable or field that holds the URL.
    pub from: &'static str,
}

impl Proxies {
    /// The proxies of the environment; `environment` looks up a variable.
    pub(crate) fn from_environment(environment: impl Fn(&str) -> Option<OsString>) -> Self {
        let first = |names: [&str; 2]| {
            let mut values = names.iter().filter_map(|name| environment(name));
            let value = values.find(|value| !value.is_empty()).unwrap_or_default();
            value.to_string_lossy().into_owned()
        };
        Self {
            http: first(["HTTP_PROXY", "http_proxy"]),
            https: first(["HTTPS_PROXY", "https_proxy"]),
            no: first(["NO_PROXY", "no_proxy"]),
        }
    }

    /// The proxy for requests to `server`; `None` if there is none or the server is exempt.
    ///
    /// # Errors
    /// If the proxy's URL is invalid.
    pub(crate) fn for_server(&self, server: &Uri) -> Result<Option<Uri>, BadProxy> {
        let (text, from) = match server.scheme_str() {
            Some("http") => (&self.http, "HTTP_PROXY"),
            _ => (&self.https, "HTTPS_PROXY"),
        };
        if text.is_empty() || is_exempt(&self.no, server) {
            return Ok(None);
        }
        parse(text, from).map(Some)
    }
}

/// Parses the URL of a proxy; the default scheme is `http`. Errors name `from`.
pub(crate) fn parse(text: &str, from: &'static str) -> Result<Uri, BadProxy> {
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url: Uri = whole.parse().map_err(|_| BadProxy { from })?;
    let is_supported = matches!(url.scheme_str(), Some("http" | "https" | "socks5" | "socks5h"));
    match url.host() {
        Some(host) if is_supported && !host.is_empty() => Ok(url),
        _ => Err(BadProxy { from }),
    }
}

/// The user name and the password in a proxy's URL, if there are any.
pub(crate) fn credentials(proxy: &Uri) -> Option<(String, String)> {
    let (userinfo, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    let (name, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    let decode = |text| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    Some((decode(name), decode(password)))
}

/// Whether `server` is connected to without a proxy: loopback addresses, and what `no_proxy` names.
fn is_exempt(no_proxy: &str, server: &Uri) -> bool {
    let default = if server.scheme_str() == Some("http") { 80 } else { 443 };
    let host = server.host().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let target =
        Target { host, address: host.parse().ok(), port: server.port_u16().unwrap_or(default) };
    let local = host == "localhost" || target.address.is_some_and(|address| address.is_loopback());
    local || no_proxy.split(',').any(|entry| target.matches(&entry.trim().to_lowercase()))
}

/// A server, to be matched with the entries of `NO_PROXY`.
struct Target<'a> {
    host: &'a str,
    address: Option<IpAddr>,
    port: u16,
}

impl Target<'_> {
    fn matches(&self, entry: &str) -> bool {
        if entry.is_empty() {
            return false;
        }
        if entry == "*" {
            return true;
        }
        if let Some(network) = network(entry) {
            return self.address.is_some_and(|address| is_in(address, network));
        }
        let (host, port) = split_port(entry);
        if port.is_some_and(|port| port.parse() != Ok(self.port)) {
            return false;
        }
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => self.address == Some(address),
            Err(_) => self.is_in_domain(host),
        }
    }

    /// Whether the host is `domain` or a subdomain of it; a `domain` with a leading `.` or `*.` matches
    /// only subdomains.
    fn is_in_domain(&self, domain: &str) -> bool {
        let suffix = domain.strip_prefix('*').unwrap_or(domain);
        match suffix.strip_prefix('.') {
            Some("") => false,
            Some(_) => self.host.ends_with(suffix),
            None if suffix.is_empty() || suffix != domain => false,
            None => self.host == suffix || self.host.ends_with(&format!(".{suffix}")),
        }
    }
}

/// Splits `host:port`; an IPv6 address has a port only if it is in brackets.
fn split_port(entry: &str) -> (&str, Option<&str>) {
    match entry.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (entry, None),
    }
}

/// Parses a network such as `10.0.0.0/8`.
fn network(entry: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = entry.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u32 = bits.parse().ok()?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

/// Whether the address begins with the bits of the network.
fn is_in(address: IpAddr, (network, bits): (IpAddr, u32)) -> bool {
    let equal_bits = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            (address.to_bits() ^ network.to_bits()).leading_zeros()
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            (address.to_bits() ^ network.to_bits()).leading_zeros()
        }
        _ => return false,
    };
    equal_bits >= bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        Proxies::from_environment(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        })
    }

    fn to(variables: &[(&str, &str)], server: &str) -> Result<Option<String>, BadProxy> {
        let proxy = proxies(variables).for_server(&server.parse().unwrap())?;
        Ok(proxy.map(|proxy| proxy.to_string()))
    }

    #[test]
    fn the_servers_scheme_selects_the_variable_and_upper_case_wins() {
        let https = [("HTTPS_PROXY", "http://a:1"), ("https_proxy", "http://b:1")];
        assert_eq!(to(&https, "https://s"), Ok(Some("http://a:1/".to_owned())));
        assert_eq!(to(&https, "http://s"), Ok(None));
        assert_eq!(to(&[("https_proxy", "b:1")], "https://s"), Ok(Some("http://b:1/".to_owned())));
        assert_eq!(to(&[("HTTP_PROXY", "c")], "http://s"), Ok(Some("http://c/".to_owned())));
        assert_eq!(to(&[("ALL_PROXY", "c")], "http://s"), Ok(None), "Go knows no such variable");
        let empty = [("HTTPS_PROXY", ""), ("https_proxy", "socks5://b")];
        assert_eq!(to(&empty, "https://s"), Ok(Some("socks5://b/".to_owned())));
    }

    #[test]
    fn servers_that_no_proxy_names_are_exempt() {
        for (no_proxy, server, exempt) in [
            ("", "https://s", false),
            ("*", "https://s", true),
            ("s", "https://s", true),
            (" a , s", "https://s", true),
            ("S.Example", "https://s.example", true),
            ("example.com", "https://a.example.com", true),
            ("example.com", "https://badexample.com", false),
            (".example.com", "https://a.example.com", true),
            (".example.com", "https://example.com", false),
            ("*.example.com", "https://a.example.com", true),
            ("*.example.com", "https://example.com", false),
            ("*example.com", "https://a.example.com", false),
            ("s:443", "https://s", true),
            ("s:6443", "https://s", false),
            ("s:6443", "https://s:6443", true),
            ("s:80", "http://s", true),
            ("10.0.0.0/8", "https://10.96.0.1", true),
            ("10.0.0.0/8", "https://11.0.0.1", false),
            ("0.0.0.0/0", "https://11.0.0.1", true),
            ("10.0.0.0/8", "https://ten.example", false),
            ("10.0.0.0/33", "https://10.0.0.1", false),
            ("10.96.0.1", "https://10.96.0.1", true),
            ("10.96.0.1:443", "https://10.96.0.1:6443", false),
            ("fd00::/8", "https://[fd00::1]", true),
            ("fd00::1", "https://[fd00::1]:6443", true),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
            ("::/0", "https://10.0.0.1", false),
            (".", "https://s", false),
            (",,", "https://s", false),
            ("", "https://localhost:6443", true),
            ("", "https://127.0.0.1", true),
            ("", "https://[::1]:6443", true),
        ] {
            assert_eq!(
                is_exempt(no_proxy, &server.parse().unwrap()),
                exempt,
                "{no_proxy} {server}"
            );
        }
    }

    #[test]
    fn an_invalid_proxy_is_an_error_without_its_text_and_only_if_it_is_needed() {
        for text in ["ftp://user:hush@p", "http://", "a b", "://x"] {
            let variables = [("HTTPS_PROXY", text), ("NO_PROXY", "exempt")];
            let error = to(&variables, "https://s").unwrap_err().to_string();
            assert!(error.starts_with("HTTPS_PROXY ") && !error.contains("hush"), "{error}");
            assert_eq!(to(&variables, "https://exempt"), Ok(None));
        }
    }

    #[test]
    fn credentials_are_decoded_and_never_printed() {
        let of = |text: &str| credentials(&text.parse().unwrap());
        let both = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        assert_eq!(of("http://u:p%40ss%3a@proxy:1"), both("u", "p@ss:"));
        assert_eq!(of("http://u@proxy"), both("u", ""));
        assert_eq!(of("http://proxy"), None);
        let shown = format!("{:?}", proxies(&[("HTTPS_PROXY", "http://u:hush@p")]));
        assert!(!shown.contains("hush"), "{shown}");
    }
}
