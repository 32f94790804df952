//! The path of a URL such as `aws://us-east-1a/vol-1`, parsed as Go does.
//!
//! Implements what Go's `net/url` rejects in a host and in a path, with its texts, which events
//! contain.

use std::{borrow::Cow, net::Ipv6Addr};

use percent_encoding::percent_decode_str;

use go_fmt::quote;

/// The decoded path of a URL that begins with a scheme and `//`.
///
/// # Errors
/// Go's parse error.
pub(crate) fn path(url: &str) -> Result<String, String> {
    parse(url).map_err(|why| format!("parse {}: {why}", quote(url)))
}

fn parse(url: &str) -> Result<String, String> {
    if url.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let (before_fragment, fragment) = url.split_once('#').unwrap_or((url, ""));
    let before_query = before_fragment.split('?').next().unwrap_or_default();
    let rest = before_query.split_once("//").map_or("", |(_, rest)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    check_host(host)?;
    check_user(user)?;
    check_escapes(path)?;
    check_escapes(fragment)?;
    let decoded = percent_decode_str(path).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| "the path is not UTF-8".to_owned())
}

fn check_host(host: &str) -> Result<(), String> {
    match host.rfind('[') {
        Some(0) => check_address(host),
        Some(_) => Err("invalid IP-literal".to_owned()),
        None => {
            check_port(host.get(host.rfind(':').unwrap_or(host.len())..).unwrap_or_default())?;
            check_name(host)
        }
    }
}

/// An IPv6 address in brackets, optionally with a zone and a port.
fn check_address(host: &str) -> Result<(), String> {
    let Some((address, port)) = host.rsplit_once(']') else {
        return Err("missing ']' in host".to_owned());
    };
    check_port(port)?;
    check_name(host)?;
    let address = address.trim_start_matches('[');
    let bare = address.split("%25").next().unwrap_or_default();
    match bare.parse::<Ipv6Addr>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("invalid host: ParseAddr({}): unable to parse IP", quote(address))),
    }
}

fn check_port(port: &str) -> Result<(), String> {
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_one = digits.bytes().all(|byte| byte.is_ascii_digit());
    if port.is_empty() || (is_one && port.starts_with(':')) {
        Ok(())
    } else {
        Err(format!("invalid port {} after host", quote(port)))
    }
}

/// In a host only non-ASCII bytes and `%` itself may be escaped.
fn check_name(host: &str) -> Result<(), String> {
    let is_odd = |c: char| {
        c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:[]<>\"".contains(c)
    };
    for (at, c) in host.char_indices() {
        if c == '%' {
            let escape = escape(host.get(at..).unwrap_or_default())?;
            if escape != "%25" && escape.as_bytes().get(1) < Some(&b'8') {
                return Err(format!("invalid URL escape {}", quote(&escape)));
            }
        } else if is_odd(c) {
            return Err(format!("invalid character {} in host name", quote(&c.to_string())));
        }
    }
    Ok(())
}

/// The part before an `@`.
fn check_user(user: &str) -> Result<(), String> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if user.chars().all(is_known) {
        check_escapes(user)
    } else {
        Err("net/url: invalid userinfo".to_owned())
    }
}

/// Every `%` must be followed by two hexadecimal digits.
fn check_escapes(text: &str) -> Result<(), String> {
    let escapes = text.match_indices('%');
    escapes
        .map(|(at, _)| escape(text.get(at..).unwrap_or_default()))
        .try_for_each(|it| it.map(drop))
}

/// The escape at the start of `text`.
fn escape(text: &str) -> Result<String, String> {
    let escape: String = text.chars().take(3).collect();
    let is_one = escape.len() == 3 && escape.bytes().skip(1).all(|byte| byte.is_ascii_hexdigit());
    if is_one { Ok(escape) } else { Err(format!("invalid URL escape {}", quote(&escape))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_follows_the_host() {
        let table = [
            ("aws://us-east-1a/vol-1", "/vol-1"),
            ("aws:///vol-1", "/vol-1"),
            ("aws://us-east-1a", ""),
            ("aws://zone:80/vol-1?query#fragment", "/vol-1"),
            ("aws://user@zone/vol%2d1", "/vol-1"),
            ("aws://zone/a/b", "/a/b"),
            ("aws://[::1]/vol-1", "/vol-1"),
            ("aws://[::1]:80/vol-1", "/vol-1"),
            ("aws://[fe80::1%25en0]/vol-1", "/vol-1"),
            ("aws://a:1:2/vol-1", "/vol-1"),
            ("aws://é%C3%A9%25/vol-1", "/vol-1"),
            ("aws://u%20:p@a@zone/vol-1", "/vol-1"),
            ("aws://zone/vol-1?%zz", "/vol-1"),
        ];
        for (url, expected) in table {
            assert_eq!(path(url).as_deref(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn invalid_urls_are_rejected_in_gos_words() {
        let table = [
            ("aws://us east/vol-1", r#"invalid character " " in host name"#),
            ("aws://zone:x/vol-1", r#"invalid port ":x" after host"#),
            ("aws://zone/vol-%zz", r#"invalid URL escape "%zz""#),
            ("aws://zone/vol-%1", r#"invalid URL escape "%1""#),
            ("aws://zone/vol\u{7}", "net/url: invalid control character in URL"),
            ("aws://zone/vol-1#%zz", r#"invalid URL escape "%zz""#),
            ("aws://us%20east/vol-1", r#"invalid URL escape "%20""#),
            ("aws://[x/vol-1", "missing ']' in host"),
            ("aws://x[y]/vol-1", "invalid IP-literal"),
            ("aws://[x]/vol-1", r#"invalid host: ParseAddr("x"): unable to parse IP"#),
            ("aws://[::1]x/vol-1", r#"invalid port "x" after host"#),
            ("aws://[fe80::1%en0]/vol-1", r#"invalid URL escape "%en""#),
            ("aws://u p@zone/vol-1", "net/url: invalid userinfo"),
            ("aws://u%zz@zone/vol-1", r#"invalid URL escape "%zz""#),
            ("aws://zone/vol-%ff", "the path is not UTF-8"),
        ];
        for (url, why) in table {
            assert_eq!(path(url), Err(format!("parse {}: {why}", quote(url))));
        }
    }
}
