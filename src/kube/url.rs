//! Escapes texts for URLs, so that a text stays within its path segment.
//!
//! `.` and `..` cannot be escaped; [`Name`](crate::kube::Name) refuses them.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are escaped in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Escapes one path segment as Go's `net/url` does.
pub(crate) fn segment(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, SEGMENT).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_would_end_a_segment_are_escaped() {
        for (text, escaped) in [
            ("data-1.x_y~", "data-1.x_y~"),
            ("snap?pretty=1", "snap%3Fpretty=1"),
            ("a&b#c", "a&b%23c"),
            ("A b+c", "A%20b+c"),
            ("schnäppchen", "schn%C3%A4ppchen"),
            ("a/b%c\r\n", "a%2Fb%25c%0D%0A"),
        ] {
            assert_eq!(segment(text), escaped);
        }
    }
}
