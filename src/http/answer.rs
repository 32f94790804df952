//! Answers as Go's HTTP server gives them.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use crate::plain_text::escaped;

/// What is sent back.
pub(super) type Answer = Response<Full<Bytes>>;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// 200 with a body of this type.
pub(super) fn ok(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    respond(StatusCode::OK, content_type, body)
}

/// As Go's `http.Error` answers.
pub(super) fn failure(status: StatusCode, text: &str) -> Answer {
    let mut answer = respond(status, TEXT, format!("{text}\n"));
    let headers: &mut HeaderMap = answer.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// As Go sends somebody on who left the last slash out, or went round about.
pub(super) fn redirected(to: &str) -> Answer {
    let to = in_ascii(to);
    let body = format!("<a href=\"{}\">Temporary Redirect</a>.\n\n", in_html(&to));
    let mut answer = respond(StatusCode::TEMPORARY_REDIRECT, "text/html; charset=utf-8", body);
    if let Ok(location) = HeaderValue::from_str(&to) {
        answer.headers_mut().insert(header::LOCATION, location);
    }
    answer
}

/// As a header's text may be. Browsers take a backslash for a slash, and two of these begin a host.
fn in_ascii(text: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'\\' | 0x80.. => format!("%{byte:02X}"),
        byte => char::from(byte).to_string(),
    };
    text.bytes().map(escaped).collect()
}

/// As Go's `htmlEscape`; what the asker wrote stays a link.
fn in_html(text: &str) -> String {
    let escapes = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&#34;"), ('\'', "&#39;")];
    escapes.iter().fold(escaped(text).to_string(), |text, (c, escape)| text.replace(*c, escape))
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
