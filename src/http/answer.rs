//! Answers in the format of Go's HTTP server.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use crate::plain_text::in_html;

/// An answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// What a page may load: its own styles, which are in it.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// 200 with a body of this media type.
pub(super) fn ok(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    respond(StatusCode::OK, content_type, body)
}

/// The answer of Go's `http.Error`.
pub(super) fn failure(status: StatusCode, text: &str) -> Answer {
    let mut answer = respond(status, TEXT, format!("{text}\n"));
    let headers: &mut HeaderMap = answer.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Go's redirect for a path without its last slash, or with `..` or double slashes.
pub(super) fn redirected(to: &str) -> Answer {
    let to = in_ascii(to);
    let body = format!("<a href=\"{}\">Temporary Redirect</a>.\n\n", in_html(&to));
    let mut answer = respond(StatusCode::TEMPORARY_REDIRECT, "text/html; charset=utf-8", body);
    if let Ok(location) = HeaderValue::from_str(&to) {
        answer.headers_mut().insert(header::LOCATION, location);
    }
    answer
}

/// Escapes a text for a header. Browsers treat backslashes as slashes, and two of these start a host.
fn in_ascii(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'\\' | 0x80.. => format!("%{byte:02X}"),
        byte => char::from(byte).to_string(),
    };
    text.bytes().map(escaped).collect()
}

/// 200 with a page for browsers, which may load nothing else and keep nothing.
pub(super) fn page(content_type: &'static str, body: String) -> Answer {
    let mut answer = ok(content_type, body);
    let headers = [
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
