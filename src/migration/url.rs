//! The path of a URL such as `aws://us-east-1a/vol-1`, read as Go reads it.
//!
//! Owns what Go's `net/url` refuses in a host and in a path, in its words: they stand in events.

use percent_encoding::percent_decode_str;

use crate::go_text::quote;

/// The path of a URL that begins with a scheme and `//`, decoded.
///
/// # Errors
/// Why Go would not read the URL, in its words.
pub(super) fn path(url: &str) -> Result<String, String> {
    parse(url).map_err(|why| format!("parse {}: {why}", quote(url)))
}

fn parse(url: &str) -> Result<String, String> {
    if url.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let before_fragment = url.split('#').next().unwrap_or_default();
    let before_query = before_fragment.split('?').next().unwrap_or_default();
    let rest = before_query.split_once("//").map_or("", |(_, rest)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    check_host(authority.rsplit('@').next().unwrap_or_default())?;
    check_escapes(path)?;
    Ok(percent_decode_str(path).decode_utf8_lossy().into_owned())
}

fn check_host(host: &str) -> Result<(), String> {
    if let Some(port) = host.rfind(':').and_then(|colon| host.get(colon..))
        && !port.bytes().skip(1).all(|byte| byte.is_ascii_digit())
    {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    let is_odd = |c: &char| {
        c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:[]<>\"%".contains(*c)
    };
    check_escapes(host)?;
    match host.chars().find(is_odd) {
        Some(odd) => Err(format!("invalid character {} in host name", quote(&odd.to_string()))),
        None => Ok(()),
    }
}

/// Every `%` stands before two digits.
fn check_escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let after = text.get(at..).unwrap_or_default();
        let escape: String = after.chars().take(3).collect();
        let digits = escape.chars().skip(1);
        if escape.chars().count() < 3 || !digits.clone().all(|c| c.is_ascii_hexdigit()) {
            return Err(format!("invalid URL escape {}", quote(&escape)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_what_stands_behind_the_host() {
        let table = [
            ("aws://us-east-1a/vol-1", "/vol-1"),
            ("aws:///vol-1", "/vol-1"),
            ("aws://us-east-1a", ""),
            ("aws://zone:80/vol-1?query#fragment", "/vol-1"),
            ("aws://user@zone/vol%2d1", "/vol-1"),
            ("aws://zone/a/b", "/a/b"),
        ];
        for (url, expected) in table {
            assert_eq!(path(url).as_deref(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_in_its_words() {
        let table = [
            ("aws://us east/vol-1", r#"invalid character " " in host name"#),
            ("aws://zone:x/vol-1", r#"invalid port ":x" after host"#),
            ("aws://zone/vol-%zz", r#"invalid URL escape "%zz""#),
            ("aws://zone/vol-%1", r#"invalid URL escape "%1""#),
            ("aws://zone/vol\u{7}", "net/url: invalid control character in URL"),
        ];
        for (url, why) in table {
            assert_eq!(path(url), Err(format!("parse {}: {why}", quote(url))));
        }
    }
}
