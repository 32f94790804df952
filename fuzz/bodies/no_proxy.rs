//! The fuzz target for the proxies of the environment.

use std::net::IpAddr;

use http::Uri;

use super::{Proxies, credentials, is_exempt};
use crate::fuzzing::{lines, text};

/// Checks that a server is exempt if and only if one entry of `NO_PROXY` names it, and that the
/// environment's values are never printed.
///
/// # Panics
/// If that does not hold.
pub fn no_proxy(data: &[u8]) {
    let text = text(data);
    let [no_proxy, server, proxy] = lines(&text);
    let Ok(server) = server.parse::<Uri>() else { return };
    let exempt = is_exempt(no_proxy, &server);
    let host = host(&server);
    let address = host.parse::<IpAddr>().ok();
    let is_local = host == "localhost" || address.is_some_and(|address| address.is_loopback());
    let named = |entry: &str| names(&entry.trim().to_lowercase(), &host, address);
    assert!(!exempt || is_local || no_proxy.split(',').any(named), "{no_proxy:?} {server}");
    let within = |entry: &str| is_within(entry.trim(), address);
    assert!(exempt || !no_proxy.split(',').any(within), "{no_proxy:?} {server}");
    let alone = no_proxy.split(',').any(|entry| is_exempt(entry, &server));
    assert_eq!(exempt, alone || is_exempt("", &server), "{no_proxy:?} {server}");
    assert_eq!(is_local, is_exempt("", &server), "{server}");
    assert!(is_exempt("*", &server) && is_exempt(&format!("x,{no_proxy},*"), &server));
    let is_name =
        !host.is_empty() && !host.contains([',', '*', '/', ':']) && !host.starts_with('.');
    if is_name || address.is_some() {
        assert!(is_exempt(&host, &server), "{server} is not exempt by its own name {host:?}");
    }
    check_proxy(no_proxy, &server, proxy, exempt);
}

/// Checks which proxy is used, and that its password is not shown.
fn check_proxy(no_proxy: &str, server: &Uri, proxy: &str, exempt: bool) {
    let proxies = Proxies { http: proxy.into(), https: proxy.into(), no: no_proxy.into() };
    let used = proxies.for_server(server);
    let none = exempt || proxy.is_empty();
    assert_eq!(matches!(used, Ok(None)), none, "{used:?}");
    let shown = match &used {
        Err(why) => why.to_string(),
        Ok(_) => format!("{:?}", Proxies { no: String::new(), ..proxies }),
    };
    let password = proxy.rsplit_once('@').and_then(|(user, _)| user.rsplit_once(':'));
    let password = password.map(|(_, password)| password).filter(|it| it.len() > 12);
    assert!(password.is_none_or(|password| !shown.contains(password)), "{shown}");
    if let Ok(Some(used)) = used {
        assert!(used.host().is_some_and(|host| !host.is_empty()), "{used}");
        assert_eq!(
            credentials(&used).is_some(),
            used.authority().is_some_and(|it| it.as_str().contains('@'))
        );
    }
}

fn host(server: &Uri) -> String {
    let host = server.host().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    host.trim_start_matches('[').trim_end_matches(']').to_owned()
}

/// Whether the entry may name the host; a second implementation to compare with.
fn names(entry: &str, host: &str, address: Option<IpAddr>) -> bool {
    if entry == "*" {
        return true;
    }
    if entry.contains('/') && address.is_some() {
        return is_within(entry, address);
    }
    let without_port = entry.rsplit_once(':').map_or(entry, |(host, _)| host);
    [entry, without_port].into_iter().any(|entry| {
        let bare = entry.trim_start_matches('[').trim_end_matches(']');
        let same_address = address.is_some() && bare.parse().ok() == address;
        let domain = entry.trim_start_matches('*');
        let below = host.strip_suffix(domain.trim_start_matches('.'));
        let is_below = below.is_some_and(|below| below.is_empty() || below.ends_with('.'));
        same_address || !domain.is_empty() && is_below
    })
}

/// Whether the entry is a network that contains the address.
fn is_within(entry: &str, address: Option<IpAddr>) -> bool {
    let (Some((network, bits)), Some(address)) = (entry.split_once('/'), address) else {
        return false;
    };
    network.parse().is_ok_and(|network| share_prefix(network, address, bits.parse().ok()))
}

/// Whether the first `bits` bits of two addresses are equal.
fn share_prefix(a: IpAddr, b: IpAddr, bits: Option<usize>) -> bool {
    let octets = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (a, b, Some(bits)) = (octets(a), octets(b), bits) else { return false };
    let bit = |octets: &[u8], at: usize| octets.get(at / 8).map(|octet| octet >> (7 - at % 8) & 1);
    a.len() == b.len() && bits <= a.len() * 8 && (0..bits).all(|at| bit(&a, at) == bit(&b, at))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_server_is_exempt_if_an_entry_names_it_and_no_password_is_shown() {
        crate::fuzzing::run("no_proxy", 4000, super::no_proxy);
    }
}
