//! Escapes texts for URLs, so that a text stays within its path segment or query value.
//!
//! `.` and `..` cannot be escaped; [`Name`](crate::kube::Name) refuses them.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are escaped in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Characters that are escaped in a path segment.
const SEGMENT: &AsciiSet = &QUERY
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

/// Escapes one value of a query.
pub(crate) fn query(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, QUERY).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_would_end_a_segment_or_a_value_are_escaped() {
        for (text, as_segment, as_query) in [
            ("data-1.x_y~", "data-1.x_y~", "data-1.x_y~"),
            ("snap?pretty=1", "snap%3Fpretty=1", "snap%3Fpretty%3D1"),
            ("a&b#c", "a&b%23c", "a%26b%23c"),
            ("A b+c", "A%20b+c", "A%20b%2Bc"),
            ("schnäppchen", "schn%C3%A4ppchen", "schn%C3%A4ppchen"),
            ("a/b%c\r\n", "a%2Fb%25c%0D%0A", "a%2Fb%25c%0D%0A"),
        ] {
            assert_eq!((&*segment(text), &*query(text)), (as_segment, as_query));
        }
    }
}
