//! Escapes texts for URLs.
//!
//! Promises that a text stays within the segment or the value it is put in. Leaves to `name` which
//! texts may be segments at all: `.` and `..` cannot be escaped.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but letters, digits and what is plain in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// All but what is plain in a path.
const SEGMENT: &AsciiSet = &QUERY
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// One segment of a path, escaped as Go's `net/url` escapes paths.
pub(crate) fn segment(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, SEGMENT).into()
}

/// One value of a query.
pub(crate) fn query(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, QUERY).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_segment_or_a_value_is_escaped() {
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
